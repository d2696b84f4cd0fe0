"""Walking a slab: the intact chain, over damage, to a tail; over real files."""

from __future__ import annotations

import random
from bisect import bisect_right

import pytest

from aolog.format.frame import Frame, encode_frame
from aolog.format.framing import CHUNK_BYTES, Salted
from aolog.log.walk import Damage, Outcome, Tail, Walker
from aolog.queuefka import format1, recovery
from aolog.queuefka.framing import CHAINED
from aolog.storage.directory import beside
from aolog.storage.file import File
from aolog.storage.storage import Storage

SALT = 0xC0FFEE
BEGIN = 8192


class CountingFile(File):
    """Counts the bytes that are read."""

    bytes_read = 0

    def pread(self, size: int, offset: int) -> bytes:
        data = super().pread(size, offset)
        self.bytes_read += len(data)
        return data


@pytest.fixture
def slab(tmp_path):
    """Writes a slab's bytes and opens it; closed behind the test."""
    opened: list[File] = []

    def write(contents: bytes) -> CountingFile:
        path = tmp_path / "slab"
        path.write_bytes(contents)
        raw = Storage().open_write(beside(str(path)))
        file = CountingFile(raw.path, raw.fd)
        raw.fd = -1
        opened.append(file)
        return file

    yield write
    for file in opened:
        file.close()


class Chain:
    """A slab's bytes as frames of one record each, and where they stand."""

    def __init__(self, bodies: list[bytes]) -> None:
        self.contents = bytearray(BEGIN)
        self.offsets: list[int] = []
        self.bodies = bodies
        for i, body in enumerate(bodies):
            self.offsets.append(len(self.contents))
            parts, _ = encode_frame(len(self.contents), SALT, [body], ordinal=i, count=1)
            self.contents += b"".join(parts)
        self.ends = [*self.offsets[1:], len(self.contents)]

    def damaged(self, *places: int) -> bytes:
        """The contents with a bit flipped at each offset."""
        copy = bytearray(self.contents)
        for place in places:
            copy[place] ^= 0x10
        return bytes(copy)


def chain(count: int = 9, size: int = 100) -> Chain:
    rng = random.Random(count)
    return Chain([rng.randbytes(size + i) for i in range(count)])


def walk(walker: Walker) -> list[Outcome]:
    """All outcomes, the tail last. Bodies are copied: views live no longer than their chunk."""
    outcomes: list[Outcome] = []
    while not outcomes or not isinstance(outcomes[-1], Tail):
        outcomes.append(walker.next())
    return outcomes


def bodies(outcomes: list[Outcome]) -> list[bytes]:
    return [bytes(found.body) for found in outcomes if isinstance(found, Frame)]


def damages(outcomes: list[Outcome]) -> list[Damage]:
    return [found for found in outcomes if isinstance(found, Damage)]


# --- intact ---------------------------------------------------------------------------------


