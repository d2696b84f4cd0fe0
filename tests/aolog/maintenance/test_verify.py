"""`verify` names what is damaged, which copy of it, and what is no damage at all."""

from __future__ import annotations

import json
import os
import shutil
import struct
import time
from pathlib import Path
from typing import Any

import pytest

import aolog
from aolog.format import columns
from aolog.format.cursor_copy import encode_copies
from aolog.format.frame import (
    FLAG_DURABLE,
    FRAME_HEADER_LEN,
    decode_header,
    encode_frame,
    encode_header,
)
from aolog.format.slab import encode_seal
from aolog.log.cursor_file import read_position
from aolog.log.directory import Log
from aolog.maintenance.baseline import known_gaps_content, parse_baseline
from aolog.maintenance.report import Report
from aolog.storage.storage import Storage
from tests.aolog.commands import failure, run
from tests.aolog.conftest import fill, flip, frames_of, overwrite, slab_files
from tests.aolog.maintenance.test_repair import commit
from tests.aolog.read import test_gaps
from tests.aolog.read.test_gaps import Built, build


@pytest.fixture(scope="module")
def sealed(tmp_path_factory: pytest.TempPathFactory) -> Built:
    return build(str(tmp_path_factory.mktemp("verify") / "log"), closed=True)


@pytest.fixture
def log(sealed: Built, tmp_path: Path) -> Built:
    path = str(tmp_path / "log")
    shutil.copytree(sealed.path, path)
    return sealed.at(path)


def codes(path: str, *, damage: bool = True) -> list[str]:
    return [found.code for found in aolog.verify(path).findings if found.damage == damage]


def test_verify_ends_beside_a_writer_that_appends_faster_than_it_is_read(tmp_path: Path) -> None:
    path, calls = str(tmp_path / "log"), 0
    with aolog.Writer(path, batch_bytes=0, slab_bytes=65536, sync="never") as writer:

        def append(_done: int, _total: int) -> None:
            nonlocal calls
            calls += 1
            assert calls < 2000, "verify follows the writer"
            writer.append_many([b"x" * 1000] * 40)
            writer.flush()

        for _ in range(1000):
            writer.append(b"x")
        writer.flush()
        report = aolog.verify(path, progress=append)
        assert report.ok
        assert 1000 <= report.records <= 1000 + 40 * calls
        assert report.end < writer.end
        assert report.slabs < len(slab_files(path))
    assert aolog.verify(path).records == 1000 + 40 * calls


@pytest.mark.parametrize("at", [0, 4096])
def test_a_damaged_header_copy_is_named(log: Built, at: int) -> None:
    flip(log.slabs[1], at, 512)
    report = aolog.verify(log.path)
    assert [found.code for found in report.findings] == ["header_copy"]
    assert f"copy at {at} is damaged; the other is intact" in report.problems[0]
    assert not report.ok
    assert report.gaps == []


def test_a_slab_under_another_name_is_named(log: Built) -> None:
    shutil.copy(log.slabs[0], log.slabs[1])
    report = aolog.verify(log.path)
    assert [found.code for found in report.findings] == ["renamed"]
    assert "is the slab of base 0 under another name" in report.problems[0]


def reseal(log: Built, i: int, **changes: Any) -> None:
    """The seal of the slab says something else, under right checksums."""
    listed = Log(log.path, Storage())
    slab = listed.slab(i)
    seal, at = slab.seal(), log.seals[i].begin
    assert seal is not None
    parts = encode_seal(seal._replace(**changes), at, flags=FLAG_DURABLE, timestamp_us=5)
    overwrite(log.slabs[i], at, b"".join(parts))
    listed.close()


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"records": 49}, "records 49, the frames have 50"),
        ({"frames": 7}, "frames 7, the frames have 5"),
        ({"least_us": 3}, "least timestamp 3"),
        ({"greatest_us": 4}, "greatest timestamp 4"),
        ({"headers_hash": 1}, "hash of the frame headers 1"),
    ],
)
def test_a_seal_that_says_something_else_is_named(
    log: Built, change: dict[str, int], told: str
) -> None:
    reseal(log, 1, **change)
    report = aolog.verify(log.path)
    assert [found.code for found in report.findings] == ["seal_differs"]
    assert told in report.problems[0]


def test_a_seal_s_copy_of_the_header_is_compared(log: Built) -> None:
    listed = Log(log.path, Storage())
    header = listed.slab(1).header
    listed.close()
    assert header is not None
    reseal(log, 1, header=header._replace(created_us=5))
    assert codes(log.path) == ["seal_header"]
    aolog.repair(log.path, f"{log.path}.copy")
    assert codes(f"{log.path}.copy") == []


