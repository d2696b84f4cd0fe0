"""Slabs that tasks put into an object store, and that one compare-and-swap of `archive.json` publishes.

A task writes its slabs locally, as pending ones, and uploads each under `pending/`, with a name of its own.
The commit gives them their places in the log: the manifest has each one's header, and readers put it in
place of the one in the object (storage/objects/overlay.py). Nothing is copied or changed. What no manifest
refers to is not visible: objects of dead and speculative attempts are deleted by the next commit of their
job, and by any commit once they are older than any job takes. One log is below a URL: a commit of several could
not be atomic.
"""

from __future__ import annotations

import hashlib
import os
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from aolog.errors import AologError, StorageFailed, UsageError, load_optional, warn
from aolog.format.archive import (
    PENDING,
    Entry,
    Manifest,
    packed_header,
)
from aolog.format.root_manifest import CONTENTS_MAX, LEFTOVER_SECONDS, Content
from aolog.format.slab import NO_TIMESTAMP, SlabHeader
from aolog.log.slab_file import seal_at_end
from aolog.maintenance.archive.replacing import (
    Change,
    outdate,
    read_manifest,
    replace,
    try_store,
)
from aolog.publish.publication import Published, after_loss
from aolog.storage import clock
from aolog.storage.directory import Inside, beside
from aolog.storage.objects.create import create
from aolog.storage.objects.requests import (
    Delete,
    Found,
    Head,
    List,
    Names,
)
from aolog.storage.storage import Storage, absolute
from aolog.write.next_slab import header_after, next_header, reach_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from aolog.format.root_manifest import Transaction
    from aolog.publish.pending import PendingSlab
    from aolog.storage.objects.client import Client

_probed: set[str] = set()  # stores that this process has tried


class SentSlab(NamedTuple):
    """A slab in the store; small and picklable. log: ".". name: of the object. lost: as of PendingSlab."""

    log: str
    name: str
    bytes: int
    records: int
    salt: int
    lost: int | None
    sha256: str
    etag: str
    least_us: int
    greatest_us: int
    slab_bytes: int
    compressed: bool


def _client(url: str, client: Client | None) -> Client:
    made: Client = client or load_optional("aolog.storage.objects.client").Client(url)
    return made


@contextmanager
def scratch(storage: Storage | None = None) -> Iterator[str]:
    """Yields a new private directory for a task's slabs, which is removed with them."""
    storage = storage or Storage()
    unique = storage.system.random_bytes(16).hex()
    path = f"{absolute(os.environ.get('TMPDIR') or '/tmp')}/aolog-{unique}"  # noqa: S108 -- a random name, 0700
    storage.make_directory(path)
    try:
        yield path
    finally:
        for name in storage.list_names(path):
            storage.unlink(Inside(path, name))
        storage.remove_directory(beside(path))


def send(
    url: str,
    directory: str,
    job: str,
    slabs: Iterable[PendingSlab],
    *,
    storage: Storage | None = None,
    client: Client | None = None,
) -> list[SentSlab]:
    """Uploads a task's slabs, which are in this directory. Durable on return, and not visible. Raises
    StorageError."""
    storage, client = storage or Storage(), _client(url, client)
    sent = []
    for slab in slabs:
        with storage.open_read(Inside(directory, slab.name)) as file:
            content = file.pread(slab.bytes, 0)
            found = seal_at_end(file, slab.bytes)
        assert found is not None  # PendingLog sealed it
        seal, digest = found[0], hashlib.sha256(content).hexdigest()
        unique = storage.system.random_bytes(16).hex()
        name = f"{PENDING}{job}.{clock.now_us():020d}.{unique}.slab"
        tag = create(client, name, content, unique)
        sent.append(
            SentSlab(
                ".", name, slab.bytes, slab.records, slab.salt, slab.lost, digest, tag.etag,
                seal.least_us, seal.greatest_us, seal.header.slab_bytes, seal.header.compressed,
            )
        )  # fmt: skip  # one value
    return sent


