"""The machine of transactions: its table row by row, and its promise against a cluster that
commits, aborts, answers late or never, fences and refuses, as Kafka does. About 5 s."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable

import hypothesis.strategies as st
import pytest
from hypothesis import settings
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
)

from aolog.record import Position
from bridge.deliver.backoff import Backoff
from bridge.deliver.exactly_once import engine as module
from bridge.deliver.exactly_once.engine import State, Transactions
from bridge.kafka.cursor_record import CursorName, CursorRecord, decode_cursor, encode_cursor

NOW = 0.0


def at(ordinal: int) -> Position:
    """Records lie ten addresses apart."""
    return Position(ordinal * 10, ordinal)


def machine(**options: object) -> Transactions:
    options = {"records": 4, "backoff": Backoff(entropy=random.Random(1)), **options}
    return Transactions(at(0), now_s=NOW, **options)  # type: ignore[arg-type]


def connecting(**options: object) -> Transactions:
    m = machine(**options)
    m.tick(NOW)
    return m


def proving() -> Transactions:
    m = connecting()
    m.found(at(0))
    return m


def sending(**options: object) -> Transactions:
    m = connecting(**options)
    m.found(at(0))
    m.proven()
    assert m.state is State.SENDING
    return m


def open_with(count: int, **options: object) -> Transactions:
    m = sending(**options)
    m.sent(0, at(count), count, now_s=NOW)
    return m


def committing() -> Transactions:
    m = open_with(4)
    assert m.state is State.COMMITTING
    return m


def broken() -> Transactions:
    m = sending()
    m.broken("no", now_s=NOW)
    return m


def stopping(m: Transactions) -> Transactions:
    m.stop(now_s=NOW)
    return m


def connecting_again() -> Transactions:
    m = broken()
    m.tick(9.0)
    return m


# state, event, next: as in the module's docstring
Row = tuple[Callable[[], Transactions], Callable[[Transactions], None]]
CASES: dict[tuple[str, str], Row] = {
    ("connecting", "found, not yet proven"): (connecting, lambda m: m.found(at(3))),
    ("connecting", "found"): (connecting_again, lambda m: m.found(at(3))),
    ("proving", "proven"): (proving, lambda m: m.proven()),
    ("proving", "proven, perhaps asked twice"): (
        proving, lambda m: m.proven(twice=True)
    ),
    ("sending", "full, or its time is over"): (lambda: open_with(3), lambda m: m.tick(0.5)),
    ("committing", "committed"): (committing, lambda m: m.committed(now_s=NOW)),
    ("committing", "unanswered"): (committing, lambda m: m.unanswered("late")),
    ("committing", "committed, perhaps asked twice"): (
        committing, lambda m: m.committed(now_s=NOW, twice=True),
    ),
    ("committing", "suspect after a stop"): (
        lambda: stopping(open_with(2)), lambda m: m.suspect("no", now_s=NOW),
    ),
    ("sending", "suspect"): (lambda: open_with(2), lambda m: m.suspect("no", now_s=NOW)),
    ("committing", "suspect"): (committing, lambda m: m.suspect("no", now_s=NOW)),
    ("sending", "to be sent again at once"): (lambda: open_with(2), lambda m: m.again("no")),
    ("committing", "to be sent again at once"): (committing, lambda m: m.again("no")),
    ("sending", "ended at a refused record"): (sending, lambda m: m.end_at_refused("no")),
    ("backing_off", "tick"): (broken, lambda m: m.tick(9.0)),
    ("any", "broken"): (committing, lambda m: m.broken("no", now_s=NOW)),
    ("any", "impossible"): (proving, lambda m: m.impossible("no")),
    ("sending", "hurried, something open"): (lambda: open_with(2), lambda m: m.hurry()),
    ("any", "broken after a stop"): (
        lambda: stopping(open_with(2)), lambda m: m.broken("no", now_s=NOW),
    ),
    ("sending", "stop, something open"): (lambda: open_with(2), lambda m: m.stop(now_s=NOW)),
    ("sending", "stop"): (sending, lambda m: m.stop(now_s=NOW)),
    ("committing", "committed after a stop"): (
        lambda: stopping(open_with(2)), lambda m: m.committed(now_s=NOW),
    ),
    ("any", "tick after a stop, late"): (
        lambda: stopping(committing()), lambda m: m.tick(5.0),
    ),
    ("elsewhere", "stop"): (proving, lambda m: m.stop(now_s=NOW)),
}  # fmt: skip  # a table


def table() -> list[tuple[str, str, str]]:
    block = (module.__doc__ or "").split("\n\n")[1]
    return re.findall(r"^    (\w+) +(\S.*?)  +(\w+)(?:  +\S.*)?$", block, re.MULTILINE)[1:]


@pytest.mark.parametrize(("state", "event", "after"), table(), ids=lambda v: str(v))
def test_each_row_of_the_table_happens(state: str, event: str, after: str) -> None:
    build, happen = CASES[state, event]
    m = build()
    assert state in {m.state.value, "any", "elsewhere"}
    outstanding = m.outstanding
    happen(m)
    assert m.state.value == after
    if event == "unanswered":  # asked again, with the same records
        assert (m.failure, m.outstanding) == ("late", outstanding)


def test_each_case_is_a_row_of_the_table() -> None:
    assert {row[:2] for row in table()} == CASES.keys()


# --- details --------------------------------------------------------------------------------


@pytest.mark.parametrize("poison", [0, 1, 499, 500, 501, 4_095])
def test_a_search_finds_one_refused_record_in_few_connections(poison: int) -> None:
    m = sending(records=4_096)
    aborted = committed = 0
    found: list[int] = []
    while not found:
        begin = m.position.ordinal or 0
        count = min(m.room, 4_096 - begin)
        m.sent(begin * 10, at(begin + count), count, now_s=NOW)
        m.tick(9.0)
        assert (m.state, m.sent_to) == (State.COMMITTING, at(begin + count))
        if begin <= poison < begin + count:
            aborted += 1
            found = m.alone
            m.again("no") if found else m.suspect("no", now_s=NOW)
            assert m.state is State.CONNECTING
            m.found(at(begin))
        else:
            committed += 1
            m.committed(now_s=NOW)
    assert aborted == 5  # of 4,096, 512, 64, 8 and one
    assert committed <= 4 * 7
    assert found == [poison * 10]
    assert (m.position, m.room) == (at(poison), 4_096)


def test_if_the_cluster_may_name_records_the_same_ones_are_sent_again() -> None:
    m = open_with(4)
    m.suspect("no", now_s=NOW, names=True)
    m.found(at(0))
    assert (m.room, m.suspected) == (4, 4)
    m.sent(0, at(4), 4, now_s=NOW)
    m.suspect("no", now_s=NOW, names=True)  # it did not
    m.found(at(0))
    assert m.room == 1


def test_if_the_refused_records_are_known_the_rest_is_sent_without_a_pause() -> None:
    m = open_with(4)
    m.again("no")
    assert m.state is State.CONNECTING
    m.found(at(0))
    assert (m.room, m.suspected) == (4, 0)
    m.sent(0, at(3), 3, now_s=NOW)
    m.again("no", named=True)
    m.found(at(0))
    assert (m.room, m.suspected) == (4, 3)  # each of them has a report again


def test_if_only_large_transactions_are_refused_they_stay_small_and_grow_again() -> None:
    m = sending(records=64)
    sizes, begin = [], 0
    while begin < 1000:
        count = m.room
        sizes.append(count)
        m.sent(begin * 10, at(begin + count), count, now_s=NOW)
        if count > 5:
            m.suspect("too large", now_s=NOW)
            assert m.state is State.CONNECTING
            m.found(at(begin))
        else:
            m.committed(now_s=NOW)
            begin += count
        assert m.state is State.SENDING
    assert sizes[:3] == [64, 8, 1]
    assert max(sizes[2:]) <= 8
    assert len(sizes) < 1000  # not one record at a time


@pytest.mark.parametrize("reached", [connecting, proving, committing])
def test_nothing_is_due_while_the_cluster_is_asked_however_long_it_takes(
    reached: Callable[[], Transactions],
) -> None:
    """Otherwise the driver would not wait at all, and would use a whole processor."""
    m = reached()
    later = NOW + 100.0
    before = m.state
    m.tick(later)
    assert m.state is before
    assert m.seconds_to_tick(later) > 1.0


# --- the cursor record ------------------------------------------------------------------------

NAME = CursorName(bytes(range(16)), "bridge")


def test_names_in_the_cluster_follow_from_the_logs_uuid_and_the_cursor() -> None:
    uuid = "000102030405060708090a0b0c0d0e0f"
    assert NAME.transactional_id == f"aolog-bridge:{uuid}:bridge"
    assert NAME.key == f"aolog-cursor:{uuid}:bridge".encode()
    assert NAME.proof_key == f"aolog-proof:{uuid}:bridge".encode()
    value = encode_cursor(CursorRecord(80, 8, NAME.topic_uuid, 2, "me"))
    assert json.loads(value) == {
        "version": 1, "address": 80, "ordinal": 8, "uuid": uuid, "epoch": 2, "owner": "me",
        "last": None,
    }  # fmt: skip
    record = CursorRecord(80, 8, NAME.topic_uuid, 2, "me", (72, 1_600_000_000_000_000))
    assert decode_cursor(encode_cursor(record)) == record
    older = value.replace(b', "last": null', b"")  # written by a release before
    assert decode_cursor(older) == CursorRecord(80, 8, NAME.topic_uuid, 2, "me")
    assert b"last" not in older
    for invalid in (b"{}", b"[]", b"\xff", value.replace(b'"address": 80', b'"address": -1')):
        with pytest.raises(ValueError):
            decode_cursor(invalid)


# --- against a cluster ------------------------------------------------------------------------


class Bridges(RuleBasedStateMachine):
    """A log, a cluster that keeps transactions as Kafka does, and a bridge that is killed and
    started again. What is committed is what a read_committed consumer sees."""

    def __init__(self) -> None:
        super().__init__()
        self.random = random.Random(7)
        self.now_s = 0.0
        self.records = 0
        self.poison: set[int] = set()
        self.passed: set[int] = set()
        self.seen: list[int] = []  # committed
        self.cursor = 0  # committed
        self.open: list[int] = []  # in the transaction that is open
        self.epoch = 0  # of the last producer that the cluster knows
        self.late: tuple[int, bool] | None = None  # epoch, and whether it asked for a commit
        self.local = 0
        self.clean = True  # the notes beside the log: whether the local cursor says everything
        self.start()

    def start(self) -> None:
        self.mine = -1
        self.asked: State | None = None  # in which a call was begun that was not answered yet
        self.machine = Transactions(
            at(self.local), now_s=self.now_s, records=8, backoff=Backoff(0.1, entropy=self.random),
            in_doubt=not self.clean,
        )  # fmt: skip  # one call
        self.followed = self.machine.state

    def follow(self) -> None:
        """What the machine's state asks for, when it has changed."""
        state = self.machine.state
        if state is self.followed:
            return
        self.followed = state
        if state in {State.CONNECTING, State.PROVING, State.COMMITTING}:
            self.clean = self.clean and state is not State.PROVING
            assert self.asked is None, "one call at a time"
            self.asked = state
        elif state is not State.SENDING:
            self.asked = None

    def passed_ends(self) -> list[int]:
        return [0, *(p + 1 for p in self.passed)]

    # --- what happens

    @rule(count=st.integers(1, 20), poison=st.sampled_from([0, 0, 1, 3]))
    def append(self, count: int, poison: int) -> None:
        for _ in range(poison):
            self.poison.add(self.records + self.random.randrange(count))
        self.records += count

    @rule(count=st.integers(1, 20))
    def send(self, count: int) -> None:
        m = self.machine
        if m.state is not State.SENDING or self.asked:
            return
        begin = m.sent_to.ordinal or 0
        count = min(count, m.room, self.records - begin)
        ready = self.wanted(begin + count, begin)
        if ready:
            if self.mine == self.epoch:
                self.open += ready
            m.sent(ready[0] * 10, at(begin + count), len(ready), now_s=self.now_s)
            self.follow()
        elif count > 0:  # all of it was set aside
            m.moved(at(begin + count))

    @precondition(lambda self: self.asked)
    @rule(answered=st.sampled_from([True, True, True, False]))
    def cluster_acts(self, answered: bool) -> None:
        """The cluster does what was asked for; its answer may be lost."""
        asked, m = self.asked, self.machine
        self.asked = None
        if asked is State.CONNECTING:
            self.epoch += 1
            self.mine = self.epoch
            self.open = []
            where = max(self.cursor, m.position.ordinal or 0)
            m.found(at(where)) if answered else m.broken("late", now_s=self.now_s)
        elif self.mine != self.epoch:
            m.broken("fenced", now_s=self.now_s)
        elif asked is State.PROVING:
            self.cursor = m.position.ordinal or 0
            if not answered:  # at once: it was asked for again
                self.late = self.epoch, self.random.choice([False, True])  # one is aborted
            m.proven(twice=not answered)
        else:
            self.commit(answered=answered)
        self.follow()

    def commit(self, *, answered: bool) -> None:
        m = self.machine
        if guilty := self.poison & set(self.open):
            if m.alone or (1 < len(guilty) < len(self.open) and m.suspected):  # each has a report
                assert not m.alone or m.alone == [10 * guilty.pop()]
                self.passed |= self.poison & set(self.open)
                m.again("refused", named=True)
            else:
                m.suspect("refused", now_s=self.now_s, names=self.random.random() < 0.5)
            return
        if self.open:  # done already where the answer to the first was lost
            self.seen += self.open
            self.open = []
            self.cursor = m.sent_to.ordinal or 0
        if answered:
            m.committed(now_s=self.now_s, twice=self.late is not None)
            return
        self.late = self.epoch, True
        m.unanswered("late")
        if m.state is State.COMMITTING:
            self.asked = m.state

    @precondition(lambda self: self.late)
    @rule()
    def a_request_is_carried_out_late(self) -> None:
        """One that was not answered: it ends what the same epoch has open by now."""
        assert self.late is not None
        epoch, commits = self.late
        self.late = None
        if epoch == self.epoch:
            if commits:
                self.seen += self.open
            self.open = []

    @rule()
    def lose_the_producer(self) -> None:
        self.machine.broken("away", now_s=self.now_s)
        self.follow()

    @rule()
    def time_out(self) -> None:
        """The coordinator aborts what is open for too long, and fences its producer."""
        self.open = []
        self.epoch += 1

    @rule(seconds=st.floats(0.01, 2.0))
    def tick(self, seconds: float) -> None:
        self.now_s += seconds
        self.machine.tick(self.now_s)
        self.follow()

    @rule()
    def save(self) -> None:
        """The local cursor follows the committed position."""
        position = self.machine.position.ordinal or 0
        assert position <= max(self.cursor, self.local, *self.passed_ends())
        self.local = max(self.local, position)

    @rule()
    def kill(self) -> None:
        self.start()

    @rule()
    def stop(self) -> None:
        self.machine.stop(now_s=self.now_s)
        self.follow()
        while self.asked and not self.machine.over:
            self.cluster_acts(answered=True)
        assert self.machine.over
        self.save()
        self.clean = not self.machine.in_doubt
        if not self.machine.in_doubt and self.machine.state is State.STOPPED:
            assert self.local >= self.cursor
        self.start()

    # --- what is promised

    def wanted(self, end: int, begin: int = 0) -> list[int]:
        return [i for i in range(begin, end) if i not in self.passed]

    @invariant()
    def each_record_is_seen_once_and_in_order(self) -> None:
        assert self.seen == self.wanted(self.seen[-1] + 1 if self.seen else 0)
        assert not set(self.seen) & self.poison

    @invariant()
    def the_cursor_says_what_is_seen(self) -> None:
        assert self.wanted(self.cursor) == self.seen

    def teardown(self) -> None:
        """Time and a healthy cluster bring everything there."""
        for _ in range(2000):
            self.tick(0.6)
            self.send(8)
            while self.asked:
                self.cluster_acts(answered=True)
            if len(self.seen) + len(self.poison) == self.records:
                break
        assert self.seen == [i for i in range(self.records) if i not in self.poison]


