"""ROOT/published.jsonl: which pending slabs are published, and the transactions that published them.

A slab that was written before its place was known lies in its log's directory under a pending
name, and that name is not a slab's (FORMAT.md, *Pending slabs and the manifest*). One manifest for
all logs below a root says which of them count, and at which address each begins. It is replaced as
a whole, by one rename: that rename publishes all slabs of a job, in all of its logs, at once.

    {"aolog_manifest": 1}
    {"transaction": ID, "version": N}                    the last of each; kept for ever
    {"slab": PENDING NAME, "log": NAME, "base": ADDRESS}  until its rename is durable
    {"xxh3": HEX}                                         the last: of all bytes before this line

Nothing is written here but by publish/publication.py.
"""

from __future__ import annotations

import json
from contextlib import ExitStack
from itertools import count
from typing import TYPE_CHECKING, NamedTuple, TypeVar
from weakref import WeakKeyDictionary

import xxhash

from aolog.errors import AologError, CorruptionError, NewerFormat
from aolog.format.slab import ADDRESS_END
from aolog.log.directory import MANIFEST_NAME
from aolog.log.listing import PENDING_SUFFIX, is_log
from aolog.storage.files import Inside, absolute, parent_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from aolog.storage.files import Directory, Storage

__all__ = [
    "Manifest",
    "Place",
    "Transaction",
    "encode_manifest",
    "job_of",
    "lock_root",
    "names_log",
    "pending_name",
    "read_manifest",
    "resolve",
    "root_of",
    "steadily",
    "sync_roots",
]

_T = TypeVar("_T")
_LOOKS = 5  # in vain, before publications are made to wait

VERSION = 1
BYTES_MAX = 1 << 30  # of a file that is taken for a manifest: millions of lines
DEPTH_MAX = 99  # directories from a log up to its root; two digits in a name


class Transaction(NamedTuple):
    """What makes a commit happen once. id: of an application or a streaming query. version: grows
    with each commit of that id; one that is not above the last is a repetition."""

    id: str
    version: int


class Place(NamedTuple):
    """Where a pending slab was published. log: its name below the root."""

    log: str
    base: int


class Manifest(NamedTuple):
    """versions: the last of each transaction's id. slabs: by their pending names; those whose
    rename is durable may be left out."""

    versions: dict[str, int]
    slabs: dict[str, Place]

    def has(self, transaction: Transaction) -> bool:
        """Whether it was committed."""
        return self.versions.get(transaction.id, -1) >= transaction.version


def pending_name(job: str, unique: str, depth: int) -> str:
    """Of a slab whose log lies `depth` directories below the root. job, unique: 32 hex digits."""
    return f"{job}.{unique}.{depth}{PENDING_SUFFIX}"


def _parts(name: str) -> tuple[str, int] | None:
    """(job, depth) of a pending name; None if it is none."""
    parts = name.split(".")
    if len(parts) != 4 or parts[3] != PENDING_SUFFIX[1:] or len(parts[0]) != 32:
        return None
    if not (parts[2].isascii() and parts[2].isdigit() and int(parts[2]) <= DEPTH_MAX):
        return None
    return parts[0], int(parts[2])


def job_of(name: str) -> str | None:
    """The job that wrote a pending slab; None if that is no pending name."""
    parts = _parts(name)
    return None if parts is None else parts[0]


def root_of(log_path: str, name: str) -> str | None:
    """The root whose manifest speaks of a pending slab; None if that is no pending name."""
    parts = _parts(name)
    if parts is None:
        return None
    root = absolute(log_path)
    for _ in range(parts[1]):
        root = parent_of(root)
    return root


def encode_manifest(manifest: Manifest) -> bytes:
    """The file."""
    lines: list[dict[str, object]] = [{"aolog_manifest": VERSION}]
    lines += [{"transaction": id_, "version": n} for id_, n in sorted(manifest.versions.items())]
    lines += [
        {"slab": name, "log": place.log, "base": place.base}
        for name, place in manifest.slabs.items()
    ]
    text = "".join(json.dumps(line) + "\n" for line in lines).encode()
    return text + json.dumps({"xxh3": xxhash.xxh3_64_hexdigest(text)}).encode() + b"\n"


def _is_base(base: int) -> bool:
    """Whether a slab may begin there. Under another name it would be none, and its records lost."""
    return not isinstance(base, bool) and 0 <= base < ADDRESS_END


def decode_manifest(data: bytes, path: str) -> Manifest:
    """Raises CorruptionError, NewerFormat."""
    manifest = Manifest({}, {})
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
                    manifest.slabs[name] = Place(log, base)
                case {"transaction": str(id_), "version": int(version)}:
                    manifest.versions[id_] = version
                case _:
                    raise ValueError("a line is neither a slab nor a transaction")
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise _damaged(str(error), path) from None
    return manifest


