"""The command line: looking after a log, words and errors; never a traceback."""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import time
from pathlib import Path

import pytest
from click.testing import CliRunner

import aolog
from aolog.cli import main
from aolog.cli.output import iso_time
from aolog.errors import CursorLocked
from aolog.log.units import duration_seconds, size_bytes
from aolog.storage.system import System
from bridge.cli import main as bridge_main
from tests.aolog.commands import answer, ended, failure, run, started, well
from tests.aolog.conftest import commit, damage, fill, slab_files, unchanged, wait_until

COMMANDS = [
    "append", "read", "tail", "info", "verify", "repair", "salvage", "prune",
]  # fmt: skip  # one thing, a line or two
COMMANDS += ["cursor list", "cursor show", "cursor set", "cursor delete"]


# --- info and verify ---------------------------------------------------------------------------


def test_info_tells_extent_times_cursors_and_what_was_set_aside(log_path):
    with aolog.Writer(log_path, slab_bytes=500, topic="t", batch_bytes=0) as log:
        addresses = [log.append(b"x" * 100, timestamp=i) for i in (5, 9, 7)]
    well("cursor", "set", log_path, "c", addresses[1])
    last = slab_files(log_path)[-1]
    os.truncate(last, last.stat().st_size - 1)
    well("append", log_path, given=b"")
    found = answer("info", log_path)
    assert (found["format"], found["topic"], found["backend"]) == (2, "t", aolog.backend)
    assert (found["first_epoch"], found["epoch"]) == (1, 2)
    assert (found["first_ordinal"], found["end_ordinal"], found["records"]) == (0, 3, 3)
    assert found["first_timestamp"] == iso_time(5)
    assert (found["last_timestamp"], found["greatest_timestamp"]) == (iso_time(7), iso_time(9))
    assert found["bytes"] == sum(slab.stat().st_size for slab in slab_files(log_path))
    assert found["slabs"] == len(slab_files(log_path))
    assert len(found["aside"]) == 1
    assert found["writer_open"] in {False, None}
    [cursor] = found["cursors"]
    assert (cursor["name"], cursor["lag"]["records"], cursor["state"]) == ("c", 2, "ok")
    shown = well("info", log_path).stdout
    for part in (found["topic_uuid"], "1 to 2", "1 file, ", "records:    3\n", "CURSOR"):
        assert part in shown, part


@pytest.mark.parametrize(("read", "passed"), [(0, 0), (1, 1), (99, 39)])
def test_info_draws_what_each_cursor_has_passed(log_path, read, passed):
    fill(log_path, [bytes(100)] * 100, slab_bytes=8192, batch_bytes=0)
    commit(log_path, read, "billing")
    bar = "█" * passed + "░" * (40 - passed)
    shown = well("info", log_path).stdout
    assert f"[{bar}] billing\n" in shown
    files = len(list(Path(log_path).glob("*.slab")))
    (slabs,) = [line for line in shown.splitlines() if line.endswith(f"] {files} slabs")]
    assert (slabs[1:41].count("┃"), slabs[1]) == (min(files, 40), "┃")


def test_info_sees_the_process_that_writes(log_path):
    with started("append", log_path) as child:
        wait_until(lambda: Path(log_path).is_dir() and slab_files(log_path))
        found = answer("info", log_path)
        assert (found["writer_open"], found["writer_pid"]) in {(True, child.pid), (None, None)}
        ended(child)


def test_info_and_tail_do_not_read_the_log(log_path, monkeypatch):
    fill(log_path, [os.urandom(1000)] * 8000, slab_bytes=1 << 20)
    total = sum(slab.stat().st_size for slab in slab_files(log_path))
    read, pread = 0, os.pread

    def counting(fd: int, size: int, offset: int) -> bytes:
        nonlocal read
        data = pread(fd, size, offset)
        read += len(data)
        return data

    monkeypatch.setattr(System, "pread", staticmethod(counting))
    for args in (["info"], ["tail"], ["read", "--from", "latest"]):
        read = 0
        well(*args, log_path)
        assert read < total / 2, (args, read)  # a read is a megabyte at least


def test_verify_tells_what_is_damaged_in_its_exit_status(log_path, ten):
    assert f"{log_path}: ok\n10 records in 10 frames, 1 slab" in well("verify", log_path).stdout
    damage(log_path, b"v5")
    result = run("verify", log_path)
    assert result.exit_code == 3
    assert f"{log_path}: DAMAGED" in result.stdout
    assert re.search(rf"{ten[5]}  +{ten[6]}  +1  corrupt", result.stdout)
    told = run("verify", log_path, "--json")
    assert told.exit_code == 3
    report = json.loads(told.stdout)
    assert report["gaps"] == [gap._asdict() for gap in aolog.verify(log_path).gaps]
    assert (report["ok"], report["records"]) == (False, 9)
    (slab,) = slab_files(log_path)
    os.truncate(slab, slab.stat().st_size - 1)
    assert " after the end: an append in progress, or a torn end" in run("verify", log_path).stdout