Bridges.TestCase.settings = settings(max_examples=60, stateful_step_count=60)
TestTransactionsAgainstACluster = Bridges.TestCase


class LongBridges(Bridges):
    """The same, for longer."""


LongBridges.TestCase.settings = settings(max_examples=4000, stateful_step_count=120)
TestTransactionsAgainstAClusterForLong = pytest.mark.slow(
    pytest.mark.timeout(1800)(LongBridges.TestCase)
)


def answered_at_the_second_time(*, ask: bool = True) -> Bridges:
    bridges = Bridges()
    bridges.append(4, 0)
    while bridges.machine.state is not State.SENDING:
        bridges.tick(0.6)
        while bridges.asked:
            bridges.cluster_acts(answered=True)
    bridges.send(4)
    bridges.tick(0.6)
    assert bridges.asked is State.COMMITTING
    bridges.cluster_acts(answered=False)
    if ask:
        bridges.cluster_acts(answered=True)
    return bridges


def test_a_commit_whose_answer_is_lost_is_asked_for_again_and_counts_once() -> None:
    bridges = answered_at_the_second_time(ask=False)
    bridges.append(4, 0)
    bridges.teardown()


def a_commit_was_requested_twice() -> Bridges:
    bridges = answered_at_the_second_time()
    bridges.append(4, 0)
    return bridges


def a_proof_was_requested_twice() -> Bridges:
    bridges = Bridges()
    bridges.append(4, 0)
    bridges.tick(0.6)
    bridges.cluster_acts(answered=True)
    assert bridges.asked is State.PROVING
    bridges.cluster_acts(answered=False)
    bridges.late = bridges.epoch, True
    return bridges


@pytest.mark.parametrize(
    ("begin", "sent"),
    [(a_commit_was_requested_twice, [4, 5]), (a_proof_was_requested_twice, [0, 1])],
)
def test_an_end_that_was_requested_twice_ends_no_later_transaction(
    begin: Callable[[], Bridges], sent: list[int]
) -> None:
    """The cluster carries out one of the requests late."""
    bridges = begin()
    while bridges.asked:
        bridges.cluster_acts(answered=True)
    bridges.send(2)
    assert bridges.open == sent
    bridges.a_request_is_carried_out_late()
    bridges.the_cursor_says_what_is_seen()
