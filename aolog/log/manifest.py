"""ROOT/published.jsonl: which pending slabs are published, and the transactions that published them.

A slab that is written before its address is known gets a pending name in its log's directory, which
is not a slab's name (FORMAT.md, *Pending slabs and the manifest*). One manifest for all logs below a
root lists the published ones, with the address at which each begins. It is always replaced as a
whole: that one rename publishes all slabs of a job, in all of its logs, at once.

    {"aolog_manifest": 1}
    {"transaction": ID, "version": N, "contents": [...]}  the last of each ID; never removed
    {"slab": PENDING NAME, "log": NAME, "base": ADDRESS}  until its rename is durable
    {"xxh3": HEX}                                         hash of all bytes before this line

Only publish/publication.py writes it.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, NamedTuple
from weakref import WeakKeyDictionary

import xxhash

from aolog.errors import MALFORMED, AologError, CorruptionError, NewerFormat
from aolog.format.slab import ADDRESS_END
from aolog.log.interruption import pass_on
from aolog.log.names import MANIFEST_NAME, root_of
from aolog.storage.directory import Inside
from aolog.storage.storage import absolute, parent_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from aolog.storage.storage import Storage

VERSION = 1
BYTES_MAX = 1 << 30  # of a file that is taken for a manifest: millions of lines
# Of an id: enough for a checkpoint that was restored some minutes late; about 2 kB in each manifest.
CONTENTS_MAX = 32


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


class Manifest(NamedTuple):
    """The parsed manifest."""

    versions: dict[str, int]  # the last version of each transaction's id
    slabs: dict[str, PublishedSlab]  # by pending name; slabs whose rename is durable may be missing
    # Of the last versions of an id, by version, as far as they are known.
    contents: dict[str, dict[int, Content]] = {}  # noqa: RUF012 -- a default that is never changed

    def with_transaction(self, transaction: Transaction) -> Manifest:
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


def encode_manifest(manifest: Manifest) -> bytes:
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


def decode_manifest(data: bytes, path: str) -> Manifest:
    """Raises CorruptionError, NewerFormat."""
    contents: dict[str, dict[int, Content]] = {}
    manifest = Manifest({}, {}, contents)
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
        raise _damaged(str(error), path) from None
    return manifest


def _damaged(why: str, path: str) -> CorruptionError:
    return CorruptionError(
        f"the manifest is damaged: {why}",
        hint="restore it: it lists which pending slabs are published, and what was committed",
        path=path,
    )


# The last manifest read through each storage, with its bytes. A manifest has a line for each slab of a
# job, and each log with pending names reads it.
_last_read: WeakKeyDictionary[Storage, tuple[bytes, Manifest]] = WeakKeyDictionary()


def read_manifest(root: str, storage: Storage) -> Manifest:
    """The manifest now; empty if there is none. Do not change it. Raises CorruptionError, NewerFormat,
    StorageError."""
    data = manifest_content(root, storage)
    if data is None:
        return Manifest({}, {})
    known = _last_read.get(storage)
    if known is None or known[0] != data:
        known = data, decode_manifest(data, f"{root}/{MANIFEST_NAME}")
        _last_read[storage] = known
    return known[1]


def manifest_content(root: str, storage: Storage) -> bytes | None:
    """The bytes of the manifest; None if there is none. No two manifests are equal, as each has other
    pending slabs or versions. Raises CorruptionError."""
    try:
        with storage.open_read(Inside(root, MANIFEST_NAME)) as file:
            size = file.stat().size
            if size > BYTES_MAX:  # before any of it is in memory
                raise _damaged(f"it has {size} bytes", file.path)
            return file.pread(size, 0)
    except FileNotFoundError:
        return None


def _roots(log_path: str, names: Iterable[str], storage: Storage) -> dict[str, list[str]]:
    """The directories whose manifests may publish these pending slabs: above the log on the given
    path, and on the real path if the given one leads through links."""
    real = storage.system.realpath(absolute(log_path))
    found = {}
    for name in names:
        roots = dict.fromkeys((root_of(log_path, name), root_of(real, name)))
        found[name] = [root for root in roots if root is not None]
    return found


def sync_roots(log_path: str, names: Iterable[str], storage: Storage) -> None:
    """Makes the manifests that published these pending slabs durable. The process that replaced one may
    have been killed before its sync, and a power cut must not undo what others rely on."""
    for root in {root for roots in _roots(log_path, names, storage).values() for root in roots}:
        if storage.exists(Inside(root, MANIFEST_NAME)):
            storage.sync_directory(root)


def resolve(log_path: str, names: Iterable[str], storage: Storage) -> dict[int, str]:
    """The published ones of a log's pending names, by the address at which each begins."""
    manifests: dict[str, Manifest] = {}
    found = {}
    for name, roots in _roots(log_path, names, storage).items():
        for root in roots:
            if root not in manifests:
                manifests[root] = read_manifest(root, storage)
            if (slab := manifests[root].slabs.get(name)) is not None:
                found[slab.base] = name
                break
    return found


def names_log(log_path: str, storage: Storage) -> bool:
    """Whether the manifest in the log's directory, or in one above it, lists a slab of the log. An
    unreadable manifest lists none."""
    path = root = absolute(log_path)
    while True:
        try:
            slabs = [*read_manifest(root, storage).slabs.values()]
        except AologError as error:
            pass_on(error)
            slabs = []
        if any(path == absolute(f"{root}/{slab.log}") for slab in slabs):
            return True
        if root == (root := parent_of(root)):
            return False
