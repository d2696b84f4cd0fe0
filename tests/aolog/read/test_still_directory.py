"""Readers see the newest slab also where the time of the log's directory stands still.

It stands still where a tool puts it back, where a file system keeps whole seconds (ext3, ext4 with small
inodes), where that has no times after 2038, and in a directory that was moved away.
"""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

import aolog
from aolog import aio
from aolog.storage.listing import Listing
from tests import still as still_directory
from tests.aolog.conftest import ROOT, SOON_S, Child, fill, in_thread

WRITE_ONE = """
import sys
import aolog
log = aolog.Writer(sys.argv[1])
log.append(b"one")
log.sync()
print("synced", flush=True)
sys.stdin.readline()
"""
T0_US = 1_700_000_000_000_000


@pytest.fixture(params=still_directory.TIMES.values(), ids=still_directory.TIMES)
def still(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    still_directory.hold(request.param, monkeypatch.setattr)
    return request.param


@pytest.fixture
def at_end(still: int, log_path: str) -> Iterator[aolog.Reader]:
    """A reader that has read the only record of a closed log."""
    fill_at(log_path, b"one", T0_US)
    with aolog.Reader(log_path) as reader:
        assert [record.value for record in reader] == [b"one"]
        yield reader


def fill_at(path: str, value: bytes, timestamp: int) -> int:
    with aolog.Writer(path) as writer:
        return writer.append(value, timestamp=timestamp)


def next_value(reader: aolog.Reader) -> bytes | None:
    record = reader.read()
    return None if record is None else record.value


LOOKS: dict[str, Callable[[aolog.Reader], object]] = {
    "read": next_value,
    "iteration": lambda reader: next(iter(reader)).value,
    "values": lambda reader: next(reader.values()),
    "read_batch": lambda reader: next(iter(reader.read_batch() or [])).value,
    "follow": lambda reader: next(reader.follow(timeout=SOON_S)).value,
    "up_to": lambda reader: next(reader.up_to(reader.end())).value,
    "to_arrow": lambda reader: reader.to_arrow(["value"]).read_all()["value"][0].as_py(),
}


@pytest.mark.parametrize("look", LOOKS.values(), ids=LOOKS)
def test_the_record_in_the_newest_slab_is_read(
    at_end: aolog.Reader, look: Callable[[aolog.Reader], object]
) -> None:
    fill_at(at_end.path, b"two", T0_US + 1)
    assert look(at_end) == b"two"


def test_the_end_the_lag_and_the_durable_address_count_the_newest_slab(
    at_end: aolog.Reader,
) -> None:
    two = fill_at(at_end.path, b"two", T0_US + 1)
    with aolog.Reader(at_end.path, "latest") as other:
        end = other.tell()
    assert at_end.lag().records == 1
    assert at_end.end() == end > two
    assert at_end.durable() == end


def test_a_seek_finds_what_is_in_the_newest_slab(at_end: aolog.Reader) -> None:
    places = [
        lambda at: at_end.seek(at),
        lambda _: at_end.seek(ordinal=at_end.ordinal),
        lambda _: at_end.seek(datetime.fromtimestamp((T0_US + 5) / 1e6, UTC)),
    ]
    for i, seek in enumerate(places):  # the newest slab is another one each time
        value = b"%d" % i
        address = fill_at(at_end.path, value, T0_US + 3 + i)
        seek(address)
        assert [record.value for record in at_end] == [value]
    end = aolog.Reader(at_end.path, "latest").tell()
    assert at_end.seek("latest") == end


@pytest.mark.parametrize("still", [still_directory.WHOLE_SECONDS_NS], indirect=True)
def test_a_slab_of_a_new_epoch_is_seen_although_the_one_before_it_was_never_sealed(
    still: int, log_path: str
) -> None:
    with Child(WRITE_ONE, log_path) as writer:
        assert writer.line() == "synced"
        writer.kill()
    with aolog.Reader(log_path) as reader:
        assert [record.value for record in reader] == [b"one"]
        fill(log_path, [b"two"])
        assert next(reader.follow(timeout=SOON_S)).value == b"two"
        assert reader.gaps == []


@pytest.mark.parametrize(
    ("changed_ns", "names", "has_ended", "trusted_s"),
    [
        (still_directory.PUT_BACK_NS, 10, False, 5.0),
        (still_directory.PUT_BACK_NS, 20_000, False, 10.0),
        (still_directory.PUT_BACK_NS, 10, True, 0.005),
        (still_directory.PUT_BACK_NS, 20_000, True, 10.0),
        (still_directory.WHOLE_SECONDS_NS, 10, False, 0.005),
    ],
)
def test_a_listing_counts_longer_the_more_names_it_has_and_less_after_a_sealed_slab(
    changed_ns: int, names: int, has_ended: bool, trusted_s: float
) -> None:
    listing = Listing(changed_ns, changed_ns, 100.0, names)
    for part, is_old in ((0.0, False), (0.9, False), (1.1, True)):
        assert listing.is_old(100.0 + part * trusted_s, has_ended=has_ended) is is_old


def test_asyncio_follows_into_the_newest_slab(still: int, log_path: str) -> None:
    fill(log_path, [b"one"])

    async def follow() -> list[bytes | None]:
        found = []
        async with aio.Reader(log_path) as reader:
            async for record in reader.follow(timeout=SOON_S):
                found.append(record.value)
                if len(found) == 2:
                    break
                fill(log_path, [b"two"])
        return found

    assert asyncio.run(follow()) == [b"one", b"two"]


def test_tail_follows_into_the_newest_slab(log_path: str) -> None:
    fill(log_path, [b"one"])
    code = (
        "import runpy; from tests.still import hold, PUT_BACK_NS; hold(PUT_BACK_NS); "
        "runpy.run_module('aolog', run_name='__main__', alter_sys=True)"
    )
    child = subprocess.Popen(
        [sys.executable, "-c", code, "tail", "-f", log_path], cwd=ROOT, stdout=subprocess.PIPE
    )
    assert child.stdout is not None
    with child, child.stdout:
        try:
            assert child.stdout.readline() == b"one\n"
            fill(log_path, [b"two"])
            seen = in_thread(child.stdout.readline)
            assert seen.result() == b"two\n"
        finally:
            child.kill()


# --- what stands still here ---------------------------------------------------------------------


def test_a_file_system_that_keeps_whole_seconds_hides_no_slab(
    mount: Callable[..., Path], tmp_path: Path
) -> None:
    if shutil.which("mkfs.ext4") is None:
        pytest.skip("needs mkfs.ext4")
    image = tmp_path / "image"
    with image.open("wb") as file:
        file.truncate(16 << 20)
    subprocess.run(["mkfs.ext4", "-q", "-I", "128", image], check=True, capture_output=True)
    path = str(mount("-o", "loop", str(image)) / "log")
    time.sleep(1.15 - time.time() % 1)  # what follows takes less than the rest of this second
    fill(path, [b"one"])
    with aolog.Reader(path) as reader:
        assert [record.value for record in reader] == [b"one"]
        fill(path, [b"two"])
        assert next_value(reader) == b"two"
        fill(path, [b"three"])
        assert reader.lag().records == 1
        assert next(reader.follow(timeout=SOON_S)).value == b"three"


# --- another log in its place -------------------------------------------------------------------


def test_a_reader_of_a_log_that_was_moved_away_sees_its_newest_slab(
    still: int, log_path: str, tmp_path: Path
) -> None:
    fill(log_path, [b"one"])
    with aolog.Reader(log_path) as reader:
        assert [record.value for record in reader] == [b"one"]
        Path(log_path).rename(tmp_path / "moved")
        fill(tmp_path / "moved", [b"two"])
        with pytest.raises(aolog.NotALog, match="it was moved"):
            reader.read()
        fill(log_path, [b"of another log"])
        assert [record.value for record in reader] == [b"two"]
        assert reader.lag().records == 0


@pytest.mark.parametrize("kept", ["nothing", "the directory"])
def test_a_reader_that_waits_in_a_log_that_was_replaced_says_so(
    log_path: str, tmp_path: Path, kept: str
) -> None:
    fill(log_path, [b"one"])
    with aolog.Reader(log_path) as reader:
        assert next_value(reader) == b"one"
        waiting = in_thread(lambda: next(reader.follow()))
        assert waiting.waits()
        if kept == "nothing":
            Path(log_path).rename(tmp_path / "moved")
        else:
            (tmp_path / "moved").mkdir()
            for slab in Path(log_path).glob("*.slab"):
                slab.rename(tmp_path / "moved" / slab.name)
        fill(log_path, [b"of another log"])
        with pytest.raises(aolog.NotALog, match="another log was put in its place; open it again"):
            waiting.result()
