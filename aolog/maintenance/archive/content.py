"""`pieces`: the bytes of an archived slab, whether it has an object of its own or is packed with others."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from aolog.errors import CorruptionError, StorageFailed
from aolog.format.packed import CHUNK_BYTES
from aolog.storage.objects.requests import Found, Get, Tag

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aolog.format.archive import Entry
    from aolog.format.frame import Buffer
    from aolog.storage.objects.client import Client

_PIECE_BYTES = 8 * CHUNK_BYTES  # of one request


def pieces(client: Client, entry: Entry) -> Iterator[tuple[int, Buffer]]:
    """Yields (offset in the slab, bytes), in order. Raises StorageFailed if the object is another one or gone,
    and after the last piece CorruptionError if the bytes are not those that were archived."""
    digest, packed = hashlib.sha256(), entry.packed
    path = f"{client.url}/{entry.object_name}"
    for at in range(0, entry.size, _PIECE_BYTES):
        begin, end = at, min(entry.size, at + _PIECE_BYTES)
        span = (begin, end) if packed is None else packed.span(begin, end)
        answer = client.ask(Get(entry.object_name, Tag(entry.etag), span))
        if not isinstance(answer, Found):
            raise StorageFailed(
                f"the object {entry.object_name} was replaced or removed",
                hint="run the command again: the manifest may have changed",
                path=client.url,
            )
        body = answer.body
        if packed is not None:
            body = packed.unpacked(body, begin, end, path)
        digest.update(body)
        yield at, body
    if digest.hexdigest() != entry.sha256:
        raise CorruptionError(
            f"the object {entry.object_name} has other bytes than were archived",
            hint="put an older version of the object back if the bucket keeps versions",
            path=client.url,
        )
