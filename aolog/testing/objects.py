"""An object store that fails on purpose: what it holds is a value, and each request makes another value.

`SimulatedStore` takes the place of a client. `Objects.after(request)` carries a request out and answers it,
as a store does that keeps the rules of aolog/docs/reference/archive.md. ETags are made of the content, as
S3 makes them: equal contents have equal ETags. A caller loses answers, repeats requests or carries them
out later by itself, and so can visit every order (tests/explore/archive.py).
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, NamedTuple

from aolog.storage.objects.requests import (
    Absent,
    Answer,
    Delete,
    Deleted,
    Found,
    Get,
    Head,
    List,
    Names,
    Put,
    Refused,
    Request,
    Stored,
    Tag,
    Unclear,
)

if TYPE_CHECKING:
    from collections.abc import Callable


class Object(NamedTuple):
    """A stored object."""

    content: object  # bytes, or whatever was put
    size: int
    tag: Tag
    write_id: str | None
    sha256: str | None


class Objects(NamedTuple):
    """What a store holds: (name, object), sorted by name. Hashable.

    lacks: what this provider does not do: "create" (it ignores If-None-Match), "replace" (it ignores
    If-Match), "metadata", "list" (a new name is not listed)."""

    stored: tuple[tuple[str, Object], ...] = ()
    lacks: frozenset[str] = frozenset()

    def get(self, name: str) -> Object | None:
        """The object with this name; None if there is none."""
        return next((found for at, found in self.stored if at == name), None)

    def after(self, request: Request) -> tuple[Objects, Answer]:
        """The store after the request, and the answer."""
        match request:
            case Put():
                return self._put(request)
            case Head(name=name, match=match):
                return self, self._found(name, match, None)
            case Get(name=name, match=match, span=span):
                return self, self._found(name, match, span or (0, 1 << 62))
            case Delete(name=name):
                kept = tuple([each for each in self.stored if each[0] != name])
                return self._replace(stored=kept), Deleted()
            case List(prefix=prefix):
                names = [name for name, _ in self.stored if name.startswith(prefix)]
                return self, Names(() if "list" in self.lacks else tuple(names))
        raise AssertionError(request)

    def _found(self, name: str, match: Tag | None, span: tuple[int, int] | None) -> Answer:
        found = self.get(name)
        if found is None:
            return Absent()
        if match is not None and match != found.tag:
            return Refused()
        body = found.content[slice(*span)] if span and isinstance(found.content, bytes) else b""
        return Found(found.tag, found.size, found.write_id, found.sha256, body)

    def _put(self, put: Put) -> tuple[Objects, Answer]:
        there = self.get(put.name)
        if put.replaces is None:
            holds = there is None or "create" in self.lacks
        else:
            holds = there is not None and (there.tag == put.replaces or "replace" in self.lacks)
        if not holds:
            return self, Refused()
        content = put.content
        size = len(content) if isinstance(content, bytes) else getattr(content, "size", 0)
        digest = hashlib.sha256(content if isinstance(content, bytes) else repr(content).encode())
        metadata = (None, None) if "metadata" in self.lacks else (put.write_id, put.sha256)
        new = Object(content, size, Tag(digest.hexdigest()[:32]), *metadata)
        others = [each for each in self.stored if each[0] != put.name]
        stored = tuple(sorted([*others, (put.name, new)], key=lambda each: each[0]))
        return self._replace(stored=stored), Stored(new.tag)


class SimulatedStore:
    """A store that takes the place of an `aolog.storage.objects.client.Client`.

    before: called with each request before it is carried out. It returns None, or (whether the request is
    carried out nevertheless, the answer that the caller gets). log: the requests, in order."""

    url = "s3://simulated"

    def __init__(self, objects: Objects | None = None) -> None:
        self.objects = objects or Objects()
        self.before: Callable[[Request], tuple[bool, Answer] | None] = lambda _: None
        self.requests = self.sent_bytes = 0
        self.log: list[Request] = []

    def send(self, request: Request) -> Answer:
        """Carries the request out, unless `before` says otherwise."""
        self.requests += 1
        self.log.append(request)
        if isinstance(request, Put) and isinstance(request.content, bytes):
            self.sent_bytes += len(request.content)
        other = self.before(request)
        if other is None or other[0]:
            self.objects, answer = self.objects.after(request)
        return answer if other is None else other[1]

    def ask(self, request: Request) -> Answer:
        """As `send`, until the answer is clear."""
        while isinstance(answer := self.send(request), Unclear):
            pass
        return answer
