"""The loop of a pull, with a scripted cluster: partitions that come and go, a bounded log."""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest
from confluent_kafka import Message

from aolog import Reader
from bridge.errors import NoSuchTopic, Unanswered
from bridge.kafka.catalog import Partition, Topic
from bridge.kafka.fetcher import Fetched
from bridge.kafka.runs import runs_of
from bridge.pull.origin import origin_of
from bridge.pull.pull_options import FETCH_S, PullOptions, PullStatus
from bridge.pull.puller import Puller
from tests.bridge.pull.pulling import origins

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

NAME, FIRST, END, VALUE_BYTES = "t", 500, 2_000, 2_000
PLACE = (NAME, 0)


class Catalog:
    """Of a cluster with one partition of two thousand records."""

    topic_id, end = 1, END

    def __init__(self, *_: object) -> None:
        pass

    def cluster_id(self) -> str:
        return "cluster"

    def existing(self, names: Iterable[str]) -> dict[str, Topic]:
        parts = [Partition(0, 1, [1], [1])]
        return {name: Topic(name, UUID(int=self.topic_id), False, parts) for name in names}

    def topics(self, names: Iterable[str]) -> list[Topic]:
        return list(self.existing(names).values())

    def offsets(self, places: Iterable[Any], when: str, **_: object) -> dict[Any, int]:
        return dict.fromkeys(places, 0 if when == "earliest" else self.end)

    def check_group(self, *_: object) -> None:
        pass

    def notes(self, *_: object) -> list[str]:
        return []


class Fetcher:
    """steps: what each fetch does; each returns offsets, and whether the end was read."""

    steps: list[Callable[[Fetcher], tuple[range, bool]]]
    step = 1_000

    def __init__(self, *_: object, **__: object) -> None:
        self.at: int | None = None

    def subscribe(self, _: object, assigned: Callable[..., None], revoked: Callable[..., None]) -> None:  # fmt: skip  # one line
        self.assigned, self.revoked = assigned, revoked

    def assign(self, offsets: dict[Any, int]) -> None:
        self.at = offsets[PLACE]

    def unassign(self, places: Iterable[Any]) -> None:
        self.at = None if PLACE in places else self.at

    def fetch(self, *_: object) -> Fetched:
        offsets, is_end = self.steps.pop(0)(self) if self.steps else (range(0), False)
        messages = [
            Message(NAME, 0, n, None, bytes(VALUE_BYTES), timestamp=(1, n)) for n in offsets
        ]
        runs = [*runs_of(messages, 1_000)]
        return Fetched([], {PLACE: END} if is_end else {}, [], None, runs)

    def read(self) -> tuple[range, bool]:
        assert self.at is not None
        return range(self.at, END), True

    def nothing(self, *_: object, **__: object) -> None:
        pass

    pause = resume = commit = close = nothing


def given(fetcher: Fetcher) -> tuple[range, bool]:
    fetcher.assigned([PLACE])
    return range(0), False


def taken(fetcher: Fetcher) -> tuple[range, bool]:
    """After the last messages and the end were queued."""
    fetcher.revoked([PLACE])
    return range(500, END), True


def taken_and_given(fetcher: Fetcher) -> tuple[range, bool]:
    fetcher.revoked([PLACE])
    fetcher.assigned([PLACE])
    return range(500, END), True


def drained(
    monkeypatch: pytest.MonkeyPatch, steps: list[Any], log: Path, **options: Any
) -> PullStatus:
    monkeypatch.setattr(Catalog, "topic_id", 1)
    monkeypatch.setattr(Catalog, "end", END)
    Fetcher.steps = list(steps)
    how = PullOptions("k:1", (NAME,), str(log), drain=True, **options)
    pulling = Puller(how, Catalog, Fetcher)  # type: ignore[arg-type]  # what it uses of them
    pulling.run()
    return pulling.status()


@pytest.mark.parametrize(
    "steps",
    [[given, taken, given, Fetcher.read], [given, taken_and_given, Fetcher.read]],
    ids=["in another fetch", "in the same fetch"],
)
def test_a_drain_reads_a_partition_whole_that_was_revoked_in_a_fetch_and_came_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, steps: list[Any]
) -> None:
    log = tmp_path / "root" / "a"
    status = drained(monkeypatch, steps, log, root=str(log.parent), group="g")
    assert status[:2] == ("drained", END)
    assert [each[2] for each in origins(log)] == list(range(END))


