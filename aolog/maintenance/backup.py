"""A backup of a log beside its writer: a copy that is a log itself, with links to the sealed slabs.

It is made as `repair` makes a copy (repair.py): every byte is read and checked, and DIR is complete or
absent. What differs: a sealed slab without damage gets a second name instead of a copy if DIR is on the
same file system; and the cursors are those from before the slabs were read, so that none is after the
backup's end. The bridge's notes on cursors are not part of a backup.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aolog.maintenance.repair import make_copy

if TYPE_CHECKING:
    import os
    from collections.abc import Callable

    from aolog.maintenance.repair import Repaired
    from aolog.storage.storage import Storage


def backup(
    path: str | os.PathLike[str],
    into: str | os.PathLike[str],
    *,
    new_uuid: bool = False,
    progress: Callable[[int, int], None] | None = None,
    storage: Storage | None = None,
) -> Repaired:
    """Copies the log to a new directory `into`, durable on return; the writer and readers go on. It
    ends where the log ended when the backup began, or a little later.

    The backup is a log: read it where it is, or restore it by renaming or copying its directory. Links
    protect from deletion and pruning, not from the loss of the disk: for that, name a directory of
    another file system. new_uuid: makes a clone, another log that may be used beside the first one;
    nothing is linked then. progress: as for `repair`. Raises what `repair` raises.
    """
    return make_copy(path, into, new_uuid=new_uuid, backup=True, progress=progress, storage=storage)