def test_an_index_that_leads_elsewhere_is_named(log: Built) -> None:
    listed = Log(log.path, Storage())
    index = listed.slab(1).seal().index
    listed.close()
    index.offsets[0] += 8
    reseal(log, 1, index=index)
    assert codes(log.path) == ["seal_differs"]
    assert "its index differs from the frames' offsets" in aolog.verify(log.path).problems[0]


def test_a_damaged_seal_is_named_where_it_must_have_been(log: Built) -> None:
    test_gaps.head(log.seals[1]._replace(slab=log.slabs[1]))  # its trailer is intact
    test_gaps.trailer(log.slabs[2])  # nothing of it is, but the next slab followed in its epoch
    findings = aolog.verify(log.path).findings
    assert [(f.code, f.path) for f in findings] == [("seal", str(log.slabs[i])) for i in (1, 2)]


def test_frames_that_do_not_count_are_named(log: Built) -> None:
    frame = log.frames[1][2]
    listed = Log(log.path, Storage())
    salt = listed.slab(1).header.salt
    listed.close()
    head = decode_header(frame.slab.read_bytes(), frame.begin, frame.begin, salt)
    assert head is not None
    made = encode_header(head._replace(ordinal=head.ordinal + 1), frame.begin, salt)
    overwrite(frame.slab, frame.begin, made)
    assert codes(log.path) == ["seal_differs"]


@pytest.mark.parametrize(("count", "short"), [(0, 0), (0, 7), (10_000, 0), (10_000, 7)])
def test_a_frame_of_nonsense_with_right_hashes_is_a_gap_and_no_crash(
    log: Built, count: int, short: int
) -> None:
    frame = frames_of(log.path)[0]
    listed = Log(log.path, Storage())
    header = listed.slab(0).header
    listed.close()
    assert header is not None
    size = frame.end - frame.begin - FRAME_HEADER_LEN
    bits = columns.VALUES | columns.TIMESTAMPS
    body: list[bytes | memoryview] = [bytes(size - short)]
    made, _ = encode_frame(frame.begin, header.salt, body, count=min(count, size), columns=bits)
    overwrite(frame.slab, frame.begin, b"".join(made))
    (gap,) = aolog.verify(log.path).gaps
    assert gap[:3] == (frame.base + frame.begin, frame.base + frame.end, "corrupt")


# --- cursors ---------------------------------------------------------------------------------


def test_cursors_are_named_with_what_is_wrong(log: Built, tmp_path: Path) -> None:
    other = str(tmp_path / "other")
    fill(other, [b"theirs"])
    names = ("fine", "one", "both", "before")
    files = {name: commit(log.path, name, 5, 5) for name in names}
    flip(files["one"], 20)
    flip(files["both"], 20)
    flip(files["both"], 4096 + 20)
    shutil.copy(commit(other, "c", 1), Path(log.path, "cursors", "foreign.cursor"))
    log.slabs[0].unlink()
    report = aolog.verify(log.path)
    assert sorted((f.code, Path(f.path).stem) for f in report.findings) == [
        ("cursor_copy", "one"),
        ("cursor_corrupt", "both"),
        ("cursor_foreign", "foreign"),
        *(("cursor_pruned", name) for name in ("before", "fine", "one")),
    ]
    assert "copy at 0 is damaged; the other is intact" in "".join(report.problems)
    assert len(aolog.repair(log.path, f"{log.path}.copy").left) == 2


def test_a_cursor_ahead_of_the_end_and_one_that_diverged_are_told_apart(log: Built) -> None:
    """The log is cut back to three slabs, as a restored backup is, and then written."""
    with aolog.Reader(log.path, "latest", cursor="c") as reader:
        reader.commit()
    log.slabs[3].unlink()
    assert codes(log.path) == ["cursor_ahead"]
    lost = aolog.verify(log.path).gaps
    assert [gap.records_lost for gap in lost] == [40]
    with aolog.Writer(log.path) as writer:
        assert writer.opening.epoch == 2
        writer.append(b"new")
    assert aolog.verify(log.path).gaps == lost
    assert codes(log.path) == []
    cursor = Path(log.path, "cursors", "c.cursor")
    data = bytearray(cursor.read_bytes())
    address = struct.unpack_from("<Q", data, 40)[0]
    import xxhash

    struct.pack_into("<Q", data, 40, address + (1 << 50))
    struct.pack_into("<I", data, 64, xxhash.xxh32_intdigest(bytes(data[:64])))
    cursor.write_bytes(data)
    assert codes(log.path) == ["cursor_diverged"]
    with pytest.raises(aolog.CursorDiverged):
        aolog.Reader(log.path, cursor="c")


