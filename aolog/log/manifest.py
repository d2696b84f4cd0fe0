"""ROOT/published.jsonl: which pending slabs are published, and the transactions that published them.

One manifest for all logs below a root is always replaced as a whole: that one rename publishes all slabs of a
job, in all of its logs, at once. Its content: format/root_manifest.py. Only publish/publication.py writes it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from aolog.errors import AologError
from aolog.format.names import MANIFEST_NAME, depth_in
from aolog.format.root_manifest import RootManifest, damaged_manifest, decode_manifest
from aolog.log.interruption import pass_on
from aolog.storage.directory import Inside
from aolog.storage.storage import absolute, parent_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from aolog.storage.storage import Storage

BYTES_MAX = 1 << 30  # of a file that is taken for a manifest: millions of lines

# The last manifest read through each storage, with its bytes. A manifest has a line for each slab of a
# job, and each log with pending names reads it.
_last_read: WeakKeyDictionary[Storage, tuple[bytes, RootManifest]] = WeakKeyDictionary()


def read_manifest(root: str, storage: Storage) -> RootManifest:
    """The manifest now; empty if there is none. Do not change it. Raises CorruptionError, NewerFormat,
    StorageError."""
    data = manifest_content(root, storage)
    if data is None:
        return RootManifest({}, {})
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
                raise damaged_manifest(f"it has {size} bytes", file.path)
            return file.pread(size, 0)
    except FileNotFoundError:
        return None


def root_of(log_path: str, name: str) -> str | None:
    """The root whose manifest may publish a pending slab; None if this is not such a name."""
    depth = depth_in(name)
    if depth is None:
        return None
    root = absolute(log_path)
    for _ in range(depth):
        root = parent_of(root)
    return root


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
    manifests: dict[str, RootManifest] = {}
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
    return any(True for _ in listed_slabs(log_path, storage))


def listed_slabs(log_path: str, storage: Storage) -> Iterator[tuple[str, int]]:
    """The slabs of the log that such manifests list: (root, address)."""
    path = root = absolute(log_path)
    while True:
        try:
            for slab in read_manifest(root, storage).slabs.values():
                if path == absolute(f"{root}/{slab.log}"):
                    yield root, slab.base
        except AologError as error:
            pass_on(error)
        if root == (root := parent_of(root)):
            return
