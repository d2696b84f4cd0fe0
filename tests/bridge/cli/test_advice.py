"""What `status` and `top` say to do: something for each problem, nothing without one."""

from __future__ import annotations

import json
from pathlib import Path
from uuid import UUID

import pytest
from click.testing import CliRunner

from aolog import Reader, Writer
from bridge import Buffer, MemoryProvider
from bridge.cli import main
from bridge.cli.log_table import advice_of, lines_of
from bridge.operate.health import log_row
from bridge.pull.origin import Origin, Source
from bridge.pull.positions import Mark, mark_units, save_positions
from bridge.supervise.status import STUCK_S
from bridge.supervise.turns import Phase
from tests.bridge.operate.endpoints import LOG

WELL = LOG._replace(lost_records=0, gaps=0, dead_lettered=0, dropped=0)


@pytest.mark.parametrize("width", [None, 70, 120])
def test_a_table_of_no_logs_is_its_head(width: int | None) -> None:
    (head,) = lines_of([], width)
    assert head.text.startswith("LOG")
    assert "STATE" in head.text


def test_a_log_without_a_problem_needs_no_advice() -> None:
    for state in ("live", "draining", "stopped"):
        assert advice_of(log_row(WELL._replace(state=state))) == ""
    on_disk = {"log": "l", "state": "stopped", "lag_records": 0, "lost_records": 0, "error": None}
    assert advice_of(on_disk) == ""


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"state": "connecting"}, "check bootstrap_servers"),
        ({"state": "blocked"}, "SIGHUP"),
        ({"state": "blocked", "phase": Phase.PAUSED}, "resume it"),
        ({"silent_s": STUCK_S + 1}, "restart the bridge"),
        ({"lost_records": 1}, "status --log"),
        ({"gaps": 1}, "status --log"),
        ({"dead_lettered": 1}, "replay --dead-letter"),
        ({"dropped": 1}, "producer"),
        ({"cut_off": True}, "ended the process before"),
    ],
)
def test_each_problem_has_its_advice(changes: dict[str, object], said: str) -> None:
    advice = advice_of(log_row(WELL._replace(**changes)))  # type: ignore[arg-type]
    assert advice.count(said) == 1


def test_what_the_disk_shows_has_advice_too() -> None:
    row = {"log": "l", "state": "stopped", "lag_records": 5, "lost_records": 7, "error": "pruned"}
    advice = advice_of(row)
    assert "aolog-bridge run;" in advice
    assert "its Buffer sends them" in advice_of({**row, "cursor": "buffer"})
    assert "aolog-bridge run --cursor NAME" in advice_of({**row, "cursor": "nightly"})
    assert "Retention(max_bytes=...)" in advice
    assert "as the log's owner" in advice_of({**row, "error": "permission_denied"})


@pytest.mark.parametrize("units", [False, True])
def test_an_archive_of_pull_is_continued_by_pull_and_runs_while_it_is_written(
    tmp_path: Path, *, units: bool
) -> None:
    """A bridge would send its records to Kafka again."""
    log = tmp_path / "log"

    def shown(*more: str) -> str:
        return CliRunner().invoke(main, ["status", "--log", str(log), *more]).stdout

    with Writer(log) as writer:
        writer.append(b"x")
        writer.sync()
        assert "aolog-bridge run" in shown()
        if units:
            mark_units(str(log))
        else:
            mark = Mark(0, Origin(Source("c", UUID(int=1), 0), 5))
            save_positions(str(log), bytes(16), mark, {})
        assert json.loads(shown("--json"))["logs"][0]["state"] == "running"
    assert "aolog-bridge pull continues it" in " ".join(shown().split())
    with Reader(log, cursor="bridge") as reader:
        reader.commit()
    assert "start it: aolog-bridge run" in shown()


def test_the_status_of_a_buffer_s_log_is_that_of_its_own_cursor(tmp_path: Path) -> None:
    """By the cursor of a bridge, all would be pending, and a bridge would send all again."""

    def row() -> tuple[object, ...]:
        shown = CliRunner().invoke(main, ["status", "--log", str(tmp_path / "log"), "--json"])
        (found,) = json.loads(shown.stdout)["logs"]
        return found["cursor"], found["state"], found["lag_records"]

    with Buffer(MemoryProvider(), tmp_path / "log", mode="always") as buffer:
        buffer.send("t", b"x")
        assert row()[:2] == ("buffer", "running")
    assert row() == ("buffer", "stopped", 0)