@pytest.mark.parametrize("where", ["at a frame's end", "inside a frame"])
def test_a_log_that_was_cut_short_is_damaged_if_a_cursor_shows_its_end(
    log: Built, where: str, caplog: pytest.LogCaptureFixture
) -> None:
    with aolog.Reader(log.path, cursor="c") as reader:
        assert sum(1 for _ in reader) == 190
        reader.commit()
        once = reader.tell()
    slab, frame = log.slabs[3], log.frames[3][1]  # the last but two of its four
    os.truncate(slab, frame.end + (20 if where == "inside a frame" else 0))
    lost = aolog.Gap(log.base(3) + frame.end, once, "corrupt", 20)
    result = run("verify", log.path)
    assert result.exit_code == 3
    assert f"the log ended at {once} (ordinal 190) once; 20 records are missing" in result.stdout
    assert "Damage that caused gaps:" in result.stdout
    assert aolog.verify(log.path).gaps == [lost]
    assert json.loads(run("cursor", "list", log.path, "--json").stdout)["state"] == "ahead"

    copy = f"{log.path}.copy"
    for dry_run in (True, False):
        assert aolog.repair(log.path, copy, dry_run=dry_run).gaps == [lost]
    assert aolog.verify(copy).known == [lost]  # the loss is known there
    for path in (log.path, copy):
        caplog.clear()
        with aolog.Writer(path) as writer:
            added = writer.append(b"new")
        assert f"the log ended at {once} (ordinal 190) once; 20 records are missing" in caplog.text
        assert "did not close" not in caplog.text
        with aolog.Reader(path) as reader:
            assert [record.address for record in reader][170:] == [added]
            assert reader.gaps == [lost]
        with aolog.Reader(path, cursor="c") as reader:  # it has read what is missing
            assert [record.address for record in reader] == [added]
            assert reader.gaps == []
            assert reader.ordinal == 191
        assert aolog.verify(path).gaps == [lost]


def test_of_two_cursors_past_the_end_one_that_knows_its_ordinal_counts(log: Built) -> None:
    for name in ("a", "b"):
        with aolog.Reader(log.path, "latest", cursor=name) as reader:
            reader.commit()
    unsure = read_position(log.path, "a", Storage())._replace(ordinal=None)
    Path(log.path, "cursors", "a.cursor").write_bytes(b"".join(encode_copies(unsure)))
    frame = log.frames[3][1]
    os.truncate(log.slabs[3], frame.end)
    lost = [aolog.Gap(log.base(3) + frame.end, unsure.address, "corrupt", 20)]
    assert aolog.verify(log.path).gaps == lost
    with aolog.Writer(log.path) as writer:
        writer.append(b"new")
    assert aolog.verify(log.path).gaps == lost


def test_a_log_without_marks_shows_nothing_durable(log_path: str) -> None:
    fill(log_path, [b"a"], format="queuefka")
    assert "nothing in the log shows how much of it is durable" in run("verify", log_path).stdout


def test_a_seal_that_was_cut_off_costs_no_record(log: Built) -> None:
    with aolog.Reader(log.path, "latest", cursor="c") as reader:
        reader.commit()
    seal = log.seals[3]
    assert seal is not None
    os.truncate(log.slabs[3], seal.begin)
    assert codes(log.path, damage=False) == ["cursor_ahead"]
    assert aolog.verify(log.path).ok
    with aolog.Writer(log.path) as writer:
        writer.append(b"new")
    assert aolog.verify(log.path).gaps == []


