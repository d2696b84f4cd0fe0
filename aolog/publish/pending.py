"""A task's slabs: written, sealed and synced under pending names.

Frames, Arrow columns and the seal are written as by `Writer`. Only the header is incomplete: it has no
base and no log's UUID. No frame depends on them. No lock is needed: each slab has a unique name, and no
reader opens it before it is published.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple, Self

from aolog.errors import StorageError, UsageError
from aolog.format.names import DEPTH_MAX, MANIFEST_NAME, PENDING_SUFFIX, UNBORN_SUFFIX, pending_name
from aolog.format.slab import NO_BASE, SlabHeader, slab_base
from aolog.storage import clock
from aolog.storage.directory import Inside
from aolog.storage.storage import Storage, absolute
from aolog.write.active_slab import FormatTwoSlab
from aolog.write.next_slab import reach_of
from aolog.write.options import WriterOptions
from aolog.write.record_columns import RecordChecks

if TYPE_CHECKING:
    import os

    import pyarrow as pa

FRAME_BYTES = 256 << 10  # larger batches are split: damage costs a frame, a reader decodes a frame
_WRITE_BYTES = 1 << 20  # bytes of frames that are collected for one write


class PendingSlab(NamedTuple):
    """A task's result for the publishing process; small and picklable. log: its name below the root.
    name: of the file in the log's directory. salt: identifies the slab. lost: records that the log
    lacks before the slab; None if their number is unknown."""

    log: str
    name: str
    bytes: int
    records: int
    salt: int
    lost: int | None = 0


def depth_of(log: str) -> int:
    """The number of directories from the root to a log; 0 for ".", the root itself. Raises UsageError
    for a name that is not valid."""
    if log == ".":
        return 0
    names = log.split("/")
    for name in names:
        hidden = not name or name.startswith((".", "-")) or "\0" in name
        if hidden or len(name.encode(errors="replace")) > 255 or _is_of_files(name):
            raise UsageError(
                f"{log!r} names no log",
                hint="use names below the root, with / between them, that begin with no . or -, and "
                "are not those of slabs and manifests",
            )
    if len(names) > DEPTH_MAX:
        raise UsageError(f"{log!r} lies more than {DEPTH_MAX} directories deep")
    return len(names)


def _is_of_files(name: str) -> bool:
    """Whether slabs or manifests have such names. A directory in the place of the manifest would stop
    every publication below the root."""
    if name.removesuffix(".tmp") == MANIFEST_NAME or slab_base(name) is not None:
        return True
    return name.endswith((UNBORN_SUFFIX, PENDING_SUFFIX))


def log_path(root: str, log: str) -> str:
    """The path of a log."""
    return root if log == "." else f"{root}/{log}"


class PendingLog:
    """The slabs that a task writes for one log. End it with `finish` or `discard`; a `with` block calls
    `finish`, or `discard` if it raises. Not thread-safe.

    job: 32 hex digits, the same for all tasks of a job. options: of these, the sizes, the compression
    and the mode count. Raises UsageError, CodecUnavailable, StorageError.
    """

    def __init__(
        self,
        root: str | os.PathLike[str],
        log: str,
        job: str,
        options: WriterOptions | None = None,
        *,
        storage: Storage | None = None,
    ) -> None:
        self._options = (options or WriterOptions()).checked()
        self.log = log
        self.slabs: list[PendingSlab] = []
        self._job = job
        self._depth = depth_of(log)
        self._path = log_path(absolute(root), log)
        self._checks = RecordChecks(self._options)
        self._storage = storage or Storage()
        self._slab: FormatTwoSlab | None = None
        self._lost: int | None = 0  # before the open slab, or before the next one
        self._names: list[str] = []

    def append_arrow(self, batch: pa.RecordBatch) -> None:
        """Takes a batch as `Writer.append_arrow` does, in frames of about 256 KiB. On return it is in
        memory or in the page cache. After an error, call `discard`."""
        rows = batch.num_rows
        if rows == 0:
            return
        step = max(1, rows * FRAME_BYTES // max(batch.nbytes, 1))
        for at in range(0, rows, step):
            self._add(batch.slice(at, step))

    def add_loss(self, records: int | None) -> None:
        """Records that belong here are lost: the log gets a gap. records: their number; None if it is
        unknown. Slabs enclose the gap, if necessary without records: only a slab's header can show it."""
        if records == 0:
            return
        if self._slab is None and not self.slabs:
            self._begin()
        self.seal()
        self._lost = None if records is None or self._lost is None else self._lost + records

    def _add(self, batch: pa.RecordBatch) -> None:
        body = self._checks.of_arrow(batch)
        if self._slab is not None and self._slab.offset >= self._slab.full_at:
            self._end()
        slab = self._slab or self._begin()
        slab.add_records(*body)
        if slab.offset - slab.written >= _WRITE_BYTES:
            slab.write_pending()

    def _begin(self) -> FormatTwoSlab:
        storage = self._storage
        reach = reach_of(self._path, 0, self._options.full_bytes)
        storage.make_directory(self._path, self._options.mode)
        name = pending_name(self._job, storage.system.random_bytes(16).hex(), self._depth)
        self._names.append(name)  # before the file exists, so that discard removes it
        file = storage.create(Inside(self._path, name))
        header = SlabHeader(
            topic_uuid=bytes(16),
            base=NO_BASE,
            base_ordinal=0,
            salt=int.from_bytes(storage.system.random_bytes(4), "little"),
            epoch=0,
            created_us=clock.now_us(),
            slab_bytes=self._options.full_bytes,
            reach=reach,
            compressed=self._options.compression != "none",
        )
        file.pwrite_all([header.encode_prelude()], 0)
        self._slab = FormatTwoSlab(file, header)
        return self._slab

    def _end(self) -> None:
        """Seals the slab; it and its name are durable on return."""
        slab = self._slab
        assert slab is not None
        slab.write_pending()
        slab.file.datasync()
        slab.seal(clock.now_us())
        slab.file.datasync()
        self._storage.sync_directory(self._path)
        name, salt = self._names[-1], slab.header.salt
        self.slabs.append(PendingSlab(self.log, name, slab.offset, slab.records, salt, self._lost))
        slab.file.close()
        self._slab, self._lost = None, 0

    @property
    def is_open(self) -> bool:
        """Whether a slab is open, with a descriptor and an index in memory."""
        return self._slab is not None

    def seal(self) -> None:
        """Seals the open slab, if there is one. The next append begins another."""
        if self._slab is not None:
            self._end()

    def finish(self) -> list[PendingSlab]:
        """Seals everything; durable on return. Returns the slabs in order. After a StorageError, call
        `discard`."""
        if self._slab is None and self._lost != 0:
            self._begin()
        self.seal()
        return self.slabs

    def discard(self) -> None:
        """Removes the slabs. Idempotent. Not allowed once a publication of them may have begun."""
        if self._slab is not None:
            self._slab.file.close()
            self._slab = None
        while self._names:
            self._storage.unlink(Inside(self._path, self._names.pop()))
        self.slabs = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is not None:
            with suppress(StorageError):  # the first error is raised; a sweep removes the rest
                self.discard()
        else:
            self.finish()
