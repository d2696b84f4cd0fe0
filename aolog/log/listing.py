"""What a log's directory holds: slabs by their names, and pending ones that were published.

A slab is published while it still has its pending name (manifest.py), and is renamed then. Names
without that suffix, which is nearly always all of them, cost nothing more. With it, the manifest is
read after the names were: a name that it does not know, and that is still there afterwards, was
not published when the manifest was read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from aolog.errors import CorruptionError
from aolog.format.slab import slab_base, slab_name
from aolog.storage.inside import Inside

if TYPE_CHECKING:
    from collections.abc import Iterable

    from aolog.storage.files import Directory, Storage

__all__ = ["PENDING_SUFFIX", "UNBORN_SUFFIX", "Listing", "holds_slabs", "is_log", "list_slabs"]

UNBORN_SUFFIX = ".slab.tmp"
PENDING_SUFFIX = ".pending"


class Listing(NamedTuple):
    """bases: of all slabs that count, sorted. unborn: names of slabs that a dead writer began and
    never named. pending: names of pending slabs. published: the pending names that slabs which
    count still have, by their bases."""

    bases: list[int]
    unborn: list[str]
    pending: list[str]
    published: dict[int, str]


def list_slabs(path: str | Directory, storage: Storage, known: Iterable[int] = ()) -> Listing:
    """known: bases of slabs that were seen under pending names. One that is renamed just while
    the names are read may be missing from them. Raises NotALog, CorruptionError, StorageError."""
    where = path if isinstance(path, str) else path.path
    while True:
        bases: list[int] = []
        unborn: list[str] = []
        pending: list[str] = []
        published: dict[int, str] = {}
        for name in storage.list_names(path):  # one pass, and nothing else that grows
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
                f"{published[base]} was published at the address of {slab_name(base)}: somebody "
                "appended to the log by another path, from which its root is not seen",
                hint="move one of the two elsewhere; both are whole slabs",
                path=where,
            )
        del published[base]  # renamed between the two
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
    """Whether there is a log. Raises CorruptionError, StorageError."""
    return storage.exists(path) and holds_slabs(path, storage.list_names(path), storage)
