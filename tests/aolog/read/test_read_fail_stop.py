"""What fails or is interrupted in a read loses nothing: the same call returns it, or the reader refuses."""

from __future__ import annotations

import asyncio
import errno
import signal
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, NamedTuple

import pytest

import aolog
from aolog import aio
from aolog.storage.directory import Inside
from aolog.storage.storage import Storage
from aolog.testing import SimulatedSystem
from aolog.testing.faults import Call, Effect
from tests.aolog.conftest import FROM_A_HANDLER, Tracer

Values = list[bytes | None]


# --- each way to read, call by call -------------------------------------------------------------


class Plain:
    """A reader, and one call of it: what that returned; None at the end."""

    def __init__(self, call: Callable[[Plain], Any], path: str, **options: Any) -> None:
        self.reader = aolog.Reader(path, **options)
        self._call = call
        self.iterator: Iterator[Any] | None = None  # that the earlier calls advanced

    def __call__(self) -> Any:
        return self._call(self)

    def commit(self) -> None:
        self.reader.commit()

    def close(self) -> None:
        self.reader.close()


class Awaited:
    """As Plain, from asyncio."""

    def __init__(self, call: Callable[[Awaited], Any], path: str, **options: Any) -> None:
        self.loop = asyncio.new_event_loop()
        self.log = aio.Reader(path, **options)
        self.loop.run_until_complete(self.log.__aenter__())
        self.reader = self.log.log
        self._call = call
        self.iterator: Any = None

    def __call__(self) -> Any:
        return self.loop.run_until_complete(self._call(self))

    def commit(self) -> None:
        self.loop.run_until_complete(self.log.commit())

    def close(self) -> None:
        self.loop.run_until_complete(self.log.close())
        self.loop.close()


def _next(begin: Callable[[aolog.Reader], Iterator[Any]]) -> Callable[[Plain], Any]:
    """A step of an iteration. One that raised is at its end: the next call begins another."""

    def step(log: Plain) -> Any:
        iterator, log.iterator = log.iterator, None
        iterator = iterator or begin(log.reader)
        found = next(iterator, None)
        log.iterator = iterator
        return found

    return step


async def _await_next(log: Awaited) -> Any:
    iterator, log.iterator = log.iterator, None
    iterator = iterator or log.log.follow(0.0)
    found = await anext(iterator, None)
    log.iterator = iterator
    return found


WAYS: dict[str, tuple[type[Plain | Awaited], Any]] = {
    "read": (Plain, lambda log: log.reader.read()),
    "iterate": (Plain, _next(iter)),
    "values": (Plain, _next(aolog.Reader.values)),
    "read_batch of one frame": (Plain, lambda log: log.reader.read_batch(1)),
    "read_batch": (Plain, lambda log: log.reader.read_batch(1 << 20)),
    "follow": (Plain, _next(lambda reader: reader.follow(0.0))),
    "to_arrow": (Plain, _next(aolog.Reader.to_arrow)),
    "aio read": (Awaited, lambda log: log.log.read()),
    "aio read_batch": (Awaited, lambda log: log.log.read_batch()),
    "aio follow": (Awaited, _await_next),
}
# How many calls are before the one that meets a gap. A frame has two records.
BEFORE_A_GAP = {way: 1 if "batch" in way or "arrow" in way else 2 for way in WAYS}


def opened(way: str, **options: Any) -> Plain | Awaited:
    kind, call = WAYS[way]
    return kind(call, "/log", **options)


def values_of(found: Any) -> Values:
    """The values in what a call returned."""
    if found is None:
        return []
    if isinstance(found, bytes):
        return [found]
    if isinstance(found, aolog.Record):
        return [found.value]
    if isinstance(found, aolog.Batch):
        return [record.value for record in found]
    return list(found.column("value").to_pylist())


class Seen(NamedTuple):
    """What a reader returned and met, and how many of its calls raised which errors."""

    values: Values
    gaps: list[aolog.Gap]
    errors: list[str]


def to_end(log: Plain | Awaited) -> Seen:
    """Calls up to the end; repeats one that raised an error of ours."""
    seen: Values = []
    errors: list[str] = []
    while True:
        try:
            found = log()
        except aolog.AologError as error:
            errors.append(error.code)
            continue
        if found is None:
            break
        seen += values_of(found)
    log.close()
    return Seen(seen, log.reader.gaps, errors)


# --- a storage error ----------------------------------------------------------------------------


