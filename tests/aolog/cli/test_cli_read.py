"""`aolog read` and `aolog tail`: print what is there, tell what is not, end as they should."""

import base64
import contextlib
import json
import signal
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import aolog
from aolog.cli import output
from aolog.cli.output import record_to_json
from tests.aolog.commands import ended, failure, run, started, well
from tests.aolog.conftest import ROOT, SOON_S, damage, fill, unchanged
from tests.texts import UNICODE

# --- read --------------------------------------------------------------------------------------


def test_json_has_every_part_of_a_record_and_text_where_bytes_are_text(log_path):
    with aolog.Writer(log_path, batch_bytes=0) as log:
        headers = (("h", b"\xff"), ("n", None))
        log.append(b"caf\xc3\xa9\x1b", key=b"\xff", headers=headers, timestamp=1, topic="t")
        log.append(None, timestamp=(1 << 63) - 1)
    first, second = map(json.loads, well("read", log_path, "--json").stdout.splitlines())
    assert first["value"] == "café\x1b"
    assert base64.b64decode(first["key_base64"]) == b"\xff"
    assert first["headers"] == [
        {"name": "h", "value_base64": "/w=="},
        {"name": "n", "value": None},
    ]
    assert (first["timestamp"], first["topic"]) == ("1970-01-01T00:00:00.000001Z", "t")
    assert (second["value"], second["timestamp"]) == (None, None)
    assert second["timestamp_us"] == (1 << 63) - 1
    assert "\x1b" not in well("read", log_path, "--json").stdout


def test_reading_begins_where_it_is_told_to(log_path):
    with aolog.Writer(log_path) as log:
        addresses = [log.append(b"v%d" % i, timestamp=i * 3_600_000_000) for i in range(5)]
    for place, begin in {
        "earliest": 0,
        "latest": 5,
        str(addresses[2]): 2,
        "ordinal:3": 3,
        "1970-01-01T02:00:00Z": 2,
        "1970-01-01 03:00+01:00": 2,
        "1970-01-01T02:00": 2,
        "1h-ago": 5,
    }.items():
        wanted = [f"v{i}" for i in range(begin, 5)]
        assert well("read", log_path, "--from", place).stdout.splitlines() == wanted, place
    assert well("read", log_path, "-n", 2).stdout == "v0\nv1\n"
    assert well("read", log_path, "-n", 0).stdout == ""


def test_a_cursor_is_only_looked_at_unless_it_is_to_be_committed(log_path, ten):
    well("cursor", "set", log_path, "c", "ordinal:4")
    with unchanged(log_path), aolog.Reader(log_path, cursor="c"):
        assert well("read", log_path, "--cursor", "c", "-n", 1).stdout == "v4\n"
        assert failure("read", log_path, "--cursor", "c", "--commit")["code"] == "cursor_locked"
    assert well("read", log_path, "--cursor", "c", "--commit", "-n", 2).stdout == "v4\nv5\n"
    assert well("read", log_path, "--cursor", "c", "--commit", "-n", 1).stdout == "v6\n"
    fresh = well("read", log_path, "--cursor", "new", "--from", ten[8], "--commit")
    assert fresh.stdout == "v8\nv9\n"
    assert "does not exist yet" in fresh.stderr
    assert well("read", log_path, "--cursor", "new").stdout == ""


def test_gaps_are_told_in_their_place_and_in_the_exit_status(log_path, ten):
    damage(log_path, b"v5")
    result = run("read", log_path)
    assert result.exit_code == 3
    assert result.stdout.split() == ["v0", "v1", "v2", "v3", "v4", "v6", "v7", "v8", "v9"]
    shown = result.output.splitlines()
    assert shown[5].startswith(f"aolog: gap: [{ten[5]}, {ten[6]}) corrupt, records lost: 1")
    assert shown[-1].startswith("aolog: gap: ")
    assert (
        "1 gap met (1 corrupt): 1 record lost; intact records were read; `aolog verify` li"
        in shown[-1]
    )
    assert run("read", log_path, "--skip-gaps").exit_code == 0
    told = run("read", log_path, "--json").stderr.splitlines()
    assert json.loads(told[0])["gap"]["records_lost"] == 1
    assert json.loads(told[1])["error"]["records_lost"] == 1


def test_strict_reading_stops_at_a_gap_and_commits_nothing(log_path, ten):
    damage(log_path, b"v5")
    result = run("read", log_path, "--strict", "--cursor", "c", "--commit")
    assert (result.exit_code, result.stdout.split()) == (3, ["v0", "v1", "v2", "v3", "v4"])
    assert len([line for line in result.stderr.splitlines() if ": gap:" in line]) == 1
    assert well("cursor", "list", log_path).stdout == ""


def test_head_ends_it_without_a_word_and_nothing_is_committed(log_path):
    fill(log_path, [b"x" * 1000] * 2000)
    with started("read", log_path, "--cursor", "c", "--commit") as child:
        assert child.stdout.readline() == b"x" * 1000 + b"\n"
        child.stdout.close()
        assert child.wait(SOON_S) == 141
        assert [
            line for line in child.stderr.read().splitlines() if b"does not exist yet" not in line
        ] == []
        assert well("cursor", "list", log_path).stdout == ""


@pytest.mark.parametrize("command", ["read", "info", "verify", "--help"])
def test_output_that_cannot_be_written_is_one_line(log_path, ten, command):
    args = [command] if command == "--help" else [command, log_path]
    with Path("/dev/full").open("wb") as full, started(*args, stdout=full) as child:
        status, _, err = ended(child)
    assert status == 4
    assert len(err.splitlines()) == 1
    assert "No space left" in err


