"""Group commit: one works for all, nobody waits for ever, and each learns what became of its own."""

from __future__ import annotations

import itertools
import signal
import threading
from collections.abc import Callable, Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import aolog
from aolog.format.frame import KIND_RECORDS
from aolog.write.group_commit import GroupCommit, _Waiter
from tests.aolog.conftest import (
    SOON_S,
    Operation,
    WatchedStorage,
    assert_clean,
    eventually,
    frames_of,
    in_thread,
    slab_files,
    values,
)

NEVER = {"flush_seconds": None, "sync": "never"}


class Work:
    """Work that waits until it is told to go on; each one settles what was asked before it."""

    def __init__(self) -> None:
        self.asked = 0
        self.settled = 0
        self.begun = 0
        self.error: BaseException | None = None
        self.go = threading.Semaphore(0)
        self.commit = GroupCommit(lambda: self.settled, self.work)

    def work(self, target: int, given: object) -> None:
        assert self.settled < target <= self.asked
        assert given is self
        self.begun += 1
        covered = self.asked
        assert self.go.acquire(timeout=SOON_S)
        if self.error is not None:
            error, self.error = self.error, None
            raise error
        self.settled = covered

    def ask(self) -> None:
        self.asked += 1
        self.commit.reach(self.asked, self)

    def in_line(self, n: int) -> bool:
        return len(self.commit._line) == n


def line_of(work: Work, n: int) -> list[object]:
    """A leader at work, and n behind it, in this order."""
    calls = []
    for i in range(n + 1):
        calls.append(in_thread(work.ask))
        eventually(lambda: work.begun == 1)
        eventually(lambda i=i: work.in_line(i))
    return calls


def test_who_comes_alone_works_at_once_and_waits_for_nobody() -> None:
    work = Work()
    work.go.release()
    work.ask()
    assert (work.begun, work.settled) == (1, 1)


def test_all_that_came_during_one_work_are_served_by_one_more() -> None:
    work = Work()
    calls = line_of(work, 7)
    work.go.release()
    calls[0].result()
    eventually(lambda: work.begun == 2)
    assert work.in_line(6)
    work.go.release()
    for call in calls:
        call.result()
    assert work.begun == 2
    work.go.release()
    work.ask()  # and the next leads again


def test_who_works_in_vain_says_so_and_the_next_tries_for_itself() -> None:
    work = Work()
    calls = line_of(work, 2)
    work.error = aolog.StorageFull("none left")
    work.go.release(2)
    with pytest.raises(aolog.StorageFull):
        calls[0].result()
    for call in calls[1:]:
        call.result()
    assert work.begun == 2


def test_what_is_settled_for_all_sends_all_away() -> None:
    work = Work()
    calls = line_of(work, 3)

    def fail() -> None:
        work.settled = 1 << 63

    assert work.in_line(3)
    fail()
    work.error = aolog.SyncFailed("dead")
    work.go.release()
    with pytest.raises(aolog.SyncFailed):
        calls[0].result()
    for call in calls[1:]:
        call.result()
    assert work.begun == 1


class Interrupted(BaseException):
    """Stands for KeyboardInterrupt."""


@pytest.fixture
def alarm() -> Iterator[Callable[[float], None]]:
    """Interrupts the main thread after so many seconds."""

    def ring(*_: object) -> None:
        raise Interrupted

    before = signal.signal(signal.SIGALRM, ring)
    yield lambda seconds: signal.setitimer(signal.ITIMER_REAL, seconds)
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


def test_who_is_interrupted_leaves_the_line_and_holds_up_nobody(
    alarm: Callable[[float], None],
) -> None:
    work = Work()
    calls = line_of(work, 1)
    alarm(0.1)
    with pytest.raises(Interrupted):
        work.ask()
    assert work.in_line(1)
    work.go.release(2)
    for call in calls:
        call.result()
    assert work.in_line(0)


@pytest.mark.parametrize("settled", range(5))
def test_in_whatever_order_they_leave_one_of_the_others_may_go_on(settled: int) -> None:
    """Every order of five, at every point where a signal may end a wait: who leaves though its
    gate is shut was interrupted."""
    for order in itertools.permutations(range(1, 5)):
        commit = GroupCommit[object](lambda: settled, lambda target, given: None)
        asked = []
        for target in range(5):
            one = _Waiter()
            one.target, one.gate = target, threading.Lock() if target else None
            asked.append(one)
            if one.gate is not None:
                one.gate.acquire()
                commit._line.append(one)
        commit._leader = asked[0]
        commit._leave(asked[0])
        here = asked[1:]
        for i in order:
            assert any(not one.gate.locked() for one in here)
            commit._leave(asked[i])
            here.remove(asked[i])
        assert (commit._leader, list(commit._line), list(commit._going)) == (None, [], [])


