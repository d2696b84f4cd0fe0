"""Publishes pending slabs in all logs of a job at once, by one rename.

    1  the root's lock, then the writer's lock of every log of the job: a live Writer is an error,
       and nothing is touched
    2  rolls killed publications forward, in these logs and in those without a writer
    3  recovers each log as a writer does; then completes its slabs, one after the other, and syncs
       them; they still have pending names, and no reader opens them
    4  the manifest is replaced, with the new slabs and the transaction: this publishes them
    5  the slabs get their own names

After a kill before step 4, nothing is published and the slabs are leftovers. After a kill later,
everything is: readers find the slabs in the manifest, and the next holder of a log's lock renames them.
"""

from __future__ import annotations

import time
from contextlib import ExitStack
from typing import TYPE_CHECKING, NamedTuple

from aolog.errors import AologError, LogLocked, StorageFailed, UsageError, warn
from aolog.format.frame import padding
from aolog.format.names import MANIFEST_NAME
from aolog.format.root_manifest import LEFTOVER_SECONDS, PublishedSlab, encode_manifest
from aolog.format.slab import DATA_BEGIN, NO_TIMESTAMP, encode_seal_again
from aolog.log.directory import Log
from aolog.log.lock import lock_directory, lock_log
from aolog.log.log_tree import is_log
from aolog.log.manifest import read_manifest
from aolog.log.slab_file import seal_at_end
from aolog.log.slab_list import slab_bases
from aolog.publish.leftovers import sweep
from aolog.publish.pending import log_path
from aolog.storage.directory import Inside
from aolog.storage.storage import DIRECTORY_MODE, Storage, absolute, parent_of
from aolog.write.next_slab import header_after, next_header, reach_of
from aolog.write.opening import open_for_append, refuse_foreign, roll_forward

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Sequence

    from aolog.format.frame import Frame
    from aolog.format.root_manifest import Content, RootManifest, Transaction
    from aolog.format.slab import Seal, SlabHeader
    from aolog.publish.pending import PendingSlab
    from aolog.storage.directory import Directory
    from aolog.storage.file import File

# How long to try for a log's lock. Jobs compete if the root is a log, or if roots are nested: a check
# takes milliseconds, a commit rarely longer than this. A Writer keeps the lock.
_PATIENCE_S = 2.0
_ASK_EVERY_S = 0.02


class Published(NamedTuple):
    """repeated: the transaction was committed before, and nothing was published now. last: the last
    version of its id then. content: what it published; None if that is not known."""

    repeated: bool
    logs: int
    slabs: int
    records: int
    last: int | None = None
    content: Content | None = None


def publish(
    root: str | os.PathLike[str],
    job: str,
    slabs: Sequence[PendingSlab],
    *,
    transaction: Transaction | None = None,
    leftover_seconds: float = LEFTOVER_SECONDS,
    storage: Storage | None = None,
) -> Published:
    """Appends the slabs to their logs, in this order, all of them or none; durable on return.

    One that raises SyncFailed may have published them; after any other error nothing is published.
    Other pending slabs of the job are removed. transaction: committed with the slabs. One that was
    committed before publishes nothing; the caller compares its content. Raises LogLocked beside a
    Writer, StorageError, UsageError, CorruptionError if the manifest is damaged, and what opening a
    Writer raises.
    """
    storage = storage or Storage()
    where = absolute(root)
    by_log: dict[str, list[PendingSlab]] = {}
    for slab in slabs:
        by_log.setdefault(slab.log, []).append(slab)
    storage.make_directory(where)
    _refuse_nested(where, by_log, storage)
    with ExitStack() as held:
        held.callback(_lock_root(where, storage, is_log="." in by_log).close)
        before = read_manifest(where, storage)
        if transaction is not None and before.has(transaction):
            _settle(where, before, (), storage)
            for log in by_log:
                path = log_path(where, log)
                sweep(where, path, job, before.slabs.keys(), leftover_seconds, storage)
            id_, version, _ = transaction
            content = before.contents.get(id_, {}).get(version)
            return Published(True, 0, 0, 0, before.versions[id_], content)
        for log in sorted(by_log):
            if log != ".":
                held.callback(_lock_patiently(log_path(where, log), storage).close)
        kept = _settle(where, before, by_log, storage)
        completed: dict[str, PublishedSlab] = {}
        for log, its in by_log.items():
            completed.update(_completed(where, log, its, storage))
        manifest = before._replace(slabs=kept | completed)
        if transaction is not None:
            manifest = manifest.with_transaction(transaction)
        if manifest != before:
            storage.write_file(Inside(where, MANIFEST_NAME), [encode_manifest(manifest)])
        _finish(where, by_log, job, manifest, leftover_seconds, storage)
    return Published(False, len(by_log), len(slabs), sum(slab.records for slab in slabs))


