"""What `status` and `top` say to do: something for each problem, nothing without one."""

from __future__ import annotations

import pytest

from bridge.cli.log_table import advice_of, lines_of
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
        assert advice_of(WELL._replace(state=state).as_json()) == ""
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
    advice = advice_of(WELL._replace(**changes).as_json())  # type: ignore[arg-type]
    assert advice.count(said) == 1


def test_what_the_disk_shows_has_advice_too() -> None:
    row = {"log": "l", "state": "stopped", "lag_records": 5, "lost_records": 7, "error": "pruned"}
    advice = advice_of(row)
    assert "aolog-bridge run" in advice
    assert "Retention(max_bytes=...)" in advice
    assert "as the log's owner" in advice_of({**row, "error": "permission_denied"})