def check_store(url: str, *, storage: Storage | None = None, client: Client | None = None) -> None:
    """Raises what `commit` would raise now, to fail before a job begins: UsageError for a store that lacks what
    is needed, and for the archive of a local log; StorageError, CorruptionError."""
    client = _client(url, client)
    _following(read_manifest(client)[0], url, bytes(16))
    if url not in _probed:
        try_store(client, (storage or Storage()).system.random_bytes(16).hex())
        _probed.add(url)


def commit(
    url: str,
    job: str,
    slabs: Sequence[SentSlab],
    *,
    transaction: Transaction | None = None,
    leftover_seconds: float = LEFTOVER_SECONDS,
    storage: Storage | None = None,
    client: Client | None = None,
) -> Published:
    """Appends the slabs to the log below the URL, in this order, all of them or none; visible and durable on
    return. transaction: as of `publish`. After a StorageError it may be committed; repeat the call. Raises
    UsageError, StorageError, CorruptionError."""
    system, client = (storage or Storage()).system, _client(url, client)
    write_id, uuid = system.random_bytes(16).hex(), system.random_bytes(16)
    checked = False
    records = sum(slab.records for slab in slabs)
    ours = {slab.name for slab in slabs}

    def look(manifest: Manifest | None) -> Change | Published:
        nonlocal checked
        before = manifest or Manifest(uuid.hex())
        # By an attempt whose answer was lost, or by an earlier call.
        if before.write == write_id or (ours and ours <= {e.name for e in before.entries}):
            _sweep(client, job, before, leftover_seconds)
            return Published(False, 1, len(slabs), records)
        last = None if transaction is None else _last(before, transaction)
        if last is not None and transaction is not None and last >= transaction.version:
            _sweep(client, job, before, leftover_seconds)
            return Published(True, 0, 0, 0, last, _content(before, transaction))
        if not slabs and transaction is None:
            return Published(False, 0, 0, 0)
        # Not before: of slabs that an earlier call published, compaction may have deleted the objects.
        if not checked:
            _check_there(url, slabs, client)
            checked = True
        entries = (*before.entries, *_placed(before, url, slabs))
        return Change(_with(before, transaction)._replace(entries=entries), write_id)

    return replace(client, look)


def abort(
    url: str,
    job: str,
    slabs: Iterable[SentSlab] = (),
    *,
    storage: Storage | None = None,
    client: Client | None = None,
) -> int:
    """Deletes the job's objects that are not visible; returns their number. slabs: described by its tasks.
    Raises StorageError."""
    client = _client(url, client)
    going = {name for name in _pending(client) if _job_and_time(name)[0] == job}
    going |= {slab.name for slab in slabs}
    if not going:
        return 0
    # A commit that raised may still be carried out, and would refer to what is deleted here.
    write_id = (storage or Storage()).system.random_bytes(16).hex()
    manifest = outdate(client, write_id, Manifest(write_id))
    going -= {entry.name for entry in manifest.entries}
    for name in sorted(going):
        client.ask(Delete(name))
    return len(going)


def _check_there(url: str, slabs: Iterable[SentSlab], client: Client) -> None:
    for slab in slabs:
        answer = client.ask(Head(slab.name))
        if not isinstance(answer, Found) or (answer.tag.etag, answer.size) != (
            slab.etag,
            slab.bytes,
        ):
            raise _gone(url, slab.name)


def _gone(url: str, name: str) -> StorageFailed:
    return StorageFailed(
        "a slab that a task wrote is gone, or is another one",
        hint="nothing was published: run the job again",
        path=f"{url}/{name}",
    )


# --- places in the log -----------------------------------------------------------------------


