"""The command line of the bridge: what it refuses before it touches anything, what it says and
in which form, and how it ends."""

from __future__ import annotations

import json
import logging
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

import click
import pytest
from click.testing import CliRunner
from confluent_kafka import Producer

from aolog import Writer
from aolog.cli import main as aolog_main
from bridge.cli import main
from bridge.cli import report as report_module
from bridge.cli.report import reporter
from bridge.config.names import check_servers
from bridge.errors import WrongSetting
from bridge.kafka.client import away
from bridge.kafka.embedded import EmbeddedBroker
from bridge.kafka.settings import check
from bridge.supervise.status import Overview, overview
from tests.aolog.conftest import commit, unchanged
from tests.bridge.brokers import NOWHERE
from tests.bridge.logs import fill, notes_of
from tests.bridge.processes import Start
from tests.waiting import wait_until


@pytest.fixture
def refuse(bridge: Start, log: Path) -> Callable[..., str]:
    """Runs it on the log with arguments that it refuses; what it says on standard error."""

    def refuse(*arguments: str, status: int = 2, path: Path | None = None) -> str:
        process = bridge("run", "--log", path or log, "--bootstrap-servers", NOWHERE, *arguments)
        assert process.end(30) == status
        assert process.lines == []
        return process.stderr

    return refuse


# --- settings -------------------------------------------------------------------------------


# Each of these would break a promise, or reach the client under another name.
FORBIDDEN = [
    "acks=0", "acks=1", "request.required.acks=1", "enable.idempotence=false",
    "enable.gapless.guarantee=false", "message.timeout.ms=5", "delivery.timeout.ms=5",
    "bootstrap.servers=x:1", "metadata.broker.list=x:1", "transactional.id=x",
    "test.mock.num.brokers=3", "error_cb=x", "stats_cb=x", "on_delivery=x", "logger=x",
]  # fmt: skip


@pytest.mark.parametrize("setting", FORBIDDEN)
def test_a_setting_that_the_promises_forbid_is_an_error(setting: str) -> None:
    key, _, value = setting.partition("=")
    with pytest.raises(WrongSetting) as caught:
        check({key: value})
    assert caught.value.exit_status == 2
    assert key in str(caught.value)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["-X", "acks=0"], "clusters.main.settings.acks: acks is set by the bridge"),
        (["-X", "nonsense=1"], 'No such configuration property: "nonsense"'),
        (["--commit-seconds", "0"], "commit_seconds: input should be greater than"),
        (["--cursor", "replay"], "cursor: the cursor 'replay' is reserved for replays"),
    ],
)
def test_a_value_that_the_configuration_refuses_is_refused_before_anything_is_written(
    log: Path, arguments: list[str], said: str
) -> None:
    fill(log, 1)
    command = ["run", "--log", str(log), "--bootstrap-servers", NOWHERE, *arguments]
    with unchanged(log):
        result = CliRunner().invoke(main, command)
    assert (result.exit_code, result.stdout) == (2, "")
    first, problem = result.stderr.splitlines()
    assert first == "aolog-bridge: wrong_configuration: the configuration: 1 problem"
    assert said in problem


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["frob"], "No such command 'frob'"),
        (["run", "--nope"], "No such option"),
        (["seek", "LOG"], "name the new position: --to PLACE"),
        (["replay"], "Missing argument 'LOG'"),
        (["run", "--log", "l"], "name the cluster: --bootstrap-servers"),
        (
            ["run", "--log", "l", "--topic", "a b"],
            "Invalid value for '--topic': 'a b' is not a valid",
        ),
        (["run", "--bootstrap-servers", "k:1"], "name a --log, a --root or a --config"),
        (["run", "--log", "l", "--root", "r"], "name a --log or a --root, not both"),
        (["status", "--log", "l", "--root", "r"], "name one of --http, --config, --log"),
    ],
    ids=" ".join,
)
def test_a_usage_error_has_its_code_and_with_json_the_same_fields_as_one_of_aolog(
    arguments: list[str], said: str
) -> None:
    words = CliRunner().invoke(main, arguments)
    assert (words.exit_code, words.stdout) == (2, "")
    assert words.stderr.startswith(f"aolog-bridge: usage: {said}")
    assert "; see aolog-bridge" in words.stderr
    found = CliRunner().invoke(main, [*arguments, "--json"])
    assert (found.exit_code, found.stdout) == (2, "")
    told = json.loads(found.stderr)["error"]
    of_aolog = json.loads(CliRunner().invoke(aolog_main, ["frob", "--json"]).stderr)["error"]
    assert told.keys() == of_aolog.keys()
    assert (told["code"], told["exit_status"]) == ("usage", 2)
    assert said in told["message"]
    assert told["hint"].startswith("see aolog-bridge")


