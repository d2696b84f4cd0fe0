"""`archive.json`: which objects of an archive are slabs of its log, and where each of them begins.

Pure: bytes to a value and back. The rules are in aolog/docs/reference/archive.md.

    {"aolog_archive": 1, "log": UUID, "topic": TEXT or null, "sequence": N, "write": ID,
     "floor": ADDRESS, "held": true or false, "transactions": {...}, "entries": [ENTRY, ...], "xxh3": HASH}

xxh3 is of all bytes before its key and the comma before that. The write id is random: no two manifests
have the same bytes, and so no ETag returns where a store makes it from the content.
"""

from __future__ import annotations

import json
import struct
from typing import Any, NamedTuple

import xxhash

from aolog.errors import MALFORMED, AologError, CorruptionError, NewerFormat
from aolog.format.packed import CHUNK_BYTES, Packed
from aolog.format.slab import ADDRESS_END, HEADER_LEN, SlabHeader, decode_slab_header

MANIFEST = "archive.json"
SLABS, PENDING, PACKS = "slabs/", "pending/", "packs/"
# 2 if an entry has a header of its own, 3 if one is packed
VERSION_PLAIN, VERSION_HEADERS, VERSION = 1, 2, 3
_HASH_KEY = b', "xxh3": "'
_DIGEST_DIGITS = 64  # sha256
_HEADER_HASH = struct.Struct("<I")


class Entry(NamedTuple):
    """A slab in the archive. Its bytes, once unpacked, are those of the local slab, [0, end - base)."""

    base: int  # address at which the slab begins
    end: int  # address after its last archived byte
    # Whether nothing will follow in the slab: it is sealed, or has a successor. Otherwise the object is the
    # durable beginning of the slab that grew when it was archived, and a longer one will replace it.
    final: bool
    sha256: str  # of these bytes, hexadecimal
    ordinal: int | None = None  # records of the log before it; None if unsure
    records: int | None = None  # in it, by its seal; None without a seal
    least_us: int | None = None  # timestamps of its records, by its seal
    greatest_us: int | None = None
    epoch: int = 0
    etag: str = ""  # of the object; readers demand it for every range
    # Of a slab that was written before its place in the log was known (publish/objects.py): the object's name,
    # and the slab's header, `packed_header`, which counts in place of the one in the object.
    name: str = ""
    header: str = ""
    # Of a slab that was packed with others (maintenance/archive/compaction.py): the object in which it is, where
    # it begins there, and the stored bytes of each chunk.
    pack: str = ""
    at: int = 0
    chunks: tuple[int, ...] = ()

    @property
    def size(self) -> int:
        """Bytes of the slab."""
        return self.end - self.base

    @property
    def stored_bytes(self) -> int:
        """That it takes in its object."""
        return sum(self.chunks) if self.pack else self.size

    @property
    def object_name(self) -> str:
        """The object in which it is, below the archive's URL. Another content has another name."""
        return self.pack or self.slab_name

    @property
    def slab_name(self) -> str:
        """The object that has this slab only, which existed first."""
        return self.name or f"{SLABS}{self.base:020d}-{self.end:020d}-{self.sha256[:16]}.slab"

    @property
    def packed(self) -> Packed | None:
        """Where it is in its object; None if it is the whole object."""
        return Packed(self.at, self.chunks, self.size) if self.pack else None

    def own_header(self) -> SlabHeader | None:
        """The header that counts in place of the object's; None if the object's counts."""
        return unpacked_header(self.header) if self.header else None


class Manifest(NamedTuple):
    """The parsed manifest."""

    uuid: str  # of the log, hexadecimal
    topic: str | None = None  # the log's default
    sequence: int = 0  # grows by one with each commit
    write: str = ""  # random; of the commit that wrote it
    # Addresses below it were dropped by the archive's retention and are never archived again.
    floor: int = 0
    entries: tuple[Entry, ...] = ()  # by base; they do not overlap
    held: bool = False  # whether the archive's retention removes nothing
    # (id, commits), a commit as (version, what it published: records, digest, plan), ascending by version.
    transactions: tuple[tuple[str, tuple[tuple[Any, ...], ...]], ...] = ()

    @property
    def end(self) -> int:
        """The address after the last archived byte."""
        return max(self.floor, self.entries[-1].end) if self.entries else self.floor


def object_range(name: str) -> tuple[int, int] | None:
    """(base, end) of the slab whose object has this name; None if it is not such a name."""
    parts = name.removeprefix(SLABS).split("-")
    if not name.startswith(SLABS) or len(parts) != 3 or not parts[2].endswith(".slab"):
        return None
    if not all(len(part) == 20 and part.isascii() and part.isdigit() for part in parts[:2]):
        return None
    return int(parts[0]), int(parts[1])


