"""Small logs in every state in which a log may be found, and their contents.

A log has a few slabs with a few hundred bytes of frames each (after 8 KiB of header), so that every byte
and every bit can be tried.
"""

from __future__ import annotations

import logging
import os
import shutil
from typing import TYPE_CHECKING, NamedTuple

import aolog
from aolog.format import compression as codec_module
from aolog.record import Record
from aolog.storage import lifetime
from fuzz.layout import DATA_BEGIN, Known, know, read_files

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from fuzz.disk import Disk
    from fuzz.layout import Files

__all__ = ["CODECS", "FOREIGN_SUFFIX", "SHAPES", "Made", "abandon", "make", "quiet"]

SLAB_BYTES = DATA_BEGIN + 450
PER_FRAME = 3
FOREIGN_SUFFIX = ".foreign"  # of the name of another log's slab, which no reader opens


def _is_installed(codec: int) -> bool:
    try:
        codec_module.check_codec(codec)
    except aolog.CodecUnavailable:
        return False
    return True


CODECS = [name for name, codec in codec_module.CODECS.items() if _is_installed(codec)]


class Made(NamedTuple):
    """An intact log. known: what the oracle needs. files: what is on disk; beside the slabs those of
    another log, under names that are no slab's, for damages to put in the place of some."""

    known: Known
    files: Files


def make(disk: Disk, shape: str) -> Made:
    """Creates a log of that shape at the disk's path."""
    path = disk.fresh()
    records = SHAPES[shape](path)
    files = read_files(path)
    known = know(files, records)
    if shape != "queuefka":
        other = f"{path}-foreign"
        shutil.rmtree(other, ignore_errors=True)
        theirs = _foreign(other)
        slabs = read_files(other)
        known = known._replace(other=know(slabs, theirs))
        files |= {f"{name}{FOREIGN_SUFFIX}": data for name, data in slabs.items()}
        disk.put(files)
    return Made(known, disk.take())


def abandon(writer: aolog.Writer) -> None:
    """What SIGKILL does to a writer: memory is gone, files stay as they are, the lock is free."""
    writer._background.stop()  # noqa: SLF001 -- there is no call for dying
    lifetime.died(writer)


def quiet() -> None:
    """Silences the log's warnings: here nearly every log is damaged."""
    logging.getLogger("aolog").setLevel(logging.CRITICAL)


def _foreign(path: str) -> list[Record]:
    """As "closed", so that many of its slabs begin where those of other shapes do."""
    with _writer(path) as writer:
        return _append(writer, range(11), word=b"%d,%d")


def _writer(path: str, **options: Any) -> aolog.Writer:
    return aolog.Writer(path, slab_bytes=SLAB_BYTES, flush_seconds=None, sync="never", **options)


def _append(
    writer: aolog.Writer, frames: range, *, marks: bool = False, word: bytes = b"%d.%d"
) -> list[Record]:
    """Appends frames of three records, in turn plain ones and ones with every column."""
    records = []
    for i in frames:
        values = [word % (i, j) for j in range(PER_FRAME)]
        if i % 2 == 0:
            addresses = writer.append_many(values).tolist()
            records += [
                Record(address, None, None, value, (), None)
                for address, value in zip(addresses, values, strict=True)
            ]
        else:
            for j, value in enumerate(values):
                stamp, key, topic = 1000 * i + j, b"k%d" % j if j else None, "t" if j else None
                headers = (("h", None), ("g", b"x"))
                address = writer.append(
                    value, key=key, headers=headers, timestamp=stamp, topic=topic
                )
                records.append(Record(address, stamp, key, value, headers, topic))
            writer.flush()
        if marks:
            writer.sync()
    return records


def _closed(path: str) -> list[Record]:
    with _writer(path) as writer:
        return _append(writer, range(11))


def _crashed(path: str, *, marks: bool = False) -> list[Record]:
    writer = _writer(path)
    records = _append(writer, range(11), marks=marks)
    writer.flush()
    abandon(writer)
    return records


def _zeros_ahead(path: str) -> list[Record]:
    """As a slab whose writer synced often."""
    records = _crashed(path)
    os.truncate(f"{path}/{_last_slab(path)}", SLAB_BYTES)
    return records


def _last_slab(path: str) -> str:
    return max(name for name in read_files(path) if name.endswith(".slab"))


def _epochs(path: str) -> list[Record]:
    """Writers of three epochs, each killed; the second leaves a torn end."""
    records: list[Record] = []
    for n, torn in enumerate([b"", b"an unfinished end", b""]):
        writer = _writer(path)
        records += _append(writer, range(4 * n, 4 * n + 4))
        writer.flush()
        abandon(writer)
        with open(f"{path}/{_last_slab(path)}", "ab") as file:  # noqa: PTH123 -- strings are the paths here
            file.write(torn)
    return records


def _compressed(path: str) -> list[Record]:
    """Slabs of each codec, with frames that shrink and some that do not. The last writer is killed."""
    records: list[Record] = []
    for codec in CODECS:
        writer = _writer(path, compression=codec)
        for i in range(2):
            values = [b"%d " % i + b"the same words again. " * (6 * j) for j in range(PER_FRAME)]
            addresses = writer.append_many(values).tolist()
            records += [
                Record(a, None, None, v, (), None) for a, v in zip(addresses, values, strict=True)
            ]
            for j, value in enumerate(values):
                stamp, key = 1000 * i + j, b"key %d" % j
                address = writer.append(value, key=key, timestamp=stamp, topic="t")
                records.append(Record(address, stamp, key, value, (), "t"))
            records.append(
                Record(writer.append(b"short", timestamp=i), i, None, b"short", (), None)
            )
            writer.flush()
        if codec == CODECS[-1]:
            abandon(writer)
        else:
            writer.close()
    return records


def _nested(path: str) -> list[Record]:
    """Values that contain whole slabs and frames, of another log and of this one."""
    other = f"{path}-other"
    _closed(other)
    foreign = next(iter(read_files(other).values()))
    with _writer(path) as writer:
        records = _append(writer, range(3))
        own = next(iter(read_files(path).values()))
        for value in (foreign, own[DATA_BEGIN:], foreign[DATA_BEGIN:], own, b"\xa0\xf2" * 99):
            records.append(Record(writer.append(value, timestamp=5), 5, None, value, (), None))
            writer.flush()
        return records + _append(writer, range(3, 6))


def _queuefka(path: str) -> list[Record]:
    """Format 1: a frame a record, three slabs and the next one, which is empty."""
    with aolog.Writer(path, slab_bytes=150, format="queuefka") as writer:
        values = [b"%015d" % i for i in range(21)]
        return [Record(writer.append(value), None, None, value, (), None) for value in values]


SHAPES: dict[str, Callable[[str], list[Record]]] = {
    "closed": _closed,
    "open": _crashed,
    "marked": lambda path: _crashed(path, marks=True),
    "zeros_ahead": _zeros_ahead,
    "epochs": _epochs,
    "nested": _nested,
    "queuefka": _queuefka,
}
if CODECS:
    SHAPES["compressed"] = _compressed
