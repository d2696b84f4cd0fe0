"""The damage matrix: what is done to each shape of log. What must come out says `fuzz.oracle`.

A group yields cases, each a name and a list of damages (`fuzz/damage.py`). thorough: with `--long`
also what the small budget samples: the zeros between header copies.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from itertools import permutations

import xxhash

from fuzz.damage import Damage
from fuzz.layout import DATA_BEGIN, HEADER_AT, HEADER_LEN, RECORDS, SLAB_MAGIC, Frame, Slab, base_of
from fuzz.shapes import FOREIGN_SUFFIX, SHAPES, Made

Case = tuple[str, list[Damage]]
Group = Callable[[Made, bool], Iterator[Case]]

FRAME_HEADER_LEN = 40
FORMAT_2 = ("closed", "open", "marked", "zeros_ahead", "epochs")
COMPRESSED = ("compressed",) if "compressed" in SHAPES else ()  # where the extra is installed
HOSTILE = (0, 1, 0x7FFFFFFF, 0x80000000, 0xFFFFFFCF, 0xFFFFFFFF)  # 0xFFFFFFCF: the longest body
ZEROS_STEP = 61  # of the reserved zeros' bytes, in the small budget


def names_of(made: Made) -> list[str]:
    return sorted(name for name in made.files if base_of(name) is not None)


def middle_and_last(made: Made) -> list[str]:
    """A slab with a successor, and the one that is written; an empty one has no bytes to damage."""
    names = [name for name in names_of(made) if made.files[name]]
    return names[-2:]


def offsets(made: Made, name: str, thorough: bool, step: int = 1) -> Iterator[int]:
    """Every offset; in the small budget each `step`-th of the header copies, and few of the zeros
    between them."""
    data = made.files[name]
    begin = DATA_BEGIN if data.startswith(SLAB_MAGIC) else 0
    copies = [range(at, at + HEADER_LEN) for at in HEADER_AT]
    for at in range(len(data)):
        sampled = step if any(at in copy for copy in copies) else ZEROS_STEP
        if thorough or at >= begin or at % sampled == 0:
            yield at


def every_truncation(made: Made, thorough: bool) -> Iterator[Case]:
    for name in middle_and_last(made):
        for at in offsets(made, name, thorough, step=7):
            yield f"{name} cut to {at}", [["cut", name, at]]


def bits_at(made: Made, name: str, at: int, thorough: bool) -> Iterator[Case]:
    """All of them; in the small budget two of a byte of a frame header, and one of another, which
    differ from byte to byte."""
    slab = next(slab for slab in made.known.slabs if slab.base == base_of(name))
    in_head = any(frame.begin <= at < frame.begin + FRAME_HEADER_LEN for frame in slab.frames)
    some = (at % 8, (at + 4) % 8) if in_head else (at % 8,)
    for bit in range(8) if thorough else some:
        yield f"bit {bit} of byte {at} of {name}", [["flip", name, 8 * at + bit]]


def every_bit_of_the_last_slab(made: Made, thorough: bool) -> Iterator[Case]:
    """Of both header copies, frame headers, bodies and padding."""
    name = middle_and_last(made)[-1]
    for at in offsets(made, name, thorough):
        yield from bits_at(made, name, at, thorough)


def every_bit_of_a_sealed_slab(made: Made, thorough: bool) -> Iterator[Case]:
    """Of frames and seal. Its header copies are like the last slab's."""
    name = middle_and_last(made)[0]
    begin = DATA_BEGIN if made.files[name].startswith(SLAB_MAGIC) else 0
    for at in range(begin, len(made.files[name])):
        yield from bits_at(made, name, at, thorough)


def every_sector(made: Made, thorough: bool) -> Iterator[Case]:
    names = names_of(made)
    for name, other in zip(names, [*names[1:], names[0]], strict=True):
        for sector in (512, 4096):
            for at in range(0, len(made.files[name]), sector):
                where = f"sector of {sector} at {at} of {name}"
                yield f"{where} zeroed", [["zero", name, at, sector]]
                yield f"{where} junked", [["junk", name, at, sector, at]]
                if not made.files[name].startswith(SLAB_MAGIC):
                    continue  # nothing binds a frame of format 1 to its place
                yield f"{where} is the one before", [["move", name, at, at - sector, sector]]
                yield f"{where} swapped with the next", [["swap", name, at, at + sector, sector]]
                yield f"{where} is another slab's", [["take", name, at, other, at, sector]]


