"""Compression of bodies: from a frame's columns to what is stored for them, and back.

    offset size  field          (little-endian; the body of a frame with a codec)
    0      u32   raw_len        bytes of the columns
    4      u32   packed_len     bytes that the codec made of them
    8            packed         packed_len bytes: one zstd frame, or one lz4 block
                 zeros          as many as the two rules want that bound a frame from below

A frame is not shorter than its count (record i has the frame's address + i). What it holds is at
most `EXPANSION_MAX` times what is stored; unpacking takes at most twice that, as zstd keeps a window
of its own. Both lengths are believed only under the
body's hash, and held against these bounds even then: nothing is allocated for what they say
before. The hash is of what is stored, so walks, recovery and repair know what is intact without
a codec.

Knows no files. A codec's package is imported when it is first used, never before.
"""

from __future__ import annotations

import importlib
import struct
import sys
from functools import cache
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from aolog.errors import CodecUnavailable, UsageError, install_command
from aolog.format.frame import CODEC_SHIFT, FRAME_HEADER_LEN, Buffer

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = [
    "Compression",
    "Malformed",
    "Packer",
    "check_codec",
    "is_known",
    "packer",
    "raw_len",
    "unpack",
]

Compression: TypeAlias = Literal["none", "zstd", "lz4"]

CODECS: dict[Compression, int] = {"zstd": 1, "lz4": 2}  # in bits 4 to 7 of a frame's flags
_NAMES = {number: name for name, number in CODECS.items()}
_LEVELS = {"zstd": range(1, 23), "lz4": range(1, 13)}  # lz4: of its high-compression mode
ZSTD_LEVEL = 1  # on frames of 64 KiB of JSON 3, its own default, took a third longer for no less

RAW_LEN_MAX = 1 << 30  # what both codecs take at once; a longer body is stored as it is
EXPANSION_MAX = 1024  # a frame of a KiB holds a MiB at most, whatever it says
RAW_LEN_MIN = 128  # below it a codec saves less than it costs
_SAVED_MIN = 8  # at least an eighth, or reading pays for nothing
_WINDOW_LOG_MIN = 10  # zstd's own least
# zstd's package gathers an answer in blocks, the first of 32 KiB, and then joins them: for that moment
# a long one would be in memory twice. So it is asked for one block at a time, which takes up to 5 %
# longer; frames of the default size are asked for at once.
_UNPACKED_ONCE_MAX = 128 << 10
_PIECE_BYTES = 32 << 10

_LENGTHS = struct.Struct("<II")


class Malformed(Exception):
    """A body whose hash is right and whose content is nonsense: no writer of ours made it."""


# --- the codecs' packages -------------------------------------------------------------------


@cache
def _zstd() -> Any:
    # The standard library's, or the same for Pythons before it.
    own = sys.version_info >= (3, 14)
    return importlib.import_module("compression.zstd" if own else "backports.zstd")


@cache
def _lz4() -> Any:
    return importlib.import_module("lz4.block")


_MODULES = {1: _zstd, 2: _lz4}


def is_known(flags: int) -> bool:
    """Whether this release knows a frame's codec, installed or not."""
    return flags >> CODEC_SHIFT in _NAMES


def check_codec(codec: int) -> None:
    """Raises CodecUnavailable if bodies of this codec can't be made or read here."""
    if codec not in _NAMES:
        raise CodecUnavailable(f"codec {codec} is a newer release's", hint="upgrade aolog")
    try:
        _MODULES[codec]()
    except ImportError:
        raise CodecUnavailable(
            f"compression {_NAMES[codec]} is not installed here",
            hint=install_command("compression"),
            codec=_NAMES[codec],
        ) from None


# --- packing --------------------------------------------------------------------------------

# What is stored for a body: the codec's number, 0 for none, and the parts.
Packer: TypeAlias = "Callable[[int, list[Buffer]], tuple[int, list[Buffer]]]"


