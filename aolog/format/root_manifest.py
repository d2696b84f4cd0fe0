"""The content of a root's manifest, ROOT/published.jsonl: which pending slabs are published, and the transactions
that published them. Its lines: FORMAT.md, *Manifest*. Pure: bytes in, values out.
"""

from __future__ import annotations

import json
from typing import NamedTuple

import xxhash

from aolog.errors import MALFORMED, CorruptionError, NewerFormat
from aolog.format.slab import ADDRESS_END

VERSION = 1
# Of an id: enough for a checkpoint that was restored some minutes late; about 2 kB in each manifest.
CONTENTS_MAX = 32
# Until what nothing refers to is a leftover: longer than a job takes from its first slab to its commit.
LEFTOVER_SECONDS = 7 * 86_400.0


class Content(NamedTuple):
    """What a transaction publishes."""

    records: int  # their number
    digest: str  # of the records, in any order
    # Of the input from which they are made, if the caller knows it: equal plans are one transaction,
    # whatever its records are.
    plan: str | None = None

    def is_again(self, other: Content) -> bool:
        """Whether they are the same transaction."""
        return self[:2] == other[:2] or (self.plan is not None and self.plan == other.plan)


class Transaction(NamedTuple):
    """Makes a commit happen once."""

    id: str  # of an application or a streaming query
    # Grows with each commit of the id: one that is not above the last was committed before.
    version: int
    content: Content | None = None  # what it publishes; None if its caller does not compare


class PublishedSlab(NamedTuple):
    """A slab that the manifest publishes."""

    log: str  # the log's name below the root
    base: int


class RootManifest(NamedTuple):
    """The parsed manifest."""

    versions: dict[str, int]  # the last version of each transaction's id
    slabs: dict[str, PublishedSlab]  # by pending name; slabs whose rename is durable may be missing
    # Of the last versions of an id, by version, as far as they are known.
    contents: dict[str, dict[int, Content]] = {}  # noqa: RUF012 -- a default that is never changed

    def with_transaction(self, transaction: Transaction) -> RootManifest:
        """The manifest after its commit."""
        id_, version, content = transaction
        contents = dict(self.contents)
        if content is not None:
            known = contents.get(id_, {}) | {version: content}
            contents[id_] = {n: known[n] for n in sorted(known)[-CONTENTS_MAX:]}
        return self._replace(versions=self.versions | {id_: version}, contents=contents)

    def has(self, transaction: Transaction) -> bool:
        """Whether the transaction was committed."""
        return self.versions.get(transaction.id, -1) >= transaction.version


def encode_manifest(manifest: RootManifest) -> bytes:
    """The content of the file."""
    lines: list[dict[str, object]] = [{"aolog_manifest": VERSION}]
    for id_, version in sorted(manifest.versions.items()):
        lines.append({"transaction": id_, "version": version})
        if known := manifest.contents.get(id_):
            lines[-1]["contents"] = [[n, *content] for n, content in known.items()]
    lines += [
        {"slab": name, "log": slab.log, "base": slab.base} for name, slab in manifest.slabs.items()
    ]
    text = "".join(json.dumps(line) + "\n" for line in lines).encode()
    return text + json.dumps({"xxh3": xxhash.xxh3_64_hexdigest(text)}).encode() + b"\n"


def _is_base(base: int) -> bool:
    """Whether a slab may begin there. A slab with another name is not found: its records are lost."""
    return not isinstance(base, bool) and 0 <= base < ADDRESS_END


def decode_manifest(data: bytes, path: str) -> RootManifest:
    """Raises CorruptionError, NewerFormat."""
    contents: dict[str, dict[int, Content]] = {}
    manifest = RootManifest({}, {}, contents)
    try:
        text, _, last = data.removesuffix(b"\n").rpartition(b"\n")
        text += b"\n"
        if json.loads(last) != {"xxh3": xxhash.xxh3_64_hexdigest(text)}:
            raise ValueError("the hash is wrong")
        first, *lines = map(json.loads, text.splitlines())
        if first["aolog_manifest"] != VERSION:
            raise NewerFormat(
                f"manifest version {first['aolog_manifest']}", hint="upgrade aolog", path=path
            )
        for line in lines:
            match line:
                case {"slab": str(name), "log": str(log), "base": int(base)} if _is_base(base):
                    manifest.slabs[name] = PublishedSlab(log, base)
                case {"transaction": str(id_), "version": int(version)}:
                    manifest.versions[id_] = version
                    if known := line.get("contents"):
                        contents[id_] = {int(n): Content(*content) for n, *content in known}
                case _:
                    raise ValueError("a line is neither a slab nor a transaction")
    except MALFORMED as error:
        raise damaged_manifest(str(error), path) from None
    return manifest


def damaged_manifest(why: str, path: str) -> CorruptionError:
    """The error for a manifest that cannot be read."""
    return CorruptionError(
        f"the manifest is damaged: {why}",
        hint="restore it: it lists which pending slabs are published, and what was committed",
        path=path,
    )
