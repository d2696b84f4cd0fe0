"""`aolog repair`: what it says, and its exit status."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import aolog
from tests.aolog.commands import answer, failure, run, well
from tests.aolog.conftest import commit, damage, fill, flip, slab_files, unchanged, values


@pytest.fixture
def log(log_path: str) -> str:
    """Ten records of a frame each; the fourth is damaged, and a header copy."""
    fill(log_path, [b"record %d" % i for i in range(10)], batch_bytes=0)
    damage(log_path, b"record 3")
    flip(slab_files(log_path)[0], 0, 512)
    return log_path


@pytest.fixture
def into(tmp_path: Path) -> Path:
    return tmp_path / "copy"


def test_a_repair_says_what_was_copied_and_that_gaps_stay(log: str, into: Path) -> None:
    with unchanged(log):
        said = well("repair", log, "--into", into).stdout
        lines = said.splitlines()
        assert lines[:2] == [f"{log}: 9 records were copied to {into}", "1 gap, 1 record lost:"]
        (lost,) = aolog.verify(log).gaps
        assert lines[3].split() == [str(lost.begin), str(lost.end), "1", "corrupt"]
        assert lines[2].split() == ["BEGIN", "END", "RECORDS", "LOST", "REASON"]
    assert values(str(into)) == values(log) == [b"record %d" % i for i in range(10) if i != 3]
    verified = well("verify", into)  # a record stays lost, and this is known
    assert verified.stdout.startswith(f"{into}: ok except for known gaps\n")
    assert "1 gap known, 0 new" in verified.stdout
    assert "Damage that cost no record" not in verified.stdout
    assert failure("repair", log, "--into", into)["code"] == "usage"


def test_a_repair_that_copies_nothing_names_salvage(log_path: str, into: Path) -> None:
    fill(log_path, [b"record"])
    damage(log_path, b"record")
    said = well("repair", log_path, "--into", into).stdout
    assert f"`aolog salvage {log_path}`" in said
    assert len(well("salvage", log_path).stdout.splitlines()) == 1


def test_a_copy_verifies_as_whole_where_a_seal_and_a_slab_s_own_name_were_lost(
    log_path: str, into: Path, tmp_path: Path
) -> None:
    fill(log_path, [b"%0999d" % i for i in range(60)], batch_bytes=0, slab_bytes=16 << 10)
    slabs = slab_files(log_path)
    assert len(slabs) > 5
    with slabs[0].open("r+b") as file:
        file.truncate(slabs[0].stat().st_size - 99)
    first, second = slabs[2].read_bytes(), slabs[3].read_bytes()
    slabs[2].write_bytes(second)
    slabs[3].write_bytes(first)
    well("repair", log_path, "--into", into)
    clone = tmp_path / "clone"
    well("backup", into, clone, "--new-uuid")
    for copy in (into, clone):
        said = well("verify", copy).stdout
        assert said.startswith(f"{copy}: ok except for known gaps\n")
        assert "2 gaps known, 0 new" in said
        assert "Damage" not in said
    with slabs[4].open("r+b") as file:
        file.truncate(slabs[4].stat().st_size - 99)
    shutil.copy(slabs[4], into / slabs[4].name)
    said = run("verify", into)
    assert (said.exit_code, "2 gaps known, 1 new" in said.stdout) == (3, True)


def test_new_damage_of_a_copy_is_found_and_a_backup_of_it_keeps_what_is_known(
    log: str, into: Path, tmp_path: Path
) -> None:
    well("repair", log, "--into", into)
    for again, how in ((tmp_path / "backup", "backup"), (tmp_path / "second", "repair")):
        well(how, into, *(("--into",) if how == "repair" else ()), again)
        assert aolog.verify(again).ok
    assert run("backup", log, tmp_path / "damaged").exit_code == 3
    assert not aolog.verify(tmp_path / "damaged").ok  # nobody has accepted these gaps
    damage(str(into), b"record 7")
    said = run("verify", into)
    assert said.exit_code == 3
    assert "1 gap known, 1 new" in said.stdout
    report = aolog.verify(into)
    assert report.known == report.gaps[:1]
    endless = b'{"gaps": [{"begin": 0, "end": 1e999, "records_lost": null}], "findings": []}'
    for hostile in (b"{", endless):
        (into / "known-gaps.json").write_bytes(hostile)
        assert not aolog.verify(into).known


def test_a_dry_run_says_what_would_be_copied_and_how_much_room_it_takes(
    log: str, into: Path
) -> None:
    with unchanged(into.parent):
        said = well("repair", log, "--into", into, "-n").stdout
        assert "9 records would be copied" in said
        assert "the copy needs 1.0 MiB" in said


def test_json_has_everything(log: str, into: Path) -> None:
    commit(log, 0)
    said = answer("repair", log, "--into", into, "--new-uuid")
    assert (said["log"], said["into"], said["records"]) == (log, str(into), 9)
    assert said["cursors"] == ["c"]
    assert [gap["records_lost"] for gap in said["gaps"]] == [1]
    assert said["left"] == []
    uuids = {str(answer("info", path)["topic_uuid"]).replace("-", "") for path in (log, into)}
    assert said["topic_uuid"] in uuids
    assert len(uuids) == 2
