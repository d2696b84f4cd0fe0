"""Defects that are put into the log on purpose: a fuzzer that does not find them is broken.

Each is a patch of one function for as long as a campaign runs, the target that must find it, and
in how many cases. A patch of something that is no longer there fails loudly.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, NamedTuple

import xxhash

import aolog.format.frame
import aolog.log.directory
import aolog.log.walk
import aolog.read.gaps
import aolog.write.opening
from aolog.format.frame import FRAME_HEADER_LEN, Frame, decode_header
from aolog.storage.file import File
from fuzz.disk import Disk
from fuzz.shapes import quiet
from fuzz.target import draw
from fuzz.targets import load

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["CANARIES", "Canary", "Found", "hunt"]


class Canary(NamedTuple):
    """owner.name is replaced by make(the original)."""

    says: str
    target: str
    owner: Any
    name: str
    make: Callable[[Any], Any]
    cases: int = 400


class Found(NamedTuple):
    """case: the first that failed, None: the canary lives, and the fuzzer is broken."""

    canary: Canary
    case: int | None
    error: str


def _trusts_headers(original: Any) -> Any:
    """Fields without a look at their hash."""

    def decode(buffer: Any, at: int, offset: int, salt: int) -> Any:
        fields = aolog.format.frame._HEADER.unpack_from(buffer, at)  # noqa: SLF001 -- a defect is made
        right = original(buffer, at, offset, salt)
        wrong = aolog.format.frame.FrameHeader(*fields[1:9])
        return right or (
            wrong if fields[0] == aolog.format.frame.MAGIC and wrong.kind == 1 else None
        )

    return decode


def _believes_bodies(_: Any) -> Any:
    """Frames whose headers are right."""

    def frames(
        chunk: bytes,
        view: memoryview,
        chunk_at: int,
        offset: int,
        salt: int,
        most: int | None = None,
    ) -> list[Frame]:
        found: list[Frame] = []
        while (
            0 <= (at := offset - chunk_at) <= len(chunk) - FRAME_HEADER_LEN and len(found) != most
        ):
            header = decode_header(chunk, at, offset, salt)
            if header is None or at + header.frame_len > len(chunk):
                break
            begin = at + FRAME_HEADER_LEN
            body = view[begin : begin + header.body_len]
            found.append(Frame(offset, offset + header.frame_len, header, body))
            offset = found[-1].end
        return found

    return frames


def _cuts_short(original: Any) -> Any:
    """The last bytes of a write of several parts never come."""

    def pwrite_all(self: File, parts: Any, offset: int) -> None:
        data = b"".join(map(bytes, parts))
        original(self, [data[:-8] if len(parts) > 1 and len(data) > 100 else data], offset)

    return pwrite_all


def _cuts_at_the_first_damage(_: Any) -> Any:
    """Recovery that takes the first bad frame for the end."""

    def end_of_frames(slab: Any) -> tuple[int, int, int, bool]:
        walker, records, sealed = slab.walker(), 0, False
        begin = walker.offset
        while isinstance(found := walker.next(), aolog.format.frame.Frame):
            records, begin = found.header.ordinal + found.header.records, found.end
            sealed = found.header.kind == aolog.format.frame.KIND_SEAL
        return begin, records, 0, sealed

    return end_of_frames


def _counts_one_less(original: Any) -> Any:
    def gap(begin: int, end: int, reason: Any, lost: int | None) -> Any:
        return original(begin, end, reason, lost - 1 if lost else lost)

    return gap


CANARIES = (
    Canary("a header is believed before its hash is right", "recovery", aolog.log.walk,
           "decode_header", _trusts_headers),
    Canary("a body is believed before its hash is right", "recovery", aolog.log.walk,
           "intact_frames", _believes_bodies),
    Canary("a header's hash knows neither place nor salt", "recovery", aolog.format.frame,
           "_seed", lambda _: lambda _offset, _salt: 0),
    Canary("the last bytes of a write are forgotten", "log", File, "pwrite_all", _cuts_short),
    Canary("recovery cuts at the first bad frame", "recovery", aolog.write.opening,
           "_end_of_frames", _cuts_at_the_first_damage),
    Canary("a loss is counted one too low", "recovery", aolog.read.gaps, "Gap", _counts_one_less),
    Canary("a cursor's copy is believed before its hash is right", "cursor", xxhash,
           "xxh32_intdigest", lambda _: lambda _bytes, _seed=0: 0),
    Canary("a length is not held against the file's size", "frame", File, "end",
           lambda _: lambda _self, _limit: 1 << 40),
    Canary("a slab of another log is taken for ours", "recovery", aolog.log.directory.Log,
           "_is_ours", lambda _: lambda _self, _base, _header: True),
)  # fmt: skip  # a table


@contextlib.contextmanager
def _patched(canary: Canary) -> Iterator[None]:
    original = getattr(canary.owner, canary.name)
    setattr(canary.owner, canary.name, canary.make(original))
    try:
        yield
    finally:
        setattr(canary.owner, canary.name, original)


def hunt(canary: Canary, seed: int) -> Found:
    """Runs cases until one fails."""
    quiet()
    with _patched(canary), Disk() as disk:
        target = load(canary.target)(disk)
        for number in range(canary.cases):
            try:
                target.run(draw(target, canary.target, seed, number))
            except Exception as error:  # noqa: BLE001 -- whatever it is, it was seen
                return Found(canary, number, f"{type(error).__name__}: {error}")
    return Found(canary, None, "")
