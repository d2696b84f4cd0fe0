"""One round of an archiver: uploads what the archive lacks, commits, moves the cursor, deletes leftovers.

Pure: `request` is what a state asks for, `advance` the state after the answer. The archiver
(archiver.py) sends the requests to a store; the exploration (tests/explore) sends them to a simulated one
that loses, delays, doubles and reorders them. The rules are in aolog/docs/reference/archive.md.

    state       asks for                         then
    Reading     the manifest                     Listing, Looking, Writing or Protecting
    Listing     the names of all slabs           as Reading; what no manifest refers to is deleted at the end
    Looking     whether a slab's object exists   Looking at the next, Sending, or Writing
    Sending     its creation                     as Looking; without a clear answer Looking at the same
    Writing     the manifest's replacement       Protecting; without a clear answer Reading
    Protecting  the local cursor's move          Deleting
    Deleting    an object's removal              Deleting the next, or Done
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from aolog.errors import AologError
from aolog.format.archive import (
    MANIFEST,
    SLABS,
    Entry,
    Manifest,
    decode_manifest,
    encode_manifest,
    object_range,
)
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


class Job(NamedTuple):
    """What a round is to do."""

    uuid: str  # of the log, hexadecimal
    topic: str | None
    local: tuple[Entry, ...]  # the local slabs as they are now, by base; without ETags
    write_id: str  # of this round, random
    begin: int = 0  # of the log's first slab; those before it were pruned
    drop_below: int = 0  # the archive's retention removes slabs that end at or before this address
    sweeps: bool = False  # whether to look for leftovers: once in the life of a process is enough


class View(NamedTuple):
    """The manifest as it was read or written last. tag: None if there was none."""

    manifest: Manifest
    tag: Tag | None


@dataclass(frozen=True, slots=True)
class Reading:
    """Asks for the manifest. uploaded: slabs whose objects exist."""

    job: Job
    uploaded: tuple[Entry, ...] = ()


@dataclass(frozen=True, slots=True)
class Listing:
    """Asks for the names of all slabs' objects."""

    job: Job
    view: View


@dataclass(frozen=True, slots=True)
class Looking:
    """Asks whether the first slab of `todo` was uploaded before."""

    job: Job
    view: View
    uploaded: tuple[Entry, ...]
    todo: tuple[Entry, ...]
    leftovers: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Sending:
    """Uploads the slab of which `looked` found no object."""

    looked: Looking


@dataclass(frozen=True, slots=True)
class Writing:
    """Replaces the manifest of `view`, or creates the first one."""

    job: Job
    view: View
    uploaded: tuple[Entry, ...]
    manifest: Manifest
    leftovers: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Protecting:
    """Moves the local cursor to the archive's end, which retention waits for."""

    view: View
    leftovers: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Deleting:
    """Removes objects that no manifest refers to, nor ever will."""

    view: View
    leftovers: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Done:
    """The archive has all that the job's local slabs have."""

    view: View


@dataclass(frozen=True, slots=True)
class Failed:
    """Nothing more is written. code: "foreign", "differs" or "overlaps", or of an AologError."""

    code: str
    reason: str


class Protect(NamedTuple):
    """A request to the local side: the cursor is durable at this address. Answered by Protected."""

    address: int


class Protected(NamedTuple):
    """Answers Protect."""


State: TypeAlias = (
    Reading | Listing | Looking | Sending | Writing | Protecting | Deleting | Done | Failed
)


def begin(job: Job, view: View | None = None) -> State:
    """The first state of a round. view: of the round before, if this process made one: then the manifest
    is read again only if another process has replaced it."""
    return Reading(job) if view is None else _plan(job, view, ())


def request(state: State) -> Request | Protect | None:
    """What the state asks for; None if the round has ended."""
    match state:
        case Reading():
            return Get(MANIFEST)
        case Listing():
            return List(SLABS)
        case Looking(todo=(entry, *_)):
            return Head(entry.object_name)
        case Sending(looked=Looking(job=job, todo=(entry, *_))):
            return Put(entry.object_name, entry, job.write_id, entry.sha256)
        case Writing(job=job, view=view, manifest=manifest):
            return Put(MANIFEST, encode_manifest(manifest), job.write_id, "", view.tag)
        case Protecting(view=view):
            return Protect(view.manifest.end)
        case Deleting(leftovers=(name, *_)):
            return Delete(name)
        case _:
            return None


def advance(state: State, answer: Answer | Protected) -> State:
    """The state after the answer to its request."""
    match state, answer:
        case Reading(job=job, uploaded=uploaded), Found():
            return _read(job, answer, uploaded)
        case Reading(job=job, uploaded=uploaded), Absent():
            return _plan(job, View(Manifest(job.uuid, job.topic), None), uploaded)
        case Listing(job=job, view=view), Names(names=names):
            job = job._replace(sweeps=False)
            return _plan(job, view, (), tuple(sorted(_leftovers(names, view.manifest))))
        case Looking(), Found():
            return _looked(state, answer)
        case Looking(), Absent():
            return Sending(state)
        case Sending(looked=looked), Stored(tag=tag):
            return _uploaded(looked, tag)
        case Sending(looked=looked), Refused() | Unclear():  # created by us, by another, or not yet
            return looked
        case Writing(view=view, manifest=manifest, leftovers=leftovers), Stored(tag=tag):
            return _committed(View(manifest, tag), view.manifest, leftovers)
        case Writing(job=job, uploaded=uploaded), Refused() | Unclear():
            return Reading(job, uploaded)  # the manifest shows whose it is by its write id
        case Protecting(view=view, leftovers=leftovers), Protected():
            return Deleting(view, leftovers) if leftovers else Done(view)
        case Deleting(view=view, leftovers=(_, *more)), Deleted():
            return Deleting(view, tuple(more)) if more else Done(view)
        case _, Unclear():
            return state  # asks again: reading and deleting can be repeated
    raise AssertionError((state, answer))