@pytest.mark.parametrize("kib", [1, 64, 68, 90, 134, 160, 256, 300, 400, 1000, 3000])
def test_frames_of_one_length_are_read_once(slab, kib):
    size = kib << 10
    made = chain(max(12, 20 * CHUNK_BYTES // size), size)
    file = slab(bytes(made.contents))
    assert bodies(walk(Walker(file, Salted(SALT), BEGIN))) == made.bodies
    assert file.bytes_read < 1.1 * len(made.contents) + 3 * CHUNK_BYTES


@pytest.mark.parametrize("damaged", [None, 70])
def test_a_skip_passes_what_ends_at_its_offset_or_before_up_to_damage(slab, damaged):
    made = chain(150, 300)
    file = slab(
        bytes(made.contents) if damaged is None else made.damaged(made.offsets[damaged] + 50)
    )
    for i in (0, 1, 7, 69, 70, 71, 149):
        for end in (made.ends[i] - 1, made.ends[i], made.ends[i] + 1):
            walker, frames = Walker(file, Salted(SALT), BEGIN), 0
            while (found := walker.skip(end)) is not None:
                frames += found.frames
            expected = min(bisect_right(made.ends, end), damaged or len(made.ends))
            assert (frames, walker.offset) == (expected, [*made.offsets, made.ends[-1]][expected])
            if damaged is None:
                assert bodies(walk(walker)) == made.bodies[expected:]


@pytest.mark.parametrize("damaged", [None, 70])
def test_a_skip_passes_what_comes_before_a_record_up_to_damage(slab, damaged):
    made = chain(150, 300)
    file = slab(
        bytes(made.contents) if damaged is None else made.damaged(made.offsets[damaged] + 50)
    )
    for i in (0, 1, 7, 69, 70, 71, 149, 150):
        walker, frames = Walker(file, Salted(SALT), BEGIN), 0
        while (found := walker.skip(len(made.contents), i)) is not None:
            frames += found.frames
        expected = min(i, damaged or len(made.ends))
        assert (frames, walker.offset) == (expected, [*made.offsets, made.ends[-1]][expected])


@pytest.mark.parametrize("at", range(9))
def test_what_lies_beyond_the_limit_is_never_read(slab, at):
    made = chain()
    for limit in (made.offsets[at], made.offsets[at] + 8):
        outcomes = walk(Walker(slab(bytes(made.contents)), Salted(SALT), BEGIN, limit=limit))
        assert bodies(outcomes) == made.bodies[:at]
        assert outcomes[-1][:2] == (made.offsets[at], limit)


# --- damage ---------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(15))
def test_whatever_is_overwritten_every_untouched_frame_is_delivered(slab, seed):
    rng = random.Random(seed)
    made = Chain([rng.randbytes(rng.choice([0, 3, 200, 9000, 70000])) for _ in range(60)])
    copy = bytearray(made.contents)
    for _ in range(rng.randrange(1, 12)):
        begin = rng.choice([rng.randrange(BEGIN, len(copy)), *rng.sample(made.offsets, 3)])
        end = min(len(copy), begin + rng.choice([1, 8, 512, 4096, 50000]))
        junk = bytes(end - begin) if rng.random() < 0.5 else rng.randbytes(end - begin)
        copy[begin:end] = junk
    outcomes = walk(Walker(slab(bytes(copy)), Salted(SALT), BEGIN))
    delivered = [found.offset for found in outcomes if isinstance(found, Frame)]
    places = zip(made.offsets, made.ends, strict=True)
    assert delivered == [a for a, b in places if copy[a:b] == made.contents[a:b]]
    covered = BEGIN
    for found in outcomes:  # frames, damage and tail lie side by side without a hole
        begin, end = (
            (found.offset, found.end) if isinstance(found, Frame) else (found.begin, found.end)
        )
        assert begin == covered
        covered = end
    assert covered == len(copy)


def test_a_frame_larger_than_a_read_is_found_right_after_a_damaged_short_one(slab):
    made = Chain([b"", bytes(1 << 20), b"last"])
    outcomes = walk(Walker(slab(made.damaged(BEGIN + 5)), Salted(SALT), BEGIN))
    assert damages(outcomes) == [Damage(BEGIN, made.offsets[1])]
    assert bodies(outcomes) == made.bodies[1:]


# --- tails ----------------------------------------------------------------------------------


def test_asking_again_for_a_large_tail_does_not_search_it_again(slab):
    file = slab(bytes(chain().contents) + (b"\xa0\xf2" + bytes(62)) * (CHUNK_BYTES // 16))
    walker = Walker(file, Salted(SALT), BEGIN)
    tail = walk(walker)[-1]
    searched = file.bytes_read
    for _ in range(10):
        assert walker.next() == tail
    assert file.bytes_read - searched < 10 * (CHUNK_BYTES + 100)


# --- frames inside payloads -----------------------------------------------------------------


@pytest.mark.parametrize("damage", [None, 44, 5])
def test_a_whole_frame_of_the_slab_stored_as_a_payload_is_never_returned(slab, damage):
    """Somebody stores a slab's own frames as values, at every alignment."""
    inner, _ = encode_frame(BEGIN, SALT, [b"never seen"], count=1)
    nested = b"".join(inner)
    outer = [bytes(shift) + nested * 3 for shift in range(16)]
    made = Chain([b"first", *outer, b"last"])
    hits = [] if damage is None else [made.offsets[i] + damage for i in range(1, 17)]
    outcomes = walk(Walker(slab(made.damaged(*hits)), Salted(SALT), BEGIN))
    assert b"never seen" not in bodies(outcomes)
    assert bodies(outcomes) == (made.bodies if damage is None else [b"first", b"last"])


# --- linear ---------------------------------------------------------------------------------

READS_MAX = 8  # times that each byte may be read: once to walk, the rest to look over damage


def assert_linear(file: CountingFile, size: int) -> None:
    assert file.bytes_read <= READS_MAX * size + 8 * CHUNK_BYTES


@pytest.mark.parametrize("within", [44, 5], ids=["bodies", "headers"])
@pytest.mark.parametrize(("count", "size"), [(20_000, 24), (4_000, 1000), (64, 200_000)])
def test_every_second_frame_damaged_takes_time_linear_in_the_bytes(slab, count, size, within):
    made = Chain([b"x" * size] * count)
    contents = made.damaged(*(offset + within for offset in made.offsets[::2]))
    file = slab(contents)
    assert len(damages(walk(Walker(file, Salted(SALT), BEGIN)))) == count // 2
    assert_linear(file, len(contents))


def test_many_right_headers_over_wrong_bodies_take_time_linear_in_the_bytes(slab):
    made = Chain([bytes(300_000)] * 40)
    contents = made.damaged(*(offset + 1000 for offset in made.offsets[:-1]))
    file = slab(contents)
    outcomes = walk(Walker(file, Salted(SALT), BEGIN))
    assert damages(outcomes) == [Damage(BEGIN, made.offsets[-1])]
    assert_linear(file, len(contents))


# --- format 1 -------------------------------------------------------------------------------


SECOND = format1.FRAME_HEADER_LEN + len(b"first")  # where the second frame begins


def unfinished(payload: bytes) -> bytes:
    """A slab of two frames; the last byte of the second is missing."""
    frames = (format1.encode_record(each) for each in (b"first", payload))
    return b"".join(part for frame in frames for part in frame)[:-1]


def test_a_search_in_format_1_ends_at_its_bound_and_cuts_nothing(slab, monkeypatch):
    contents = unfinished((5000).to_bytes(4, "little") * 4000)
    file = slab(contents)
    assert walk(Walker(file, CHAINED, 0))[-1].begin == SECOND
    monkeypatch.setattr(recovery, "SEARCH_BYTES_MAX", 100_000)
    assert not recovery.is_unfinished(file, SECOND, len(contents))
    monkeypatch.undo()
    assert recovery.is_unfinished(file, SECOND, len(contents))


def test_a_search_in_format_1_reads_no_byte_for_each_offset(slab):
    contents = unfinished(b"plain text has no small numbers in it. " * (CHUNK_BYTES // 10))
    file = slab(contents)
    assert recovery.is_unfinished(file, SECOND, len(contents))
    assert_linear(file, len(contents))
