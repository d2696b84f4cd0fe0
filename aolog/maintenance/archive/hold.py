"""Legal hold: while an archive is held, nothing in it is removed by its retention."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from aolog.errors import load_optional
from aolog.maintenance.archive.replacing import Change, existing, replace, try_store
from aolog.storage.objects.url import bucket_url
from aolog.storage.storage import Storage

if TYPE_CHECKING:
    from aolog.format.archive import Manifest
    from aolog.storage.objects.client import Client


class Held(NamedTuple):
    """held: whether the archive is held now. changed: whether it was not before. slabs, bytes: in it."""

    url: str
    held: bool
    changed: bool
    slabs: int
    bytes: int


def hold(
    url: str,
    *,
    held: bool = True,
    probe: bool = True,
    storage: Storage | None = None,
    client: Client | None = None,
) -> Held:
    """Holds the archive, or releases it. In force on return: an archiver's commit that would remove something
    is refused by the store, because the manifest is another one. probe: whether to try the store before
    something is written. Raises NotALog if there is no archive, UsageError also for a store that lacks what is
    needed, StorageError."""
    url = bucket_url(url)
    client = client or load_optional("aolog.storage.objects.client").Client(url)
    system = (storage or Storage()).system
    changed = False

    def look(found: Manifest | None) -> Change | Held:
        nonlocal changed
        manifest = existing(found, url)
        if manifest.held == held:
            size = sum(entry.size for entry in manifest.entries)
            return Held(url, held, changed, len(manifest.entries), size)
        if probe and not changed:
            try_store(client, system.random_bytes(16).hex())
        changed = True
        return Change(manifest._replace(held=held), system.random_bytes(16).hex())

    return replace(client, look)