@pytest.mark.parametrize("end", [700, 3_000], ids=["a smaller one", "a larger one"])
def test_a_drain_of_a_topic_that_is_made_anew_ends_at_the_end_of_the_new_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, end: int
) -> None:
    """What was fetched when the id had changed is of the new topic, and is not what comes next."""

    def read(fetcher: Fetcher) -> tuple[range, bool]:
        fetcher.at = 500
        return range(500), False

    def nothing(fetcher: Fetcher) -> tuple[range, bool]:
        time.sleep(FETCH_S)  # as a client that waits for more: then what was read is appended
        return range(0), False

    def anew(fetcher: Fetcher) -> tuple[range, bool]:
        Catalog.topic_id, Catalog.end = 2, end
        return range(500, 600), False

    def rest(fetcher: Fetcher) -> tuple[range, bool]:
        if fetcher.at != 0:  # it has not begun again
            fetcher.steps.insert(0, rest)
            return range(0), False
        return range(end), True

    log = tmp_path / "log"
    status = drained(monkeypatch, [read, nothing, anew, rest], log)
    assert status[:2] == ("drained", 500 + end)
    with Reader(log) as reader:
        found = [origin_of(record.headers) for record in reader]
    assert [(o.source.topic_id.int, o.offset) for o in found if o] == [
        *((1, offset) for offset in range(500)),
        *((2, offset) for offset in range(end)),
    ]


def test_a_pulled_log_says_that_it_is_synced_so_that_cursors_wait_for_what_they_pass(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drained(monkeypatch, [Fetcher.read], tmp_path / "log")
    (slab,) = (tmp_path / "log").glob("*.slab")
    flags = int.from_bytes(slab.read_bytes()[12:16], "little")  # FORMAT.md, the slab's header
    assert flags & 1


def test_a_bounded_archive_says_at_the_start_and_at_each_deletion_that_its_oldest_records_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    log = tmp_path / "log"
    status = drained(monkeypatch, [Fetcher.read], log, max_bytes=2_000_000)
    left = len(origins(log))
    assert 0 < left < END
    assert status.deleted == END - left
    warning, *deletions = caplog.messages
    assert "is bounded" in warning
    assert sum(int(re.search(r": (\d+) records?$", each)[1]) for each in deletions) == END - left
    assert drained(monkeypatch, [], log).deleted == 0, "what was deleted before it started"


def test_large_messages_exceed_no_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They came in frames of 500: the log had tens of its bound."""
    monkeypatch.setitem(globals(), "VALUE_BYTES", 50_000)
    status = drained(monkeypatch, [Fetcher.read], tmp_path / "log", max_bytes=5_000_000)
    assert (status.pulled, status.state) == (END, "drained")
    assert sum(file.stat().st_size for file in (tmp_path / "log").rglob("*.slab")) < 6_000_000


class Retained(Fetcher):
    """Of a cluster that has deleted the records before FIRST: the client says so once an assignment."""

    told = False

    def assign(self, offsets: dict[Any, int]) -> None:
        super().assign(offsets)
        self.told = False

    def fetch(self, *_: object) -> Fetched:
        if self.at is None or self.at >= FIRST:
            return super().fetch()
        gone, self.told = [] if self.told else [PLACE], True
        return Fetched([], {}, gone, None)


def of_units(monkeypatch: pytest.MonkeyPatch, log: Path, *first: int | Exception) -> Puller:
    """first: the answers to where the partition begins; after them it is FIRST."""
    answers = list(first)

    def offsets(_: object, places: Iterable[Any], when: str, **__: object) -> dict[Any, int]:
        answer = END if when == "latest" else answers.pop(0) if answers else FIRST
        if isinstance(answer, Exception):
            raise answer
        return dict.fromkeys(places, answer)

    monkeypatch.setattr(Catalog, "offsets", offsets)
    options = PullOptions(
        "k:1", (NAME,), str(log), drain=True, root=str(log.parent), units=END, out_of_range="earliest"
    )  # fmt: skip  # one call
    return Puller(options, Catalog, Retained)  # type: ignore[arg-type]  # as above


def test_a_loss_within_a_unit_is_not_counted_again_by_the_next_holder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(_: Fetcher) -> tuple[range, bool]:
        first.stop()
        return range(0), False

    log = tmp_path / "root" / "a"
    first = of_units(monkeypatch, log, 0)  # deleted after the plan
    Fetcher.steps = [stop]
    first.run()
    assert (first.status().lost, first.status().pulled) == (FIRST, 0)
    second = of_units(monkeypatch, log.with_name("b"))
    Fetcher.steps = [Fetcher.read]
    second.run()
    assert (second.status().lost, second.status().pulled) == (0, END - FIRST)


@pytest.mark.parametrize("kind", [Unanswered, NoSuchTopic])
def test_a_cluster_that_cannot_say_what_it_deleted_ends_no_worker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: type[Exception]
) -> None:
    log = tmp_path / "root" / "a"
    pulling = of_units(monkeypatch, log, 0, kind("a broker restarts"))
    Fetcher.steps = [Fetcher.read]
    pulling.run()
    assert pulling.status().state == "drained"
    assert [each[2] for each in origins(log)] == list(range(FIRST, END))