@pytest.mark.parametrize(
    ("line", "hint"),
    [
        ("consume --topic t", "give it as an argument: aolog-bridge consume TOPIC; see"),
        ("status LOG", "name it with --log; see"),
        ("offsets t", "name it with --log or --topic; see"),
    ],
)
def test_a_usage_error_says_whether_a_value_is_an_argument_or_an_options(
    line: str, hint: str
) -> None:
    assert f"; {hint} aolog-bridge" in CliRunner().invoke(main, line.split()).stderr


@pytest.mark.parametrize(
    ("program", "line", "option"),
    [
        (main, "run --drain --log LOG --topic t --log OTHER", "--log"),
        (main, "status --log LOG --json --log LOG", "--log"),
        (main, "consume t --count 1 --count 2", "--count"),
        (aolog_main, "append LOG --slab-bytes 1M --slab-bytes=2M", "--slab-bytes"),
    ],
)
def test_an_option_of_one_value_is_refused_when_it_is_given_twice(
    program: click.Command, line: str, option: str, log: Path
) -> None:
    found = CliRunner().invoke(program, line.replace("LOG", str(log)).split())
    assert found.exit_code == 2
    assert f"{option} is given more than once: it takes one value" in found.stderr


def test_a_flag_may_be_repeated(log: Path) -> None:
    fill(log, 1)
    assert CliRunner().invoke(aolog_main, ["info", str(log), "--json", "--json"]).exit_code == 0


@pytest.mark.parametrize("flags", [[], ["--json"]], ids=["words", "json"])
def test_problems_of_a_configuration_are_printed_one_a_line_and_as_a_list(
    tmp_path: Path, flags: list[str]
) -> None:
    file = tmp_path / "bridge.toml"
    file.write_text("colour = 1\nport = 2\n")
    result = CliRunner().invoke(main, ["check-config", str(file), *flags])
    assert result.exit_code == 2
    if flags:
        told = json.loads(result.stderr)["error"]
        assert (told["code"], told["path"]) == ("wrong_configuration", str(file))
        assert len(told["problems"]) > 1
    else:
        first, *problems = result.stderr.splitlines()
        assert first.startswith(f"aolog-bridge: wrong_configuration: {file}: ")
        assert f": {len(problems)} problems" in first
        assert all(problem.startswith("  ") for problem in problems)


def test_a_tree_without_logs_is_drained_with_a_warning(bridge: Start, tmp_path: Path) -> None:
    process = bridge("run", "--root", tmp_path, "--drain", "--bootstrap-servers", NOWHERE)
    assert process.end() == 0
    assert f"there is no log below {tmp_path}" in process.stderr


