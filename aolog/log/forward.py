"""A publication that was killed behind its commit point: whoever takes the log next finishes it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aolog.format.slab import slab_name
from aolog.log.manifest import sync_roots

if TYPE_CHECKING:
    from aolog.log.directory import Log

__all__ = ["roll_forward"]


def roll_forward(log: Log) -> None:
    """Published slabs get their own names; durable on return. The caller holds the writer's lock.
    Idempotent, and may be killed. The manifest goes on naming them until the next publication.
    Raises StorageError."""
    storage = log.storage
    sync_roots(log.path, log.published.values(), storage)  # else a power cut takes back the others
    for base, name in sorted(log.published.items()):
        storage.rename(log.directory / name, log.directory / slab_name(base))
    storage.sync_directory(log.directory)
    log.refresh(force=True)
