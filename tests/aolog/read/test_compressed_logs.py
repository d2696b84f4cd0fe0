"""Logs whose frames are compressed: the same records in every way, damage confined to its frame,
and a plain error where there is no codec. About 10 s.
"""

from __future__ import annotations

import os
import shutil
import sys
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pytest

import aolog
from aolog.format import compression as codec_module
from aolog.format.compression import CODECS
from aolog.format.frame import CODEC_SHIFT, KIND_RECORDS, encode_frame
from aolog.format.slab import SlabHeader
from aolog.log.directory import Log
from aolog.log.walk import Tail
from aolog.record import Gap
from aolog.storage.storage import Storage
from tests.aolog.commands import answer, failure
from tests.aolog.conftest import (
    WAYS,
    assert_clean,
    frames_of,
    one_by_one,
    read_all,
    slab_files,
    unchanged,
)

PACKAGES = ("compression.zstd", "backports.zstd", "lz4.block")
pytest.importorskip(
    "compression.zstd" if sys.version_info >= (3, 14) else "backports.zstd",
    reason="the compression extra is not installed",
)
pytest.importorskip("lz4.block", reason="the compression extra is not installed")

NAMES = sorted(CODECS)
SALT = 0x0BADCAFE


def fill(writer: aolog.Writer, n: int = 40) -> None:
    """Batches with all kinds of columns, alike enough to shrink, and one that does not."""
    for i in range(n):
        for j in range(20):
            value = None if j == 7 else b'{"user": %d, "path": "/a/b/c/%d"}' % (i, j)
            headers = (("trace", b"%d" % i), ("none", None)) if i % 3 == 1 else ()
            writer.append(
                value,
                key=b"key %d" % j if i % 4 == 1 else None,
                headers=headers,
                timestamp=1_000_000 * i - j if i % 5 == 2 else None,
                topic=("a", "b")[j % 2] if i % 7 == 3 else None,
            )
        writer.flush()
        if i % 10 == 5:
            writer.append_many([b"many %05d" % k for k in range(300)])
            writer.append(b"short")
            writer.flush()


def plain(records: list[aolog.Record]) -> list[tuple[object, ...]]:
    """Without what differs: addresses, and times that nobody gave."""
    return [
        (r.key, r.value, r.headers, r.topic, r.timestamp if r.timestamp < 10**12 else None)
        for r in records
    ]


def codecs(path: str) -> list[int]:
    """Of the log's frames of records, in order."""
    log = Log(path, Storage())
    found = []
    for i in range(len(log.bases)):
        walker = log.slab(i).walker()
        while not isinstance(frame := walker.next(), Tail):
            if frame.header.kind == KIND_RECORDS:
                found.append(frame.header.flags >> CODEC_SHIFT)
    log.close()
    return found


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """One a codec, one without, and one that was written with each in turn."""
    root = tmp_path_factory.mktemp("compressed")
    made = {}
    for name in ("none", *NAMES):
        made[name] = str(root / name)
        with aolog.Writer(made[name], compression=name, slab_bytes=12_000) as writer:
            fill(writer)
    made["mixed"] = str(root / "mixed")
    for name in ("none", "zstd", "lz4", "none"):
        with aolog.Writer(made["mixed"], compression=name, slab_bytes=12_000) as writer:
            fill(writer, 12)
    return made


