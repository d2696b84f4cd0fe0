"""What a running bridge says of itself over HTTP, to Prometheus, and to `status`. 15 s: commands
are started."""

from __future__ import annotations

import http.server
import json
import logging
import re
import threading
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from aolog import Lag, Reader
from aolog.errors import UsageError
from aolog.storage.storage import Storage
from bridge.config.names import address_of
from bridge.deliver.log_lines import naming
from bridge.kafka.embedded import EmbeddedBroker
from bridge.kafka.stalls import Stall
from bridge.operate.access import Access
from bridge.operate.endpoint import serving
from bridge.operate.log_lines import _Json, _Text
from bridge.operate.monitor import Monitor
from bridge.supervise.status import STUCK_S, overview, state_of
from bridge.supervise.turns import Phase
from tests.aolog.commands import on_terminal
from tests.bridge.brokers import NOWHERE
from tests.bridge.logs import fill
from tests.bridge.operate.endpoints import LOG, STATUS, TOKEN
from tests.bridge.operate.listening import get, where
from tests.bridge.processes import Process, Start, printed
from tests.waiting import wait_until

PARKED = LOG._replace(log="p", phase=Phase.PARKED, state="live", silent_s=None)
STANDING = LOG._replace(log="s", phase=Phase.STANDING, state="blocked", silent_s=None, error="no")


# --- states ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "state"),
    [
        ({}, "draining"),
        ({"lag_records": 1}, "live"),  # all that is left is under way
        ({"lag_records": None, "lag_seconds": None, "lag_bytes": 0}, "live"),
        ({"lag_records": None, "lag_seconds": None}, "draining"),
        ({"lag_seconds": 0.2}, "live"),
        ({"reachable": False}, "connecting"),
        ({"state": "connecting"}, "connecting"),
        ({"state": "connecting", "reachable": False, "lag_bytes": 0}, "connecting"),
        ({"state": "backing_off"}, "blocked"),
        ({"state": "backing_off", "reachable": False}, "connecting"),
        ({"state": "blocked"}, "blocked"),
        ({"standing": 1, "lag_seconds": 0.2}, "blocked"),
        ({"state": "stopped", "reachable": False}, "stopped"),
    ],
)
def test_the_state_of_a_status(changes: dict[str, Any], state: str) -> None:
    assert state_of(STATUS._replace(**changes)) == state


def test_all_together_are_in_the_worst_state_and_unknown_lag_stays_so() -> None:
    assert overview([LOG, PARKED]).state == "draining"
    assert overview([PARKED]).state == "live"
    assert overview([]).state == "live"
    assert overview([LOG._replace(state="stopped")]).state == "stopped"
    whole = overview([LOG, PARKED, STANDING])
    assert (whole.state, whole.logs, whole.standing, whole.error) == ("blocked", 1, 1, "s: no")
    assert (whole.acknowledged, whole.lag_records) == (30, 15)
    unknown = LOG._replace(status=STATUS._replace(lag_records=None))
    assert overview([LOG, unknown]).lag_records is None
    assert overview([LOG, LOG._replace(status=None)]).lag_bytes is None
    assert overview([LOG, PARKED._replace(status=None, lag=Lag(0, 0, 0.0))]).lag_bytes == 90


# --- the endpoint ---------------------------------------------------------------------------


def test_health_and_readiness_follow_the_last_statuses() -> None:
    logs = [LOG, PARKED]
    monitor = Monitor(lambda: list(logs), Storage())
    with serving(Access(":0"), monitor) as at:
        assert at[0] == "127.0.0.1"
        assert get(at, "/healthz") == (200, b'{"ok": true, "stuck": []}')
        assert get(at, "/readyz")[0] == 200
        logs.append(STANDING)
        monitor.sample()
        status, body = get(at, "/readyz")
        assert status == 503
        assert json.loads(body)["not_ready"] == [
            {"log": "s", "cluster": "main", "state": "blocked", "error": "no"}
        ]
        assert get(at, "/healthz")[0] == 200  # it stands, and the process is well
        logs[0] = LOG._replace(silent_s=STUCK_S + 1)
        monitor.sample()
        status, body = get(at, "/healthz")
        assert (status, json.loads(body)["stuck"][0]["log"]) == (503, "a")
        logs[:] = [LOG._replace(state="connecting")]
        monitor.sample()
        assert get(at, "/readyz")[0] == 503
        assert get(at, "/healthz")[0] == 200


