"""The programs that calls.py explores, and what they meet: jobs of the sink, an archiver, a hold, a compaction."""

from __future__ import annotations

import hashlib
import tempfile
from functools import cache, partial
from pathlib import Path

import pyarrow as pa

from aolog.format.archive import MANIFEST, Entry, Manifest, encode_manifest
from aolog.format.root_manifest import Content, Transaction
from aolog.maintenance.archive import protocol
from aolog.maintenance.archive.compaction import compact
from aolog.maintenance.archive.hold import hold
from aolog.publish import objects
from aolog.publish.pending import PendingLog, PendingSlab
from aolog.storage.objects.requests import Put
from aolog.storage.storage import Storage
from aolog.testing.objects import Objects, SimulatedStore
from tests.explore.archive import UUID
from tests.explore.calls import BATCHES, SLABS_OF_ATTEMPT, URL, Life, Scenario

DUE = {"grace_seconds": -1.0}  # what was replaced may be deleted at once
NOW = {**DUE, "leftover_seconds": -1.0}  # what was left, too: no other compaction may run


# --- the sink -------------------------------------------------------------------------------


@cache
def written(attempt: str, batch: str, job: str) -> tuple[str, list[PendingSlab]]:
    """What tasks wrote on their machines."""
    directory, slabs = tempfile.mkdtemp(), []
    for number in range(SLABS_OF_ATTEMPT):
        with PendingLog(directory, ".", job) as pending:
            pending.append_arrow(pa.record_batch({"value": [f"{batch} {number}".encode()]}))
        for slab in pending.slabs:
            slabs.append(slab)
            data = Path(directory, slab.name).read_bytes()
            BATCHES[hashlib.sha256(data).hexdigest()] = batch, attempt
    return directory, slabs


def uploaded(client, life, batch: str, job: str) -> list[objects.SentSlab]:
    directory, slabs = written(f"{life.name}{life.number}", batch, job)
    return objects.send(URL, directory, job, slabs, storage=Storage(life), client=client)


def stream(batch: str, version: int, job: str):
    """A driver of a stream: after its death the batch runs again, as a job of the same id."""

    def program(client, life):
        sent = uploaded(client, life, batch, job)
        wanted = Transaction("query", version, Content(2, batch, None))
        storage = Storage(life)
        return objects.commit(URL, job, sent, transaction=wanted, storage=storage, client=client)

    return program


def batch_job(batch: str, job: str):
    """A driver of a batch: after its death the job is aborted."""

    def program(client, life):
        options = {"storage": Storage(life), "client": client}
        if life.number > 1:
            return objects.abort(URL, job, **options)
        return objects.commit(URL, job, uploaded(client, life, batch, job), **options)

    return program


# --- archives -------------------------------------------------------------------------------


def content(number: int) -> bytes:
    """Of a slab of ten addresses."""
    return b"slab %05d" % number


def slab(number: int) -> Entry:
    digest = hashlib.sha256(content(number)).hexdigest()
    return Entry(10 * number, 10 * number + 10, True, digest, 10 * number)


def archive(count: int) -> Objects:
    """A store with an archive of so many slabs."""
    found, entries = Objects(), []
    for number in range(count):
        entry = slab(number)
        found, done = found.after(Put(entry.object_name, content(number), "w", entry.sha256))
        entries.append(entry._replace(etag=done.tag.etag))
    body = encode_manifest(Manifest(UUID, None, 1, "w", entries=tuple(entries)))
    return found.after(Put(MANIFEST, body, "w", ""))[0]


def archiver(count: int, drop_below: int = 0):
    """A round, in which the local log has so many slabs."""

    def program(client, life):
        local, write_id = tuple(map(slab, range(count))), life.random_bytes(16).hex()
        state = protocol.begin(
            protocol.Job(UUID, None, local, write_id, 0, drop_below, sweeps=True)
        )
        while (wanted := protocol.request(state)) is not None:
            if isinstance(wanted, protocol.Protect):
                state = protocol.advance(state, protocol.Protected())
                continue
            if isinstance(wanted, Put) and isinstance(wanted.content, Entry):
                wanted = wanted._replace(content=content(wanted.content.base // 10))
            state = protocol.advance(state, client.send(wanted))
        assert isinstance(state, protocol.Done), state

    return program


def holder(client, life):
    return hold(URL, probe=False, storage=Storage(life), client=client)


def compactor(**options):
    """Two runs: the second one deletes what the first one replaced, if it is due."""

    def program(client, life):
        for _ in range(2):
            compact(URL, probe=False, storage=Storage(life), client=client, **options)

    return program


def sink_log() -> Objects:
    """A store with a log that a job of the sink wrote."""
    store = SimulatedStore()
    stream("w", 0, "c" * 32)(store, Life("W", 1))
    return store.objects


ONE, OTHER = "a" * 32, "b" * 32
SCENARIOS = {
    each.name: each
    for each in (
        Scenario("stream", Objects, (("D", stream("x", 1, ONE)),), 1, 1, batches=("x",)),
        Scenario(
            "zombie", Objects, (("D", stream("x", 1, ONE)), ("Z", stream("x", 1, OTHER))),
            1, 0, batches=("x",),
        ),
        Scenario(
            "jobs", Objects, (("D", stream("x", 1, ONE)), ("J", batch_job("y", OTHER))),
            1, 0, batches=("x", "y"),
        ),
        Scenario("abort", Objects, (("J", batch_job("y", ONE)),), 1, 1, aborted=("y",)),
        Scenario(
            "hold", partial(archive, 3), (("A", archiver(4, 20)), ("H", holder)), 1, 1, drops=True, holds=True
        ),
        Scenario("compaction", partial(archive, 2), (("C", compactor(**NOW)),), 1, 1),
        Scenario(
            "compaction, archiver", partial(archive, 2), (("C", compactor(**NOW)), ("A", archiver(3))), 1, 0
        ),
        Scenario(
            "compaction, retention", partial(archive, 3), (("C", compactor(**NOW)), ("R", archiver(3, 20))),
            1, 0, drops=True, may_raise=("C",),
        ),
        Scenario("compactions", partial(archive, 2), (("C", compactor()), ("B", compactor())), 1, 0),
        Scenario(
            "compaction, sink", sink_log, (("C", compactor(**DUE)), ("D", stream("x", 1, ONE))),
            0, 0, batches=("w", "x"),
        ),
        Scenario(
            "compaction, hold", partial(archive, 2), (("C", compactor(**NOW)), ("H", holder)),
            1, 0, holds=True, may_raise=("C",),
        ),
    )
}  # fmt: skip  # a table
LONG = (
    SCENARIOS["stream"]._replace(faults=2),
    SCENARIOS["zombie"]._replace(crashes=1),
    SCENARIOS["jobs"]._replace(crashes=1, aborted=("y",), batches=("x",)),
    SCENARIOS["abort"]._replace(faults=2, crashes=2),
    SCENARIOS["compaction"]._replace(faults=2),
    SCENARIOS["compaction, archiver"]._replace(crashes=1),
    SCENARIOS["compaction, sink"]._replace(crashes=1),
    SCENARIOS["compaction, sink"]._replace(faults=1),
)
