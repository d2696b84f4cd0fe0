"""Rolling forward: a publication was killed after its commit point; the next owner of the log's lock
completes it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aolog.log.manifest import sync_roots
from aolog.log.names import slab_name

if TYPE_CHECKING:
    from aolog.log.directory import Log

__all__ = ["roll_forward"]


def roll_forward(log: Log) -> None:
    """Renames published slabs from their pending names; durable on return. The caller holds the
    writer's lock. Idempotent; the process may be killed at any point. The manifest lists them until
    the next publication. Raises StorageError."""
    storage = log.storage
    # First, so that a power cut cannot undo the publication in the other logs.
    sync_roots(log.path, log.published.values(), storage)
    for base, name in sorted(log.published.items()):
        storage.rename(log.directory / name, log.directory / slab_name(base))
    storage.sync_directory(log.directory)
    log.refresh(force=True)