# --- prune -------------------------------------------------------------------------------------


@pytest.fixture
def slabs(log_path: str) -> list[Path]:
    """A log of ten slabs of about 9 KiB."""
    fill(log_path, [b"x" * 1000] * 10, slab_bytes=8193, batch_bytes=0)
    assert len(slab_files(log_path)) == 10
    return slab_files(log_path)


def test_prune_takes_the_oldest_down_to_the_bound_and_a_dry_run_takes_none(log_path, slabs):
    for dry, left in (("--dry-run", 10), ("--json", 4)):
        well("prune", log_path, "--max-slabs", 4, dry)
        assert slab_files(log_path) == slabs[-left:]
    old = time.time() - 3600
    os.utime(slabs[6], (old, old))
    assert "removed 1 slab, " in well("prune", log_path, "--max-age", "30m").stdout
    total = sum(slab.stat().st_size for slab in slabs[-2:])
    said = answer("prune", log_path, "--max-bytes", total)
    assert (said["slabs"], said["end"]) == (1, int(slabs[8].stem))
    assert "nothing to remove" in well("prune", log_path, "--max-slabs", 9).stdout


@pytest.mark.parametrize(
    ("options", "left"),
    [
        (["--max-slabs", 1], 10),
        (["--max-bytes", "20k"], 10),
        (["--max-bytes", "20k", "--force"], 2),
    ],
    ids=str,
)
def test_prune_names_a_cursor_that_cannot_be_read_and_ends_as_with_damage(
    log_path, slabs, options, left
):
    well("cursor", "set", log_path, "c", "latest")
    (Path(log_path) / "cursors" / "c.cursor").write_bytes(b"")
    result = run("prune", log_path, *options, "--json")
    assert result.exit_code == 3
    said, error = json.loads(result.stdout), json.loads(result.stderr.splitlines()[-1])["error"]
    assert (said["unreadable"], error["code"]) == (["c"], "cursor_corrupt")
    assert slab_files(log_path) == slabs[-left:]
    well("cursor", "set", log_path, "c", "latest")
    well("prune", log_path, *options)


def test_prune_leaves_what_a_cursor_needs_unless_it_is_forced(log_path, slabs):
    stands = answer("cursor", "set", log_path, "slow", int(slabs[3].stem))["address"]
    well("cursor", "set", log_path, "free", "earliest", "--no-protect")
    well("prune", log_path, "--max-slabs", 1)
    assert slab_files(log_path) == slabs[3:]
    error = failure("prune", log_path, "--max-bytes", "20k")
    assert error["code"] == "retention_full"
    assert "'slow'" in error["message"]
    assert failure("prune", log_path, "--force", "--max-age", "1ms")["code"] == "usage"
    assert slab_files(log_path) == slabs[3:]
    would = answer("prune", log_path, "--max-bytes", "20k", "--force", "--dry-run")
    assert "would prune" in well("prune", log_path, "--max-bytes", "20k", "--force", "-n").stderr
    forced = well("prune", log_path, "--max-bytes", "20k", "--force")
    assert slab_files(log_path) == slabs[-2:]
    [lost] = would["pruned_unread"]
    assert (lost["cursor"], lost["begin"], lost["end"]) == (
        "slow", stands, int(slabs[-2].stem),
    )  # fmt: skip  # one thing
    assert forced.stderr == (
        f"pruned {lost['records_lost']} records that cursor slow has not read: addresses "
        f"{lost['begin']} to {lost['end']}\n"
    )
    result = run("read", log_path, "--cursor", "slow")
    assert result.exit_code == 3
    assert "verify" not in result.stderr  # which knows nothing of what was pruned
    assert "1 gap met (" in result.stderr
    gone = "retention or `aolog prune` removed"
    assert result.stderr.endswith(f"; intact records were read; {gone} the missing records\n")
    damage(log_path, b"x" * 1000)
    told = run("read", log_path, "--cursor", "slow").stderr.splitlines()[-1]
    assert told.endswith(f"read; `aolog verify` lists all gaps except what {gone}")


# --- cursor ------------------------------------------------------------------------------------