def encode_manifest(manifest: Manifest) -> bytes:
    """The object's bytes."""
    version = VERSION_PLAIN
    if any(entry.header for entry in manifest.entries):
        version = VERSION_HEADERS
    if any(entry.pack for entry in manifest.entries):
        version = VERSION
    fields = {"aolog_archive": version, "log": manifest.uuid} | manifest._asdict()
    del fields["uuid"]
    fields["transactions"] = dict(manifest.transactions)
    if not manifest.transactions:
        del fields["transactions"]
    fields["entries"] = [_fields(entry) for entry in manifest.entries]
    body = json.dumps(fields)[:-1].encode()
    return body + _HASH_KEY + xxhash.xxh3_64_hexdigest(body).encode() + b'"}\n'


def _fields(entry: Entry) -> dict[str, Any]:
    fields = entry._asdict()
    if not entry.header:
        del fields["name"], fields["header"]
    if not entry.pack:
        del fields["pack"], fields["at"], fields["chunks"]
    return fields


def packed_header(header: SlabHeader) -> str:
    """The encoded header as hexadecimal digits, without its hash and the zeros before that."""
    return header.encode()[: -_HEADER_HASH.size].rstrip(b"\0").hex()


def unpacked_header(text: str) -> SlabHeader:
    """The inverse. Raises ValueError."""
    hashed = bytes.fromhex(text).ljust(HEADER_LEN - _HEADER_HASH.size, b"\0")
    found = decode_slab_header(hashed + _HEADER_HASH.pack(xxhash.xxh32_intdigest(hashed)))
    if not isinstance(found, SlabHeader):
        raise ValueError("a slab's header is malformed")  # noqa: TRY004 -- the text is wrong
    return found


def decode_manifest(data: bytes, path: str) -> Manifest:
    """The manifest in these bytes. path: of the object, for errors. Raises CorruptionError, NewerFormat."""
    body, key, rest = data.rpartition(_HASH_KEY)
    try:
        fields = json.loads(body + b"}" if key else data)
        version = fields.pop("aolog_archive")
        if isinstance(version, int) and version > VERSION:
            raise NewerFormat(
                f"version {version} of an archive's manifest, this release reads up to {VERSION}",
                hint="upgrade aolog",
                path=path,
            )
        if rest.rstrip() != xxhash.xxh3_64_hexdigest(body).encode() + b'"}':
            raise _damaged(path, "its hash differs")
        entries = tuple([_entry(entry) for entry in fields.pop("entries")])
        given = fields.pop("transactions", {})
        commits = tuple([(id_, tuple(map(tuple, rows))) for id_, rows in given.items()])
        manifest = Manifest(uuid=fields.pop("log"), entries=entries, transactions=commits, **fields)
        _check(manifest)
    except AologError:
        raise
    except MALFORMED as error:
        raise _damaged(path, f"{type(error).__name__}: {error}") from None
    return manifest


def _entry(fields: dict[str, Any]) -> Entry:
    entry = Entry(**fields)
    return entry._replace(chunks=tuple(entry.chunks))


def _check(manifest: Manifest) -> None:
    """Raises ValueError for values that no writer writes."""
    if len(bytes.fromhex(manifest.uuid)) != 16:
        raise ValueError("the UUID has another length")
    at = 0
    for entry in manifest.entries:
        if not at <= entry.base < entry.end <= ADDRESS_END:
            raise ValueError(f"the slab at {entry.base} is out of order")
        if len(bytes.fromhex(entry.sha256)) * 2 != _DIGEST_DIGITS:
            raise ValueError(f"the checksum of the slab at {entry.base} has another length")
        own = entry.own_header()
        if own is not None and (own.base, own.topic_uuid.hex()) != (entry.base, manifest.uuid):
            raise ValueError(f"the header of the slab at {entry.base} is another's")
        count = -(-entry.size // CHUNK_BYTES) if entry.pack else 0
        if len(entry.chunks) != count or entry.at < 0 or any(n <= 0 for n in entry.chunks):
            raise ValueError(f"the slab at {entry.base} is packed in another way")
        for prefix, name in ((PENDING, entry.name), (PACKS, entry.pack)):
            # An archiver deletes what it finds here once it is replaced.
            if name and (not name.startswith(prefix) or {"", ".", ".."} & set(name.split("/"))):
                raise ValueError(f"the object of the slab at {entry.base} has another name")
        at = entry.end


def _damaged(path: str, why: str) -> CorruptionError:
    return CorruptionError(
        f"the archive's manifest is damaged: {why}",
        hint="put an older version of this object back if the bucket keeps versions; slabs are intact",
        path=path,
    )