class Crowd:
    """Group commit without threads: who may go on is told by the gates, what happens by the test."""

    def __init__(self) -> None:
        self.settled = -1
        self.asked = 0
        self.here: list[_Waiter] = []
        self.commit = GroupCommit[object](lambda: self.settled, lambda target, given: None)

    def come(self) -> _Waiter:
        one = _Waiter()
        one.target, one.gate = self.asked, None
        self.asked += 1
        self.commit._enter(one)
        self.here.append(one)
        return one

    def go(self, one: _Waiter) -> None:
        """It goes on, or a signal ends its wait."""
        if self.commit._leader is one and self.may_go(one):
            self.settled = self.asked - 1  # the work covers whatever was asked for before it
        self.here.remove(one)
        self.commit._leave(one)

    def fail(self) -> None:
        """Whoever leads is told that its work failed, or is interrupted at it."""
        leader = self.commit._leader
        if leader is not None and self.may_go(leader):
            self.here.remove(leader)
            self.commit._leave(leader)

    def may_go(self, one: _Waiter) -> bool:
        return one.gate is None or not one.gate.locked()

    def waiting(self) -> list[_Waiter]:
        return [one for one in self.here if not self.may_go(one)]


@settings(max_examples=500)
@given(
    st.lists(
        st.tuples(st.sampled_from(["come", "go", "interrupt", "fail"]), st.integers(0, 99)),
        max_size=60,
    )
)
def test_whoever_comes_goes_fails_or_is_interrupted_somebody_may_go_on(
    steps: list[tuple[str, int]],
) -> None:
    crowd = Crowd()
    for what, number in steps:
        able = [one for one in crowd.here if crowd.may_go(one)]
        assert able or not crowd.here
        if what == "come":
            crowd.come()
        elif what == "fail":
            crowd.fail()
        elif crowd.here:
            among = (able if what == "go" else crowd.waiting()) or able
            crowd.go(among[number % len(among)])
        commit = crowd.commit
        leads = [one for one in crowd.here if crowd.may_go(one) and commit._leader is one]
        for one in crowd.here:
            if crowd.may_go(one) and one not in leads:
                assert one.target <= crowd.settled  # nobody is sent away too early
    while crowd.here:
        crowd.go(next(one for one in crowd.here if crowd.may_go(one)))
    commit = crowd.commit
    assert (commit._leader, list(commit._line), list(commit._going)) == (None, [], [])


@pytest.mark.parametrize("threads", range(3, 17))
def test_who_comes_back_first_does_not_work_for_itself_alone(threads: int) -> None:
    """They ask again as soon as they are answered, and who may lead at once does, before any of the
    others has woken up: still each work is for nearly all, and nobody is left behind in the end."""
    crowd = Crowd()
    one = crowd.come()
    for _ in range(threads - 1):
        crowd.come()
    works, served = 0, 0
    while works < 50:
        works, served = works + (crowd.commit._leader is one), served + 1
        crowd.go(one)
        back = crowd.come()
        leads = crowd.commit._leader is back
        one = back if leads else next(other for other in crowd.here if crowd.may_go(other))
    assert served >= (threads - 1.5) * works
    while crowd.here:
        crowd.go(next(other for other in crowd.here if crowd.may_go(other)))


def test_who_is_interrupted_at_work_passes_it_on(alarm: Callable[[float], None]) -> None:
    work = Work()
    others = []

    def late() -> None:
        eventually(lambda: work.begun == 1)
        work.ask()

    others.append(in_thread(late))
    alarm(0.2)
    with pytest.raises(Interrupted):
        work.ask()
    work.go.release()
    others[0].result()


def test_who_is_interrupted_while_it_passes_on_passes_on_all_the_same() -> None:
    """As a signal's handler may raise there, though it can hardly be made to come just then."""
    work = Work()

    def settled() -> int:
        if work.settled == 1 and not interrupted:
            interrupted.append(True)
            raise Interrupted
        return work.settled

    interrupted: list[bool] = []
    work.commit = GroupCommit(settled, work.work)
    calls = line_of(work, 3)
    work.go.release(2)
    with pytest.raises(Interrupted):
        calls[0].result()
    for call in calls[1:]:
        call.result()
    assert work.begun == 2


# --- the writer's ---------------------------------------------------------------------------


class Device:
    """A device that waits in fdatasync of a slab, once armed, until it is told to go on."""

    def __init__(self, *, fails: bool = False) -> None:
        self.armed = False
        self.fails = fails
        self.inside = 0
        self.go = threading.Semaphore(0)
        self.storage = WatchedStorage(self._before)

    def _before(self, operation: Operation) -> None:
        if self.armed and operation.what == "datasync" and operation.name.endswith(".slab"):
            self.inside += 1
            assert self.go.acquire(timeout=SOON_S)
            if self.fails:
                raise aolog.SyncFailed("injected", path=operation.name)

    def release(self) -> None:
        self.armed = False
        self.go.release(1000)