def test_a_cursor_is_set_shown_listed_and_deleted(log_path, ten):
    said = answer("cursor", "set", log_path, "c", "ordinal:7")
    assert (said["address"], said["ordinal"], said["protects"]) == (ten[7], 7, True)
    assert answer("cursor", "show", log_path, "c")["lag"]["records"] == 3
    assert not answer("cursor", "set", log_path, "c", "latest", "--no-protect")["protects"]
    assert not answer("cursor", "set", log_path, "c", ten[2])["protects"]
    assert answer("cursor", "set", log_path, "c", "earliest", "--protect")["protects"]
    well("cursor", "set", log_path, "d", "latest")
    assert well("cursor", "list", log_path).stdout.count("\n") == 3
    for said in (b"n\n", b"\n", b""):
        assert run("cursor", "delete", log_path, "c", given=said).exit_code == 2
    assert "10 records unread" in well("cursor", "delete", log_path, "c", given=b"y\n").stderr
    assert answer("cursor", "delete", log_path, "d", "--yes")["deleted"] == "d"
    assert failure("cursor", "show", log_path, "c")["code"] == "no_such_cursor"
    assert failure("cursor", "delete", log_path, "c", "-y")["code"] == "no_such_cursor"


def test_a_deleted_cursor_takes_the_notes_of_a_bridge_with_it_and_no_others(log_path, ten):
    directory = Path(log_path) / "cursors"
    for name in ("c", "c.d"):
        well("cursor", "set", log_path, name, ten[3])
        for suffix in ("lanes", "losses"):
            (directory / f"{name}.{suffix}").write_bytes(b"{}")
    (directory / "c.cursor").write_bytes(b"damaged")
    well("cursor", "set", log_path, "c", ten[4])
    assert (directory / "c.lanes").exists(), "a cursor that is set anew is the same one"
    well("cursor", "delete", log_path, "c", "--yes")
    assert sorted(each.name for each in directory.iterdir()) == [
        "c.d.cursor",
        "c.d.lanes",
        "c.d.losses",
    ]


def test_a_cursor_that_lost_records_is_listed_as_pruned_with_their_number(log_path, slabs):
    well("cursor", "set", log_path, "slow", "ordinal:2")
    well("cursor", "set", log_path, "fast", "latest")
    well("prune", log_path, "--max-bytes", "20k", "--force")
    listing = well("cursor", "list", log_path, "--json").stdout
    listed = [json.loads(line) for line in listing.splitlines()]
    found = {each["name"]: each for each in listed}
    assert (found["fast"]["state"], found["fast"]["pruned"]) == ("ok", None)
    slow = found["slow"]
    assert (slow["state"], slow["lag"]["records"]) == ("pruned", 2)
    assert slow["pruned"] == {
        "begin": slow["address"],
        "end": int(slabs[-2].stem),
        "reason": "pruned",
        "records_lost": 6,
    }
    assert [each["pruned"] for each in answer("info", log_path)["cursors"]] == [
        None,
        slow["pruned"],
    ]
    for command in (["cursor", "list"], ["info"]):
        assert "pruned (6 records)\n" in well(*command, log_path).stdout
    assert run("read", log_path, "--cursor", "slow", "--commit").exit_code == 3
    assert answer("cursor", "show", log_path, "slow")["state"] == "ok"


def test_a_cursor_that_a_reader_holds_is_left_alone(log_path, ten):
    well("cursor", "set", log_path, "c", ten[3])
    with unchanged(log_path), aolog.Reader(log_path, cursor="c"):
        assert failure("cursor", "set", log_path, "c", "latest")["code"] == CursorLocked.code
        assert failure("cursor", "delete", log_path, "c", "--yes")["code"] == CursorLocked.code
        assert answer("cursor", "show", log_path, "c")["held"] in {True, None}


def test_a_cursor_that_is_damaged_or_of_another_log_is_listed_and_can_be_set_anew(
    log_path, ten, tmp_path
):
    other = str(tmp_path / "other")
    fill(other, [b"x"])
    for log in (log_path, other):
        well("cursor", "set", log, "foreign", "earliest")
    shutil.copy(f"{other}/cursors/foreign.cursor", f"{log_path}/cursors/foreign.cursor")
    Path(log_path, "cursors", "broken.cursor").write_bytes(bytes(8192))
    listed = well("cursor", "list", log_path, "--json").stdout.splitlines()
    states = {each["name"]: each["state"] for each in map(json.loads, listed)}
    assert states == {"broken": "cursor_corrupt", "foreign": "cursor_foreign"}
    assert "cursor_corrupt" in well("info", log_path).stdout
    for name, code in states.items():
        assert failure("read", log_path, "--cursor", name)["code"] == code
        assert failure("cursor", "set", log_path, name, 1 << 40)["code"] == "address_beyond_end"
        assert failure("read", log_path, "--cursor", name)["code"] == code
        assert answer("cursor", "set", log_path, name, ten[9])["state"] == "ok"
    well("prune", log_path, "--max-slabs", 1)


