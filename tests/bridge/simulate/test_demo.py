"""The demo shows what it says: real records through a real outage and a real kill, compared; and
it fails if anything is missing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bridge.simulate import demo as demo_module
from bridge.simulate.demo import Result, run_demo
from tests.bridge.processes import Start

GOOD = Result(
    input="x", records=10, bytes=100, seconds=1.0, records_per_s=10, outage_s=3.0, outage_at=0.35,
    outage_pending=5, kill_at=0.6, kill_pending=5, lost=0, repeated=0, disordered=0, altered=0,
)  # fmt: skip  # one value


def write_lines(path: Path, count: int) -> Path:
    path.write_bytes(b"".join(b"line %d of some text\n" % i for i in range(count)))
    return path


def test_a_small_file_goes_through_outage_and_kill_whole(bridge: Start, tmp_path: Path) -> None:
    text = write_lines(tmp_path / "text", 700)
    process = bridge("demo", str(text), "--json")
    assert process.end(120) == 0, process.stderr
    (line,) = process.lines
    result = json.loads(line)
    assert result["ok"] is True
    assert "embedded broker at 127.0.0.1:" in " ".join(process.stderr.splitlines()[:2])
    assert result["records"] >= 50_000
    assert result["records"] % 700 == 0
    for moment in ("outage_at", "kill_at"):
        assert 0.2 <= result[moment] <= 0.8
    assert result["outage_at"] < result["kill_at"]
    assert result["outage_s"] >= 3.0
    assert result["outage_pending"] > 0
    assert {result[kind] for kind in ("lost", "repeated", "disordered", "altered")} == {0}
    assert result["seconds"] < 60


# --- when it fails ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "changed",
    [{}, {"lost": 1}, {"repeated": 1}, {"disordered": 1}, {"altered": 1}, {"outage_at": 0.19},
     {"kill_at": 0.81}],
    ids=str,
)  # fmt: skip  # a table
def test_it_ends_with_0_only_if_nothing_is_amiss_and_both_faults_happened_midway(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    changed: dict[str, Any],
    capsys: pytest.CaptureFixture[str],
) -> None:
    result = GOOD._replace(**changed)
    monkeypatch.setattr(demo_module._Demo, "run", lambda _: result)
    assert run_demo([str(write_lines(tmp_path / "text", 5))]) == bool(changed)
    assert (GOOD.proved in capsys.readouterr().out) == (not changed)
