"""The cursor is committed in a thread of its own: what a stalled disk delays, and what not. Against the
embedded broker; exactly once in test_exactly_once_kafka.py. 5 s."""

from __future__ import annotations

import errno
import threading
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest

from aolog.errors import CursorReplaced, SyncFailed
from aolog.log.cursor_file import read_position
from aolog.record import Position
from aolog.storage.storage import Storage
from bridge.deliver.committer import Committer
from bridge.deliver.forwarder_options import ForwarderOptions
from bridge.kafka.embedded import EmbeddedBroker
from tests.bridge.brokers import consume
from tests.bridge.forwarders import WAITS, Forward, Run
from tests.bridge.logs import fill
from tests.stalling import StallingSystem
from tests.waiting import wait_until


@pytest.fixture
def disk() -> StallingSystem:
    return StallingSystem()


@pytest.fixture
def run(forward: Forward, log: Path, disk: StallingSystem) -> Run:
    """A forwarder whose log is on the disk; ten records are delivered and committed."""
    fill(log, 10)
    run = forward(storage=Storage(disk))
    run.until(lambda s: s.committed == s.position > 0)
    return run


def cursor(log: Path) -> int:
    return read_position(str(log), "bridge", Storage()).address


def test_records_are_sent_while_the_disk_stalls_and_the_newest_position_is_next(
    run: Run,
    broker: EmbeddedBroker,
    log: Path,
    disk: StallingSystem,
    committed: dict[str, list[int]],
) -> None:
    commits = committed[f"{log} bridge"]
    begun = len(commits)
    with disk.stalled():
        for total in range(20, 70, 10):
            fill(log, 10)
            run.until(lambda s, n=total: s.acknowledged == n)  # type: ignore[misc]  # mypy: no defaults
        assert cursor(log) == commits[begun - 1] < run.status.position
        assert len(consume(broker.bootstrap_servers)) == 60
    run.until(lambda s: s.committed == s.position)
    assert len(commits) <= begun + 2  # the one that stalled, and the newest


def test_a_stop_waits_for_the_disk_and_for_the_last_position(
    run: Run, log: Path, disk: StallingSystem
) -> None:
    with disk.stalled():
        fill(log, 10)
        end = run.until(lambda s: s.acknowledged == 20).position
        run.forwarder.stop()
        assert run.waits(0.5)
        assert cursor(log) < end
    assert run.end().committed == end == cursor(log)


def test_after_a_long_stall_the_delivery_waits_for_the_disk_too_so_that_it_is_visible(
    forward: Forward, log: Path, disk: StallingSystem
) -> None:
    fill(log, 10)
    run = forward(storage=Storage(disk), waits=WAITS._replace(disk_s=0.1))

    def silent() -> bool:
        moved_s = run.forwarder.moved_s
        run.waits(0.5)
        return moved_s == run.forwarder.moved_s

    wait_until(lambda: not silent())
    with disk.stalled():
        fill(log, 10)
        wait_until(silent)
    run.until(lambda s: s.committed == s.position)
    wait_until(lambda: not silent())


def test_a_commit_that_fails_ends_the_forwarder_and_the_cursor_stays(
    run: Run, log: Path, disk: StallingSystem
) -> None:
    before = cursor(log)
    disk.errno = errno.EIO
    fill(log, 10)
    with pytest.raises(SyncFailed):
        run.end()
    assert run.status.committed == before == cursor(log)


def test_a_cursors_file_that_is_removed_is_made_anew_and_one_that_is_replaced_ends_the_forwarder(
    run: Run, log: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = log / "cursors" / "bridge.cursor"
    old = file.read_bytes()
    file.unlink()
    fill(log, 10)
    run.until(lambda s: s.acknowledged == 20 and s.committed == s.position)
    assert cursor(log) == run.status.committed
    assert "the file of cursor 'bridge' was removed while it was in use" in caplog.text
    file.unlink()
    file.write_bytes(old)
    fill(log, 10)
    with pytest.raises(CursorReplaced):
        run.end()
    assert file.read_bytes() == old


def test_a_commit_is_the_cursor_then_checkpoints_then_pruning_and_none_is_repeated() -> None:
    did: list[object] = []
    go = threading.Event()

    def commit(address: int) -> None:
        assert go.wait(60)
        did.append(address)

    source = SimpleNamespace(
        committing=lambda position: partial(commit, position.address),
        prune=lambda: did.append("prune"),
    )
    at = [0]
    commits = Committer(
        source,  # type: ignore[arg-type]  # what it uses of a source
        lambda: Position(at[0], None),
        ForwarderOptions(bootstrap_servers="", commit_s=0.0),
        lambda: lambda: did.append("checkpoints"),
    )
    for at[0] in (8, 8, 16, 24, 24):
        commits.go_on()
    go.set()
    commits.finish()
    commits.close()
    assert did == [8, "checkpoints", "prune", 24, "checkpoints", "prune"]
