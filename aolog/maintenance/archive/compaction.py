"""`compact`: the small slabs of an archive go into few large objects, compressed (archive.md, "Compaction").

Nothing else changes: a slab's addresses, its ordinals and its bytes are the same, read through
format/packed.py. A large object has a name of its own, by time and at random; it counts from the commit on
that refers to it. One object, one commit: what was committed before a kill stays, and the next call goes
on. What it replaced is deleted by a later call, a day after.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from aolog.errors import StorageFailed, UsageError, load_optional
from aolog.format.archive import PACKS, PENDING, SLABS, Entry, Manifest
from aolog.format.compression import CODECS, check_codec, zstd_compressor
from aolog.format.packed import CHUNK_BYTES
from aolog.format.root_manifest import LEFTOVER_SECONDS
from aolog.maintenance.archive.content import pieces
from aolog.maintenance.archive.replacing import (
    Change,
    existing,
    outdate,
    read_manifest,
    replace,
    try_store,
)
from aolog.storage import clock
from aolog.storage.objects.create import create
from aolog.storage.objects.requests import Delete, List, Names
from aolog.storage.objects.url import bucket_url
from aolog.storage.storage import Storage

if TYPE_CHECKING:
    from collections.abc import Callable

    from aolog.storage.objects.client import Client

OBJECT_BYTES = 128 << 20  # of slabs; what is packed of them is in memory
OBJECT_BYTES_MAX = 1 << 30
GRACE_SECONDS = 86_400.0  # programs of an older view read on in the objects that were replaced
_LEVEL = 6  # of zstd: 40 MiB/s of JSON on one core, 6 % smaller than level 1; 9 took twice as long for 8 % more


class Compacted(NamedTuple):
    """objects: that the slabs are in, after the call. packed: slabs that the call packed, into so many
    `packs`. slab_bytes: of them before, packed_bytes: after; None if nothing was written (dry_run).
    deleted: objects that earlier calls had replaced, or that killed ones left."""

    url: str
    dry_run: bool
    slabs: int
    objects: int
    packed: int
    packs: int
    slab_bytes: int
    packed_bytes: int | None
    deleted: int


def compact(
    url: str,
    *,
    object_bytes: int = OBJECT_BYTES,
    dry_run: bool = False,
    probe: bool = True,
    grace_seconds: float = GRACE_SECONDS,
    leftover_seconds: float = LEFTOVER_SECONDS,
    progress: Callable[[int, int], None] | None = None,
    storage: Storage | None = None,
    client: Client | None = None,
) -> Compacted:
    """Packs the slabs of the archive below the URL that are smaller than `object_bytes`, as many together as
    have so many bytes. Archivers, retention and readers may run. probe: whether to try the store before
    something is written. Raises NotALog if there is no archive, UsageError if it is held and for a store that
    lacks what is needed, CorruptionError for an object with other bytes, CodecUnavailable, StorageError.
    What was committed until then stays."""
    url = bucket_url(url)
    if not 0 < object_bytes <= OBJECT_BYTES_MAX:
        raise UsageError(f"object_bytes={object_bytes}", hint=f"1 to {OBJECT_BYTES_MAX}")
    check_codec(CODECS["zstd"])
    client = client or load_optional("aolog.storage.objects.client").Client(url)
    job = _Compaction(client, url, (storage or Storage()).system.random_bytes)
    if probe and not dry_run:
        job.read()
        try_store(client, job.random(16).hex())
    deleted = 0 if dry_run else job.sweep(grace_seconds, leftover_seconds)
    manifest = job.read()
    groups = plan(manifest, object_bytes)
    total = sum(entry.size for group in groups for entry in group)
    if dry_run:
        slabs = sum(map(len, groups))
        objects = _objects(manifest) - slabs + len(groups)
        count = len(manifest.entries)
        return Compacted(url, True, count, objects, slabs, len(groups), total, None, 0)
    done = 0
    for group in groups:
        job.pack(group)
        done += sum(entry.size for entry in group)
        if progress is not None:
            progress(done, total)
    manifest = job.read()
    return Compacted(
        url, False, len(manifest.entries), _objects(manifest),
        job.slabs, job.packs, job.slab_bytes, job.packed_bytes, deleted,
    )  # fmt: skip  # one value


def plan(manifest: Manifest, object_bytes: int) -> list[list[Entry]]:
    """The slabs that go into one object together, for each object. What is packed stays as it is."""
    groups: list[list[Entry]] = [[]]
    size = 0
    for entry in manifest.entries:
        if not entry.final or entry.pack or entry.size >= object_bytes:
            continue
        if size >= object_bytes:
            groups.append([])
            size = 0
        groups[-1].append(entry)
        size += entry.size
    return [group for group in groups if len(group) > 1]


def _objects(manifest: Manifest) -> int:
    return len({entry.object_name for entry in manifest.entries})


@dataclass
class _Compaction:
    """One call of `compact`. slabs, packs, slab_bytes, packed_bytes: what it has committed so far."""

    client: Client
    url: str
    random: Callable[[int], bytes]
    slabs: int = 0
    packs: int = 0
    slab_bytes: int = 0
    packed_bytes: int = 0

    def read(self) -> Manifest:
        """The manifest as it is now. Raises NotALog, and UsageError if it is held."""
        return self._free(read_manifest(self.client)[0])

    def _free(self, found: Manifest | None) -> Manifest:
        manifest = existing(found, self.url)
        if manifest.held:
            raise UsageError(
                "the archive is held: none of its objects is replaced",
                hint="`aolog hold URL --release` ends that",
                path=self.url,
            )
        return manifest

    def pack(self, group: list[Entry]) -> None:
        """Uploads one object, and commits it."""
        began_s, unique = time.monotonic(), self.random(16).hex()
        name = f"{PACKS}{clock.now_us():020d}.{unique}.pack"
        content, packed = _packed(self.client, group, name)
        tag = create(self.client, name, content, unique)
        moved = {entry.slab_name: entry._replace(etag=tag.etag) for entry in packed}
        committed = self._commit(name, moved, unique, began_s)
        # Otherwise retention, or another compaction, was faster: no manifest will refer to it.
        if not committed:
            self.client.ask(Delete(name))
            return
        self.slabs += len(committed)
        self.packs += 1
        self.slab_bytes += sum(entry.size for entry in committed)
        self.packed_bytes += len(content)

    def _commit(
        self, name: str, moved: dict[str, Entry], write_id: str, began_s: float
    ) -> list[Entry]:
        """The slabs that the manifest has in this object now."""

        def look(found: Manifest | None) -> Change | list[Entry]:
            manifest = self._free(found)
            committed = [entry for entry in manifest.entries if entry.pack == name]
            if committed:
                return committed
            entries = tuple([moved.get(entry.object_name, entry) for entry in manifest.entries])
            if entries == manifest.entries:
                return []
            if time.monotonic() - began_s > GRACE_SECONDS:
                raise StorageFailed("the commit took too long", hint="compact again", path=self.url)
            return Change(manifest._replace(entries=entries), write_id)

        return replace(self.client, look)

    def sweep(self, grace_seconds: float, leftover_seconds: float) -> int:
        """Deletes what is due, and returns its number."""
        manifest = self.read()
        used = {entry.object_name for entry in manifest.entries}
        replaced = {
            entry.slab_name for entry in manifest.entries if _is_older(entry.pack, grace_seconds)
        }
        dead = {name for name in self._list(PACKS) if _is_older(name, leftover_seconds)} - used
        if dead:  # a commit of a call that was killed may still come
            manifest = self._free(outdate(self.client, self.random(16).hex()))
            dead -= {entry.pack for entry in manifest.entries}
        if replaced:
            dead |= replaced.intersection([*self._list(SLABS), *self._list(PENDING)]) - used
        for name in sorted(dead):
            self.client.ask(Delete(name))
        return len(dead)

    def _list(self, prefix: str) -> tuple[str, ...]:
        answer = self.client.ask(List(prefix))
        return answer.names if isinstance(answer, Names) else ()


def _is_older(pack: str, seconds: float) -> bool:
    """Whether the object of this name is one of several slabs, and was made longer ago."""
    made_us = pack.removeprefix(PACKS).partition(".")[0]
    return made_us.isdecimal() and int(made_us) < clock.now_us() - seconds * 1e6


def _packed(client: Client, group: list[Entry], name: str) -> tuple[bytes, list[Entry]]:
    """The object with these slabs, and where each one is in it. Each slab's checksum is checked."""
    compress, packed = zstd_compressor(_LEVEL), []
    parts, end = [], 0
    for entry in group:
        begin, chunks = end, []
        for _, piece in pieces(client, entry):  # whole chunks, but for the slab's last one
            for at in range(0, len(piece), CHUNK_BYTES):
                stored = compress(bytes(memoryview(piece)[at : at + CHUNK_BYTES]))
                chunks.append(len(stored))
                parts.append(stored)
                end += len(stored)
        packed.append(entry._replace(pack=name, at=begin, chunks=tuple(chunks)))
    return b"".join(parts), packed