@pytest.mark.parametrize("name", ["../x", "a/b", "", ".hidden", "-x", "x" * 129, "x\n"])
def test_a_cursor_has_no_name_that_is_a_path(log_path, ten, name):
    with unchanged(log_path):
        for command in ("show", "delete"):
            assert failure("cursor", command, log_path, "--", name)["code"] == "usage"
        assert run("cursor", "set", log_path, "--", name, "earliest").exit_code == 2
        assert run("read", log_path, f"--cursor={name}", "--commit").exit_code == 2


# --- what goes wrong ---------------------------------------------------------------------------

READING = ["read", "tail", "info", "verify", "repair", "cursor list", "cursor show", "cursor set"]
READING += ["prune", "salvage"]
ARGUMENTS = {
    "cursor show": ["c"],
    "cursor set": ["c", "earliest"],
    "cursor delete": ["c", "-y"],
    "prune": ["--max-slabs", "1"],
    "repair": ["--into", "no-copy-is-made"],
}


@pytest.mark.parametrize("command", [*READING, "cursor delete"])
@pytest.mark.parametrize("there", ["nothing", "file", "empty", "foreign"])
def test_what_is_no_log_is_said_and_left_as_it_is(tmp_path, there, command):
    log = tmp_path / "log"
    if there == "file":
        log.write_bytes(b"x")
    elif there != "nothing":
        log.mkdir()
    if there == "foreign":
        (log / "data").write_bytes(b"x")
    with unchanged(tmp_path):
        error = failure(*command.split(), log, *ARGUMENTS.get(command, ()))
        assert (error["code"], error["exit_status"]) == ("not_a_log", 2)
        if there not in {"nothing", "empty"}:
            assert failure("append", log, given=b"x\n")["code"] == "not_a_log"


@pytest.mark.parametrize("command", READING)
def test_a_newer_format_is_said_and_left_as_it_is(log_path, ten, command):
    slab = slab_files(log_path)[0]
    data = bytearray(slab.read_bytes())
    data[8] = data[4096 + 8] = 99
    slab.write_bytes(data[:8192] + b"what comes is unknown")
    with unchanged(log_path):
        error = failure(*command.split(), log_path, *ARGUMENTS.get(command, ()))
        assert error["code"] == "newer_format"
        assert failure("append", log_path, given=b"x\n")["code"] == "newer_format"


def test_a_place_beyond_the_end_or_before_the_begin_is_said_and_changes_nothing(log_path, slabs):
    well("prune", log_path, "--max-slabs", 2)
    with unchanged(log_path):
        for place, code in {
            str(1 << 62): "address_beyond_end",
            "99999999999999999999": "address_beyond_end",
            "ordinal:11": "address_beyond_end",
            "0": "address_pruned",
            "ordinal:0": "address_pruned",
            "yesterday": "usage",
            "-5": "usage",
            "2026-13-01": "usage",
        }.items():
            assert failure("read", log_path, f"--from={place}")["code"] == code, place
            assert run("cursor", "set", log_path, "c", "--", place).exit_code == 2


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_log_that_may_not_be_read_is_a_storage_error(log_path, ten):
    slab_files(log_path)[0].chmod(0)
    assert failure("read", log_path)["code"] == "permission_denied"


def test_an_error_is_one_line_whatever_the_path_is(tmp_path):
    odd = str(tmp_path / "a\nb\x1b[31m\udcff")
    line = run("read", odd).stderr
    assert line.count("\n") == 1
    assert "\x1b" not in line
    path = json.loads(run("read", odd, "--json").stderr)["error"]["path"]
    assert path == odd