@pytest.mark.parametrize("how", ["sync", "flush", "append"])
def test_those_that_wait_become_one_frame_one_write_and_one_sync(log_path: str, how: str) -> None:
    device = Device()
    options = {"sync": "never"} if how == "sync" else {"sync": "flush"}
    options |= {"flush_records": 1} if how == "append" else {}
    with aolog.Writer(log_path, storage=device.storage, flush_seconds=None, **options) as writer:

        def work(i: int) -> None:
            address = writer.append(b"%d" % i)
            reached = address + 1 if how == "append" else getattr(writer, how)()
            assert address < reached <= writer.durable

        device.armed = True
        first = in_thread(lambda: work(0))
        eventually(lambda: device.inside == 1)
        durable, begin = writer.durable, writer.end
        others = [in_thread(lambda i=i: work(i)) for i in range(1, 9)]
        eventually(lambda: writer.end == begin + 8)  # taken while the device works
        eventually(lambda: len(writer._chain._commit._line) == 8)
        writes = device.storage.count("write")
        assert writer.durable == durable
        device.release()
        for call in [first, *others]:
            call.result()
        assert device.inside == 1
        assert device.storage.count("write") == writes + 1
    frames = [frame.records for frame in frames_of(log_path) if frame.kind == KIND_RECORDS]
    assert frames == [1, 8]
    assert sorted(values(log_path)) == [b"%d" % i for i in range(9)]


@pytest.mark.parametrize("how", ["sync", "append"])
def test_a_failed_fsync_is_told_to_the_one_that_met_it_and_to_all_in_line(
    log_path: str, how: str
) -> None:
    device = Device(fails=True)
    options = {"sync": "never"} if how == "sync" else {"sync": "flush", "flush_records": 1}
    writer = aolog.Writer(log_path, storage=device.storage, flush_seconds=None, **options)
    writer.append(b"durable")
    durable = writer.sync()

    def work() -> None:
        writer.append(b"doubtful")
        writer.sync()

    device.armed = True
    calls = [in_thread(work)]
    eventually(lambda: device.inside == 1)
    calls += [in_thread(work) for _ in range(5)]
    eventually(lambda: len(writer._chain._commit._line) == 5)
    device.release()
    for call in calls:
        with pytest.raises(aolog.SyncFailed) as caught:
            call.result()
        assert caught.value.details["durable"] == durable
    assert device.inside == 1  # nobody tried again
    assert writer.durable == durable
    with pytest.raises(aolog.SyncFailed):
        writer.close()


def test_a_full_disk_is_told_to_each_that_waits_and_costs_none_of_them_its_record(
    log_path: str,
) -> None:
    device = Device()
    full = False
    before = device.storage.before

    def fill(operation: Operation) -> None:
        assert before is not None
        before(operation)
        if full and operation.what == "write":
            raise aolog.StorageFull("injected", path=operation.name)

    device.storage.before = fill
    with aolog.Writer(log_path, storage=device.storage, **NEVER) as writer:

        def work() -> None:
            writer.append(b"x")
            writer.sync()

        device.armed = True
        first = in_thread(work)
        eventually(lambda: device.inside == 1)
        others = [in_thread(work) for _ in range(4)]
        eventually(lambda: len(writer._chain._commit._line) == 4)
        full = True
        device.release()
        first.result()
        for call in others:
            with pytest.raises(aolog.StorageFull):
                call.result()
        full = False
        assert writer.sync() == writer.end
    assert values(log_path) == [b"x"] * 5
    assert_clean(log_path)


def test_a_slab_that_is_full_is_not_closed_under_the_sync_that_works_on_it(log_path: str) -> None:
    device = Device()
    with aolog.Writer(log_path, storage=device.storage, slab_bytes=8300, **NEVER) as writer:
        device.armed = True
        syncing = in_thread(lambda: [writer.append_many([b"a" * 200]), writer.sync()])
        eventually(lambda: device.inside == 1)
        fd = writer._chain.slab.file.fd
        rolling = in_thread(lambda: [writer.append(b"b"), writer.sync()])
        assert rolling.waits()
        assert writer._chain.slab.file.fd == fd
        device.release()
        syncing.result()
        rolling.result()
    assert len(slab_files(log_path)) == 2
    assert [value[:1] for value in values(log_path)] == [b"a", b"b"]
    assert_clean(log_path)


@pytest.mark.parametrize("policy", ["flush", "interval"])
def test_threads_that_sync_across_many_slabs_are_never_told_too_early(
    log_path: str, policy: str
) -> None:
    """Reads back after each sync what it promised; a second."""
    taken: set[int] = set()

    def work(which: int) -> None:
        for i in range(40):
            address = writer.append(b"%d %d" % (which, i) + bytes(200))
            if policy == "interval":
                assert writer.sync() > address
            assert writer.durable > address
            with aolog.Reader(log_path, start=address) as reader:
                assert reader.read().value.rstrip(b"\0") == b"%d %d" % (which, i)
            taken.add(address)

    with aolog.Writer(
        log_path, slab_bytes=12_000, sync=policy, flush_records=1 if policy == "flush" else None
    ) as writer:
        for call in [in_thread(lambda which=which: work(which)) for which in range(6)]:
            call.result()
    with aolog.Reader(log_path, strict=True) as reader:
        assert {record.address for record in reader} == taken
    assert len(taken) == 240
    assert_clean(log_path)
