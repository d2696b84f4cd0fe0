"""A local log with its archive, read as one log (storage/objects/tiers.py): the log's UUID shows that it is its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aolog.errors import NotALog, UsageError, load_optional
from aolog.log.directory import Log
from aolog.storage.objects.url import WithArchive, is_url, normal_url
from aolog.storage.storage import Storage, absolute

if TYPE_CHECKING:
    import os


def with_archive(
    path: str | os.PathLike[str], url: str, storage: Storage | None = None
) -> WithArchive:
    """The path of a local log that is read with the archive below the URL. Raises UsageError for one without a
    UUID, NotALog if one of the two is missing, CorruptionError for the archive of another log."""
    if not is_url(url):
        raise UsageError(f"{url}: is not the URL of a store", hint="s3://BUCKET/PREFIX")
    place, url = absolute(path), normal_url(url)
    uuid = local_uuid(place, storage or Storage())
    if uuid is None:
        raise UsageError(
            f"{place}: the log shows no UUID, so nothing shows whether the archive is its own",
            hint="read one of the two",
        )
    archived = load_optional("aolog.storage.objects.system").archived_uuid(url)
    if not archived:
        raise NotALog("no archive: there is no archive.json", hint="correct the URL", path=url)
    if archived != uuid:
        raise load_optional("aolog.storage.objects.tiers").foreign(url, archived, uuid)
    return WithArchive(place, url, uuid)


def local_uuid(path: str, storage: Storage) -> str | None:
    """The log's UUID in hex; None without headers, and if none is intact. Raises NotALog, CorruptionError,
    StorageError."""
    with Log(path, storage) as log:
        log.require_slabs()
        header = log.last_header()
    return None if header is None else header.topic_uuid.hex()