def packer(name: str, level: int | None) -> Packer:
    """What compresses bodies so: a call with a frame's count and its body's parts, by any thread.
    Raises UsageError for a name or a level that there is not, CodecUnavailable."""
    if name == "none" and level is None:
        return _as_they_are
    if name not in CODECS:
        names = ", ".join(f'"{each}"' for each in ("none", *CODECS))
        raise UsageError(f"compression={name!r}, compression_level={level!r}", hint=f"use {names}")
    levels = _LEVELS[name]
    if level is not None and not (isinstance(level, int) and level in levels):
        raise UsageError(
            f"compression_level={level!r}", hint=f"{name} has {levels[0]} to {levels[-1]}"
        )
    codec = CODECS[name]
    check_codec(codec)
    compress = _zstd_compressor(level or ZSTD_LEVEL) if name == "zstd" else _lz4_compressor(level)

    def pack(count: int, parts: list[Buffer]) -> tuple[int, list[Buffer]]:
        length = sum(map(len, parts))
        if not RAW_LEN_MIN <= length <= RAW_LEN_MAX:
            return 0, parts
        packed = compress(b"".join(parts))
        least = max(count - FRAME_HEADER_LEN, -(-length // EXPANSION_MAX))
        zeros = max(0, least - _LENGTHS.size - len(packed))
        if _LENGTHS.size + len(packed) + zeros > length - length // _SAVED_MIN:
            return 0, parts
        return codec, [_LENGTHS.pack(length, len(packed)), packed, bytes(zeros)]

    return pack


def _as_they_are(_: int, parts: list[Buffer]) -> tuple[int, list[Buffer]]:
    return 0, parts


def _zstd_compressor(level: int) -> Callable[[bytes], bytes]:
    zstd = _zstd()
    idle: list[Any] = []  # one a thread at work: making one costs as much as a small body

    def compress(raw: bytes) -> bytes:
        try:
            compressor = idle.pop()
        except IndexError:
            compressor = zstd.ZstdCompressor(level=level)
        packed: bytes = compressor.compress(raw, compressor.FLUSH_FRAME)
        idle.append(compressor)  # not where it raised: nobody knows what it still holds
        return packed

    return compress


def _lz4_compressor(level: int | None) -> Callable[[bytes], bytes]:
    mode = "default" if level is None else "high_compression"
    options = {"mode": mode, "compression": level or 0, "store_size": False}
    compress = _lz4().compress
    return lambda raw: compress(raw, **options)


# --- and back -------------------------------------------------------------------------------


def raw_len(body: memoryview) -> int:
    """What an intact body with a codec says that it takes in memory; 0 if that can't be."""
    if len(body) < _LENGTHS.size:
        return 0
    length, packed_len = _LENGTHS.unpack_from(body)
    if packed_len > len(body) - _LENGTHS.size or not 0 < length <= RAW_LEN_MAX:
        return 0
    return int(length) if length <= EXPANSION_MAX * len(body) else 0


def unpack(flags: int, body: memoryview) -> memoryview:
    """The columns of an intact body with a codec. Raises Malformed where it is nonsense, with no
    more memory taken than its bounds allow, and CodecUnavailable."""
    codec = flags >> CODEC_SHIFT
    check_codec(codec)
    length = raw_len(body)
    if not length:
        raise Malformed("lengths that no frame has")
    packed = body[_LENGTHS.size :][: _LENGTHS.unpack_from(body)[1]]
    if bytes(body[_LENGTHS.size + len(packed) :]).strip(b"\0"):
        raise Malformed("bytes behind what the codec made")
    raw = _unzstd(packed, length) if codec == CODECS["zstd"] else _unlz4(packed, length)
    if len(raw) != length:
        raise Malformed(f"{len(raw)} bytes, not {length}")
    return memoryview(raw).toreadonly()


def _unzstd(packed: memoryview, length: int) -> bytes | bytearray:
    zstd = _zstd()
    # A frame of zstd's names the memory that it wants for itself; no more than its body's.
    window_log = max(_WINDOW_LOG_MIN, (length - 1).bit_length())
    options = {zstd.DecompressionParameter.window_log_max: window_log}
    decompressor = zstd.ZstdDecompressor(options=options)
    raw: bytes | bytearray
    try:
        if length <= _UNPACKED_ONCE_MAX:
            raw = decompressor.decompress(packed, length)
        else:
            raw = _in_pieces(decompressor, packed, length)
    except zstd.ZstdError as error:
        raise Malformed(f"zstd: {error}") from None
    if not decompressor.eof or decompressor.unused_data:
        raise Malformed("not one frame of zstd's")
    return raw


def _in_pieces(decompressor: Any, packed: memoryview, length: int) -> bytearray:
    """What the packed bytes give, `length` bytes at most."""
    raw, at, given = bytearray(length), 0, packed
    while at < length and not decompressor.eof:
        piece = decompressor.decompress(given, min(length - at, _PIECE_BYTES))
        if not piece and decompressor.needs_input:  # cut short
            break
        raw[at : at + len(piece)] = piece
        at, given = at + len(piece), memoryview(b"")
    del raw[at:]
    return raw


def _unlz4(packed: memoryview, length: int) -> bytes:
    lz4 = _lz4()
    try:
        raw: bytes = lz4.decompress(packed, uncompressed_size=length)
    except lz4.LZ4BlockError as error:
        raise Malformed(f"lz4: {error}") from None
    return raw