def test_format_1_that_was_cut_short_is_damaged_if_a_cursor_shows_its_end(log_path: str) -> None:
    fill(log_path, [b"a", b"b"], format="queuefka")
    with aolog.Reader(log_path, "latest", cursor="c") as reader:
        once = reader.commit() or reader.tell()
    (slab,) = slab_files(log_path)
    os.truncate(slab, once // 2)
    report = aolog.verify(log_path)
    assert report.gaps == [aolog.Gap(once // 2, once, "torn_or_corrupt", None)]
    assert f"the log ended at {once} once; an unknown number of records is missing" in str(
        report.problems
    )


# --- how ---------------------------------------------------------------------------------------


def test_each_byte_is_read_about_once(log_path: str) -> None:
    fill(log_path, [bytes(1000)] * 20_000, slab_bytes=4 << 20)
    read = 0

    class Counting(Storage):
        def open_read(self, path: str) -> object:
            file = super().open_read(path)
            plain = file.pread

            def pread(size: int, offset: int) -> bytes:
                nonlocal read
                data = plain(size, offset)
                read += len(data)
                return data

            file.pread = pread
            return file

    report = aolog.verify(log_path, storage=Counting())
    assert report.ok
    assert report.bytes < read < 1.2 * report.bytes


def test_the_command_tells_damage_by_what_it_cost(log: Built) -> None:
    flip(log.slabs[0], 0, 512)
    commit(log.path, "c", 1)
    result = run("verify", log.path)
    assert result.exit_code == 3
    assert "Damage that cost no record:\n  " in result.stdout
    assert "header copy at 0 is damaged" in result.stdout
    assert "BEGIN" not in result.stdout
    test_gaps.body(log.frames[1][2])
    assert "RECORDS LOST" in run("verify", log.path).stdout


# --- gaps that are known -----------------------------------------------------------------------


def baseline_of(path: str, to: Path) -> Path:
    to.write_text(run("verify", path, "--json").stdout)
    return to


def new_gaps(path: str, baseline: Path) -> list[tuple[int, int]]:
    """Those that --baseline reports; the exit status goes with them."""
    result = run("verify", path, "--baseline", baseline, "--json")
    told = json.loads(result.stdout)
    gaps = [(gap["begin"], gap["end"]) for gap in told["new_gaps"]]
    assert result.exit_code == (3 if gaps or told["new_findings"] else 0)
    plain = run("verify", path, "--baseline", baseline)
    assert plain.exit_code == result.exit_code
    state = "DAMAGED" if result.exit_code else "ok"
    assert plain.stdout.startswith(f"{path}: {state}")
    return gaps


def test_gaps_of_the_baseline_are_accepted_and_a_new_one_is_not(log: Built, tmp_path: Path) -> None:
    test_gaps.body(log.frames[1][2])
    known = baseline_of(log.path, tmp_path / "known.json")
    assert run("verify", log.path).exit_code == 3
    assert new_gaps(log.path, known) == []
    said = run("verify", log.path, "--baseline", known).stdout
    assert said.startswith(f"{log.path}: ok except for known gaps\n")
    assert "\n1 gap known, 0 new\n" in said
    test_gaps.body(log.frames[0][1])
    new = log.frames[0][1]
    assert new_gaps(log.path, known) == [(new.begin, new.end)]


def test_a_gap_that_grew_is_reported(log: Built, tmp_path: Path) -> None:
    test_gaps.body(log.frames[1][2])
    known = baseline_of(log.path, tmp_path / "known.json")
    test_gaps.body(log.frames[1][3])  # beside it: one gap of both
    base = log.base(1)
    assert new_gaps(log.path, known) == [
        (base + log.frames[1][2].begin, base + log.frames[1][3].end)
    ]


CAUSED = {
    "header": lambda log: test_gaps.all_copies_of_the_header(log),
    "seal": lambda log: test_gaps.head(log.seals[1]._replace(slab=log.slabs[1])),
    "name": lambda log: shutil.copy(log.slabs[0], log.slabs[1]),
    "no_slab": lambda log: log.slabs[1].unlink(),
}


@pytest.mark.parametrize("what", CAUSED)
def test_what_causes_a_known_gap_is_known_too(log: Built, tmp_path: Path, what: str) -> None:
    CAUSED[what](log)
    known = baseline_of(log.path, tmp_path / "known.json")
    assert new_gaps(log.path, known) == []
    test_gaps.head(log.seals[2]._replace(slab=log.slabs[2]))
    assert len(new_gaps(log.path, known)) == 1


def test_a_baseline_of_a_log_holds_for_its_repaired_copy(log: Built, tmp_path: Path) -> None:
    test_gaps.body(log.frames[1][2])
    flip(log.slabs[0], 0, 512)
    test_gaps.head(log.seals[2]._replace(slab=log.slabs[2]))
    known = baseline_of(log.path, tmp_path / "known.json")
    assert run("verify", log.path, "--baseline", known).exit_code == 3  # a header copy
    aolog.repair(log.path, tmp_path / "copy")
    assert run("verify", tmp_path / "copy", "--baseline", known).exit_code == 0


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"gaps": [{"begin": 1}], "findings": []}', '{"gaps": 5}']
)
def test_a_file_that_is_no_report_is_no_baseline(log: Built, tmp_path: Path, text: str) -> None:
    file = tmp_path / "known.json"
    file.write_text(text)
    error = failure("verify", log.path, "--baseline", file)
    assert error["code"] == "usage"
    assert "aolog verify LOG --json > FILE" in str(error["hint"])


def test_many_known_gaps_are_compared_in_no_time_and_a_new_one_is_found() -> None:
    gaps = [aolog.Gap(n, n + 10, "body", 1) for n in range(0, 2_000_000, 100)]
    new = [gaps[7]._replace(records_lost=2), gaps[-1]._replace(end=gaps[-1].end + 1)]
    report = Report(False, 0, 0, 0, 0, sorted([*gaps, *new]), 0, 0, 0, [], known=gaps)
    known = parse_baseline(known_gaps_content(reversed(gaps), []), "known.json")
    began_s = time.process_time()
    assert report.new_gaps == new
    assert known.news(report).gaps == new
    assert [gap for gap in report.gaps if not known.covers(gap)] == new
    assert time.process_time() - began_s < 2.0  # 13 s if each was compared with each