def _damaged(why: str, path: str) -> CorruptionError:
    return CorruptionError(
        f"the manifest is damaged: {why}",
        hint="restore it: it says which pending slabs are published, and what was committed",
        path=path,
    )


# What each storage was last asked for, with its bytes: a manifest is as long as a job has slabs, and
# each log with pending names asks for it.
_last_read: WeakKeyDictionary[Storage, tuple[bytes, Manifest]] = WeakKeyDictionary()


def read_manifest(root: str, storage: Storage) -> Manifest:
    """As it is now; empty if there is none. Not to be changed. Raises CorruptionError, NewerFormat,
    StorageError."""
    data = _content(root, storage)
    if data is None:
        return Manifest({}, {})
    known = _last_read.get(storage)
    if known is None or known[0] != data:
        known = data, decode_manifest(data, f"{root}/{MANIFEST_NAME}")
        _last_read[storage] = known
    return known[1]


def steadily(roots: Iterable[str], look: Callable[[], _T], storage: Storage) -> _T:
    """What `look` finds in the logs below these roots: all of each publication there, or nothing of
    it. It looks again if there was one meanwhile; where there always is, the roots are locked, and
    publications wait for a look. A root that is a log is not: its lock is the writer's, and who
    looks at one log sees all of a publication or nothing. Raises what `look` raises, StorageError."""
    watched = sorted(set(roots))  # locked in this order: two that look never wait for each other
    with ExitStack() as held:
        before = _contents(watched, storage)
        for looks in count(1):
            found, behind = look(), _contents(watched, storage)
            if behind == before:
                break
            if looks >= _LOOKS:
                held.close()
                watched = [root for root in watched if not is_log(root, storage)]
                for root in [root for root in watched if root in behind]:
                    held.callback(lock_root(root, storage).close)
                behind = _contents(watched, storage)
            before = behind
    return found


def lock_root(root: str, storage: Storage) -> Directory:
    """The lock of a root that is no log, held until it is closed: nobody publishes there meanwhile.
    Waits for who does. Raises StorageError."""
    directory = storage.open_directory(root)
    try:
        directory.lock()
    except BaseException:
        directory.close()
        raise
    return directory


def _contents(roots: Iterable[str], storage: Storage) -> dict[str, bytes]:
    """Of those that there are."""
    found = ((root, _content(root, storage)) for root in roots)
    return {root: data for root, data in found if data is not None}


def _content(root: str, storage: Storage) -> bytes | None:
    """Of the manifest; never the same twice, as each names other pending slabs or versions. Raises
    CorruptionError."""
    try:
        file = storage.open_read(Inside(root, MANIFEST_NAME))
    except FileNotFoundError:
        return None
    try:
        size = file.stat().size
        if size > BYTES_MAX:  # said before any of it is in memory
            raise _damaged(f"it has {size} bytes", file.path)
        return file.pread(size, 0)
    finally:
        file.close()


def _roots(log_path: str, names: Iterable[str], storage: Storage) -> dict[str, list[str]]:
    """Where manifests that speak of these pending slabs may be: above the log by the path that
    leads to it, and, where links are on that path, by the one that it stands at."""
    real = storage.real_path(absolute(log_path))
    found = {}
    for name in names:
        roots = dict.fromkeys((root_of(log_path, name), root_of(real, name)))
        found[name] = [root for root in roots if root is not None]
    return found


def sync_roots(log_path: str, names: Iterable[str], storage: Storage) -> None:
    """The manifests that published these pending slabs are durable on return. Whoever replaced one
    may have been killed before that; and what others rely on must not be taken back."""
    for root in {root for roots in _roots(log_path, names, storage).values() for root in roots}:
        if storage.exists(Inside(root, MANIFEST_NAME)):
            storage.sync_directory(root)


def resolve(log_path: str, names: Iterable[str], storage: Storage) -> dict[int, str]:
    """Those of a log's pending names that are published, by the address at which each begins."""
    manifests: dict[str, Manifest] = {}
    found = {}
    for name, roots in _roots(log_path, names, storage).items():
        for root in roots:
            if root not in manifests:
                manifests[root] = read_manifest(root, storage)
            if (place := manifests[root].slabs.get(name)) is not None:
                found[place.base] = name
                break
    return found


def names_log(log_path: str, storage: Storage) -> bool:
    """Whether the manifest of the log's directory, or of one above it, names a slab of the log. A
    manifest that cannot be read names none."""
    path = root = absolute(log_path)
    while True:
        try:
            places = [*read_manifest(root, storage).slabs.values()]
        except AologError:
            places = []
        if any(path == absolute(f"{root}/{place.log}") for place in places):
            return True
        if root == (root := parent_of(root)):
            return False
