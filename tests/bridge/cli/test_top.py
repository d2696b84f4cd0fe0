"""What `top` and `status` draw, at every width."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from bridge.cli.log_table import lines_of
from bridge.cli.top import ORDERS, picture
from bridge.operate.health import log_row
from bridge.supervise.status import overview
from tests.bridge.operate.shown import BRIDGES, LONG, MISSING, WELL

URGENT, BY_NAME, *_ = ORDERS


def status(bridge: str) -> dict[str, Any]:
    """As `/status` answers."""
    shown = BRIDGES[bridge]()
    shown.monitor.sample()
    return {
        "overview": overview(shown.logs)._asdict(),
        "summary": shown.monitor.summary(shown.logs),
        "clusters": [cluster._asdict() for cluster in shown.monitor.health.clusters],
        "logs": [log_row(log) for log in shown.logs],
    }


@pytest.mark.parametrize("width", [70, 120, 160])
@pytest.mark.parametrize("bridge", BRIDGES)
def test_no_line_is_wider_than_the_terminal_and_the_keys_are_on_the_last(
    bridge: str, width: int
) -> None:
    lines = picture(status(bridge), width, 24, URGENT).plain.split("\n")
    assert len(lines) == 24
    assert max(map(len, lines)) <= width
    assert lines[-1] == "q quit   o order: the most urgent first"
    (head,) = (line for line in lines if line.startswith("LOG "))
    assert ("CLUSTER" in head) == (width >= 110 or bridge == "crowded")
    assert {"PENDING", "OLDEST", "OUT/S", "LOST"} <= set(head.split())


def test_numbers_end_in_one_column_and_long_names_keep_both_ends() -> None:
    logs = [WELL, WELL._replace(log=LONG, lost_records=1_234_567)]
    head, first, second, *_ = [line.text for line in lines_of([log_row(x) for x in logs], 70)]
    assert len(head) == len(first) == len(second)
    assert (first[-2:], second[-9:]) == (" 0", "1,234,567")
    assert "…" in second.split()[0]
    assert (second[:11], second.split()[0][-6:]) == (LONG[:11], LONG[-6:])


def test_the_reason_and_what_to_do_are_below_the_log_and_said_once() -> None:
    logs = [MISSING._replace(log="a"), MISSING._replace(log="b"), WELL._replace(log="c")]
    lines = [line.text for line in lines_of([log_row(log) for log in logs], 70)]
    assert [line.split()[0] for line in lines] == ["LOG", "a", "why:", "do:", "it", "b", "as", "c"]
    assert lines[2] == "    why: there is no topic 'orders'"
    assert lines[3].startswith(
        "    do:  create it, or send its records elsewhere with a route; then"
    )


def test_a_log_is_shown_with_all_of_its_lines_or_counted_as_one_more() -> None:
    found = status("in trouble")
    for height in range(12, 40):
        lines = picture(found, 70, height, BY_NAME).plain.split("\n")
        more = [line for line in lines if line.endswith(" more")]
        logs = [line for line in lines if "2.5 s  " in line]
        assert len(logs) + sum(int(line.split()[0]) for line in more) == 6
        assert "0 more" not in more


def test_orders_are_by_urgency_name_speed_and_backlog() -> None:
    logs = [log_row(log) for log in (WELL._replace(log="b"), MISSING._replace(log="c"))]
    fast = WELL._replace(
        log="a", status=WELL.status and WELL.status._replace(rate=99.0, lag_records=9)
    )
    logs.append(log_row(fast))
    first = {order: min(logs, key=by)["log"] for order, by in ORDERS.items()}
    assert list(first.values()) == ["c", "a", "a", "a"]


def test_nothing_is_green_under_a_cluster_that_does_not_answer() -> None:
    spans = {span.style for span in picture(status("cut off"), 120, 24, URGENT).spans}
    assert "green" not in spans
    assert "green" in {s.style for s in picture(status("healthy"), 120, 24, URGENT).spans}


def test_without_a_terminal_nothing_is_cut() -> None:
    logs = [log_row(MISSING._replace(log=LONG))]
    lines = [line.text for line in lines_of(logs)]
    assert lines[1].startswith(f"{LONG}  main")
    assert all(not (a.startswith("    ") and b.startswith("      ")) for a, b in pairwise(lines))