@pytest.fixture
def without_packages(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    """As where the extra is not installed. Undoing the patch installs it."""
    for name in PACKAGES:
        monkeypatch.setitem(sys.modules, name, None)
    loaded = (codec_module._zstd, codec_module._lz4)
    for package in loaded:
        package.cache_clear()
    yield monkeypatch
    monkeypatch.undo()
    for package in loaded:
        package.cache_clear()


# --- the same records -----------------------------------------------------------------------


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
@pytest.mark.parametrize("name", NAMES)
def test_a_compressed_log_holds_the_records_of_one_that_is_not(logs, name, way):
    found = way(logs[name])
    assert plain(found.records) == plain(one_by_one(logs["none"]).records)
    assert found.gaps == []
    assert found.records == one_by_one(logs[name]).records


@pytest.mark.parametrize("name", NAMES)
def test_frames_are_compressed_where_that_saves_something(logs, name):
    found = codecs(logs[name])
    assert set(found) == {0, CODECS[name]}  # a short one is stored as it is
    assert found.count(CODECS[name]) > len(found) * 3 / 4
    sizes = {each: aolog.verify(logs[each]) for each in ("none", name)}
    assert sizes[name].slabs < sizes["none"].slabs
    assert_clean(logs[name])


# --- damage ---------------------------------------------------------------------------------


@pytest.fixture(params=NAMES)
def ten(request, log_path):
    """Ten compressed frames of 30 records in one slab, sealed."""
    with aolog.Writer(log_path, compression=request.param) as writer:
        for i in range(10):
            writer.append_many([b"frame %d, record %d" % (i, j) for j in range(30)])
    assert codecs(log_path) == [CODECS[request.param]] * 10
    return log_path


def hostile_slab(
    path: str, frames: list[tuple[int, int, bytes]], *, version_3: bool = True
) -> None:
    """A log of one slab with frames of these (codec, count, body), their hashes right."""
    header = SlabHeader(
        topic_uuid=bytes(16), base=0, base_ordinal=0, salt=SALT, epoch=1, created_us=0,
        slab_bytes=1 << 20, reach=1 << 33, compressed=version_3,
    )  # fmt: skip  # as the field table has them
    data = header.encode_prelude()
    ordinal = 0
    for codec, count, body in frames:
        parts, _ = encode_frame(
            len(data), SALT, [body], flags=codec << CODEC_SHIFT, count=count, columns=count > 1,
            ordinal=ordinal,
        )  # fmt: skip  # the same
        data += b"".join(map(bytes, parts))
        ordinal += count
    Path(path).mkdir()
    Path(path, f"{0:020d}.slab").write_bytes(data)


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
@pytest.mark.parametrize("codec", CODECS.values())
@pytest.mark.parametrize(
    "body",
    [b"", b"junk", b"\xff" * 8, b"\x10\0\0\0\x04\0\0\0junk", b"\0\0\0\x40\x10\0\0\0" + bytes(16)],
)
def test_invalid_content_under_a_right_hash_is_a_gap(log_path, way, codec, body):
    hostile_slab(log_path, [(0, 1, b"before"), (codec, 1, body), (0, 1, b"behind")])
    found = way(log_path)
    assert [record.value for record in found.records] == [b"before", b"behind"]
    begin, end = frames_of(log_path)[1][2:4]
    assert found.gaps == [Gap(begin, end, "corrupt", 1)]
    assert aolog.verify(log_path).gaps == found.gaps


@pytest.mark.parametrize("name", NAMES)
def test_a_codec_in_a_slab_of_version_2_is_malformed(log_path, name):
    codec, parts = codec_module.packer(name, None)(1, [b"x" * 500])
    hostile_slab(log_path, [(codec, 1, b"".join(parts))])
    assert [record.value for record in read_all(log_path)] == [b"x" * 500]
    shutil.rmtree(log_path)
    hostile_slab(log_path, [(codec, 1, b"".join(parts)), (0, 1, b"on")], version_3=False)
    found = one_by_one(log_path)
    assert [record.value for record in found.records] == [b"on"]
    assert [(gap.reason, gap.records_lost) for gap in found.gaps] == [("corrupt", 1)]


@pytest.mark.parametrize("way", ["one by one", "batches"])
def test_a_log_that_shrank_a_hundredfold_is_read_in_constant_memory(log_path, way):
    """One read of a MiB holds hundreds of MiB of records."""
    value = bytes(1 << 20)
    with aolog.Writer(log_path, compression="zstd", sync="never") as writer:
        for _ in range(100):
            writer.append(value)
    assert aolog.verify(log_path).bytes < 1 << 20
    tracemalloc.start()
    try:
        with aolog.Reader(log_path) as reader:
            if way == "batches":
                count = sum(len(batch) for batch in iter(reader.read_batch, None))
            else:
                count = sum(record.value == value for record in reader)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert count == 100
    assert peak < 24 << 20


# --- without a codec ------------------------------------------------------------------------


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_without_its_package_a_log_is_read_up_to_where_it_is_needed(logs, without_packages, way):
    path = logs["mixed"]
    with unchanged(path):
        first = next(slab for slab in slab_files(path) if slab.read_bytes()[8] == 3)
        base = int(first.stem)
        with pytest.raises(aolog.CodecUnavailable) as refused:
            way(path)
        error = refused.value
        assert (error.code, error.exit_status) == ("codec_unavailable", 2)
        end = frames_of(path)[[f.address for f in frames_of(path)].index(base + 8192)].end + base
        assert error.details == {
            "path": str(first), "address": base + 8192, "end": end, "codec": "zstd",
        }  # fmt: skip  # a table
        assert str(first) in str(error)
        assert f"address {base + 8192}" in str(error)
        assert "zstd" in str(error)
        assert "pip install 'aolog-bridge[compression]'" in str(error)


def test_a_reader_continues_at_the_same_record_once_the_package_is_there(logs, without_packages):
    with aolog.Reader(logs["mixed"]) as reader:
        found = []
        for _ in range(3):
            with pytest.raises(aolog.CodecUnavailable) as refused:
                while (batch := reader.read_batch()) is not None:
                    found += batch
            assert found[-1].address < reader.tell() <= refused.value.details["address"]
        assert reader.gaps == []
        without_packages.undo()
        found += list(reader)
    assert found == read_all(logs["mixed"])
    assert reader.gaps == []


@pytest.mark.parametrize("command", [["verify"], ["salvage"], ["repair", "--into", "COPY"]])
def test_verify_and_repair_say_so_and_change_nothing(ten, tmp_path, without_packages, command):
    with unchanged(ten):
        refused = failure(*(part.replace("COPY", str(tmp_path / "copy")) for part in command), ten)
        assert (refused["code"], refused["address"]) == ("codec_unavailable", 8192)
    assert not (tmp_path / "copy").exists()


def reader_end(path: str) -> int | None:
    with aolog.Reader(path, "latest") as reader:
        return reader.ordinal


def test_what_needs_no_body_needs_no_package(logs, tmp_path, without_packages):
    """A writer opens, recovers and goes on; seeks by address and ordinal, and lags, are answered."""
    path = str(shutil.copytree(logs["zstd"], tmp_path / "log"))
    last = slab_files(path)[-1]
    os.truncate(last, last.stat().st_size - 30)
    with aolog.Writer(path) as writer:
        end = writer.append(b"on")
    with aolog.Reader(path) as reader:
        lag = reader.lag()
    assert (lag.records, lag.seconds) == (reader_end(path), None)
    assert lag.bytes > 0
    with aolog.Reader(path, end) as reader:
        assert reader.read().value == b"on"
        assert reader.seek(ordinal=100) < end
        reader.seek("latest")
    told = answer("info", path)
    assert (told["end_ordinal"], told["slabs"]) == (reader_end(path), len(slab_files(path)))


def test_a_codec_of_a_newer_release_is_an_error_and_no_gap(log_path):
    hostile_slab(log_path, [(0, 1, b"before"), (9, 1, b"body"), (0, 1, b"behind")])
    found = []
    with aolog.Reader(log_path) as reader:
        with pytest.raises(aolog.CodecUnavailable, match="upgrade aolog") as refused:
            found += [record.value for record in reader]
        assert reader.tell() == refused.value.details["address"]
        assert reader.gaps == []
    with aolog.Reader(log_path) as reader:
        assert reader.read().value == b"before"
