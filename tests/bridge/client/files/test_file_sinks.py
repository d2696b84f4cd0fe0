"""A log's records into files without Kafka: which file gets which record, also when it is killed."""

import json
import os
from datetime import UTC, datetime
from types import SimpleNamespace

import pytest

from aolog import Reader, Retention, Writer
from aolog.errors import CorruptionError
from bridge.client.files import file_system as files
from bridge.client.files.file_sinks import CountedFiles, DailyFiles
from tests.bridge.client.files.file_configurations import Crash, visible
from tests.bridge.client.files.file_configurations import nth as nth_call

DAY_US = 86_400_000_000
NOON_US = 1_769_860_800_000_000  # 2026-01-31T12:00:00Z


@pytest.fixture
def log(tmp_path):
    with Writer(tmp_path / "log") as writer:
        yield writer


def fill(log, *values, day=0):
    for value in values:
        log.append(value, timestamp=NOON_US + day * DAY_US)
    log.sync()


def client(log, out):
    return SimpleNamespace(log=log.path, directory=out)


def counted(log, out, now, **more):
    options = {"messages_per_file": 2, "time_per_file": 5, **more}
    table = SimpleNamespace(file_name="n", file_extension="e", **options)
    return CountedFiles(client(log, out), table, clock=lambda: now[0])


def daily(log, out, name="n", extension="e"):
    return DailyFiles(client(log, out), SimpleNamespace(file_name=name, file_extension=extension))


def contents(out):
    return sorted((out / name).read_bytes() for name in visible(out))


def test_files_have_so_many_messages_or_those_of_so_many_seconds(tmp_path, log):
    out, now = tmp_path / "out", [0.0]
    out.mkdir()
    sink = counted(log, out, now)
    fill(log, b"1", b"2\n", b"3", b"4", b"5")
    sink.step()
    assert contents(out) == [b"1\n2\n", b"3\n4\n"]
    now[0] = 4
    sink.step()
    assert len(contents(out)) == 2
    now[0] = 5
    sink.step()
    assert contents(out) == [b"1\n2\n", b"3\n4\n", b"5\n"]
    assert all(name.endswith("n.e") for name in visible(out))
    sink.close()


@pytest.mark.parametrize("kind", ["counted", "daily"])
def test_an_empty_message_is_no_line_and_is_passed(tmp_path, log, kind):
    out = tmp_path / "out"
    out.mkdir()

    def sink():
        if kind == "counted":
            return counted(log, out, [0.0])
        return daily(log, out)

    first = sink()
    fill(log, b"", b"1", None, b"2", b"")
    first.step()
    first.close()
    assert contents(out) == [b"1\n2\n"]
    with Reader(log.path, cursor="files") as reader:
        assert reader.read() is None
    again = sink()
    fill(log, b"3", b"4")
    again.step()
    again.close()
    assert b"".join(contents(out)) == b"1\n2\n3\n4\n"


def test_a_sink_protects_records_from_retention_before_it_has_written_any(tmp_path):
    out = tmp_path / "out"
    out.mkdir()
    keep = Retention(max_slabs=1)
    with Writer(tmp_path / "log", slab_bytes=4096, retention=keep) as writer:
        sink = counted(writer, out, [0.0], messages_per_file=50, time_per_file=None)
        for i in range(50):
            writer.append(b"%d" % i + b" " * 1000)
            writer.sync()
        sink.step()
        sink.close()
    (content,) = contents(out)
    assert [int(line) for line in content.splitlines()] == list(range(50))


@pytest.mark.parametrize("call", ["write", "move"])
@pytest.mark.parametrize("after", [False, True])
def test_a_crash_anywhere_writes_each_record_to_one_file(tmp_path, log, monkeypatch, call, after):
    out, now = tmp_path / "out", [0.0]
    out.mkdir()
    fill(log, b"1", b"2", b"3", b"4", b"5", b"6")
    for nth in (1, 2):
        sink = counted(log, out, now)
        with monkeypatch.context() as patched, pytest.raises(Crash):
            patched.setattr(files, call, nth_call(getattr(files, call), nth, _crash, after=after))
            sink.step()
        sink.close()
    sink = counted(log, out, now)
    sink.step()
    sink.close()
    assert contents(out) == [b"1\n2\n", b"3\n4\n", b"5\n6\n"]
    assert [name for name in os.listdir(out) if name.startswith(".")] == []


