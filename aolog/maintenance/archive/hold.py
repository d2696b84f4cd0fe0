"""Legal hold: while an archive is held, nothing in it is removed by its retention."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from aolog.errors import NotALog, StorageFailed, UsageError, load_optional
from aolog.format.archive import MANIFEST, decode_manifest, encode_manifest
from aolog.storage.objects.requests import Found, Get, Put
from aolog.storage.objects.url import is_url, normal_url
from aolog.storage.storage import Storage

if TYPE_CHECKING:
    from aolog.storage.objects.client import Client

_ATTEMPTS_MAX = 60  # another process commits once a second at most


class Held(NamedTuple):
    """held: whether the archive is held now. changed: whether it was not before. slabs, bytes: in it."""

    url: str
    held: bool
    changed: bool
    slabs: int
    bytes: int


def hold(
    url: str, *, held: bool = True, storage: Storage | None = None, client: Client | None = None
) -> Held:
    """Holds the archive, or releases it. In force on return: an archiver's commit that would remove something
    is refused by the store, because the manifest is another one. Raises NotALog if there is no archive,
    UsageError, StorageError."""
    if not is_url(url):
        raise UsageError(f"{url}: is not the URL of a store", hint="s3://BUCKET/PREFIX")
    url = normal_url(url)
    client = client or load_optional("aolog.storage.objects.client").Client(url)
    system = (storage or Storage()).system
    changed = False
    for _ in range(_ATTEMPTS_MAX):
        answer = client.ask(Get(MANIFEST))
        if not isinstance(answer, Found):
            raise NotALog("no archive: there is no archive.json", hint="correct the URL", path=url)
        manifest = decode_manifest(bytes(answer.body), f"{url}/{MANIFEST}")
        if manifest.held == held:
            size = sum(entry.size for entry in manifest.entries)
            return Held(url, held, changed, len(manifest.entries), size)
        write_id = system.random_bytes(16).hex()
        wanted = manifest._replace(held=held, sequence=manifest.sequence + 1, write=write_id)
        # Whatever the answer is, the next look shows which manifest there is.
        client.send(Put(MANIFEST, encode_manifest(wanted), write_id, "", answer.tag))
        changed = True
    raise StorageFailed(
        "the manifest was replaced by others at each attempt", hint="try again", path=url
    )