def test_a_stalled_lane_blocks_its_log_and_the_whole_process() -> None:
    stall = Stall(topic="t", partition=3, leader="b1:9092, node 1", seconds=12.5)
    stalled = STATUS._replace(stalled=(stall,))
    log = LOG._replace(log="s", status=stalled, state=state_of(stalled))
    with serving(Access(":0"), Monitor(lambda: [log], Storage())) as at:
        found = json.loads(get(at, "/status")[1])
    (row,) = found["logs"]
    assert (row["state"], row["stalled"]) == ("blocked", [stall])
    assert (found["overview"]["state"], found["overview"]["stalled"]) == ("blocked", [stall])


@pytest.mark.parametrize(
    "text", ["", "9100", "host", "h:x", "h:-1", "h:70000", "h:", "h:" + "1" * 5000, "x\0y:80"]
)
def test_an_invalid_address_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="is not HOST:PORT"):
        address_of(text)


def test_a_log_line_is_one_line_whatever_a_name_holds() -> None:
    record = logging.LogRecord(
        "bridge", logging.INFO, "", 0, "%s is gone", ("new\nli\udcffne",), None
    )
    text = _Text("%(levelname)s %(message)s")
    assert text.format(record) == "INFO new\\nli\\xffne is gone"
    with naming("o\nther"):
        assert text.format(record).endswith(" is gone [o\\nther]")
    line = _Json().format(record)
    assert line.isascii()
    assert "\n" not in line
    assert json.loads(line)["message"] == "new\nli\udcffne is gone"


# --- a process ------------------------------------------------------------------------------


@pytest.fixture
def config(broker: EmbeddedBroker, tmp_path: Path) -> Path:
    """Of a bridge that looks often at the tree `root`, and answers at a free port."""
    path = tmp_path / "bridge.toml"
    path.write_text(
        f'root = "root"\ntopic = "t"\nhttp = ":0"\nstatus_seconds = 0.05\nrescan_seconds = 0.2\n'
        f'[clusters.main]\nbootstrap_servers = "{broker.bootstrap_servers}"\n'
    )
    return path


def test_a_process_is_seen_from_outside_as_it_runs(
    bridge: Start, config: Path, tmp_path: Path
) -> None:
    fill(tmp_path / "root/a", 100)
    process = bridge("run", "--config", config, "--json", "--log-format", "json")
    at = where(process)
    process.until(lambda s: s["acknowledged"] == 100 and s["state"] == "live")
    wait_until(lambda: get(at, "/readyz")[0] == 200)
    assert get(at, "/healthz")[0] == 200
    counted = 'aolog_bridge_records_acknowledged_total{cluster="main",log="a"} 100.0'
    wait_until(lambda: counted in get(at, "/metrics")[1].decode())  # sampled each second
    found = json.loads(printed(bridge("status", "--http", f"{at[0]}:{at[1]}", "--json")))
    assert (found["overview"]["acknowledged"], found["logs"][0]["log"]) == (100, "a")
    shown = printed(bridge("status", "--http", f"{at[0]}:{at[1]}"))
    assert shown.startswith("live: 1 log, 100 acknowledged, 0 pending, ")
    assert process.terminate() == 0
    lines = [json.loads(line) for line in process.stderr.splitlines()]  # one event a line
    assert {"log_found", "listening"} <= {line.get("event") for line in lines}
    assert process.statuses[-1]["state"] == "stopped"


def test_a_bridge_that_was_killed_counts_as_an_abnormal_restart_and_one_that_stopped_does_not(
    run: Start, log: Path
) -> None:
    def cut_off(process: Process, acknowledged: int) -> tuple[bool, int, str]:
        at = where(process)
        process.until(lambda s: s["acknowledged"] == acknowledged and s["state"] == "live")
        wait_until(lambda: b'"acknowledged": %d' % acknowledged in get(at, "/status")[1])
        with urllib.request.urlopen(f"http://{at[0]}:{at[1]}/events", timeout=10) as stream:
            while (line := stream.readline()) and not line.startswith(b"data: {"):
                pass
        restarts = json.loads(line.removeprefix(b"data: "))["summary"]["restarts"]
        metric = re.search(r"aolog_bridge_cut_off\{.*\} (\S+)", get(at, "/metrics")[1].decode())
        (row,) = json.loads(get(at, "/status")[1])["logs"]
        assert metric is not None
        return row["cut_off"], restarts, metric[1]

    fill(log, 10)
    first = run("--http", ":0")
    assert cut_off(first, 10) == (False, 0, "0.0")
    first.kill()
    second = run("--http", ":0")
    assert cut_off(second, 0) == (True, 1, "1.0")
    assert second.terminate() == 0
    third = run("--http", ":0")
    assert cut_off(third, 0) == (False, 0, "0.0")
    assert third.terminate() == 0


