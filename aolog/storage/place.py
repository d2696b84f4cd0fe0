"""Where a log is that is only read: a directory, or below the URL of an object store.

What writes takes `absolute`, which refuses a URL.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aolog.storage.objects.url import WithArchive, is_url, normal_url
from aolog.storage.storage import absolute

if TYPE_CHECKING:
    import os


def located(path: str | os.PathLike[str]) -> str:
    """The absolute path, or the URL in its normal form. Raises UsageError."""
    if isinstance(path, WithArchive):
        return path
    return normal_url(path) if isinstance(path, str) and is_url(path) else absolute(path)
