"""`aolog repair`: what it says, and its exit status."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import aolog
from tests.aolog.commands import answer, damage, failure, fill, run, well
from tests.aolog.conftest import slab_files, snapshot, values
from tests.aolog.read import test_gaps


@pytest.fixture
def log(log_path: str) -> str:
    """Ten records of a frame each; the fourth is damaged, and a header copy."""
    fill(log_path, [b"record %d" % i for i in range(10)], batch_bytes=0)
    damage(log_path, b"record 3")
    test_gaps.flip(slab_files(log_path)[0], 0, 512)
    return log_path


def test_a_dry_run_says_what_would_be_done_and_how_much_room_it_takes(log: str) -> None:
    before = snapshot(log)
    said = well("repair", log, "--dry-run").stdout
    assert "would be replaced: header copies, damaged bytes: zeros now\n" in said
    assert "of room are needed" in said
    assert snapshot(log) == before


def test_a_repair_says_what_was_done_and_where_the_originals_are(log: str) -> None:
    said = well("repair", log).stdout
    assert f"originals are kept in {log}/aside/repair-0001" in said
    assert "1 record of damaged frames, unverified: " in said
    assert "1 gap, 1 lost: see aolog verify" in said
    assert well("repair", log).stdout.startswith(f"{log}: nothing to repair\n")
    verified = run("verify", log)
    assert verified.exit_code == 3  # a record stays lost
    assert "kept aside by recovery or repair" in verified.stdout
    assert "Damage that costs no record" not in verified.stdout


def test_a_header_that_is_lost_is_told_as_the_cause_of_its_gap(log):
    for slab in slab_files(log):
        data = bytearray(slab.read_bytes())
        data[:8192] = bytes(8192)
        slab.write_bytes(data[:-100])
    said = run("verify", log).stdout
    assert "Damage that is why records are lost:\n" in said
    assert "no copy of the header is intact: nothing in it can be read" in said
    assert "Damage that costs no record" not in said


def test_gaps_that_a_repair_has_recorded_are_known_and_a_new_one_is_not(log):
    assert run("verify", log, "--known").exit_code == 3
    well("repair", log)
    assert run("verify", log).exit_code == 3  # a record stays lost
    said = well("verify", log, "--known").stdout
    assert said.startswith(f"{log}: ok but for known gaps\n")
    assert "\n1 gap known since repair-0001, none new\n" in said
    assert answer("verify", log, "--known")["known_gaps"] == 1
    intact = next(value for value in values(log) if value)
    damage(log, intact)
    result = run("verify", log, "--known")
    assert result.exit_code == 3
    assert result.stdout.startswith(f"{log}: DAMAGED\n")
    well("repair", log)
    assert "gaps known since repair-0002, none new" in well("verify", log, "--known").stdout
    Path(log, "aside", "repair-0002", "report.json").write_text("{")
    assert run("verify", log, "--known").exit_code == 3


def test_json_has_everything(log: str) -> None:
    said = answer("repair", log, "--json")
    assert [slab["base"] for slab in said["slabs"]] == [0]
    assert said["gaps"][0]["records_lost"] == 1
    assert said["left"] == []
    report = json.loads(Path(said["aside"], "report.json").read_text())
    assert report["slabs"] == said["slabs"]


def test_what_cannot_be_mended_is_in_the_exit_status(log: str) -> None:
    with aolog.Reader(log, cursor="c") as reader:
        reader.read()
        reader.commit()
    cursor = Path(log, "cursors", "c.cursor")
    cursor.write_bytes(bytes(8192))
    result = run("repair", log)
    assert result.exit_code == 3
    assert f"not mended: {cursor}: both copies are damaged" in result.stdout
    assert aolog.verify(log).problems == aolog.repair(log).left


def test_a_fresh_log_and_its_map(log: str, tmp_path: Path) -> None:
    into = tmp_path / "new"
    assert "9 records would be copied" in well("repair", log, "--fresh", into, "-n").stdout
    assert not into.exists()
    said = well("repair", log, "--fresh", into).stdout
    assert f"9 records were copied to {into}\nwhich went where: {into}.map.jsonl\n" in said
    assert values(str(into)) == [b"record %d" % i for i in range(10) if i != 3]
    assert failure("repair", log, "--fresh", into)["code"] == "usage"


def test_a_live_writer_is_an_error_of_its_own(log: str) -> None:
    with aolog.Writer(log):
        assert failure("repair", log)["code"] == "log_locked"
        assert run("repair", log, "-n").exit_code == 5


def test_salvage_stands_alone(log: str, tmp_path: Path) -> None:
    assert failure("repair", log, "--salvage", tmp_path / "x", "--dry-run")["code"] == "usage"
    assert "1 record of damaged frames, unverified" in (
        well("repair", log, "--salvage", tmp_path / "x").stdout
    )


@pytest.mark.parametrize("option", ["--fresh", "--salvage"])
def test_nothing_is_made_without_a_name_or_within_the_log(
    option: str, log: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "link").symlink_to(log)
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path / "empty")
    before = snapshot(log)
    for place in ("", f"{log}/in", f"{tmp_path}/link/in", f"{tmp_path}/empty/../link/in"):
        assert failure("repair", log, option, place)["code"] == "usage"
    assert snapshot(log) == before
    assert list((tmp_path / "empty").iterdir()) == []


def test_a_fresh_log_may_be_named_with_a_slash_behind(log: str, tmp_path: Path) -> None:
    well("repair", log, "--fresh", f"{tmp_path}/new/")
    made = {path.name for path in tmp_path.iterdir() if path.name.startswith("new")}
    assert made == {"new", "new.map.jsonl", "new.salvage.jsonl"}
    assert len(values(str(tmp_path / "new"))) == 9
