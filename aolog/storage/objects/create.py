"""`create`: an object under a name of its own, whatever becomes of the answers."""

from __future__ import annotations

import hashlib
import time
from typing import TYPE_CHECKING

from aolog.errors import StorageFailed
from aolog.storage.objects.requests import Found, Head, Put, Stored, Tag

if TYPE_CHECKING:
    from aolog.storage.objects.client import Client

_ATTEMPTS_MAX = 60
_WAIT_S_MIN, _WAIT_S_MAX = 0.05, 2.0


def create(client: Client, name: str, content: bytes, write_id: str) -> Tag:
    """Stores the object, durably. The name is random, so no other caller has it. Raises StorageError."""
    sha256, wait_s = hashlib.sha256(content).hexdigest(), _WAIT_S_MIN
    for _ in range(_ATTEMPTS_MAX):
        answer = client.ask(Put(name, content, write_id, sha256))
        if isinstance(answer, Stored):
            return answer.tag
        # Refused: an attempt whose answer was lost has created it, or is still under way (409).
        answer = client.ask(Head(name))
        if isinstance(answer, Found):
            if answer.sha256 != sha256:
                break
            return answer.tag
        time.sleep(wait_s)
        wait_s = min(2 * wait_s, _WAIT_S_MAX)
    raise StorageFailed(
        "the store refuses an object with a new name", hint="try again", path=f"{client.url}/{name}"
    )