def check_free(
    root: str | os.PathLike[str],
    logs: Iterable[str],
    storage: Storage | None = None,
    *,
    mode: int = DIRECTORY_MODE,
) -> None:
    """Raises what `publish` would raise now about the root and these logs, to fail before a job begins.
    Creates the root with the mode if it does not exist."""
    storage = storage or Storage()
    where = absolute(root)
    storage.make_directory(where, mode)
    logs = list(logs)
    _refuse_nested(where, logs, storage)
    with ExitStack() as held:  # keeps the root's lock, so that no publication runs into a check
        held.callback(_lock_root(where, storage, is_log="." in logs).close)
        read_manifest(where, storage)
        _try_to_write(where, storage)
        for log in logs:
            _check_log(log_path(where, log), storage, locked=log == ".")


def _check_log(path: str, storage: Storage, *, locked: bool) -> None:
    if not storage.exists(path):
        return
    if not locked:
        _lock_patiently(path, storage).close()
    with Log(path, storage) as opened:
        refuse_foreign(opened, has_headers=True)


def _try_to_write(root: str, storage: Storage) -> None:
    """Raises StorageError if the directory is read-only: a lock does not show that."""
    name = Inside(root, f"{MANIFEST_NAME}.tmp")  # as a new manifest is named, under the same lock
    storage.create(name).close()
    storage.unlink(name)


def _lock_root(root: str, storage: Storage, *, is_log: bool) -> Directory:
    """Takes the root's lock until it is closed; waits for another publication. If the root is a log, this
    is its writer's lock: then waits `_PATIENCE_S` and raises LogLocked."""
    if is_log:
        return _lock_patiently(root, storage)
    with lock_directory(root, storage).closed_on_error() as directory:
        storage.refuse_root(directory)
    return directory


def _lock_patiently(path: str, storage: Storage) -> Directory:
    until_s = time.monotonic() + _PATIENCE_S
    while True:
        try:
            return lock_log(path, storage)
        except LogLocked:
            if time.monotonic() >= until_s:
                raise
        time.sleep(_ASK_EVERY_S)


def _refuse_nested(root: str, logs: Iterable[str], storage: Storage) -> None:
    """Raises UsageError for a log inside a log: readers would not find it."""
    paths = {log_path(root, log): log for log in logs}
    looked: dict[str, bool] = {}
    for path, log in paths.items():
        above = path
        while above != root:
            above = parent_of(above)
            if above not in looked:
                looked[above] = above in paths or is_log(above, storage)
            if looked[above]:
                raise UsageError(f"log {log!r} would lie inside the log at {above}")


def _settle(
    root: str, manifest: RootManifest, held: Iterable[str], storage: Storage
) -> dict[str, PublishedSlab]:
    """Renames published slabs. Returns those that the manifest must keep: another process writes their
    log now, or the log is absent. held: logs whose locks the caller holds."""
    by_log: dict[str, dict[str, PublishedSlab]] = {}
    for name, slab in manifest.slabs.items():
        by_log.setdefault(slab.log, {})[name] = slab
    held = set(held)
    kept: dict[str, PublishedSlab] = {}
    for log, its in by_log.items():
        path = log_path(root, log)
        if not storage.exists(path):  # removed, or not mounted now
            kept |= its
            continue
        lock = None
        try:
            if log not in held and log != ".":
                lock = lock_log(path, storage)
            with Log(path, storage) as opened:
                roll_forward(opened)
                kept |= _beyond(opened.bases, its)
        except LogLocked:  # a Writer renamed them, or will do so
            if any(storage.exists(Inside(path, name)) for name in its):
                kept |= its
            else:
                storage.sync_directory(path)
                kept |= _beyond(slab_bases(path, storage), its)
        finally:
            if lock is not None:
                lock.close()
    return kept


