"""Which slabs a log's directory has: by their names, and published ones that are still pending.

A slab may be published while it has its pending name (manifest.py); it is renamed later. A log
without pending names, which is nearly every log, costs one listing and nothing more. Otherwise the
manifest is read after the names. A pending name that the manifest lacks, and that still exists
afterwards, was not published when the manifest was read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from aolog.errors import CorruptionError
from aolog.log.names import PENDING_SUFFIX, UNBORN_SUFFIX, slab_base, slab_name
from aolog.storage.directory import Inside

if TYPE_CHECKING:
    from collections.abc import Iterable

    from aolog.storage.directory import Directory
    from aolog.storage.storage import Storage

__all__ = ["Listing", "holds_slabs", "is_log", "list_slabs"]


class Listing(NamedTuple):
    """bases: of all slabs of the log, sorted. unborn: temporary names of slabs that a dead writer began.
    pending: names of pending slabs. published: by base, the pending names of published slabs."""

    bases: list[int]
    unborn: list[str]
    pending: list[str]
    published: dict[int, str]


def list_slabs(path: str | Directory, storage: Storage, known: Iterable[int] = ()) -> Listing:
    """Lists the slabs. known: bases of slabs that had pending names before: a slab that is renamed
    during the listing may be missing from it. Raises NotALog, CorruptionError, StorageError."""
    where = path if isinstance(path, str) else path.path
    while True:
        bases: list[int] = []
        unborn: list[str] = []
        pending: list[str] = []
        published: dict[int, str] = {}
        for name in storage.list_names(path):  # one pass, with no other work per name
            base = slab_base(name)
            if base is not None:
                bases.append(base)
            elif name.endswith(UNBORN_SUFFIX):
                unborn.append(name)
            elif name.endswith(PENDING_SUFFIX):
                pending.append(name)
        if not pending:
            break
        from aolog.log.manifest import resolve

        published = resolve(where, pending, storage)
        unknown = set(pending).difference(published.values())
        if not unknown or unknown.issubset(storage.list_names(path)):
            break
    listed = set(bases) if known or published else set()
    for base in set(published).intersection(listed):
        if storage.exists(Inside(path, published[base])):
            raise CorruptionError(
                f"{published[base]} was published at the address of {slab_name(base)}: a writer "
                "opened the log by another path, which does not show its root",
                hint="move one of the two elsewhere; both are intact slabs",
                path=where,
            )
        del published[base]  # renamed meanwhile
    bases += published
    listed.update(published)
    for base in known:
        if base not in listed and storage.exists(Inside(path, slab_name(base))):
            bases.append(base)
    bases.sort()
    return Listing(bases, unborn, pending, published)


def holds_slabs(path: str, names: Iterable[str], storage: Storage) -> bool:
    """Whether a directory with these names is a log. Raises CorruptionError, StorageError."""
    pending = []
    for name in names:
        if slab_base(name) is not None:
            return True
        if name.endswith(PENDING_SUFFIX):
            pending.append(name)
    if not pending:
        return False
    from aolog.log.manifest import resolve

    return bool(resolve(path, pending, storage))


def is_log(path: str, storage: Storage) -> bool:
    """Whether the path is a log. Raises CorruptionError, StorageError."""
    return storage.exists(path) and holds_slabs(path, storage.list_names(path), storage)
