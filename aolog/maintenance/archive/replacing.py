"""The manifest, replaced by compare-and-swap: look, try, and look again until there is what was wanted.

Whatever the answer to an attempt is, the next look shows which manifest there is. An attempt that is carried
out late is refused: its ETag is gone.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from aolog.errors import NotALog, StorageFailed
from aolog.format.archive import MANIFEST, Manifest, decode_manifest, encode_manifest
from aolog.maintenance.archive.probe import require
from aolog.storage.objects.requests import Found, Get, Put, Unclear

if TYPE_CHECKING:
    from collections.abc import Callable

    from aolog.storage.objects.client import Client
    from aolog.storage.objects.requests import Answer, Request, Tag

_T = TypeVar("_T")

_ATTEMPTS_MAX = 100  # each one that is refused means that another process has committed
_WAIT_S_MIN, _WAIT_S_MAX = 0.05, 10.0


def read_manifest(client: Client) -> tuple[Manifest | None, Tag | None]:
    """As it is now, and its ETag; None if there is none."""
    answer = client.ask(Get(MANIFEST))
    if not isinstance(answer, Found):
        return None, None
    return decode_manifest(bytes(answer.body), f"{client.url}/{MANIFEST}"), answer.tag


def existing(manifest: Manifest | None, url: str) -> Manifest:
    """Raises NotALog if there is none."""
    if manifest is None:
        raise NotALog("no archive: there is no archive.json", hint="correct the URL", path=url)
    return manifest


def try_store(client: Client, id_: str) -> None:
    """Raises UsageError, which names what the store lacks (probe.py). id_: random."""
    wait_s = _WAIT_S_MIN

    def attempt(request: Request) -> Answer:
        nonlocal wait_s
        answer = client.send(request)
        if isinstance(answer, Unclear):
            if wait_s >= _WAIT_S_MAX:
                raise StorageFailed(
                    f"no clear answer from the store ({answer.reason})",
                    hint="try again",
                    path=client.url,
                )
            time.sleep(wait_s)
            wait_s = min(2 * wait_s, _WAIT_S_MAX)
        return answer

    require(client.url, id_, attempt)


class Change(NamedTuple):
    """The manifest that replaces the one that was shown. write_id: random, of this change."""

    manifest: Manifest
    write_id: str


def replace(client: Client, look: Callable[[Manifest | None], Change | _T]) -> _T:
    """Shows `look` the manifest as it is now, None if there is none, and writes the change that it returns,
    again and again until it returns something else: the result. After an unclear answer it waits, longer
    each time. Raises StorageError, also after so many attempts, and what `look` raises."""
    wait_s = _WAIT_S_MIN
    for _ in range(_ATTEMPTS_MAX):
        manifest, tag = read_manifest(client)
        found = look(manifest)
        if not isinstance(found, Change):
            return found
        wanted, write_id = found
        wanted = wanted._replace(sequence=wanted.sequence + 1, write=write_id)
        put = Put(MANIFEST, encode_manifest(wanted), write_id, "", tag)
        if isinstance(client.send(put), Unclear):
            time.sleep(wait_s)
            wait_s = min(2 * wait_s, _WAIT_S_MAX)
    raise StorageFailed(
        "the manifest was replaced by others at each attempt", hint="try again", path=client.url
    )


def outdate(client: Client, write_id: str, absent: Manifest | None = None) -> Manifest:
    """Replaces the manifest by an equal one, and returns it. A commit that was sent before is refused from
    now on, even if it is carried out late. absent: written if there is none. Raises NotALog without it."""

    def look(manifest: Manifest | None) -> Change | Manifest:
        if manifest is not None and manifest.write == write_id:
            return manifest
        return Change(existing(manifest or absent, client.url), write_id)

    return replace(client, look)
