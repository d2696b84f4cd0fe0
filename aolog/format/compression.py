"""Compression of bodies: from a frame's columns to the stored bytes, and back.

    offset size  field          (little-endian; the body of a frame with a codec)
    0      u32   raw_len        bytes of the columns
    4      u32   packed_len     bytes of the columns after compression
    8            packed         packed_len bytes: one zstd frame, or one lz4 block
                 zeros          padding, so that the stored body keeps the two bounds below

The bytes of a frame are at least as many as its records, because record i has the frame's address
+ i. The columns have at most `EXPANSION_MAX` times the bytes of the stored body. Unpacking takes at
most twice as much memory, because zstd has a window of its own. Both lengths are checked against these
bounds, in an intact body too, before any memory is allocated for them. The body's hash is of the
stored bytes, so walks, recovery and repair need no codec.

A codec's package is imported when it is first used.
"""

from __future__ import annotations

import importlib
import struct
import sys
from collections.abc import Callable
from functools import cache
from typing import Any, Literal, TypeAlias

from aolog.errors import CodecUnavailable, UsageError, install_command
from aolog.format.frame import CODEC_SHIFT, FRAME_HEADER_LEN, Buffer

Compression: TypeAlias = Literal["none", "zstd", "lz4"]

CODECS: dict[Compression, int] = {"zstd": 1, "lz4": 2}  # in bits 4 to 7 of a frame's flags
_NAMES = {number: name for name, number in CODECS.items()}
_LEVELS = {"zstd": range(1, 23), "lz4": range(1, 13)}  # lz4: of its high-compression mode
_ZSTD_LEVEL = 1  # zstd's default, 3, took a third longer on 64 KiB of JSON and saved no more

RAW_LEN_MAX = 1 << 30  # both codecs compress it in one call; a longer body is stored as it is
EXPANSION_MAX = 1024  # a stored body of 1 KiB unpacks to at most 1 MiB
RAW_LEN_MIN = 128  # a codec saves little on shorter bodies
_SAVED_MIN = 8  # compress only if it saves at least an eighth: reading takes longer then
_WINDOW_LOG_MIN = 10  # the minimum of zstd
# zstd's package collects its output in blocks, the first of 32 KiB, and joins them at the end: then a
# long output is in memory twice. So a long output is requested one block at a time, which takes up to
# 5 % longer. Frames of the default size are requested at once.
_UNPACKED_ONCE_MAX = 128 << 10
_PIECE_BYTES = 32 << 10

_LENGTHS = struct.Struct("<II")


class Malformed(Exception):
    """The hash of the body is right, but its content is invalid: no writer of ours made it."""


# --- the codecs' packages -------------------------------------------------------------------


@cache
def _zstd() -> Any:
    in_library = sys.version_info >= (3, 14)
    return importlib.import_module("compression.zstd" if in_library else "backports.zstd")


@cache
def _lz4() -> Any:
    return importlib.import_module("lz4.block")


_MODULES = {1: _zstd, 2: _lz4}


def is_known(flags: int) -> bool:
    """Whether this release knows the codec in a frame's flags, installed or not."""
    return flags >> CODEC_SHIFT in _NAMES


def check_codec(codec: int) -> None:
    """Raises CodecUnavailable if the codec is unknown or its package is not installed."""
    if codec not in _NAMES:
        raise CodecUnavailable(f"codec {codec} needs a newer release", hint="upgrade aolog")
    try:
        _MODULES[codec]()
    except ImportError:
        raise CodecUnavailable(
            f"the package for compression {_NAMES[codec]} is not installed",
            hint=install_command("compression"),
            codec=_NAMES[codec],
        ) from None


# --- packing --------------------------------------------------------------------------------

# Takes the number of records and the parts of a body. Returns the codec's number, 0 for none, and the
# parts to store.
Packer: TypeAlias = "Callable[[int, list[Buffer]], tuple[int, list[Buffer]]]"


def packer(name: str, level: int | None) -> Packer | None:
    """The function that compresses bodies with this codec; any thread may call it. None for "none".
    Raises UsageError for an unknown name or level, CodecUnavailable."""
    if name == "none" and level is None:
        return None
    if name not in CODECS:
        names = ", ".join(f'"{each}"' for each in ("none", *CODECS))
        raise UsageError(f"compression={name!r}, compression_level={level!r}", hint=f"use {names}")
    levels = _LEVELS[name]
    if level is not None and not (isinstance(level, int) and level in levels):
        raise UsageError(
            f"compression_level={level!r}", hint=f"{name} has levels {levels[0]} to {levels[-1]}"
        )
    codec = CODECS[name]
    check_codec(codec)
    compress = zstd_compressor(level or _ZSTD_LEVEL) if name == "zstd" else _lz4_compressor(level)

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


def zstd_compressor(level: int) -> Callable[[bytes], bytes]:
    """Makes one zstd frame of its argument. `check_codec` says whether the package is installed."""
    compress = _zstd().compress
    return lambda raw: compress(raw, level)


def _lz4_compressor(level: int | None) -> Callable[[bytes], bytes]:
    mode = "default" if level is None else "high_compression"
    options = {"mode": mode, "compression": level or 0, "store_size": False}
    compress = _lz4().compress
    return lambda raw: compress(raw, **options)


# --- and back -------------------------------------------------------------------------------


def raw_len(body: memoryview) -> int:
    """The decompressed length that an intact body with a codec states; 0 if it is invalid."""
    if len(body) < _LENGTHS.size:
        return 0
    length, packed_len = _LENGTHS.unpack_from(body)
    if packed_len > len(body) - _LENGTHS.size or not 0 < length <= RAW_LEN_MAX:
        return 0
    return int(length) if length <= EXPANSION_MAX * len(body) else 0


def unpack(flags: int, body: memoryview) -> memoryview:
    """The decompressed columns of an intact body with a codec; read-only. Takes no more memory than the
    bounds allow. Raises Malformed, CodecUnavailable."""
    codec = flags >> CODEC_SHIFT
    check_codec(codec)
    length = raw_len(body)
    if not length:
        raise Malformed("its lengths exceed their bounds")
    packed = body[_LENGTHS.size :][: _LENGTHS.unpack_from(body)[1]]
    if bytes(body[_LENGTHS.size + len(packed) :]).strip(b"\0"):
        raise Malformed("bytes after the compressed data")
    raw = unzstd(packed, length) if codec == CODECS["zstd"] else _unlz4(packed, length)
    if len(raw) != length:
        raise Malformed(f"{len(raw)} bytes, not {length}")
    return memoryview(raw).toreadonly()


def unzstd(packed: memoryview, length: int) -> bytes | bytearray:
    """The content of one zstd frame, at most `length` bytes. Raises Malformed."""
    zstd = _zstd()
    # A zstd frame names the memory for its window: allow no more than for the body.
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
        raise Malformed("it is not exactly one zstd frame")
    return raw


def _in_pieces(decompressor: Any, packed: memoryview, length: int) -> bytearray:
    """The decompressed bytes, at most `length`."""
    raw, at, given = bytearray(length), 0, packed
    while at < length and not decompressor.eof:
        piece = decompressor.decompress(given, min(length - at, _PIECE_BYTES))
        if not piece and decompressor.needs_input:  # the input is truncated
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