def killed_log(
    frames: int, damage: Callable[[list[bytes]], list[tuple[int, int]]]
) -> SimulatedSystem:
    """A log of frames of two records in several slabs, whose last frame is cut. damage: from the slabs'
    bytes, the places of 64 bytes to overwrite, as slab and offset."""
    system = SimulatedSystem()
    storage = Storage(system)
    with aolog.Writer("/log", slab_bytes=9000, batch_bytes=100, storage=storage) as writer:
        for i in range(frames):
            writer.append_many([b"%02d" % i + b"x" * 100, b"second"])
    files = {path: data for path, data in system.files().items() if path.endswith(".slab") and data}
    paths = [Inside(*path.rsplit("/", 1)) for path in sorted(files)]
    slabs = [files[path] for path in sorted(files)]
    for slab, offset in damage(slabs):
        with storage.open_write(paths[slab]) as file:
            file.pwrite_all([b"\xff" * 64], offset)
    with storage.open_write(paths[-1]) as file:
        file.truncate(len(slabs[-1]) - 100)
    return system.kill()


@pytest.fixture(scope="module")
def damaged() -> SimulatedSystem:
    """With a damaged frame, and a slab without a header."""
    return killed_log(
        20,
        lambda slabs: [
            (0, slabs[0].index(b"01xxx")), (2, 0), (2, 4096), (2, len(slabs[2]) - 64),
        ],
    )  # fmt: skip


@pytest.fixture(scope="module")
def short() -> SimulatedSystem:
    """With a damaged frame."""
    return killed_log(4, lambda slabs: [(0, slabs[0].index(b"01xxx"))])


class FailsOnce:
    """The n-th system call fails."""

    def __init__(self, nth: int) -> None:
        self.left = nth

    def __call__(self, call: Call) -> Effect | None:
        del call
        self.left -= 1
        return Effect(errno=errno.EIO) if self.left == 0 else None


@pytest.mark.parametrize("strict", [False, True], ids=["", "strict"])
@pytest.mark.parametrize("way", WAYS)
def test_a_call_that_met_a_storage_error_is_repeated_and_loses_nothing(
    damaged: SimulatedSystem, way: str, strict: bool
) -> None:
    """Whichever call of the storage it is."""
    expected = to_end(opened(way, strict=strict, storage=Storage(damaged.snapshot())))
    assert [gap.reason for gap in expected.gaps] == ["corrupt", "corrupt"]
    assert expected.errors == ["gap"] * 2 * strict
    nth, met = 0, 0
    while True:
        system = damaged.snapshot()
        log = opened(way, strict=strict, storage=Storage(system))
        nth += 1
        system.faults = fault = FailsOnce(nth)
        seen = to_end(log)
        assert (seen.values, seen.gaps) == (expected.values, expected.gaps), nth
        assert seen.errors.count("gap") == len(expected.errors)
        met += len(seen.errors) - len(expected.errors)
        if fault.left > 0:
            break
    assert met > 5  # the others were met after what had been read, and tried again
    assert nth > 15


# --- anything else ------------------------------------------------------------------------------


ROOMS = ("read/", "log/", "format/", "aio.py")


def refuses(log: Plain | Awaited) -> bool:
    """Whether the reader has failed. Otherwise its position is committed."""
    try:
        log.commit()
    except aolog.CallInterrupted:
        with pytest.raises(aolog.CallInterrupted):
            log()
        return True
    return False


@pytest.mark.parametrize("error", ["interrupt", "full"])
@pytest.mark.parametrize("way", WAYS)
def test_a_call_that_was_interrupted_at_any_line_loses_nothing_or_the_reader_refuses(
    short: SimulatedSystem, tracer: Tracer, way: str, error: str
) -> None:
    """At every line of the call that meets a gap, and at some of the first one. What was returned is
    committed; a reader that refuses is opened again, with the cursor."""
    expected = to_end(opened(way, storage=Storage(short.snapshot())))
    refused = 0
    for before in {0, BEFORE_A_GAP[way]}:
        step = 1 if before else 7
        nth, raised = 1 - step, True
        while raised:
            nth += step
            storage = Storage(short.snapshot())
            log = opened(way, cursor="c", on_gap=lambda _: None, storage=storage)
            seen: Values = []
            for _ in range(before):
                seen += values_of(log())
            log.commit()
            tracer.begin(nth, ROOMS, FROM_A_HANDLER[error])
            found = None
            with suppress(type(FROM_A_HANDLER[error]())):
                found = log()
            raised = tracer.end()
            seen += values_of(found)
            gaps: list[aolog.Gap] = []
            if refuses(log):
                refused += 1
                gaps = log.reader.gaps
                log.close()
                log = opened(way, cursor="c", on_gap=lambda _: None, storage=storage)
            rest = to_end(log)
            assert seen + rest.values == expected.values, (before, nth)
            assert list(dict.fromkeys(gaps + rest.gaps)) == expected.gaps, (before, nth)
    assert refused > 100