def every_tail(made: Made, thorough: bool) -> Iterator[Case]:
    names = names_of(made)
    for name in names:
        data = made.files[name]
        begin = made.known.slabs[0].frames[0].begin
        for zeros in (1, 7, 8, 40, 512, 4096, 70_000):
            yield f"{name} grown by {zeros} zeros", [["grow", name, zeros]]
            yield f"{name} grown, then bytes", [["grow", name, zeros], ["append", name, "ff" * 9]]
        for length in (1, 8, 39, 40, 41, 300):
            junk = bytes(range(1, 256)) * 2
            yield f"{length} bytes behind {name}", [["append", name, junk[:length].hex()]]
        yield f"the frames of {name} again behind it", [["tail", name, begin, len(data)]]
        yield f"all of {name} again behind it", [["tail", name, 0, len(data)]]
        if not data.startswith(SLAB_MAGIC):
            continue  # a frame of format 1 is right wherever it stands
        for other in names:
            stale = made.files[other][begin:]
            yield f"the frames of {other} behind {name}", [["append", name, stale.hex()]]


def every_slab(made: Made, thorough: bool) -> Iterator[Case]:
    names = names_of(made)
    for name in names:
        base = base_of(name) or 0
        yield f"{name} gone", [["remove", name]]
        for size in (0, 3, 511, 512, 4096, 4608, DATA_BEGIN):
            yield f"{name} cut to {size}", [["cut", name, size]]
        for away in (8, 4096, 1 << 20, 1 << 50):
            to = f"{base + away:020d}.slab"
            yield f"{name} renamed to {to}", [["rename", name, to]]
            yield f"{name} also as {to}", [["copy", name, to]]
        for other in ("notes.txt", f"{name}.bak", f"{name[1:]}"):
            yield f"{name} renamed to {other}", [["rename", name, other]]
    for name, other in permutations(names, 2):
        yield f"{name} over {other}", [["copy", name, other]]
        yield f"{name} and {other} gone", [["remove", name], ["remove", other]]
        yield f"{name} in place of {other}", [["rename", name, other]]
        if name < other:
            yield f"{name} and {other} exchanged", [["exchange", name, other]]
            yield f"{name} and {other} empty", [["cut", name, 0], ["cut", other, 0]]


def every_foreign_slab(made: Made, thorough: bool) -> Iterator[Case]:
    """Slabs of another log, or parts of them, in the place of ours or beside them."""
    names = names_of(made)
    foreign = sorted(name for name in made.files if name.endswith(FOREIGN_SUFFIX))
    for other in foreign:
        for name in names:
            yield f"{other} over {name}", [["copy", other, name]]
            for at, length in ((0, 512), (4096, 512), (0, DATA_BEGIN), (DATA_BEGIN, 1 << 20)):
                where = f"{length} bytes at {at} of {name} are those of {other}"
                yield where, [["take", name, at, other, at, length]]
        for away in (8, 4096, 1 << 50):
            to = f"{(base_of(names[0]) or 0) + away:020d}.slab"
            yield f"{other} as {to}", [["copy", other, to]]
    for name, other in permutations(names, 2):
        over: list[Damage] = [["copy", foreign[0], name], ["copy", foreign[-1], other]]
        yield f"foreign over {name} and {other}", over
        yield f"foreign over {name}, {other} gone", [over[0], ["remove", other]]
        cut: list[Damage] = [["zero", other, 0, 4608], ["flip", other, _last_bit(made, other)]]
        yield f"foreign over {name}, no header of {other}", [over[0], *cut]
    yield "foreign over all", [["copy", foreign[0], name] for name in names]
    own: list[Damage] = [["copy", other, other.removesuffix(FOREIGN_SUFFIX)] for other in foreign]
    yield "all of the other log over it", own
    gone: list[Damage] = [["remove", name] for name in names]
    yield "the other log in its place", gone + own


def every_header(made: Made, thorough: bool) -> Iterator[Case]:
    """Copies damaged: one, the other, both, and the seal's too; of one slab, of two, of all."""
    names = names_of(made)
    one: dict[str, Callable[[str], list[Damage]]] = {
        "first copy": lambda name: [["zero", name, 0, 512]],
        "second copy": lambda name: [["junk", name, 4096, 512, 1]],
        "both copies": lambda name: [["zero", name, 0, 512], ["junk", name, 4096, 512, 2]],
        "all copies": lambda name: [["zero", name, 0, 4608], ["flip", name, _last_bit(made, name)]],
        "newer version": lambda name: [["write", name, 8, "0400"], ["zero", name, 4096, 512]],
        "newer, all others lost": lambda name: [
            ["write", name, 8, "0400"],
            ["zero", name, 4096, 512],
            ["flip", name, _last_bit(made, name)],
        ],
    }
    for what, damages in one.items():
        for name in names:
            yield f"{what} of {name}", damages(name)
        for name, other in permutations(names, 2):
            yield f"{what} of {name} and {other}", damages(name) + damages(other)
        yield f"{what} of all", [damage for name in names for damage in damages(name)]