def _following(manifest: Manifest | None, url: str, uuid: bytes) -> SlabHeader:
    """What the next slab's header says of the slabs before it."""
    entries = () if manifest is None else manifest.entries
    if manifest is None or (not entries and not manifest.floor):
        at = bytes.fromhex(manifest.uuid) if manifest is not None else uuid
        return SlabHeader(at, base=0, base_ordinal=0, salt=0, epoch=1, created_us=0)
    header = entries[-1].own_header() if entries else None
    if header is None:
        raise UsageError(
            "it is the archive of a local log, to which only its writer appends",
            hint="write below another URL",
            path=url,
        )
    last = entries[-1]
    greatest_us = NO_TIMESTAMP if last.greatest_us is None else last.greatest_us
    return header_after(header, last.size, last.records or 0, greatest_us)


def _placed(before: Manifest, url: str, slabs: Iterable[SentSlab]) -> list[Entry]:
    following = _following(before, url, bytes.fromhex(before.uuid))
    placed = []
    for slab in slabs:
        following = after_loss(following, slab.lost)
        header = next_header(
            following,
            salt=slab.salt,
            slab_bytes=slab.slab_bytes,
            reach=reach_of(url, following.base, slab.slab_bytes),
            synced=True,
            compressed=slab.compressed,
        )
        least_us, greatest_us = (
            None if us == NO_TIMESTAMP else us for us in (slab.least_us, slab.greatest_us)
        )
        entry = Entry(
            header.base,
            header.base + slab.bytes,
            final=True,
            sha256=slab.sha256,
            ordinal=header.known_ordinal,
            records=slab.records,
            least_us=least_us,
            greatest_us=greatest_us,
            epoch=header.epoch,
            etag=slab.etag,
            name=slab.name,
            header=packed_header(header),
        )
        placed.append(entry)
        following = header_after(header, slab.bytes, slab.records, slab.greatest_us)
    return placed


# --- transactions ------------------------------------------------------------------------------


def _commits(manifest: Manifest, transaction: Transaction) -> tuple[tuple[Any, ...], ...]:
    """Those of the transaction's id."""
    return dict(manifest.transactions).get(transaction.id, ())


def _last(manifest: Manifest, transaction: Transaction) -> int | None:
    """The last committed version of its id."""
    commits = _commits(manifest, transaction)
    return int(commits[-1][0]) if commits else None


def _content(manifest: Manifest, transaction: Transaction) -> Content | None:
    """What this version published; None if that is not known."""
    for version, *content in _commits(manifest, transaction):
        if version == transaction.version and content:
            return Content(*content)
    return None


def _with(manifest: Manifest, transaction: Transaction | None) -> Manifest:
    if transaction is None:
        return manifest
    id_, version, content = transaction
    commits = (*_commits(manifest, transaction), (version, *(content or ())))
    known = {**dict(manifest.transactions), id_: commits[-CONTENTS_MAX:]}
    return manifest._replace(transactions=tuple(known.items()))


# --- leftovers ---------------------------------------------------------------------------------


def _pending(client: Client) -> tuple[str, ...]:
    answer = client.ask(List(PENDING))
    return answer.names if isinstance(answer, Names) else ()


def _job_and_time(name: str) -> tuple[str, int]:
    """Of an object's name; ("", far in the future) if it is not ours."""
    parts = name.removeprefix(PENDING).split(".")
    if len(parts) != 4 or not parts[1].isdecimal():
        return "", 1 << 62
    return parts[0], int(parts[1])


def _sweep(client: Client, job: str, manifest: Manifest, older_than_s: float) -> None:
    """Deletes objects that no manifest refers to: those of this job, which writes no more, and those that are
    older than any job takes. If such a job commits after all, it finds an object missing, and publishes nothing."""
    used = {entry.name for entry in manifest.entries}
    before_us = clock.now_us() - int(older_than_s * 1e6)
    try:
        for name in _pending(client):
            its, created_us = _job_and_time(name)
            if name not in used and (its == job or created_us < before_us):
                client.ask(Delete(name))
    except AologError as error:  # everything is committed already
        warn("%s: committed; leftovers stay: %s", client.url, error)