@pytest.mark.parametrize(
    ("where", "number", "status"),
    [("--log", signal.SIGTERM, 143), ("--root", signal.SIGINT, 130)],
)
def test_a_drain_that_is_stopped_before_its_time_does_not_say_that_it_is_done(
    bridge: Start, tmp_path: Path, where: str, number: int, status: int
) -> None:
    """Else who removes what is drained removes what is not."""
    log = tmp_path / "root" / "log"
    fill(log, 10)
    path = log if where == "--log" else log.parent
    process = bridge(
        "run", where, path, "--topic", "t", "--drain", "--json", "--bootstrap-servers", NOWHERE
    )
    process.until(lambda s: s["lag_records"] == 10)
    process.popen.send_signal(number)
    assert process.end() == status
    assert process.statuses[-1]["acknowledged"] == 0


@pytest.mark.parametrize(
    "command",
    [
        ("run", "--log", ""),
        ("run", "--root", ""),
        ("status", "--log", ""),
        ("status", "--root", ""),
        ("pull", "--topic", "t", "--log", ""),
        ("pull", "--topic", "t", "--log", "l", "--root", ""),
        ("mirror", "--topic", "t", "--from-servers", "a:1", "--to-servers", "b:1", "--log", ""),
        ("ingest", "--root", ""),
        ("offsets", "--log", ""),
        ("cursors", ""),
        ("seek", "", "--to", "earliest"),
        ("replay", "", "--from", "earliest", "--to", "latest"),
    ],
    ids=lambda command: " ".join(command[:2]),
)
def test_an_empty_path_is_not_the_working_directory(
    command: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with Writer(".") as writer:  # what an unset variable would name
        writer.append(b"x")
    before = sorted(tmp_path.iterdir())
    result = CliRunner().invoke(main, command)
    assert (result.exit_code, result.stdout) == (2, "")
    assert "the path is empty" in result.stderr
    assert sorted(tmp_path.iterdir()) == before


@pytest.mark.parametrize(
    "servers", ["k:abc", "k:99999", "k:0", "http://k:9092", "k:1:2", "a:1,,b:2", "k k:1", "k/x", ""]
)
def test_what_names_no_broker_is_refused(servers: str) -> None:
    with pytest.raises(WrongSetting, match="is not HOST:PORT"):
        check_servers(servers)


@pytest.mark.parametrize(
    "servers", ["k", "k:1", "a:1,b:65535", "a:1, b:2", "ssl://k:9093", "SASL_SSL://k", "[::1]:9092"]
)
def test_what_the_client_takes_for_brokers_is_taken(servers: str) -> None:
    check_servers(servers)
    Producer({"bootstrap.servers": servers, "log_level": 0})


# --- logs -----------------------------------------------------------------------------------


@pytest.mark.parametrize("what", ["nothing", "a file", "other files"])
def test_what_is_not_a_log_is_refused_and_left_as_it_is(
    refuse: Callable[..., str], tmp_path: Path, what: str
) -> None:
    path = tmp_path / "x"
    if what == "a file":
        path.write_bytes(b"hello")
    elif what != "nothing":
        path.mkdir()
        if what == "other files":
            (path / "notes.txt").write_bytes(b"hello")
    before = sorted(map(str, tmp_path.rglob("x*")))
    said = refuse("--topic", "t", path=path)
    assert said.startswith("aolog-bridge: not_a_log: ")
    assert str(path) in said
    assert sorted(map(str, tmp_path.rglob("x*"))) == before


def test_a_damaged_cursor_is_refused_with_its_own_exit_status_and_kept(
    refuse: Callable[..., str], log: Path
) -> None:
    fill(log, 10)
    commit(log, 0, "bridge")
    cursor = log / "cursors/bridge.cursor"
    cursor.write_bytes(b"\xff" * 8192)
    assert "cursor_corrupt" in refuse("--topic", "t", status=3)
    assert cursor.read_bytes() == b"\xff" * 8192


# --- what it says ---------------------------------------------------------------------------


def test_with_json_every_line_of_output_is_one_status_of_a_known_shape(
    run: Start, log: Path
) -> None:
    fill(log, 500)
    process = run("--drain")
    assert process.end() == 0
    kinds = {
        "state": str, "logs": int, "queued": int, "running": int, "parked": int, "waiting": int,
        "standing": int, "acknowledged": int, "skipped": int, "outstanding": int,
        "lag_records": int, "lag_bytes": int, "lag_seconds": float, "lost_records": int,
        "gaps": int, "dead_lettered": int, "dropped": int, "error": str, "rate": float,
        "ahead_records": int, "reachable": bool, "held_back": int, "standing_lanes": int,
        "stalled": list, "filtered": int,
    }  # fmt: skip
    assert tuple(kinds) == Overview._fields
    assert len(process.lines) >= 2
    for line in process.lines:
        status = json.loads(line)
        assert list(status) == list(kinds)
        for name, kind in kinds.items():
            assert type(status[name]) is kind or status[name] is None
    last = process.statuses[-1]
    assert (last["state"], last["acknowledged"], last["lag_records"]) == ("stopped", 500, 0)
    assert last["outstanding"] == last["skipped"] == last["gaps"] == 0


def test_an_option_that_is_no_setting_does_not_repeat_what_may_be_a_secret(log: Path) -> None:
    for text in ("sasl.password hunter2", "=hunter2"):
        result = CliRunner().invoke(main, ["run", "--log", str(log), "-X", text])
        assert result.exit_code == 2
        assert "hunter2" not in result.output
        assert "is not KEY=VALUE" in result.output


def test_a_secret_that_others_can_read_is_warned_about(
    bridge: Start, log: Path, broker: EmbeddedBroker, tmp_path: Path
) -> None:
    """In the process list; not in a private file."""
    fill(log, 10)
    secret = tmp_path / "secret"
    secret.write_text("hunter2\n")

    def warnings(*options: str) -> list[str]:
        process = bridge(
            "run", "--log", log, "--topic", "t", "--bootstrap-servers", broker.bootstrap_servers,
            "--drain", *options,
        )  # fmt: skip  # a command line
        assert process.end() == 0
        assert "hunter2" not in process.stderr
        lines = map(json.loads, process.stderr.splitlines())
        return [line["message"] for line in lines if line["level"] == "warning"]

    (seen,) = warnings("-X", "sasl.password=hunter2")
    assert "sasl.password: the process list shows it; write KEY={file=PATH}" in seen
    secret.chmod(0o640)
    assert warnings("-X", f"sasl.password={{file={secret}}}") == []


def test_a_reader_of_its_output_that_goes_away_stops_it_in_good_order_and_quietly(
    broker: EmbeddedBroker, log: Path
) -> None:
    fill(log, 10)
    process = subprocess.Popen(
        [
            sys.executable, "-m", "bridge", "run", "--log", str(log), "--topic", "t", "--json",
            "--status-seconds", "0.05", "--bootstrap-servers", broker.bootstrap_servers,
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )  # fmt: skip  # a command line
    assert process.stdout is not None
    assert process.stderr is not None
    while json.loads(process.stdout.readline())["acknowledged"] < 10:
        pass
    process.stdout.close()
    assert process.wait(30) == 141
    assert process.stderr.read() == ""
    process.stderr.close()
    assert notes_of(log)["clean"]


@pytest.mark.parametrize("command", [("aolog", "--help"), ("bridge", "--help"), ("bridge", "demo")])
def test_a_pipe_that_nobody_reads_is_a_status_everywhere(command: tuple[str, str]) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        [sys.executable, "-m", *command],
        stdout=writing, stderr=subprocess.PIPE, check=False,
    )  # fmt: skip  # one call
    os.close(writing)
    assert (done.returncode, done.stderr) == (141, b"")


def never() -> None:
    raise AssertionError("standard output takes all")


STATUS = overview([])._replace(
    state="live", acknowledged=10, lag_records=5, lag_bytes=9, lag_seconds=0.1, rate=3.0,
)  # fmt: skip  # one value


def test_the_bridge_and_the_disk_report_an_idle_log_equally(
    bridge: Start, broker: EmbeddedBroker, log: Path
) -> None:
    """Also in the middle of a frame, where a lane stands."""
    with Writer(log, slab_bytes=9000, batch_bytes=1000) as writer:
        for number in range(500):
            writer.append(b"%d" % number * 20, topic=None if number == 103 else "t")
    process = bridge(
        "run", "--log", log, "--drain", "--json", "--bootstrap-servers", broker.bootstrap_servers,
    )  # fmt: skip  # a command line
    assert process.end() == 6
    shown = CliRunner().invoke(main, ["status", "--log", str(log), "--json"])
    (found,) = json.loads(shown.stdout)["logs"]
    names = ("lag_records", "lag_bytes")
    last = process.statuses[-1]
    assert [found[name] for name in names] == [last[name] for name in names]
    assert (found["lag_records"], last["ahead_records"]) == (397, 396)
    assert found["lag_bytes"] > 9000


def test_an_error_is_logged_when_it_comes_and_then_once_a_minute(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.INFO)
    now_s = 1000.0
    monkeypatch.setattr(report_module.time, "monotonic", lambda: now_s)
    with reporter(as_json=False, stop=never) as say:
        for _ in range(150):
            away = (
                f"k{int(now_s) % 2}:9: connection refused; trying again" if now_s > 1000 else None
            )
            say(STATUS._replace(state="connecting", reachable=False, error=away))
            now_s += 1.0
    said = [record.message for record in caplog.records]
    assert [("refused" in line) for line in said] == [False, True, True, True]


def test_an_error_distinguishes_advertised_brokers_from_configured_ones() -> None:
    said = "10.0.0.1:9092/7: Connect to ipv4#10.0.0.1:9092 failed: Connection refused"
    assert away(said, "kafka:9092, 10.0.0.1:9092") == "10.0.0.1:9092: connection refused"
    assert "advertises this address" in away(said, "kafka:9092")
    assert "advertises" not in away(said.replace("/7", "/bootstrap"), "kafka:9092")
    assert away("1/2 brokers are down", "kafka:9092") == "1/2 brokers are down"


def test_a_cluster_that_cannot_be_reached_is_named_at_once_with_the_reason(
    bridge: Start, log: Path
) -> None:
    fill(log, 0)
    process = bridge(
        "run", "--log", log, "--topic", "t", "--bootstrap-servers", f"{NOWHERE},localhost:1",
        "--status-seconds", "0.05", "-v",
    )  # fmt: skip  # a command line
    refused = re.compile(r"connecting: .*(127\.0\.0\.1|localhost):1: connection refused; trying")
    wait_until(lambda: refused.search(process.stderr))
    assert process.terminate() == 0
    lines = [json.loads(line) for line in process.stderr.splitlines()]
    named = next(line for line in lines if refused.search(line["message"]))
    # From the client's first failure, by the bridge's own clock: without the start of an interpreter.
    took = datetime.fromisoformat(named["time"]) - datetime.fromisoformat(lines[0]["time"])
    assert took.total_seconds() < 10
    told = [line["message"] for line in lines if line["logger"] == "bridge"]
    assert not [text for text in told if "brokers are down" in text or "get metadata" in text]


# --- the rest -------------------------------------------------------------------------------


def test_a_broker_to_try_things_out_serves_other_processes_and_prints_what_arrives(
    bridge: Start, log: Path
) -> None:
    broker = bridge("broker", "--topic", "t", "--topic", "u")
    wait_until(lambda: broker.lines, seconds=30)
    (servers,) = broker.lines
    assert "in memory" in broker.stderr
    with Writer(log) as writer:
        writer.append(b"hello", key=b"k")
        writer.append(None)
        writer.append(b"two\nlines \xff")
    forwarded = bridge(
        "run", "--log", log, "--topic", "t", "--drain", "--bootstrap-servers", servers.strip()
    )
    assert forwarded.end(30) == 0
    wait_until(lambda: len(broker.lines) == 4, seconds=30)
    keyed, null, odd = sorted(broker.lines[1:], key=lambda line: ("k  " not in line, line))
    again = bridge(
        "replay", log, "--from", "earliest", "--to", "cursor:bridge", "--topic", "u",
        "--bootstrap-servers", servers.strip(),
    )  # fmt: skip  # a command line reads best as one
    assert again.end(30) == 0
    wait_until(lambda: sum(line.startswith("u/") for line in broker.lines) == 3, seconds=30)
    assert re.fullmatch(r"t/\d@\d  k  hello\n", keyed)
    assert re.fullmatch(r"t/\d@\d  -  -\n", null)
    assert re.fullmatch(r"t/\d@\d  -  two\\nlines \\xff\n", odd)
    broker.popen.send_signal(signal.SIGINT)
    assert broker.end(30) == 130


@pytest.mark.parametrize("command", ["run", "replay", "seek"])
def test_help_lists_every_option_once_under_a_heading(command: str) -> None:
    shown = CliRunner().invoke(main, [command, "--help"]).stdout
    options, _, rest = shown.partition("Other options:\n")
    assert rest.split()[:2] == ["-h,", "--help"]
    assert "Options:" not in options
    of = main.commands[command]
    for parameter in of.get_params(click.Context(of)):
        if isinstance(parameter, click.Option) and "--help" not in parameter.opts:
            option = rf"^  (-\w, )?{parameter.opts[-1]}(?![-\w])"
            assert len(re.findall(option, options, re.MULTILINE)) == 1, parameter.name


@pytest.mark.parametrize("command", sorted(main.commands))
def test_every_command_has_help_with_an_example(command: str) -> None:
    shown = CliRunner().invoke(main, [command, "--help"])
    assert (shown.exit_code, shown.stderr) == (0, "")
    assert "Example" in shown.stdout
    assert command in CliRunner().invoke(main, ["--help"]).stdout.split()


@pytest.mark.skipif(
    os.geteuid() == 0 and shutil.which("setpriv") is None, reason="root may read everything"
)
def test_a_log_that_may_not_be_read_is_reported_as_such(log: Path) -> None:
    fill(log, 1)
    log.chmod(0)
    rights = ["setpriv", "--bounding-set", "-dac_override,-dac_read_search"]
    program = [*(rights if os.geteuid() == 0 else ()), sys.executable, "-m", "bridge"]

    def said(*arguments: str) -> tuple[int, str]:
        done = subprocess.run(
            [*program, *arguments], capture_output=True, text=True, timeout=60, check=False
        )
        return done.returncode, done.stdout + done.stderr

    assert said("status", "--root", str(log.parent)) == (
        0, f"there is no log\n{log.name} cannot be listed: Permission denied\n",
    )  # fmt: skip  # one value
    for command in ("status", "run --topic t --bootstrap-servers 127.0.0.1:1"):
        status, text = said(*command.split(), "--log", str(log))
        assert (status, "aolog-bridge: permission_denied: " in text) == (4, True)
    log.chmod(0o700)


def test_a_topic_that_the_cluster_creates_at_once_is_no_problem(
    bridge: Start, broker: EmbeddedBroker, log: Path
) -> None:
    fill(log, 10)
    servers = ("--bootstrap-servers", broker.bootstrap_servers)
    first = bridge("run", "--log", log, "--topic", "created", "--drain", *servers)
    assert first.end() == 0
    assert "the cluster has created it" in first.stderr
    assert "there is no topic" not in first.stderr
    waits = bridge(
        "run", "--log", log, "--topic", "absent", "--cursor", "c", "--create-topics", "never", *servers,
    )  # fmt: skip  # a command line
    wait_until(lambda: "records for absent wait: there is no topic" in waits.stderr)
    assert waits.terminate() == 0
    assert waits.stderr.count("records for absent wait") == 1
