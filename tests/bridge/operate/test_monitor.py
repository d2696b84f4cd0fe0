"""What the monitor knows over time: sums, rates, the last hour, the disk."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from aolog import Writer
from aolog.storage.storage import Storage
from bridge.deliver.log_lines import naming
from bridge.operate.log_lines import KEPT, Problems
from bridge.operate.monitor import POINTS, Monitor
from bridge.supervise.status import REMOVED_LOGS, LogStatus
from bridge.supervise.turns import Phase
from tests.bridge.operate.endpoints import LOG


class Watched:
    """A monitor of one log, with a clock that the test moves."""

    def __init__(
        self, path: Path, storage: Storage | None = None, *, log_max_bytes: int | None = None
    ) -> None:
        self.now_s = 0.0
        self.log = LOG._replace(path=str(path))
        self.monitor = Monitor(
            lambda: [self.log],
            storage or Storage(),
            log_max_bytes=log_max_bytes,
            clock=lambda: self.now_s,
            now=lambda: self.now_s,
        )

    def flow(self, log: str) -> tuple[int, int, int]:
        flow = self.monitor.flow(log, "main")
        return flow.records_in, flow.bytes_in, flow.bytes_out

    def summary(self) -> dict[str, Any]:
        return self.monitor.summary([self.log])

    def sample(self, after_s: float = 1.0, **changes: object) -> None:
        self.now_s += after_s
        status = self.log.status
        assert status is not None
        own = {k: v for k, v in changes.items() if k in LogStatus._fields}
        self.log = self.log._replace(status=status._replace(**changes), **own)  # type: ignore[arg-type]
        self.monitor.sample()


def test_counts_add_up_and_rates_come_from_them(tmp_path: Path) -> None:
    watched = Watched(tmp_path)
    watched.sample()
    watched.sample(10, acknowledged=110, lag_records=25)  # 100 sent, and 20 more are pending
    summary = watched.summary()
    assert (summary["seen"], summary["pending"]) == (161, 25)
    assert (summary["records_out_per_s"], summary["records_in_per_s"]) == (10.0, 12.0)
    watched.sample(10, lag_records=None)  # not known for a moment
    assert watched.summary()["records_in_per_s"] is None


def test_the_backlog_of_the_start_is_no_rate_and_a_burst_is_spread(tmp_path: Path) -> None:
    watched = Watched(tmp_path)
    watched.sample(lag_records=None)  # the lag is not known before the first status
    watched.sample(5, lag_records=100_000)
    watched.sample(5, lag_records=100_050)
    assert watched.summary()["records_in_per_s"] == 10.0
    watched.sample(5, lag_records=100_650)
    assert watched.summary()["records_in_per_s"] == 65.0


def test_bytes_out_count_what_the_position_passed_and_never_fall(tmp_path: Path) -> None:
    watched = Watched(tmp_path)
    for position in (9, 109, 59, 209):  # a seek back sends 50 bytes again
        watched.sample(position=position)
    assert watched.flow("a")[2] == 100 + 150


def test_what_came_is_counted_from_when_a_log_was_first_seen_and_stays_when_it_is_removed(
    tmp_path: Path,
) -> None:
    watched = Watched(tmp_path)
    watched.sample()  # 41 records and 99 bytes are there already
    watched.sample(lag_records=25, lag_bytes=290)
    watched.sample(lag_records=15, acknowledged=20, lag_bytes=190, position=109)
    assert watched.flow("a") == (20, 200, 100)
    watched.sample(lag_records=None)  # not known for a moment
    assert watched.flow("a") == (20, 200, 100)
    watched.log = watched.log._replace(log="another")
    watched.sample()
    assert (watched.flow("a"), watched.flow(REMOVED_LOGS)) == ((0, 0, 0), (20, 200, 100))


def test_the_history_is_an_hour_and_no_more(tmp_path: Path) -> None:
    watched = Watched(tmp_path)
    for _ in range(POINTS + 50):
        watched.sample(5)
    points = watched.monitor.points()
    assert len(points) == POINTS
    assert points[-1].time_s - points[0].time_s == 5 * (POINTS - 1) < 3600
    assert watched.monitor.points(points[-2].time_s) == points[-1:]


def test_slabs_are_listed_and_those_that_are_pruned_meanwhile_are_remembered(
    tmp_path: Path,
) -> None:
    log = tmp_path / "log"
    with Writer(log, slab_bytes=4096) as writer:
        for _ in range(40):
            writer.append(bytes(1000))
            writer.flush()
    watched = Watched(log)
    watched.sample()
    slabs = watched.monitor.measured(str(log))
    names = sorted(log.glob("*.slab"))
    assert [base for base, _ in slabs.files] == [int(name.stem) for name in names]
    assert slabs.bytes == sum(name.stat().st_size for name in names)
    names[0].unlink()
    watched.sample()
    assert watched.monitor.measured(str(log)).pruned == (slabs.files[0][0],)
    watched.log = watched.log._replace(phase=Phase.REMOVED)
    watched.sample()
    assert watched.monitor.measured(str(log)).files == ()  # nothing is kept of logs that are gone


@pytest.mark.parametrize(
    ("free", "full_in_s"),
    [((1000, 900, 800), 240.0), ((1000, 1000, 1000), None), ((5, 9, 20), None)],
)
def test_the_time_to_a_full_disk_follows_the_trend(
    tmp_path: Path, free: tuple[int, ...], full_in_s: float | None
) -> None:
    found = iter(free)

    class Filling(Storage):
        def free_bytes(self, path: str) -> int:
            return next(found)

    with Writer(tmp_path / "log") as writer:
        writer.append(b"x")
    watched = Watched(tmp_path / "log", Filling())
    for _ in free:
        watched.sample(30)
    found_s = watched.summary()["disk_full_in_s"]
    assert found_s == (None if full_in_s is None else pytest.approx(full_in_s))


def test_the_time_to_the_bound_of_a_log_follows_its_size(tmp_path: Path) -> None:
    with Writer(tmp_path / "log", slab_bytes=4096) as writer:
        watched = Watched(tmp_path / "log", log_max_bytes=100_000)
        sizes = []
        for _ in range(3):
            writer.append(bytes(5000))
            writer.flush()
            watched.sample(30)
            sizes.append(watched.monitor.measured(str(tmp_path / "log")).bytes)
        rate = (sizes[2] - sizes[0]) / 60
        expected_s = pytest.approx((100_000 - sizes[2]) / rate, rel=0.1)
        assert watched.summary()["bound_in_s"] == expected_s
    unbounded = Watched(tmp_path / "log")
    unbounded.sample(30)
    assert unbounded.summary()["bound_in_s"] is None


def test_problems_are_counted_and_bounded_and_one_cause_pushes_out_no_other() -> None:
    problems = Problems()
    logger = logging.getLogger("tests.problems")
    logger.propagate = False
    logger.addHandler(problems)
    try:
        for log in ("app/1", "app/20"):
            with naming(log):
                logger.warning("no answer from %s", f"t/1 for {len(log)} s")
        for _ in range(3 * KEPT):
            logger.warning("the same\nagain")
        logger.info("no problem")
        found = problems.latest()
        assert [(p["logs"], p["count"], p["message"]) for p in found] == [
            ([], 3 * KEPT, "the same\\nagain"),
            (["app/1", "app/20"], 2, "no answer from t/1 for 6 s"),
        ]
        for i in range(2 * KEPT):
            logger.error("problem %s", chr(ord("A") + i))
        assert len(problems.latest()) == KEPT
    finally:
        logger.removeHandler(problems)