def _last_bit(made: Made, name: str) -> int:
    return 8 * len(made.files[name]) - 1


def every_hostile_length(made: Made, thorough: bool) -> Iterator[Case]:
    """body_len, and other words, with the header's hash as it was and with a right one."""
    for slab, name, frame in frames_of(made):
        head = made.files[name][frame.begin : frame.begin + FRAME_HEADER_LEN]
        for at in (4, 24, 28, 32):
            for word in HOSTILE:
                changed = head[:at] + word.to_bytes(4, "little") + head[at + 4 :]
                if changed == head:
                    continue
                where = f"word {at} of the frame at {frame.begin} of {name} is {word:#x}"
                yield where, [["write", name, frame.begin, changed.hex()]]
                sealed = resealed(changed, frame.begin, slab.salt)
                if at == 4:  # the others would make it another frame, and a right one
                    yield f"{where}, resealed", [["write", name, frame.begin, sealed.hex()]]


def every_hostile_trailer(made: Made, thorough: bool) -> Iterator[Case]:
    """A seal's place that is anywhere, with the hash as it was and with a right one."""
    for slab in made.known.slabs:
        if slab.seal is None:
            continue
        name, size = f"{slab.base:020d}.slab", len(slab.data)
        trailer = slab.data[-24:]
        for place in (
            0,
            1,
            7,
            DATA_BEGIN,
            size - 24,
            size,
            1 << 31,
            (1 << 63) - 1,
            1 << 63,
            (1 << 64) - 1,
        ):
            changed = trailer[:8] + place.to_bytes(8, "little") + trailer[16:20]
            sealed = struct.pack("<I", xxhash.xxh32_intdigest(changed))
            where = f"the seal's offset in {name} is {place:#x}"
            yield where, [["write", name, size - 24, (changed + trailer[20:]).hex()]]
            yield f"{where}, resealed", [["write", name, size - 24, (changed + sealed).hex()]]


def resealed(head: bytes, offset: int, salt: int) -> bytes:
    """The header with a right hash of its own."""
    seed = (salt ^ offset >> 3) & 0xFFFFFFFF
    return head[:36] + struct.pack("<I", xxhash.xxh32_intdigest(head[:36], seed))


def frames_of(made: Made) -> Iterator[tuple[Slab, str, Frame]]:
    for slab in made.known.slabs:
        for frame in slab.frames:
            yield slab, f"{slab.base:020d}.slab", frame


def every_frame_of_payloads(made: Made, thorough: bool) -> Iterator[Case]:
    """Where a frame that holds whole frames is damaged, a search goes through what it holds."""
    frames = [(name, frame) for _, name, frame in frames_of(made) if frame.kind == RECORDS]
    for name, frame in frames:
        for at in (0, 5, 9, 36, FRAME_HEADER_LEN, frame.end - frame.begin - 1):
            place = 8 * (frame.begin + at)
            yield f"byte {at} of the frame at {frame.begin} of {name}", [["flip", name, place]]
    for name in {name for name, _ in frames}:
        all_heads: list[Damage] = [["flip", n, 8 * f.begin] for n, f in frames if n == name]
        yield f"all frames of {name}", all_heads


# Group, shapes, and how many cases share one look by all readers in the small budget.
TABLE: list[tuple[Group, tuple[str, ...], int]] = [
    (every_truncation, ("closed", "epochs", "queuefka"), 60),
    (every_bit_of_the_last_slab, ("open", "queuefka", *COMPRESSED), 150),
    (every_bit_of_a_sealed_slab, ("closed", "queuefka"), 150),
    (every_sector, (*FORMAT_2, "queuefka"), 8),
    (every_tail, (*FORMAT_2, "queuefka"), 2),
    (every_slab, FORMAT_2, 2),
    (every_foreign_slab, (*FORMAT_2, *COMPRESSED), 2),
    (every_header, FORMAT_2, 4),
    (every_hostile_length, ("closed", "marked", *COMPRESSED), 6),
    (every_hostile_trailer, ("closed", "marked", "nested"), 2),
    (every_frame_of_payloads, ("nested",), 2),
]
