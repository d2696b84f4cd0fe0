"""A job that appends to three logs, stopped before every change of the disk, in the states that a
killed process or a power cut leaves: all of it is there or nothing, and a repetition adds nothing.

About 10 s.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from unittest import mock

import pytest

import aolog
from aolog.format.root_manifest import Transaction
from aolog.storage import clock
from aolog.storage.storage import Storage
from aolog.testing import SimulatedSystem
from tests.aolog.conftest import fill
from tests.publish.job import (
    FIRST,
    OLD,
    OTHER,
    ROOT,
    added,
    old_disk,
    pending_names,
    points,
    run,
    seen,
)


@pytest.fixture(autouse=True)
def _still_and_quiet():
    """A clock that stands still: no two states differ by their times alone."""
    logging.getLogger("aolog").setLevel(logging.CRITICAL)
    with mock.patch.object(clock, "now_us", return_value=1_700_000_000_000_000):
        yield


def append_to_all(system: SimulatedSystem) -> None:
    """A Writer on each log, which finishes what is published."""
    for log in OLD:
        fill(f"{ROOT}/{log}", [b"later"], storage=Storage(system), flush_seconds=None)


def repeat(system: SimulatedSystem) -> None:
    """The job anew: other files, the same transaction."""
    run(Storage(system), FIRST, OTHER)


def next_job(system: SimulatedSystem) -> None:
    """Another job."""
    run(Storage(system), Transaction("app/nightly", 2), OTHER)


def check(system: SimulatedSystem, act: Callable[[SimulatedSystem], None]) -> bool:
    """All or nothing, and still so after whoever comes next; whether all."""
    found = seen(Storage(system.process()))
    assert found in (OLD, added()), "half of it"
    whole = found == added()
    act(system.process())
    after = seen(Storage(system.process()))
    if act is append_to_all:
        assert after == {log: [*values, "later"] for log, values in found.items()}
        for log in OLD:
            assert aolog.verify(f"{ROOT}/{log}", storage=Storage(system.process())).ok
    elif act is repeat:
        assert after == added()
    else:
        assert after == added(2 if whole else 1)
    return whole


NEXT = [append_to_all, repeat, next_job]


def commit_of(found: list) -> int:
    """Which of the points is the one before the rename that publishes."""
    return next(
        i
        for i, (call, _) in enumerate(found)
        if call.name == "replace" and call.path.endswith("published.jsonl")
    )


def test_a_job_is_seen_whole_or_not_at_all_wherever_it_is_stopped(said):
    system = old_disk(piece_bytes=512)
    with points(system) as found:
        assert run(Storage(system)).records == 7
    commit = commit_of(found)
    known: dict[str, set[bytes]] = {"before": set(), "at": set(), "behind": set()}
    count = 0
    for at, (call, stopped) in enumerate(found):
        phase = "before" if at <= commit else "at" if at == commit + 1 else "behind"
        whole = check(stopped.snapshot(), NEXT[at % 3])
        assert whole == (phase != "before"), call
        for _, left in stopped.power_cut(16, known=known[phase]):
            whole = check(left, NEXT[count % 3])
            assert phase == "at" or whole == (phase == "behind"), call
            count += 1
    said(f"publication: {len(found)} points, {count} states behind power cuts")
    assert count > 250


@pytest.mark.parametrize("act", NEXT)
def test_who_comes_next_may_be_stopped_as_well(act):
    """The publication is killed behind its commit point, and before any, some or all renames; then
    whoever rolls it forward is stopped; then the next finishes it. About 2 s."""
    stop_the_next_as_well(act, starts=5, stops=7, cuts=1)


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("act", NEXT)
def test_who_comes_next_may_be_stopped_anywhere(act):
    """Minutes."""
    stop_the_next_as_well(act, starts=1, stops=1, cuts=6)


def stop_the_next_as_well(
    act: Callable[[SimulatedSystem], None], *, starts: int, stops: int, cuts: int
) -> None:
    system = old_disk(piece_bytes=512)
    with points(system) as found:
        run(Storage(system))
    commit = commit_of(found)
    for at in range(commit + 1, len(found), starts):
        killed = found[at][1]
        for state in (killed, *(left for _, left in killed.snapshot().power_cut(cuts))):
            if seen(Storage(state.process())) == OLD:
                assert at == commit + 1, "what was published is gone"
                continue
            # The commit's own sync may be still to come: that may take back all of it.
            durable = at > commit + 1 or state is not killed
            again = state.snapshot()
            with points(again) as stopped:
                act(again)
            for _, point in stopped[at % stops :: stops]:
                for left in (point, *(left for _, left in point.snapshot().power_cut(cuts))):
                    now = seen(Storage(left.process()))
                    cut = {log: values[: len(added()[log])] for log, values in now.items()}
                    assert cut == added() or (now == OLD and not durable)
                    repeat(left.process())
                    after = seen(Storage(left.process()))
                    assert after == (added() if now == OLD else now)


def rename(storage: Storage, log: str) -> None:
    """As a writer does when it opens its log."""
    aolog.Writer(f"{ROOT}/{log}", storage=storage, flush_seconds=None).close()


def read_and_commit(storage: Storage, log: str) -> None:
    with aolog.Reader(f"{ROOT}/{log}", storage=storage, cursor="c") as reader:
        assert list(reader)
        reader.commit()


@pytest.mark.parametrize(
    ("act", "log"), [*((rename, log) for log in OLD), (read_and_commit, "b/c")]
)
def test_what_somebody_acted_on_is_not_taken_back(
    act: Callable[[Storage, str], None], log: str
) -> None:
    """The publication is killed after it has renamed the manifest, which is not durable yet. One log's
    writer renames, or a cursor passes what was published. Then the power fails."""
    system = old_disk()
    with points(system) as found:
        run(Storage(system))
    state = found[commit_of(found) + 1][1]
    assert seen(Storage(state.process())) == added()
    act(Storage(state), log)
    for left in state.power_cut(100):
        assert seen(Storage(left.system)) == added()


def test_nothing_is_left_when_all_is_done():
    run(Storage(system := old_disk()))
    assert pending_names(system) == []
    run(Storage(system), Transaction("app/nightly", 2), OTHER)
    assert pending_names(system) == []
    for left in system.power_cut(100):
        assert seen(Storage(left.system)) == added(2)
