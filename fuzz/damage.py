"""Damages to a log's files, as values. Pure: files in, files out.

A damage is a short list of JSON: `["flip", NAME, BIT]`. One that does not apply changes nothing, so any
part of a list of damages can be tried alone.

    flip, NAME, BIT                  one bit, counted from the lowest bit of the file's first byte
    write, NAME, AT, HEX             overwrites bytes; none after the end
    zero, NAME, AT, LENGTH
    junk, NAME, AT, LENGTH, SEED
    move, NAME, AT, FROM, LENGTH     bytes of the same file over others: a misdirected write
    swap, NAME, AT, OTHER, LENGTH    exchanges the bytes at two places
    take, NAME, AT, FILE, FROM, LENGTH   bytes of another file over others: a stale block
    cut, NAME, SIZE
    grow, NAME, ZEROS
    append, NAME, HEX
    tail, NAME, FROM, LENGTH         the file's own bytes again, after its end
    remove, NAME
    rename, NAME, TO                 replaces an existing file
    copy, NAME, TO
    exchange, NAME, OTHER            two files change names
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, TypeAlias

from fuzz.layout import FRAME_HEADER_LEN, SLAB_MAGIC, base_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fuzz.layout import Files, Known

__all__ = ["Damage", "apply", "random_damages"]

Damage: TypeAlias = list[str | int]


def apply(files: Files, damages: Sequence[Damage]) -> Files:
    """The files as the damages leave them, one after the other."""
    changed = dict(files)
    for damage in damages:
        what, name, *rest = damage
        if name in changed:
            _apply(changed, str(what), str(name), rest)
    return changed


def _apply(files: Files, what: str, name: str, rest: list[str | int]) -> None:
    data = files[name]
    numbers = [value for value in rest if isinstance(value, int)]
    texts = [value for value in rest if isinstance(value, str)]
    if what == "flip":
        at, bit = divmod(numbers[0], 8)
        if at < len(data):
            files[name] = data[:at] + bytes([data[at] ^ 1 << bit]) + data[at + 1 :]
    elif what == "write":
        files[name] = _over(data, numbers[0], bytes.fromhex(texts[0]))
    elif what == "zero":
        files[name] = _over(data, numbers[0], bytes(numbers[1]))
    elif what == "junk":
        files[name] = _over(data, numbers[0], random.Random(numbers[2]).randbytes(numbers[1]))
    elif what == "move":
        at, source, length = numbers
        files[name] = _over(data, at, data[source : source + length])
    elif what == "swap":
        at, other, length = numbers
        here, there = data[at : at + length], data[other : other + length]
        files[name] = _over(_over(data, at, there), other, here)
    elif what == "take":
        at, source, length = numbers
        files[name] = _over(data, at, files.get(texts[0], b"")[source : source + length])
    elif what == "cut":
        files[name] = data[: numbers[0]]
    elif what == "grow":
        files[name] = data + bytes(numbers[0])
    elif what == "append":
        files[name] = data + bytes.fromhex(texts[0])
    elif what == "tail":
        at, length = numbers
        files[name] = data + data[at : at + length]
    elif what == "remove":
        del files[name]
    elif what == "rename":
        files[texts[0]] = files.pop(name)
    elif what == "copy":
        files[texts[0]] = data
    elif what == "exchange" and texts[0] in files:
        files[name], files[texts[0]] = files[texts[0]], data
    elif what != "exchange":
        raise ValueError(f"no damage is named {what!r}")


def _over(data: bytes, at: int, new: bytes) -> bytes:
    new = new[: max(0, len(data) - at)]
    return data[:at] + new + data[at + len(new) :]


_ANY = [
    *["flip"] * 4, "write", "zero", "junk", "sector", "sector", "move", "swap", "take", "cut",
    "grow", "append", "tail", "remove", "rename", "copy", "exchange", "foreign", "foreign",
]  # fmt: skip  # weights
# Nothing binds a frame of format 1 to its place: a moved frame is intact, so no damage moves one.
_FORMAT_1 = [
    *["flip"] * 3, "write", "zero", "junk", "sector", "cut", "grow", "append", "remove",
]  # fmt: skip  # weights


def random_damages(rng: random.Random, known: Known, files: Files) -> list[Damage]:
    """One to five damages of a log, mostly at headers and frames."""
    return [_random_damage(rng, known, files) for _ in range(rng.choice([1, 1, 1, 2, 3, 5]))]


def _random_damage(rng: random.Random, known: Known, files: Files) -> Damage:
    names = sorted(name for name in files if base_of(name) is not None)
    name = rng.choice(names)
    size = max(1, len(files[name]))
    at = _random_place(rng, known, name, size)
    length = rng.choice([1, 4, 8, 40, 100, 512, 512, 4096])
    sector = rng.choice([512, 512, 4096])
    aligned = at // sector * sector
    what = rng.choice(_ANY if files[name].startswith(SLAB_MAGIC) else _FORMAT_1)
    if what == "flip":
        return ["flip", name, 8 * at + rng.randrange(8)]
    if what == "write":
        word = rng.choice([0, 1, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 0xFFFFFFCF, 1 << 16])
        return ["write", name, at // 4 * 4, word.to_bytes(4, "little").hex()]
    if what == "zero":
        return ["zero", name, at, length]
    if what == "junk":
        return ["junk", name, at, length, rng.randrange(1 << 16)]
    if what == "sector":
        if rng.random() < 0.5:
            return ["zero", name, aligned, sector]
        return ["junk", name, aligned, sector, rng.randrange(1 << 16)]
    if what in {"move", "swap"}:
        other = rng.randrange(size) // sector * sector
        return [what, name, aligned, other, sector]
    foreign = sorted(other for other in files if other.endswith(".foreign"))
    if what == "foreign" and foreign:  # mostly the one that belongs to the same address
        theirs = f"{name}.foreign"
        if theirs not in foreign or rng.random() < 0.2:
            theirs = rng.choice(foreign)
        if rng.random() < 0.2:
            at = rng.choice([0, 4096, aligned])
            return ["take", name, at, theirs, at, sector]
        return ["copy", theirs, name]
    if what in {"take", "foreign"}:
        return ["take", name, aligned, rng.choice(names), aligned, sector]
    if what == "cut":
        return ["cut", name, rng.choice([at, aligned, 0, size - 1])]
    if what == "grow":
        return ["grow", name, rng.choice([1, 7, 40, 4096, 20000])]
    if what == "append":
        return ["append", name, rng.randbytes(rng.choice([1, 8, 39, 40, 100])).hex()]
    if what == "tail":
        return ["tail", name, at, length]
    if what == "remove":
        return ["remove", name]
    if what == "exchange":
        return ["exchange", name, rng.choice(names)]
    base = base_of(name) or 0
    to = f"{base + rng.choice([8, 16, 4096, 1 << 20, 1 << 40]):020d}.slab"
    return [what, name, to]


def _random_place(rng: random.Random, known: Known, name: str, size: int) -> int:
    """An offset: in a header, at a frame's begin or end, or anywhere."""
    slab = next((slab for slab in known.slabs if slab.base == base_of(name)), None)
    if slab is None or not slab.frames or rng.random() < 0.3:
        return rng.randrange(size)
    if rng.random() < 0.15 and slab.format == 2:
        return min(size - 1, rng.choice([0, 4096]) + rng.randrange(512))
    frame = rng.choice(slab.frames)
    place = rng.choice(
        [frame.begin + rng.randrange(FRAME_HEADER_LEN), frame.end - 1 - rng.randrange(8),
         rng.randrange(frame.begin, frame.end)]
    )  # fmt: skip  # head, end, anywhere
    return min(size - 1, max(0, place))