def _beyond(bases: list[int], slabs: dict[str, PublishedSlab]) -> dict[str, PublishedSlab]:
    """Slabs after the log's last one: neither renamed nor pruned, because a log keeps its last slab. So
    the directory is not the log that was published to: a mount point without its file system."""
    last = bases[-1] if bases else -1
    return {name: slab for name, slab in slabs.items() if slab.base > last}


def _completed(
    root: str, log: str, slabs: list[PendingSlab], storage: Storage
) -> dict[str, PublishedSlab]:
    """Recovers the log and completes its new slabs."""
    with Log(log_path(root, log), storage) as opened:
        _, following, _ = open_for_append(opened)
        for name in opened.unborn:  # it holds no record
            storage.unlink(opened.directory / name)
    completed = {}
    for slab in slabs:
        following = after_loss(following, slab.lost)
        completed[slab.name] = PublishedSlab(log, following.base)
        following = _complete(root, slab, following, storage)
    return completed


def after_loss(following: SlabHeader, records: int | None) -> SlabHeader:
    """`header_after` of a slab that does not exist, and in which these records were: readers find a gap
    of reason "missing" there. records: None if their number is unknown."""
    if records == 0:
        return following
    count = records or 0
    size = DATA_BEGIN + count + padding(count)  # each record has an address
    return header_after(following, size, count, NO_TIMESTAMP)._replace(
        ordinal_unsure=following.ordinal_unsure or records is None
    )


def _complete(root: str, slab: PendingSlab, following: SlabHeader, storage: Storage) -> SlabHeader:
    """Completes the slab's header, with its log and its base: puts it after the slabs that
    `following` (next_slab.py) names; durable on return, still under its pending name. Returns the
    same for the next slab. May be repeated with another `following`. Raises StorageError if the
    file is missing or is not what the task wrote.

    The two header copies and the one in the seal are overwritten in place; no reader opens the file yet.
    The seal's frame keeps its offset and length, and gets a new hash."""
    path = Inside(log_path(root, slab.log), slab.name)
    try:
        file = storage.open_write(path)
    except FileNotFoundError:
        raise StorageFailed(
            "a slab that a task wrote is gone",
            hint="nothing was published: run the job again",
            path=path,
        ) from None
    with file:
        seal, frame = _sealed(file, slab)
        header = next_header(
            following,
            salt=slab.salt,
            slab_bytes=seal.header.slab_bytes,
            reach=reach_of(path, following.base, seal.header.slab_bytes),
            boot_id=storage.system.boot_id(),
            inode=file.identity(),
            synced=True,
            compressed=seal.header.compressed,
        )
        parts = encode_seal_again(seal, frame, header)
        assert frame.offset + sum(map(len, parts)) == slab.bytes
        file.pwrite_all([header.encode_prelude()], 0)
        file.pwrite_all(parts, frame.offset)
        file.datasync()
    return header_after(header, slab.bytes, seal.records, seal.greatest_us)


def _sealed(file: File, slab: PendingSlab) -> tuple[Seal, Frame]:
    """The seal and its frame."""
    found = seal_at_end(file, slab.bytes) if file.stat().size == slab.bytes else None
    if found is not None:
        seal = found[0]
        if seal.header.salt == slab.salt and seal.records == slab.records:
            return found
    raise StorageFailed(
        f"is not the slab of {slab.bytes} bytes and {slab.records} records that a task wrote",
        hint="nothing was published: check the device or what synchronises it, then run the job again",
        path=file.path,
    )


def _finish(
    root: str,
    logs: Iterable[str],
    job: str,
    manifest: RootManifest,
    leftover_seconds: float,
    storage: Storage,
) -> None:
    """Renames and sweeps. Everything is published already: if this fails, the next holder of the log's
    lock does it."""
    for log in logs:
        try:
            with Log(log_path(root, log), storage) as opened:
                roll_forward(opened)
            sweep(root, opened.path, job, manifest.slabs.keys(), leftover_seconds, storage)
        except AologError as error:
            warn("%s: published, and left to be renamed: %s", log_path(root, log), error)