def test_an_internal_error_is_one_line_too(log_path, ten, monkeypatch):
    monkeypatch.setattr("aolog.cli.verify.human_bytes", lambda _: 1 // 0)
    result = CliRunner().invoke(main, ["verify", log_path])
    assert result.exit_code == 1
    assert result.stderr.startswith("aolog: error: ZeroDivisionError: ")
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize("seed", range(4))
def test_no_damage_makes_a_command_fail_in_a_way_that_has_no_code(tmp_path, seed):
    rng, log = random.Random(seed), str(tmp_path / "log")
    fmt = rng.choice(["aolog", "aolog", "queuefka"])
    for _ in range(2):
        records = [rng.randbytes(rng.randint(1, 200)) for _ in range(100)]
        fill(log, records, slab_bytes=rng.choice([300, 9000]), batch_bytes=300, format=fmt)
    well("cursor", "set", log, "c", "earliest")
    for _ in range(rng.randint(1, 4)):
        victim = rng.choice([*slab_files(log), Path(log, "cursors", "c.cursor")])
        data = bytearray(victim.read_bytes())
        match rng.randrange(4):
            case 0:
                victim.unlink()
                break
            case 1:
                del data[rng.randrange(len(data) + 1) :]
            case 2:
                data[: len(data) // 2] = rng.randbytes(len(data) // 2)
            case 3:
                data += rng.randbytes(99)
        victim.write_bytes(data)
    for line in (
        "read",
        "read --json --strict",
        "read --from ordinal:5",
        "read --from 2020-01-01",
        "read --cursor c",
        "tail -n 3",
        "info",
        "verify",
        "salvage",
        f"repair --into {log}.copy --dry-run",
        f"repair --into {log}.copy",
        "verify",
        "cursor list",
        "prune --max-slabs 3",
        "append --delimiter length",
    ):
        status = run(*line.split(), log, given=b"\1\0\0\0x").exit_code
        assert status in {0, 2, 3}, line


def test_warnings_of_the_library_come_as_lines_and_as_json(log_path, ten):
    for options in ([], ["--json"]):
        slab = slab_files(log_path)[-1]
        os.truncate(slab, slab.stat().st_size - 1)
        told = well("append", log_path, *options, given=b"x\n").stderr.splitlines()[0]
        if options:
            assert "the last write was torn" in json.loads(told)["warning"]["message"]
        else:
            assert told.startswith("aolog: warning: ")


# --- help, words, completion -------------------------------------------------------------------


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help_with_an_example(command):
    shown = well(*command.split(), "--help").stdout
    assert re.search(rf"\n  Examples?:\n(?:.*\n)*.*aolog {command} ", shown)
    assert well(*command.split(), "-h").stdout == shown


@pytest.mark.parametrize("root", [main, bridge_main], ids=lambda root: root.name)
def test_all_help_fits_a_terminal_of_80_columns(root):
    def paths(command, path=()):
        yield path
        for name, below in getattr(command, "commands", {}).items():
            yield from paths(below, (*path, name))

    all_paths = list(paths(root))
    assert len(all_paths) > 8
    for path in all_paths:
        shown = CliRunner().invoke(root, [*path, "--help"], terminal_width=80).stdout
        assert shown.startswith("Usage: ")
        assert [line for line in shown.splitlines() if len(line) > 80] == [], path


def test_help_names_every_command_and_the_exit_statuses():
    shown = well().stdout
    assert shown == well("--help").stdout
    for command in COMMANDS:
        assert re.search(rf"^  {command.split()[0]} ", shown, re.MULTILINE), command
    for status in (1, 2, 3, 4, 5, 130, 141):
        assert re.search(rf"\b{status}\b", shown)


def test_the_version_is_the_package_s():
    assert well("--version").stdout == f"aolog {aolog.__version__}\n"
    assert failure("nonsense")["code"] == "usage"
    assert "Missing command" in run("cursor").stderr


SIZES = {"7": 7, "10k": 10240, "64M": 64 << 20, "1GiB": 1 << 30, "5GB": 5 * 10**9, "1.5k": 1536}
SIZES |= {"12b": 12, "2 MiB": 2 << 20, "x": None, "1X": None, "": None, "-1": None, "1e3": None}
DURATIONS = {"90s": 90, "15m": 900, "7d": 604800, "500ms": 0.5, "1h30m": 5400, "0.5": 0.5}
DURATIONS |= {"2w": 1209600, "m": None, "": None, "7y": None, "-1s": None, "1 h": None}


def test_sizes_and_durations_are_read_as_people_write_them():
    assert {text: size_bytes(text) for text in SIZES} == SIZES
    assert {text: duration_seconds(text) for text in DURATIONS} == DURATIONS


def test_a_directory_of_logs_is_named_as_such(tmp_path):
    (tmp_path / "app" / "a-file").parent.mkdir()
    (tmp_path / "app" / "a-file").touch()
    assert failure("verify", tmp_path / "app")["hint"] == (
        "name the directory of a log; the first append creates one"
    )
    fill(str(tmp_path / "app" / "web"), [b"x"])
    said = failure("verify", tmp_path / "app")["hint"]
    assert said == f"it is a directory of logs: name one of them, as {tmp_path}/app/web"