class Late(TimeoutError):
    """A time-out by a signal. It is an OSError, and not the system's: it has no errno."""


def too_late(*_: object) -> None:
    raise Late


def read_another(*_: object) -> None:
    aolog.Reader("/no/log")


def out_of_memory() -> None:
    raise MemoryError


@pytest.mark.parametrize(
    ("error", "interrupt"),
    [
        (KeyboardInterrupt, lambda: signal.raise_signal(signal.SIGINT)),
        (Late, lambda: signal.raise_signal(signal.SIGALRM)),
        (aolog.NotALog, lambda: signal.raise_signal(signal.SIGUSR1)),
        (MemoryError, out_of_memory),
    ],
)
@pytest.mark.parametrize("way", WAYS)
def test_a_reader_whose_call_was_interrupted_says_so_and_the_next_one_continues_at_its_cursor(
    damaged: SimulatedSystem, way: str, error: type[BaseException], interrupt: Callable[[], None]
) -> None:
    """Whichever read of a file it is."""
    if way.startswith("aio") and error is not MemoryError:
        pytest.skip("signals come in the main thread: the sweep interrupts it there")
    expected = to_end(opened(way, storage=Storage(damaged.snapshot())))
    previous = signal.signal(signal.SIGALRM, too_late)
    signal.signal(signal.SIGUSR1, read_another)
    seen: Values = []
    left, refusals, is_reading, done = -1, 0, False, False

    def before(call: Call) -> None:
        nonlocal left
        left -= is_reading and call.name == "pread"
        if left == 0:
            left = -1
            interrupt()

    system = damaged.snapshot()
    system.before = before
    storage = Storage(system)
    while not done:
        log = opened(way, cursor="c", storage=storage)
        left = 2 + refusals  # further in each turn
        try:
            while not done:
                is_reading = True
                found = log()
                is_reading, done = False, found is None
                seen += values_of(found)
                log.commit()
        except error:
            is_reading = False
            refusals += 1
            for call in (log, log.commit, log.reader.tell, log.reader.lag):
                with pytest.raises(aolog.CallInterrupted, match="close it and open another"):
                    call()
            assert "failed" in repr(log.reader)
        log.close()
    signal.signal(signal.SIGALRM, previous)
    signal.signal(signal.SIGUSR1, signal.SIG_DFL)
    assert seen == expected.values
    assert refusals > 3


@pytest.mark.parametrize("way", [way for way in WAYS if way != "read"])
def test_an_exception_of_the_callers_between_two_results_changes_nothing(
    damaged: SimulatedSystem, way: str
) -> None:
    expected = to_end(opened(way, storage=Storage(damaged.snapshot())))
    log = opened(way, storage=Storage(damaged.snapshot()))
    seen: Values = []
    found: Any = ()
    while found is not None:
        with suppress(KeyboardInterrupt):
            for _ in range(3):
                if (found := log()) is None:
                    break
                seen += values_of(found)
            log.iterator = None  # as a loop that was left
            raise KeyboardInterrupt
    assert (seen, log.reader.gaps) == (expected.values, expected.gaps)
    log.close()


@pytest.mark.parametrize("way", WAYS)
def test_what_on_gap_raises_comes_out_and_the_same_reader_continues_after_the_gap(
    damaged: SimulatedSystem, way: str
) -> None:
    met: list[aolog.Gap] = []

    def refuse(gap: aolog.Gap) -> None:
        met.append(gap)
        raise LookupError

    expected = to_end(opened(way, storage=Storage(damaged.snapshot())))
    log = opened(way, on_gap=refuse, storage=Storage(damaged.snapshot()))
    seen: Values = []
    raised, found = 0, ()
    while found is not None:
        try:
            found = log()
        except LookupError:
            raised += 1
        else:
            seen += values_of(found)
    log.close()
    assert (seen, met, raised) == (expected.values, expected.gaps, 2)