def test_a_missing_root_is_reported_and_not_ready_until_it_exists(
    bridge: Start, config: Path, tmp_path: Path
) -> None:
    root = tmp_path / "root"
    process = bridge("run", "--config", config, "--json")
    at = where(process)
    said = f"no such directory: {root}; waiting for it"
    process.until(lambda s: (s["state"], s["error"]) == ("blocked", said))
    assert process.stderr.count(said) == 1
    code, body = get(at, "/readyz")
    assert (code, json.loads(body)["error"]) == (503, said)
    shown = printed(bridge("status", "--http", f"{at[0]}:{at[1]}"))
    assert shown.startswith(f"blocked: 0 logs, 0 acknowledged, 0 pending, 0/s\n{said}\n")
    assert get(at, "/healthz")[0] == 200
    fill(root / "a", 10)
    process.until(lambda s: (s["state"], s["acknowledged"]) == ("live", 10))
    wait_until(lambda: get(at, "/readyz")[0] == 200)
    assert process.terminate() == 0


@pytest.mark.parametrize("what", ["nothing", "a file", "an empty directory"])
def test_status_of_a_root_without_logs_says_so(bridge: Start, tmp_path: Path, what: str) -> None:
    root = tmp_path / "root"
    if what == "a file":
        root.write_bytes(b"")
    elif what != "nothing":
        root.mkdir()
    process = bridge("status", "--root", root)
    if what == "an empty directory":
        assert printed(process) == "there is no log\n"
        return
    assert process.end(30) == 2
    why = "no such directory" if what == "nothing" else "Not a directory"
    assert process.stderr.startswith(f"aolog-bridge: not_a_log: {root}: {why}; ")


def test_status_from_the_disk(bridge: Start, log: Path) -> None:
    fill(log, 10)
    with Reader(log, cursor="bridge") as reader:
        reader.read()
        reader.commit()
        held = printed(bridge("status", "--log", log, "--json"))
    (shown,) = json.loads(held)["logs"]
    assert shown["state"] in {"running", "unknown"}  # where the kernel's numbers of files differ
    assert shown["lag_records"] == 9
    (shown,) = json.loads(printed(bridge("status", "--root", log.parent, "--json")))["logs"]
    assert (shown["log"], shown["lag_records"]) == ("log", 9)
    assert shown["state"] in {"stopped", "unknown"}
    never = printed(bridge("status", "--log", log, "--cursor", "other"))
    assert "stopped" in never.splitlines()[1]


def test_status_reports_that_no_bridge_answers(bridge: Start) -> None:
    process = bridge("status", "--http", NOWHERE, "--json")
    assert process.end(30) == 6
    assert json.loads(process.stderr)["error"]["code"] == "not_running"
    for arguments in ([], ["--http", ":1", "--log", "x"]):
        assert bridge("status", *arguments).end(30) == 2


def test_status_rejects_the_answer_of_another_program(bridge: Start) -> None:
    class Other(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"<html>")

    with http.server.HTTPServer(("127.0.0.1", 0), Other) as server:
        threading.Thread(target=server.handle_request, daemon=True).start()
        process = bridge("status", "--http", f"127.0.0.1:{server.server_port}")
        assert process.end(30) == 6
    assert "another program answers there" in process.stderr


def test_status_says_that_a_bridge_refuses_it_and_sends_the_configuration_s_token(
    bridge: Start, config: Path, tmp_path: Path
) -> None:
    (tmp_path / "token").write_text(f"{TOKEN}\n")
    access = Access("127.0.0.1:0", TOKEN, reads_need_it=True)  # as on another interface
    with serving(access, Monitor(lambda: [LOG], Storage())) as (host, port):
        refused = bridge("status", "--http", f"{host}:{port}")
        assert refused.end(30) == 6
        assert "the token is missing or wrong" in refused.stderr
        assert "no bridge answers" not in refused.stderr
        text = config.read_text().replace('":0"', f'"{host}:{port}"')
        config.write_text('http_token = {file = "token"}\n' + text)
        assert printed(bridge("status", "--config", config)).startswith("draining: 1 log")


