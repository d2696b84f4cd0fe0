"""Removes pending slabs that will never be published: of aborted jobs and of attempts that died.

Slabs in the manifest are never removed; the manifest is read under the root's lock, which a publication
holds. Another job's slabs are removed only if the newest of them in the log is older than any job takes.
If such a job commits after all, it finds a file missing, raises, and publishes nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aolog.format.names import PENDING_SUFFIX, job_of
from aolog.log.log_tree import walk_logs
from aolog.log.manifest import read_manifest, root_of
from aolog.publish.pending import log_path
from aolog.storage import clock
from aolog.storage.directory import Inside
from aolog.storage.storage import Storage, absolute

if TYPE_CHECKING:
    import os
    from collections.abc import Container, Iterable

    from aolog.publish.pending import PendingSlab


def abort(
    root: str | os.PathLike[str],
    job: str,
    slabs: Iterable[PendingSlab] = (),
    *,
    storage: Storage | None = None,
) -> int:
    """Removes the job's unpublished slabs in every log below the root; returns their number. slabs: as
    described by its tasks, removed too. Does nothing while another process publishes or, if the root is
    a log, writes: a later sweep removes them. Raises StorageError, CorruptionError if the manifest is
    damaged."""
    storage = storage or Storage()
    where = absolute(root)
    if not storage.exists(where):
        return 0
    with storage.open_directory(where) as directory:
        if not directory.try_lock():
            return 0
        published = read_manifest(where, storage).slabs.keys()
        going = {Inside(log_path(where, s.log), s.name) for s in slabs if s.name not in published}
        for path, names, _ in walk_logs(where, storage):
            going |= {Inside(path, n) for n in names if job_of(n) == job and n not in published}
        going = {path for path in going if storage.exists(path)}
        for path in going:
            storage.unlink(path)
        return len(going)


def sweep(
    root: str, path: str, job: str, kept: Container[str], older_than_s: float, storage: Storage
) -> None:
    """Removes a log's pending slabs that are not in `kept` (the names in this root's manifest): those of
    this job's other attempts, and those of jobs that have written nothing for `older_than_s`. Slabs of
    another root stay. The caller holds the root's lock, and the job writes no more."""
    names = [name for name in storage.list_names(path) if name.endswith(PENDING_SUFFIX)]
    of_jobs: dict[str, list[str]] = {}
    for name in names:
        its = job_of(name)
        if its is not None and name not in kept and root_of(path, name) == root:
            of_jobs.setdefault(its, []).append(name)
    before_ns = clock.now_us() * 1000 - int(older_than_s * 1e9)
    for its, listed in of_jobs.items():
        if its == job or all(_changed_ns(Inside(path, n), storage) < before_ns for n in listed):
            for name in listed:
                storage.unlink(Inside(path, name))


def _changed_ns(path: Inside, storage: Storage) -> int:
    try:
        with storage.open_read(path) as file:
            return file.stat().mtime_ns
    except FileNotFoundError:
        return 0