def _read(job: Job, found: Found, uploaded: tuple[Entry, ...]) -> State:
    try:
        manifest = decode_manifest(bytes(found.body), MANIFEST)
    except AologError as error:
        return Failed(error.code, str(error))
    if manifest.uuid != job.uuid:
        return Failed("foreign", f"it is the archive of the log {manifest.uuid}, not of {job.uuid}")
    return _plan(job, View(manifest, found.tag), uploaded)


def _plan(
    job: Job, view: View, uploaded: tuple[Entry, ...], leftovers: tuple[str, ...] = ()
) -> State:
    """The state in which the manifest of `view` is known. uploaded: slabs whose objects exist."""
    if job.sweeps and view.tag is not None:
        return Listing(job, view)
    wanted = missing(job.local, job.begin, view.manifest)
    if isinstance(wanted, Failed):
        return wanted
    there = {entry.object_name: entry for entry in uploaded}
    kept = tuple([there[e.object_name] for e in wanted if e.object_name in there])
    todo = tuple([entry for entry in wanted if entry.object_name not in there])
    if todo:
        return Looking(job, view, kept, todo, leftovers)
    return _commit(job, view, kept, leftovers)


def _looked(state: Looking, found: Found) -> State:
    entry = state.todo[0]
    if (found.size, found.sha256) != (entry.size, entry.sha256):
        return Failed("differs", f"{entry.object_name} exists with another content")
    return _uploaded(state, found.tag)


def _uploaded(state: Looking, tag: Tag) -> State:
    (entry, *rest), job, view = state.todo, state.job, state.view
    uploaded = (*state.uploaded, entry._replace(etag=tag.etag))
    if rest:
        return Looking(job, view, uploaded, tuple(rest), state.leftovers)
    return _commit(job, view, uploaded, state.leftovers)


def _commit(job: Job, view: View, uploaded: tuple[Entry, ...], leftovers: tuple[str, ...]) -> State:
    """Writes the manifest with these slabs, if that changes it."""
    old = view.manifest
    by_base = {entry.base: entry for entry in (*old.entries, *uploaded)}
    entries = [by_base[base] for base in sorted(by_base)]
    drop_below = 0 if old.held else job.drop_below  # it may be held since the round began
    dropped = [entry for entry in entries if entry.final and entry.end <= drop_below]
    floor = max([old.floor, *[entry.end for entry in dropped]])
    kept = tuple([entry for entry in entries if entry.end > floor])
    if (floor, kept) == (old.floor, old.entries):
        return _committed(view, old, leftovers)
    manifest = old._replace(
        uuid=job.uuid,
        topic=job.topic,
        sequence=old.sequence + 1,
        write=job.write_id,
        floor=floor,
        entries=kept,
    )
    return Writing(job, view, uploaded, manifest, leftovers)


def _committed(view: View, old: Manifest, leftovers: tuple[str, ...]) -> Protecting:
    """leftovers: so far; what `old` refers to and its successor does not is added."""
    used = _names(view.manifest)
    replaced = _names(old) - used
    return Protecting(view, tuple(sorted({*leftovers, *replaced} - used)))


def _names(manifest: Manifest) -> set[str]:
    """The objects of its slabs; of a slab that was packed with others, also the one that had it before:
    readers may be in it still, and compaction deletes it."""
    entries = manifest.entries
    return {entry.object_name for entry in entries} | {entry.slab_name for entry in entries}


def missing(local: tuple[Entry, ...], begin: int, manifest: Manifest) -> list[Entry] | Failed:
    """The local slabs, or longer beginnings of the last one, that the archive lacks. begin: as in Job."""
    archived = {entry.base: entry for entry in manifest.entries}
    last = manifest.entries[-1] if manifest.entries else None
    # Otherwise a copy of the log that went on at a far address would be appended to the other's history.
    follows = last is None or last.base < begin or any(e.base == last.base for e in local)
    wanted = []
    for entry in local:
        there = archived.get(entry.base)
        if there is None:
            if entry.end <= manifest.floor:
                continue  # dropped by the archive's retention
            if entry.base < manifest.end:
                return Failed(
                    "overlaps",
                    f"the archive has other slabs where the local one is at {entry.base}",
                )
            if not follows and last is not None:
                return Failed(
                    "differs", f"the archive has a slab at {last.base}, which the log lacks"
                )
            wanted.append(entry)
        elif entry.sha256 == there.sha256 and entry.end == there.end:
            if entry.final and not there.final and there is last:
                wanted.append(entry)  # the same bytes; now it is known that no more follow
        elif there is last and not there.final and entry.end > there.end:
            wanted.append(entry)
        elif entry.final or entry.end > there.end:
            return Failed("differs", f"the slab at {entry.base} is archived with another content")
        # Otherwise it is an older beginning of the same slab.
    return wanted


def _leftovers(names: tuple[str, ...], manifest: Manifest) -> list[str]:
    """Objects that the manifest does not refer to, and that no later one will: they end at or before its
    end, and what is committed later ends after it."""
    used = _names(manifest)
    found = []
    for name in names:
        span = object_range(name)
        if span is not None and span[1] <= manifest.end and name not in used:
            found.append(name)
    return found