def test_secrets_are_in_no_answer_and_no_line(bridge: Start, config: Path, tmp_path: Path) -> None:
    fill(tmp_path / "root/a", 1)
    (tmp_path / "secret").write_text("hunter2\n")
    with config.open("a") as more:
        more.write('settings."sasl.password" = {file = "secret"}\n')
        more.write('settings."ssl.key.password" = "hunter2"\n')
    process = bridge("run", "--config", config, "--json", "--verbose")
    at = where(process)
    process.until(lambda s: s["acknowledged"] == 1)
    answers = b"".join(get(at, path)[1] for path in ("/metrics", "/status", "/readyz", "/healthz"))
    assert process.terminate() == 0
    assert b"hunter2" not in answers
    assert "hunter2" not in process.stderr + "".join(process.lines)


def test_a_running_log_is_paused_resumed_and_shown_in_the_browser_s_words(
    bridge: Start, broker: EmbeddedBroker, tmp_path: Path
) -> None:
    token = "0123456789abcdef"
    (tmp_path / "token").write_text(token + "\n")
    (tmp_path / "token").chmod(0o600)
    fill(tmp_path / "root/a", 10)
    process = bridge(
        "run", "--root", tmp_path / "root", "--topic", "t", "--http", ":0", "--json",
        "--http-token-file", tmp_path / "token", "--status-seconds", "0.05",
        "--bootstrap-servers", broker.bootstrap_servers,
    )  # fmt: skip  # a command line
    at = where(process)
    process.until(lambda s: s["acknowledged"] == 10)

    def post(path: str, **what: object) -> Any:
        body = json.dumps({"log": "a", "cluster": "main", **what}).encode()
        request = urllib.request.Request(
            f"http://{at[0]}:{at[1]}{path}", body, {"Authorization": f"Bearer {token}"}
        )
        with urllib.request.urlopen(request, timeout=10) as answer:
            return json.load(answer)

    def act(action: str) -> None:
        assert post("/action", action=action) == {"ok": True}

    act("pause")
    process.until(lambda s: (s["state"], s["error"]) == (
        "blocked", "a: paused by an operator; resume it on the page"
    ))  # fmt: skip  # one condition
    fill(tmp_path / "root/a", 5)
    process.until(lambda s: s["lag_records"] == 5)
    assert process.statuses[-1]["acknowledged"] == 10
    moved = post("/seek", to="earliest", dry_run=True)
    assert (moved["records"], moved["done"]) == (10, False)
    assert post("/seek", to="ordinal:0", dry_run=True) == moved
    assert post("/seek", to="1h-ago", dry_run=True) == post("/seek", to="latest", dry_run=True)
    assert post("/seek", to="earliest", dry_run=False)["done"]
    act("resume")
    process.until(lambda s: s["acknowledged"] == 25)  # the ten were sent again
    with pytest.raises(urllib.error.HTTPError, match="409"):
        post("/seek", to="earliest", dry_run=True)  # it is not paused
    act("retry")
    newer = tmp_path / "newer"
    newer.write_text("fedcba9876543210\n")
    newer.replace(tmp_path / "token")
    with pytest.raises(urllib.error.HTTPError, match="401"):
        act("retry")
    token = "fedcba9876543210"
    act("retry")
    assert process.terminate() == 0
    assert token not in process.stderr + "".join(process.lines)


def test_top_prints_the_logs_of_a_running_bridge(
    bridge: Start, broker: EmbeddedBroker, tmp_path: Path
) -> None:
    fill(tmp_path / "root/a", 10)
    running = bridge(
        "run", "--root", tmp_path / "root", "--topic", "t", "--http", ":0", "--json",
        "--status-seconds", "0.05", "--bootstrap-servers", broker.bootstrap_servers,
    )  # fmt: skip  # a command line
    at = where(running)
    running.until(lambda s: s["acknowledged"] == 10 and s["state"] == "live")
    wait_until(lambda: b'"acknowledged": 10' in get(at, "/status")[1])
    text = printed(bridge("top", "--http", f"{at[0]}:{at[1]}"))
    assert "live: 1 log, 10 acknowledged, 0 pending" in text
    assert re.search(r"\na +(main|default) +live +0 ", text) or re.search(r"\na +live +0 ", text)
    status, seen = on_terminal("bridge", "top", "--http", f"{at[0]}:{at[1]}", stop_at=b"PENDING")
    assert status == 0
    assert b"live" in seen
    assert seen.endswith(b"\x1b[?25h\x1b[?1049l"), "the cursor and the screen before are back"
    assert running.terminate() == 0
    gone = bridge("top", "--http", f"{at[0]}:{at[1]}")
    assert gone.end(30) == 6
