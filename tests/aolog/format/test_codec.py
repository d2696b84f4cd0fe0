"""Bodies to what is stored and back; hostile lengths and bombs to a plain refusal."""

from __future__ import annotations

import os
import struct
import subprocess
import sys
import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aolog.errors import UsageError
from aolog.format.compression import (
    CODECS,
    EXPANSION_MAX,
    RAW_LEN_MAX,
    Malformed,
    packer,
    raw_len,
    unpack,
)
from aolog.format.frame import FRAME_HEADER_LEN
from tests.aolog.conftest import ROOT

zstd = pytest.importorskip(
    "compression.zstd" if sys.version_info >= (3, 14) else "backports.zstd",
    reason="the compression extra is not installed",
)
block = pytest.importorskip("lz4.block", reason="the compression extra is not installed")

bounded = settings(max_examples=150)
NAMES = sorted(CODECS)
# What shrinks, what does not, and what is too short to try.
BODIES = st.lists(
    st.binary(max_size=300)
    | st.builds(lambda unit, n: unit * n, st.binary(max_size=9), st.integers(0, 400)),
    max_size=5,
)


def stored(name: str, raw: bytes, count: int = 1, level: int | None = None) -> tuple[int, bytes]:
    codec, parts = packer(name, level)(count, [raw])
    return codec, b"".join(parts)


def unpacked(name: str, body: bytes) -> bytes:
    return bytes(unpack(CODECS[name] << 4, memoryview(body)))


# --- there and back -------------------------------------------------------------------------


@bounded
@given(BODIES, st.integers(0, 3000), st.sampled_from(NAMES))
def test_what_is_stored_is_the_body_or_becomes_it_again(parts, count, name):
    raw = b"".join(parts)
    codec, kept = packer(name, None)(count, list(parts))
    body = b"".join(kept)
    if codec == 0:
        assert kept == parts
        return
    assert codec == CODECS[name]
    assert len(raw) >= 128
    assert len(body) <= len(raw) - len(raw) // 8
    assert unpacked(name, body) == raw
    assert raw_len(memoryview(body)) == len(raw) <= EXPANSION_MAX * len(body)
    assert FRAME_HEADER_LEN + len(body) >= count


@pytest.mark.parametrize("name", NAMES)
def test_what_is_short_or_does_not_shrink_is_stored_as_it_is(name):
    noise = os.urandom(5000)
    for raw in (b"", b"x" * 127, noise, noise + bytes(600)):
        assert stored(name, raw) == (0, raw)
    assert stored(name, b"x" * 128)[0] == CODECS[name]


@pytest.mark.parametrize(
    ("name", "level"),
    [("gzip", None), ("", None), (None, None), (3, None), ("none", 3), ("zstd", 0), ("zstd", 23),
     ("zstd", -1), ("zstd", "3"), ("zstd", 3.0), ("lz4", 0), ("lz4", 13)],
)  # fmt: skip  # a table
def test_a_codec_or_a_level_that_does_not_exist_is_refused(name, level):
    with pytest.raises(UsageError) as refused:
        packer(name, level)
    assert refused.value.code == "usage"


# --- what no writer makes -------------------------------------------------------------------

RAW = b"".join(b"record %05d " % i for i in range(400))


def lengths(raw: int, packed: int) -> bytes:
    return struct.pack("<II", raw, packed)


