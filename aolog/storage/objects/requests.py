"""Requests to an object store and its answers, as values. Pure.

The client (client.py) turns a request into an HTTP request and its result into one of the answers. The
simulated store (aolog.testing.objects) gives the same answers to the same requests, and loses some.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from aolog.format.frame import Buffer


class Tag(NamedTuple):
    """Identifies one content of an object."""

    etag: str
    version: str | None = None  # the generation, which Google's store compares instead of the ETag


class Put(NamedTuple):
    """Stores an object on a condition. content: what the client sends: bytes, or what it can open.

    replaces: only if the object has this tag (If-Match); None: only if no object has the name
    (If-None-Match: *). write_id, sha256: kept in the object's metadata."""

    name: str
    content: object
    write_id: str
    sha256: str
    replaces: Tag | None = None


class Get(NamedTuple):
    """Reads an object. match: only if it has this tag (If-Match). span: these bytes of it, [begin, end)."""

    name: str
    match: Tag | None = None
    span: tuple[int, int] | None = None


class Head(NamedTuple):
    """Reads an object's size, tag and metadata. match: as of Get."""

    name: str
    match: Tag | None = None


class Delete(NamedTuple):
    """Removes an object. No object with the name is not an error."""

    name: str


class List(NamedTuple):
    """All names that begin with the prefix."""

    prefix: str


Request: TypeAlias = Put | Get | Head | Delete | List


class Found(NamedTuple):
    """Answers Get and Head. size: of the whole object. write_id, sha256: None if the object has no such
    metadata."""

    tag: Tag
    size: int
    write_id: str | None
    sha256: str | None
    body: Buffer = b""


class Absent(NamedTuple):
    """Answers Get and Head: no object has the name."""


class Stored(NamedTuple):
    """Answers Put: it is stored, durably."""

    tag: Tag


class Refused(NamedTuple):
    """The condition does not hold (412), or another request for the name is under way (409). For a Put, an
    earlier attempt of the same request may be the reason."""


class Unclear(NamedTuple):
    """Answers any request: no answer came, or one that does not show whether the request was carried out.
    It may be carried out later."""

    reason: str


class Names(NamedTuple):
    """Answers List."""

    names: tuple[str, ...]


class Deleted(NamedTuple):
    """Answers Delete."""


Answer: TypeAlias = Found | Absent | Stored | Refused | Unclear | Names | Deleted