def _crash():
    raise Crash


def test_a_day_has_a_file_by_the_records_own_time(tmp_path, log):
    out = tmp_path / "out"
    out.mkdir()
    sink = daily(log, out, "picks", "json")
    fill(log, b"a", b"b")
    fill(log, b"c", day=1)
    sink.step()
    fill(log, b"late")
    sink.step()
    sink.close()
    daily(log, out, "picks", "json").close()  # what is finished stays: its records may be pruned
    assert (out / "2026-01-31_picks.json").read_bytes() == b"a\nb\nlate\n"
    assert (out / "2026-02-01_picks.json").read_bytes() == b"c\n"
    unnamed = tmp_path / "unnamed"
    unnamed.mkdir()
    daily(log, unnamed, "", "json").close()


@pytest.mark.parametrize("time_us", [2**63 - 1, -(2**63), -(2**62)])
def test_a_record_without_a_day_goes_to_the_present_one(tmp_path, log, time_us, caplog):
    """A log of an earlier release may have such a record."""
    out = tmp_path / "out"
    out.mkdir()
    log.append_many([b"odd"], timestamps=[time_us])
    log.sync()
    sink = daily(log, out)
    sink.step()
    sink.close()
    (name,) = visible(out)
    assert abs(datetime.now(UTC) - datetime.fromisoformat(f"{name[:10]}T12Z")).days <= 1
    assert (out / name).read_bytes() == b"odd\n"
    assert f"has no day; it goes to {name[:10]}" in caplog.text


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"address": 1}', '{"address": 0, "files": {"a": "b"}}']
)
def test_a_damaged_state_of_an_archive_is_named_and_nothing_is_changed(tmp_path, log, text):
    (tmp_path / ".aolog-archive").write_text(text + " ")
    with pytest.raises(CorruptionError, match="aolog-archive"):
        daily(log, tmp_path)
    assert (tmp_path / ".aolog-archive").read_text() == text + " "


@pytest.mark.parametrize(
    ("where", "call"), [(files, "write"), (files, "append"), (Reader, "commit")]
)
@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("nth", [1, 2, 3])
def test_a_crash_anywhere_archives_each_record_once(
    tmp_path, log, monkeypatch, where, call, after, nth
):
    out = tmp_path / "out"
    out.mkdir()
    sink = daily(log, out)
    with monkeypatch.context() as patched:
        patched.setattr(where, call, nth_call(getattr(where, call), nth, _crash, after=after))
        try:
            for day in range(3):
                fill(log, b"a", b"b", day=day)
                fill(log, b"c", day=0)
                sink.step()
        except Crash:
            pass
    sink.close()
    sink = daily(log, out)
    sink.step()
    sink.close()
    found = b"".join((out / name).read_bytes() for name in visible(out)).split()
    with Reader(log.path) as reader:
        assert sorted(found) == sorted(record.value for record in reader)


def test_a_step_that_an_earlier_version_had_written_is_not_repeated(tmp_path, log):
    """It stored where the step ended, too, and was killed before the commit."""
    fill(log, b"a", b"b")
    (tmp_path / "2026-01-31_n.e").write_bytes(b"a\nb\n")
    state = {"address": log.end, "files": {"2026-01-31_n.e": 4}}
    (tmp_path / ".aolog-archive").write_text(json.dumps(state))
    sink = daily(log, tmp_path)
    fill(log, b"c")
    sink.step()
    sink.close()
    assert (tmp_path / "2026-01-31_n.e").read_bytes() == b"a\nb\nc\n"
