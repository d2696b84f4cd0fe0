"""`restore`: a log on a local disk from its archive. Each slab is checked; the directory appears whole."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, NamedTuple

from aolog.errors import NotALog, UsageError, load_optional
from aolog.format.archive import MANIFEST, Entry, decode_manifest
from aolog.format.slab import slab_name
from aolog.maintenance.archive.content import pieces
from aolog.storage.directory import Inside, beside
from aolog.storage.objects.overlay import Overlay
from aolog.storage.objects.requests import Found, Get
from aolog.storage.objects.url import is_url, normal_url
from aolog.storage.storage import Storage, absolute, parent_of

if TYPE_CHECKING:
    import os
    from collections.abc import Callable

    from aolog.storage.objects.client import Client

_UNFINISHED = ".restoring"


class Restored(NamedTuple):
    """into: the new log. end: the address after its last byte. kept: slabs that an earlier attempt, which
    was killed, had restored."""

    into: str
    slabs: int
    bytes: int
    end: int
    kept: int


def restore(
    url: str,
    into: str | os.PathLike[str],
    *,
    progress: Callable[[int, int], None] | None = None,
    storage: Storage | None = None,
    client: Client | None = None,
) -> Restored:
    """Makes the log at `into`, which must not exist, from the archive below the URL. Durable on return.

    A killed restore leaves DIR.restoring, with which the next one goes on. Raises NotALog if there is no
    archive, CorruptionError for an object with other bytes, UsageError, StorageError.
    """
    if not is_url(url):
        raise UsageError(f"{url}: is not the URL of a store", hint="s3://BUCKET/PREFIX")
    storage, url = storage or Storage(), normal_url(url)
    place = beside(absolute(into))
    if storage.exists(place):
        raise UsageError(f"{place}: exists already", hint="name a new directory")
    client = client or load_optional("aolog.storage.objects.client").Client(url)
    answer = client.ask(Get(MANIFEST))
    if not isinstance(answer, Found):
        raise NotALog("no archive: there is no archive.json", hint="correct the URL", path=url)
    manifest = decode_manifest(bytes(answer.body), f"{url}/{MANIFEST}")
    if not manifest.entries:
        raise NotALog("the archive is empty", hint="archive the log first", path=url)
    total, done, kept = sum(e.size for e in manifest.entries), 0, 0
    storage.make_directory(parent_of(absolute(place)))
    unfinished = place + _UNFINISHED
    storage.make_directory(unfinished)
    with storage.open_directory(unfinished) as directory:
        for entry in manifest.entries:
            path = directory / slab_name(entry.base)
            if _is_there(path, entry, storage):
                kept += 1
            else:
                _fetch(client, entry, path, storage)
            done += entry.size
            if progress is not None:
                progress(done, total)
        directory.sync()
    storage.rename(unfinished, place)
    storage.sync_directory(parent_of(absolute(place)))
    return Restored(str(place), len(manifest.entries), total, manifest.end, kept)


def _is_there(path: Inside, entry: Entry, storage: Storage) -> bool:
    found = storage.entry(path)
    if found is None or found.size != entry.size or entry.header:
        return False
    digest = hashlib.sha256()
    with storage.open_read(path) as file:
        for _, piece in file.pieces(0, entry.size):
            digest.update(piece)
    return digest.hexdigest() == entry.sha256


def _fetch(client: Client, entry: Entry, path: Inside, storage: Storage) -> None:
    with storage.appearing(path) as file:
        for at, piece in pieces(client, entry):
            file.pwrite_all([piece], at)
        if (header := entry.own_header()) is not None:
            for at, part in Overlay(header, entry.size, file.pread).parts():
                file.pwrite_all([part], at)
    file.close()