def hostile(name: str) -> dict[str, bytes]:
    compress = zstd.compress if name == "zstd" else lambda r: block.compress(r, store_size=False)
    packed = compress(RAW)
    n = len(packed)
    bomb = compress(bytes(64 << 20))
    bodies = {
        "nothing": b"",
        "half a length": b"\1\0\0\0\1\0",
        "no bytes of the codec": lengths(100, 0) + bytes(40),
        "no length": lengths(0, n) + packed,
        "a length too short": lengths(len(RAW) - 1, n) + packed,
        "a length too long": lengths(len(RAW) + 1, n) + packed,
        "a length beyond the bound": lengths(RAW_LEN_MAX + 1, n) + packed,
        "the greatest length": lengths(0xFFFFFFFF, n) + packed,
        "more packed than there is": lengths(len(RAW), n + 1) + packed,
        "packed without end": lengths(len(RAW), 0xFFFFFFFF) + packed,
        "packed cut short": lengths(len(RAW), n - 1) + packed[:-1],
        "a byte behind it": lengths(len(RAW), n) + packed + b"\0\0\1\0",
        "a byte behind it, counted": lengths(len(RAW), n + 1) + packed + b"\0",
        "twice": lengths(2 * len(RAW), 2 * n) + packed + packed,
        "noise": lengths(500, 500) + bytes(range(250)) * 2,
        "a bomb that says little": lengths(5000, len(bomb)) + bomb,
        "a bomb that says what it may": lengths(min(8 + len(bomb), 4096) << 10, len(bomb)) + bomb,
    }
    if name == "zstd":
        bodies["a bomb"] = lengths(64 << 20, len(bomb)) + bomb  # lz4 has none: 255 of one byte
        options = {zstd.CompressionParameter.window_log: 27,
                   zstd.CompressionParameter.content_size_flag: 0}  # fmt: skip  # one thing
        compressor = zstd.ZstdCompressor(options=options)
        window = compressor.compress(RAW) + compressor.flush()
        bodies["a window of 128 MiB"] = lengths(len(RAW), len(window)) + window
        bodies["an empty frame of zstd's"] = lengths(1, len(zstd.compress(b""))) + zstd.compress(
            b""
        )
        checked = {zstd.CompressionParameter.checksum_flag: 1}
        wrong = bytearray(zstd.compress(RAW, options=checked))
        wrong[-1] ^= 1
        bodies["a checksum of its own, wrong"] = lengths(len(RAW), len(wrong)) + bytes(wrong)
    return bodies


CASES = [(name, what) for name in NAMES for what in hostile(name)]


@pytest.mark.parametrize(("name", "what"), CASES)
def test_nonsense_is_malformed_and_takes_no_more_memory_than_it_may(name, what):
    body = memoryview(hostile(name)[what])
    tracemalloc.start()
    try:
        with pytest.raises(Malformed):
            unpack(CODECS[name] << 4, body)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 2 * max(raw_len(body), len(body)) + (64 << 10)


@pytest.mark.parametrize("knows_its_size", [True, False])
@pytest.mark.parametrize("window_log", [10, 26])
@pytest.mark.parametrize("name", NAMES)
def test_a_body_takes_at_most_twice_what_it_holds_while_it_is_unpacked(
    name, window_log, knows_its_size
):
    """What the libraries take is not Python's to count: a process of its own is looked at."""
    code = """
import resource
from tests.aolog.format.test_codec import *

SIZE = 64 << 20
name, window_log, knows_its_size = sys.argv[1], int(sys.argv[2]), sys.argv[3] == "True"
if name == "lz4":
    packed = block.compress(bytes(SIZE), store_size=False)
else:
    options = {zstd.CompressionParameter.window_log: window_log,
               zstd.CompressionParameter.content_size_flag: knows_its_size}
    compressor = zstd.ZstdCompressor(options=options)
    if knows_its_size:
        compressor.set_pledged_input_size(SIZE)
    packed = b"".join(compressor.compress(bytes(1 << 20)) for _ in range(64)) + compressor.flush()
    del compressor
body = lengths(SIZE, len(packed)) + packed
body = memoryview(body + bytes(max(0, SIZE // EXPANSION_MAX - len(body))))
if not os.fork():  # the child's peak begins at what it has
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    raw = unpack(CODECS[name] << 4, body)
    assert raw.nbytes == SIZE and not raw[-1]
    print(SIZE, (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) << 10, flush=True)
    os._exit(0)
os.wait()
"""
    done = subprocess.run(
        [sys.executable, "-c", code, name, str(window_log), str(knows_its_size)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )
    size, grown = map(int, done.stdout.split())
    assert size // 2 < grown <= 2 * size + (4 << 20)


def test_the_installed_lz4_checks_a_hostile_length() -> None:
    import lz4

    assert lz4.library_version_number() >= 1_09_04  # before: CVE-2021-3520, memory is overwritten
