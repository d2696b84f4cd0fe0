"""`aolog append`: takes what comes, as it comes, and says what became of it."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import aolog
from aolog.cli.input import DELIMITERS, splitter
from aolog.cli.record_parts import parse_spec, timestamp_us
from tests.aolog.commands import answer, ended, failure, run, started, well
from tests.aolog.conftest import SOON_S, fill, read_all, slab_files, snapshot, values, wait_until


def test_lines_become_records_and_the_last_needs_no_newline(log_path):
    result = well("append", log_path, given=b"one\n\ntwo\r\nthree")
    assert values(log_path) == [b"one", b"", b"two\r", b"three"]
    assert result.stdout == ""
    assert re.fullmatch(r"4 records, 12 bytes, addresses \d+\.\.\d+, durable\n", result.stderr), (
        result.stderr
    )


@pytest.mark.parametrize("as_json", [False, True], ids=["text", "json"])
def test_a_process_that_prunes_what_a_cursor_has_not_read_says_so(log_path, as_json):
    options = ["--slab-bytes", "16k", "--retention-max-bytes", "64k", "--batch-bytes", "1k"]
    fill(log_path, [b"first", b"second"])
    well("cursor", "set", log_path, "slow", "earliest")
    well("cursor", "set", log_path, "free", "earliest", "--no-protect")
    with started("append", log_path, *options, *(["--json"] if as_json else [])) as command:
        out, err = command.communicate((b"x" * 99 + b"\n") * 2000, timeout=SOON_S)
    stdout, stderr = out.decode(), err.decode()
    assert command.returncode == 0
    left = len(values(log_path))
    [cursor] = aolog.cursors(log_path)[1:]
    lost = 2002 - left
    assert (cursor.name, cursor.pruned.records_lost) == ("slow", lost)
    begin, end = cursor.address, int(slab_files(log_path)[0].stem)
    if as_json:
        said = {"cursor": "slow", "begin": begin, "end": end, "records_lost": lost}
        assert json.loads(stdout)["pruned_unread"] == [said]
        warnings = [json.loads(line)["warning"]["message"] for line in stderr.splitlines()]
    else:
        warnings = [line for line in stderr.splitlines() if line.startswith("aolog: warning: ")]
        assert stderr.splitlines()[-1] == (
            f"pruned {lost} records that cursor slow has not read: addresses {begin} to {end}"
        )
    assert warnings
    counted = [re.search(r"removed ([0-9]+) records? that cursor 'slow'", w) for w in warnings]
    assert sum(int(found[1]) for found in counted) == lost
    assert "free" not in stderr


def test_files_are_appended_in_order_and_standard_input_where_it_stands(log_path, tmp_path):
    for name in "ab":
        (tmp_path / name).write_bytes(name.encode())
    well("append", log_path, tmp_path / "a", "-", tmp_path / "b", given=b"stdin\n")
    assert values(log_path) == [b"a", b"stdin", b"b"]


@pytest.mark.parametrize("delimiter", ["nul", "length"])
def test_what_read_prints_append_takes_byte_for_byte(log_path, tmp_path, delimiter):
    records = [b"a\nb", b"", bytes(range(1, 256)), b"x" * 100_000]
    fill(log_path, records)
    printed = well("read", log_path, "--format", delimiter).stdout_bytes
    well("append", tmp_path / "copy", "--delimiter", delimiter, given=printed)
    assert values(str(tmp_path / "copy")) == records


@given(st.lists(st.binary(max_size=9)), st.sampled_from(DELIMITERS), st.data())
def test_records_are_the_same_however_the_input_is_cut(records, delimiter, data):
    separator = {"line": b"\n", "nul": b"\0"}.get(delimiter)
    if separator is None:
        whole = b"".join(len(r).to_bytes(4, "little") + r for r in records)
    else:
        records = [r.replace(separator, b".") for r in records]
        whole = b"".join(r + separator for r in records)
    split, found, at = splitter(delimiter, 100), [], 0
    while at < len(whole):
        size = data.draw(st.integers(1, 12))
        found += split.feed(whole[at : at + size])
        at += size
    assert [*found, *split.finish()] == records
    assert split.pending_bytes == 0


@pytest.mark.parametrize("fmt", ["aolog", "queuefka"])
def test_a_line_over_the_bound_is_named_and_what_came_before_it_stays(log_path, tmp_path, fmt):
    (tmp_path / "in").write_bytes(b"a\nb\n" + b"x" * 70_000 + b"\nc\n")
    args = ("append", log_path, tmp_path / "in", "--max-record-bytes", "60k", "--format", fmt)
    error = json.loads(run(*args, "--json").stderr)["error"]
    assert (error["code"], error["exit_status"]) == ("record_too_large", 2)
    assert f"{tmp_path / 'in'}, line 3: " in error["message"]
    assert (error["records_in_log"], error["number"]) == (2, 3)
    assert values(log_path) == [b"a", b"b"]


def test_length_delimited_input_that_is_cut_off_keeps_its_whole_records(log_path):
    error = failure("append", log_path, "-d", "length", given=b"\1\0\0\0a\5\0\0\0bb")
    assert error["code"] == "input_truncated"
    assert values(log_path) == [b"a", b"a"]  # failure() asks twice


PICKS = {
    "field:2": (b"a\tb\tc", b"b"),
    "field:3:,": (b"a,,c", b"c"),
    "field:2:,": (b"a,,c", b""),
    "field:1::": (b"k:v", b"k"),
    "field:2:\x1f": (b"a\x1fb", b"b"),
    "field:4": (b"a\tb\tc", None),
    "json:id": (b'{"id": "k"}', b"k"),
    "json:a.b.1": (b'{"a": {"b": [0, 1.50]}}', b"1.50"),
    "json:n": (b'{"n": 12345678901234567890123}', b"12345678901234567890123"),
    "json:o": (b'{"o": {"x": [true]}}', b'{"x":[true]}'),
    "json:a": (
        b'{"a": {"b": [1, -2.50, 1E5, "1"], "c": null}}',
        b'{"b":[1,-2.50,1E5,"1"],"c":null}',
    ),
    "json:b.0": (b'{"b": [[12345678901234567890123, {}]]}', b"[12345678901234567890123,{}]"),
    "json:u": ('{"u": {"é": "ø\\n\\u0001"}}'.encode(), '{"é":"ø\\n\\u0001"}'.encode()),
    "json:h": (b'{"h": ["\\ud800"]}', None),
    "json:é": ('{"é": "ø"}'.encode(), "ø".encode()),
    "json:null": (b'{"null": null}', None),
    "json:half": (b'{"half": "\\ud800"}', None),
    "json:none": (b"no json", None),
    "json:deep": (b"[" * 100_000, None),
    "json:bytes": (b"\xff", None),
    "json:x.y": (b'{"x": 1}', None),
    "json:list.9": (b'{"list": []}', None),
    "regex:id=([0-9]+)": (b"user id=42 id=43", b"42"),
    "regex:(a)|b": (b"b", None),
    "regex:(z)": (b"b", None),
}


@pytest.mark.parametrize("spec", PICKS)
def test_a_key_is_picked_out_of_the_record(spec):
    line, wanted = PICKS[spec]
    assert parse_spec(spec)(line) == wanted


def test_key_topic_and_timestamp_come_from_the_record_and_what_is_missing_is_counted(log_path):
    lines = b'{"id":"a","net":"ci","t":1517966773840}\n{"t":"2018-02-07T01:26:13Z"}\nnonsense\n'
    args = ("append", log_path, "--key-from", "json:id", "--topic-from", "json:net")
    said = answer(*args, "--timestamp-from", "json:t", "--timestamp-unit", "ms", given=lines)
    first, second, third = read_all(log_path)
    assert (first.key, first.topic, first.timestamp) == (b"a", "ci", 1517966773840000)
    assert (second.key, second.topic, second.timestamp) == (None, None, 1517966773000000)
    assert third.timestamp is not None
    assert (said["null_keys"], said["null_topics"], said["unusable_timestamps"]) == (2, 2, 1)
    assert "2 without a key" in well(*args, given=lines).stderr


@pytest.mark.parametrize(
    ("text", "unit", "wanted"),
    [
        (b"1.5", "s", 1_500_000),
        (b"-7", "us", -7),
        (b"2018-02-07 02:26:13.840+01:00", "s", 1517966773840000),
        (b"1517966773840", "s", None),  # milliseconds, by mistake: the year 50,000
        (b"soon", "s", None),
        (b"\xff", "s", None),
    ],
)
def test_a_timestamp_is_a_number_or_a_time(text, unit, wanted):
    assert timestamp_us(text, unit) == wanted


BAD_OPTIONS = [
    ("--key-from", "bogus"),
    ("--key-from", "field:0"),
    ("--key-from", "field:1:"),
    ("--key-from", "json:a..b"),
    ("--key-from", "regex:("),
    ("--key-from", "regex:abc"),
    ("--slab-bytes", "64X"),
    ("--slab-bytes", "0"),
    ("--batch-bytes", "-1"),
    ("--max-record-bytes", "5G"),
    ("--flush-seconds", "soon"),
    ("--flush-seconds", "0"),
    ("--sync-seconds", "9999999w"),
    ("--retention-max-bytes", "1"),
    ("--topic", "x" * 250),
    ("--topic", "bad topic/ü"),
    ("--sync", "often"),
    ("--delimiter", "comma"),
    ("--nonsense", "1"),
    ("no/such/file",),
    (".",),
    ("--format", "queuefka", "--key-from", "field:1"),
    ("--format", "queuefka", "--topic", "t"),
]


@pytest.mark.parametrize("options", BAD_OPTIONS, ids=" ".join)
def test_a_bad_option_or_a_missing_file_is_said_before_anything_is_created(tmp_path, options):
    error = failure("append", tmp_path / "log", *options, given=b"x\n")
    assert error["exit_status"] == 2
    assert snapshot(str(tmp_path)) == {}


def test_options_of_the_writer_reach_it(log_path):
    options = ("--slab-bytes", "10k", "--topic", "t", "--batch-bytes", "0", "--sync", "flush")
    lines = b"x" * 999 + b"\n"
    well("append", log_path, *options, "--retention-max-slabs", "2", given=lines * 30)
    found = answer("info", log_path)
    assert found["topic"] == "t"
    assert found["slabs"] == 2
    assert found["first_ordinal"] > 0
    assert all(slab.stat().st_size < 14_000 for slab in slab_files(log_path))
    assert failure("append", log_path, "--topic", "u", given=b"")["code"] == "topic_mismatch"


def test_a_log_of_format_1_is_appended_to_by_its_format(log_path):
    well("append", log_path, "--format", "queuefka", given=b"a\n")
    well("append", log_path, "--format", "queuefka", given=b"b\n")
    assert values(log_path) == [b"a", b"b"]
    assert failure("append", log_path, given=b"c\n")["code"] == "usage"
    error = failure("append", log_path, "--format", "queuefka", given=b"\n")
    assert error["code"] == "record_refused"
    assert "line 1" in error["message"]


def test_a_log_that_has_a_writer_is_locked(log_path):
    with aolog.Writer(log_path):
        assert failure("append", log_path, given=b"x")["code"] == "log_locked"
        assert answer("info", log_path)["writer_open"] in {True, None}


def test_what_trickles_in_is_visible_before_the_input_ends(log_path):
    with started("append", log_path, "--flush-seconds", "50ms") as child:
        child.stdin.write(b"first\npart")
        child.stdin.flush()
        wait_until(lambda: Path(log_path).is_dir() and slab_files(log_path))
        wait_until(lambda: values(log_path) == [b"first"])
        assert child.poll() is None
        status, _, told = ended(child)
        assert (status, values(log_path)) == (0, [b"first", b"part"])
        assert told.startswith("2 records, 9 bytes")


@pytest.mark.parametrize(("signum", "status"), [("SIGTERM", 143), ("SIGINT", 130)])
def test_a_signal_flushes_what_was_read_and_says_what_was_not_whole(log_path, signum, status):
    with started("append", log_path, "--flush-seconds", "1h", "--json") as child:
        child.stdin.write(b"a\n" * 280_000 + b"part")
        child.stdin.flush()
        wait_until(
            lambda: len(slab_files(log_path)) and answer("info", log_path)["records"] > 240_000
        )
        child.send_signal(signal.Signals[signum])
        code, out, err = ended(child)
        said = json.loads(out)
        assert (code, err) == (status, "")
        assert (said["records"], said["unappended_bytes"]) == (280_000, 4)
        assert said["stopped_by"] == signum
        assert len(values(log_path)) == 280_000
        assert answer("verify", log_path)["ok"]


def test_two_signals_at_once_are_one_stop(log_path):
    with started("append", log_path, "--flush-seconds", "50ms") as child:
        child.stdin.write(b"a\n")
        child.stdin.flush()
        wait_until(lambda: Path(log_path).is_dir() and slab_files(log_path))
        wait_until(lambda: values(log_path) == [b"a"])
        for signum in (signal.SIGTERM, signal.SIGHUP):
            child.send_signal(signum)
        status, _, told = ended(child)
    assert status in {129, 143, -signal.SIGHUP}  # the last: it had stopped when the second one came
    assert re.match(r"stopped by SIG(TERM|HUP): 1 record, 1 byte, ", told)


def test_the_outcome_says_how_many_records_retention_has_deleted_already(log_path):
    options = ("--slab-bytes", "10k", "--batch-bytes", "0", "--retention-max-bytes", "30k")
    lines = b"x" * 999 + b"\n"
    said = answer("append", log_path, *options, given=lines * 100)
    assert said["deleted"] == 100 - answer("info", log_path)["records"] > 50
    text = well("append", log_path, *options, given=lines * 100).stderr
    assert text.endswith(
        f"retention has deleted {said['deleted']} of them already: no cursor needs them\n"
    )
    assert "deleted" not in well("append", log_path, *options, given=lines).stderr


@contextmanager
def waiting_for_room(log: str, *options: str) -> Iterator[subprocess.Popen[bytes]]:
    """A command that has read 60 lines of 999 bytes, for which the log has no room."""
    fill(log, [b"x"])
    well("cursor", "set", log, "slow", "earliest")
    options += ("--batch-bytes", "0", "--slab-bytes", "10k", "--retention-max-bytes", "30k")
    with started("append", log, "--when-full", "block", *options) as child:
        child.stdin.write(b"%0999d\n" % 7 * 60)
        child.stdin.flush()
        wait_until(lambda: len(slab_files(log)) == 3)
        time.sleep(0.3)  # it waits now, or is about to
        assert child.poll() is None
        yield child


@pytest.mark.parametrize(("signum", "status"), [("SIGTERM", 143), ("SIGINT", 130)])
def test_a_signal_ends_an_append_that_waits_for_room(log_path, signum, status):
    with waiting_for_room(log_path, "--json") as child:
        child.send_signal(signal.Signals[signum])
        assert child.wait(SOON_S) == status  # its standard input is still open
        _, out, err = ended(child)
    said = json.loads(out)
    assert said["stopped_by"] == signum
    assert "error" not in err
    assert 0 < said["records"] < 60
    assert said["unappended_bytes"] == 999 * (60 - said["records"])
    assert values(log_path)[1:] == [b"%0999d" % 7] * said["records"]
    assert answer("verify", log_path)["ok"]


def test_an_append_that_waits_for_room_goes_on_when_there_is_some(log_path):
    with waiting_for_room(log_path) as child:
        waits = child.stderr.readline().decode().rstrip()
        time.sleep(1.0)  # the wait is reported once
        well("cursor", "delete", log_path, "slow", "--yes")
        status, _, told = ended(child)
    assert status == 0
    (done,) = told.splitlines()
    assert waits.endswith(
        "total of 30720 bytes is reached, and cursor 'slow' needs the oldest slab"
    )
    assert done.startswith("60 records, 59940 bytes")


@pytest.mark.parametrize("slab_bytes", ["200k", "64M"])  # full between slabs, and within one
def test_a_full_disk_is_an_error_that_says_how_many_records_are_in_the_log(
    small_disk, tmp_path, slab_bytes
):
    disk = small_disk(3 << 20)
    log, lines = str(disk / "log"), tmp_path / "input"
    lines.write_bytes(b"".join(b"%09d" % i + b"x" * 990 + b"\n" for i in range(6000)))
    wanted = lines.read_bytes().splitlines()
    options = ("--slab-bytes", slab_bytes)
    result = run("append", log, lines, "--json", *options)
    error = json.loads(result.stderr.splitlines()[-1])["error"]
    inside = error["records_in_log"]
    assert (result.exit_code, error["code"]) == (4, "storage_full")
    assert 1000 < inside <= error["records"] < 4200  # a MiB may wait in memory
    assert values(log, strict=True) == wanted[:inside]
    subprocess.run(["mount", "-o", "remount,size=20m", disk], check=True)
    assert error["hint"] == f"free some space, then append the input from record {inside + 1} on"
    well("append", log, *options, given=b"".join(lines.read_bytes().splitlines(True)[inside:]))
    assert values(log, strict=True) == wanted
    assert answer("verify", log)["ok"]


def test_a_total_that_is_reached_says_where_to_resume(log_path, tmp_path):
    fill(log_path, [b"x"])
    well("cursor", "set", log_path, "slow", "earliest")
    lines = tmp_path / "in"
    lines.write_bytes((b"y" * 999 + b"\n") * 100)
    options = ("--slab-bytes", "10k", "--retention-max-bytes", "30k", "--when-full", "error")
    result = run("append", log_path, lines, *options)
    inside = len(values(log_path)) - 1
    told = result.stderr.splitlines()[-1]
    assert (result.exit_code, 0 < inside < 100) == (4, True)
    assert f"{inside} records of the input are in the log;" in told
    assert told.endswith(
        f"--retention-max-bytes, then append the input from record {inside + 1} on"
    )