@pytest.mark.parametrize("fmt", ["aolog", "queuefka"])
@pytest.mark.parametrize(
    ("command", "wanted"),
    [
        (("read",), range(10)),
        (("read", "--from", "latest"), range(0)),
        (("read", "--cursor", "c", "--commit"), range(10)),
        (("tail", "-n", 3), range(7, 10)),
    ],
    ids=lambda given: " ".join(map(str, given)) if isinstance(given, tuple) else "",
)
def test_reading_ends_where_the_log_did_beside_a_writer_that_is_faster(
    log_path, monkeypatch, command, wanted, fmt
):
    fill(log_path, (b"v%d" % i for i in range(10)), slab_bytes=100, format=fmt)
    with aolog.Writer(log_path, slab_bytes=100, format=fmt) as log:

        def write(self, data, write=output.out.write.__func__):
            write(self, data)
            if log.end < 100_000:  # else it would never end
                log.append_many([b"more"] * 3)
                log.flush()

        monkeypatch.setattr(type(output.out), "write", write)
        shown = well(command[0], log_path, *command[1:]).stdout.split()
        monkeypatch.undo()
    assert shown == [f"v{i}" for i in wanted]
    if "--commit" in command:
        rest = well("read", log_path, "--cursor", "c").stdout.split()
        assert rest == ["more"] * 3 * len(wanted)


# --- tail --------------------------------------------------------------------------------------


@pytest.mark.parametrize("fmt", ["aolog", "queuefka"])
def test_tail_prints_the_last_records(log_path, fmt):
    fill(log_path, (b"v%02d" % i for i in range(95)), slab_bytes=100, format=fmt)
    for n, wanted in {0: 0, 1: 1, 9: 9, 95: 95, 1000: 95}.items():
        shown = well("tail", log_path, "-n", n).stdout.split()
        assert shown == [f"v{i:02d}" for i in range(95 - wanted, 95)], n
    assert len(well("tail", log_path).stdout.split()) == 10


def test_tail_tells_gaps_among_the_last_records_once(tmp_path):
    for fmt in ("aolog", "queuefka"):
        log = str(tmp_path / fmt)
        fill(log, (b"v%d" % i for i in range(9)), batch_bytes=0, format=fmt)
        damage(log, b"v6")
        result = run("tail", log, "-n", 3)
        assert result.exit_code == 3
        assert result.stdout.split() == (["v7", "v8"] if fmt == "aolog" else ["v5", "v7", "v8"])
        assert result.stderr.count("aolog: gap: [") == 1
        assert ("an unknown number in 1 of them" in result.stderr) is (fmt == "queuefka")


def test_tail_follows_and_ends_when_it_is_interrupted(log_path, ten):
    with started("tail", "-f", "-n", 1, log_path) as child:
        assert child.stdout.readline() == b"v9\n"
        with aolog.Writer(log_path) as log:
            log.append(b"more")
            log.flush()
            assert child.stdout.readline() == b"more\n"
        child.send_signal(signal.SIGINT)
        assert ended(child) == (130, "", "")


def test_tail_ends_when_its_reader_has_gone_though_nothing_comes(log_path, ten):
    with started("tail", "-f", "-n", 1, log_path) as child:
        child.stdout.readline()
        child.stdout.close()
        assert child.wait(SOON_S) == 141
        assert child.stderr.read() == b""


@pytest.mark.parametrize(
    ("command", "status"),
    [
        ("read LOG >&-", 4),
        ("append LOG <&-", 4),
        ("info LOG >&- 2>&-", 4),
        ("append LOG 0<<<x >&- 2>&-", 0),
    ],
)
def test_standard_streams_may_be_closed(log_path, ten, command, status):
    shell = ["bash", "-c", f"{sys.executable} -m aolog {command.replace('LOG', log_path)}"]
    done = subprocess.run(shell, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == status
    assert len(done.stderr.splitlines()) == (0 if "2>" in command else 1)
    assert "bug" not in done.stderr


# --- a record as JSON -----------------------------------------------------------------------


TEXT, BYTES = st.text(UNICODE, max_size=20), st.none() | st.binary(max_size=20)
AS_TEXT = TEXT.map(str.encode)


def member(name: str, data: bytes | None) -> dict[str, str | None]:
    try:
        return {name: None if data is None else data.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(data or b"").decode()}


@given(
    address=st.integers(0, 2**64 - 1),
    timestamp=st.none() | st.integers(-(2**63), 2**63 - 1) | st.integers(-(10**9), 10**16),
    key=BYTES | AS_TEXT,
    value=BYTES | AS_TEXT,
    headers=st.lists(st.tuples(TEXT, BYTES | AS_TEXT), max_size=3).map(tuple),
    topic=st.none() | TEXT,
)
def test_a_record_is_the_json_that_the_standard_library_makes_of_its_members(
    address, timestamp, key, value, headers, topic
):
    shown = None
    if timestamp is not None:
        with contextlib.suppress(OverflowError):
            moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=timestamp)
            shown = moment.strftime(f"{moment.year:04}-%m-%dT%H:%M:%S.%fZ")
    members = {
        "address": address,
        "timestamp": shown,
        "timestamp_us": timestamp,
        "topic": topic,
        **member("key", key),
        **member("value", value),
        "headers": [{"name": name, **member("value", data)} for name, data in headers],
    }
    expected = json.dumps(members, ensure_ascii=False, separators=(",", ":")) + "\n"
    record = aolog.Record(address, timestamp, key, value, headers, topic)
    assert record_to_json(record) == expected.encode()
