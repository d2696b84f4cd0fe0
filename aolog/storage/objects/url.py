"""URLs of object stores. Pure.

    s3://BUCKET/PREFIX          s3a:// is the same
    gs://BUCKET/PREFIX
    az://CONTAINER/PREFIX       abfs:// and abfss://CONTAINER@ACCOUNT.dfs.core.windows.net/PREFIX are the same
    file:///DIRECTORY           a copy of an archive, or of a log, on a local disk

Credentials are not part of a URL: each provider's environment, files and metadata service have them.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Self
from urllib.parse import quote

from aolog.errors import UsageError

_SCHEMES = {"s3": "s3", "s3a": "s3", "gs": "gs", "az": "az", "abfs": "abfs", "abfss": "abfss",
            "file": "file"}  # fmt: skip  # a table
_URL = re.compile(r"([a-z0-9]+)://([^/]*)(/.*)?", re.DOTALL)
_ENCODED = re.compile(r"[%?#\x00-\x1f\x7f]|^ | $")  # means something else in a URL, or is dropped


def is_url(path: object) -> bool:
    """Whether this is the URL of an object store, as far as its scheme shows."""
    if not isinstance(path, str):
        return False
    scheme, found, _ = path.partition("://")
    return bool(found) and scheme in _SCHEMES


def normal_url(url: str) -> str:
    """The same URL without what makes no difference. Raises UsageError."""
    found = _URL.fullmatch(url)
    assert found is not None, url
    scheme, authority, rest = found.groups()
    scheme = _SCHEMES[scheme]
    names = [name for name in (rest or "").split("/") if name]
    hidden = url if "@" not in authority else f"{scheme}://...@{authority.rpartition('@')[2]}"
    if "?" in url or "#" in url or (":" in authority.rpartition("@")[0]):
        raise UsageError(
            f"{hidden.partition('?')[0]}: a store's URL has no query, fragment or password",
            hint="credentials come from the provider's environment variables, files or metadata service",
        )
    if "@" in authority and not scheme.startswith("abfs"):
        raise UsageError(f"{hidden}: a URL with {scheme}:// has no user", hint="leave it out")
    if not authority and scheme != "file":
        raise UsageError(f"{url}: the URL names no bucket", hint=f"{scheme}://BUCKET/PREFIX")
    if scheme == "file" and authority not in {"", "localhost"}:
        raise UsageError(f"{url}: a file is on this host", hint="file:///DIRECTORY")
    if {".", ".."} & set(names):
        raise UsageError(f"{url}: a store's URL has no . and ..", hint="write the whole path")
    return f"{scheme}://{'' if scheme == 'file' else authority}/{'/'.join(names)}".rstrip("/")


def as_part(name: str) -> str:
    """The part of a URL that leads to the folder of this name."""
    return _ENCODED.sub(lambda found: quote(found[0]), name)


def bucket_url(url: str) -> str:
    """The URL of a store that can be written to, in its normal form. Raises UsageError for any other path."""
    if not is_url(url):
        raise UsageError(f"{url}: is not the URL of a store", hint="s3://BUCKET/PREFIX")
    url = normal_url(url)
    if url.startswith("file:"):
        raise UsageError(
            f"{url}: what is below file:// can be read only",
            hint="name a bucket of S3, Google Cloud Storage or Azure; `aolog backup` copies a log to a directory",
        )
    return url


class WithArchive(str):
    """The path of a local log that is read as one log with its archive (tiers.py). url: of the archive. uuid:
    of the log, in hex. A string elsewhere: results of string methods and f-strings are plain ones."""

    __slots__ = ("url", "uuid")

    url: str
    uuid: str

    def __new__(cls, path: str, url: str, uuid: str) -> Self:
        """url: in its normal form."""
        self = super().__new__(cls, path)
        self.url, self.uuid = url, uuid
        return self

    def __reduce__(self) -> tuple[Callable[..., str], tuple[str, str, str]]:
        return WithArchive, (str(self), self.url, self.uuid)


def archive_of(path: str) -> str | None:
    """The URL of the archive with which this path is read as one log; None without."""
    return path.url if isinstance(path, WithArchive) else None
