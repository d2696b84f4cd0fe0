"""All that can happen to an archive: archivers, a retention and a store, with every loss and every crash.

A world is a value. From each world every action is taken: a client's request is answered; or it is
carried out and the answer is lost; or lost itself; or carried out later, at any moment, which reorders it;
or carried out twice; or answered by 409; or the client dies, before it or after it, and begins again.
The search visits every world that can be reached, and holds each step against the claims below.

    visible    an entry of the manifest has its object, with the entry's bytes
    once       an object's content never changes under its name
    kept       what a manifest had stays, longer or equal, until the archive's retention drops it
    order      entries follow one another, and begin at or after the floor
    cursor     the local cursor is not past what the archive has
    again      a name that was collected is not in the manifest afterwards
    ends       without a further fault every client ends, and the archive has all that is local
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

from aolog.format.archive import MANIFEST, SLABS, Entry, Manifest, decode_manifest
from aolog.maintenance.archive import protocol
from aolog.storage.objects.requests import Delete, Get, Head, List, Put, Refused, Unclear
from aolog.testing.objects import Objects

UUID = "0f" * 16


class Broken(Exception):
    """A claim does not hold."""


class Client(NamedTuple):
    """rounds: of its life: the local slabs at each, and the address below which it drops."""

    name: str
    rounds: tuple[tuple[tuple[Entry, ...], int], ...]
    state: object
    round: int = 0
    lives: int = 1  # so that a later round or life has a write id of its own

    def begun(self, round: int, view=None, *, again: bool = False) -> Client:
        lives = self.lives + again
        local, below = self.rounds[round]
        write_id = f"{self.name}{round}.{lives}"
        job = protocol.Job(UUID, None, local, write_id, 0, below, sweeps=view is None)
        return self._replace(state=protocol.begin(job, view), round=round, lives=lives)


class World(NamedTuple):
    objects: Objects
    clients: tuple[Client, ...]
    flying: tuple[object, ...]  # requests that may still be carried out
    faults: int  # that may still happen
    crashes: int
    cursor: int  # of the local log
    collected: frozenset[str]  # names that were deleted


class Scenario(NamedTuple):
    """lacks: what the store does not do, see Objects: then a claim must break."""

    name: str
    clients: tuple[tuple[str, tuple[tuple[tuple[Entry, ...], int], ...]], ...]
    faults: int
    crashes: int
    lacks: frozenset[str] = frozenset()


def slab(number: int, size: int = 10, *, final: bool = True, kind: str = "a") -> Entry:
    """A slab of ten addresses; size: of the beginning that is durable."""
    base = 10 * number
    return Entry(
        base,
        base + size,
        final,
        f"{number}{size}{'f' if size == 10 else kind}".ljust(64, "0"),
        base,
    )


GROWING = ((slab(0, 4, final=False),), (slab(0), slab(1, 6, final=False)), (slab(0), slab(1)))
SCENARIOS = {
    each.name: each
    for each in (
        Scenario("one", (("A", tuple((local, 0) for local in GROWING)),), faults=1, crashes=1),
        Scenario(
            "two",
            (("A", tuple((local, 0) for local in GROWING[:2])), ("B", ((GROWING[1], 0),))),
            faults=1, crashes=0,
        ),
        Scenario(
            "retention",
            (("A", tuple((local, 0) for local in GROWING[:2])), ("R", (((), 10),))),
            faults=1, crashes=0,
        ),
        Scenario(
            "slow",  # an archiver of the first slab beside one that goes on and drops it
            (("A", ((GROWING[1][:1], 0),)), ("B", ((GROWING[2], 10),))),
            faults=1, crashes=0,
        ),
    )
}  # fmt: skip  # a table
LONG = (  # each to its end: 17,000 to 111,000 worlds, in half a minute of processor time at most
    SCENARIOS["one"]._replace(faults=2),
    SCENARIOS["two"]._replace(crashes=1),
    SCENARIOS["retention"]._replace(faults=2, crashes=1),
    SCENARIOS["slow"]._replace(faults=2, crashes=1),
)


def first(scenario: Scenario) -> World:
    clients = tuple(Client(name, rounds, None).begun(0) for name, rounds in scenario.clients)
    return World(
        Objects(lacks=scenario.lacks),
        clients,
        (),
        scenario.faults,
        scenario.crashes,
        0,
        frozenset(),
    )


@cache
def decoded(body: bytes) -> Manifest:
    return decode_manifest(body, MANIFEST)


def manifest_of(objects: Objects) -> Manifest | None:
    found = objects.get(MANIFEST)
    return None if found is None else decoded(found.content)


def explore(scenario: Scenario, most: int | None = None) -> int:
    """The number of distinct worlds. Raises Broken with the path to the one that breaks a claim."""
    begun = first(scenario)
    came_from: dict[World, tuple[World, str] | None] = {begun: None}
    todo = [begun]
    while todo:
        world = todo.pop()
        ended = True
        for text, after in steps(world):
            ended = ended and text.startswith("late")
            if after in came_from:
                continue
            came_from[after] = (world, text)
            try:
                check(world, after)
            except Broken as error:
                raise Broken(f"{scenario.name}: {error}\n{path_to(after, came_from)}") from None
            todo.append(after)
        if ended:
            try:
                check_end(world)
            except Broken as error:
                raise Broken(f"{scenario.name}: {error}\n{path_to(world, came_from)}") from None
        if most is not None and len(came_from) >= most:
            break
    return len(came_from)


def path_to(world: World, came_from) -> str:
    lines = []
    while (step := came_from[world]) is not None:
        world, text = step
        lines.append(text)
    return "\n".join(reversed(lines))


def steps(world: World) -> Iterator[tuple[str, World]]:
    for i, request in enumerate(world.flying):
        rest = world.flying[:i] + world.flying[i + 1 :]
        yield f"late {brief(request)}", carried(world._replace(flying=rest), request)[0]
    for i, client in enumerate(world.clients):
        wanted = protocol.request(client.state)
        if wanted is None:
            if client.round + 1 < len(client.rounds) and isinstance(client.state, protocol.Done):
                begun = client.begun(client.round + 1, client.state.view)
                yield f"{client.name}: next round", with_client(world, i, begun)
            continue
        yield from of_request(world, i, client, wanted)
        if world.crashes:
            dead = world._replace(crashes=world.crashes - 1)
            new = client.begun(client.round, again=True)
            yield f"{client.name}: dies before {brief(wanted)}", with_client(dead, i, new)
            if isinstance(wanted, Put | Delete):
                done = carried(dead, wanted)[0]
                yield f"{client.name}: dies after {brief(wanted)}", with_client(done, i, new)
                later = dead._replace(flying=flown(dead, wanted))
                yield f"{client.name}: dies, later {brief(wanted)}", with_client(later, i, new)


def of_request(world: World, i: int, client: Client, wanted) -> Iterator[tuple[str, World]]:
    name = f"{client.name}: {brief(wanted)}"

    def answered(world: World, answer) -> World:
        return with_client(world, i, client._replace(state=protocol.advance(client.state, answer)))

    if isinstance(wanted, protocol.Protect):
        moved = world._replace(cursor=max(world.cursor, wanted.address))
        yield name, answered(moved, protocol.Protected())
        return
    done, answer = carried(world, wanted)
    yield name, answered(done, answer)
    if not world.faults:
        return
    world = world._replace(faults=world.faults - 1)
    done = done._replace(faults=world.faults)
    if not isinstance(wanted, Put | Delete):
        return  # the same state asks again
    yield f"{name}, answer lost", answered(done, Unclear("lost"))
    yield f"{name}, lost", answered(world, Unclear("lost"))
    later = world._replace(flying=flown(world, wanted))
    yield f"{name}, delayed", answered(later, Unclear("lost"))
    yield f"{name}, doubled", answered(*carried(done, wanted))
    if isinstance(wanted, Put):
        yield f"{name}, 409", answered(world, Refused())
        yield f"{name}, 409 and delayed", answered(later, Refused())


def flown(world: World, wanted) -> tuple[object, ...]:
    return tuple(sorted([*world.flying, wanted], key=repr))


def with_client(world: World, i: int, client: Client) -> World:
    return world._replace(clients=(*world.clients[:i], client, *world.clients[i + 1 :]))


def carried(world: World, request) -> tuple[World, object]:
    objects, answer = world.objects.after(request)
    collected = world.collected
    if isinstance(request, Delete):
        collected |= {request.name}
    return world._replace(objects=objects, collected=collected), answer


def brief(request) -> str:
    match request:
        case Put(name=name, content=content):
            what = "" if name != MANIFEST else f" {decoded(content).sequence}"
            return f"put {name}{what}"
        case Get(name=name) | Head(name=name) | Delete(name=name):
            return f"{type(request).__name__.lower()} {name}"
        case List(prefix=prefix):
            return f"list {prefix}"
    return str(request)


# --- the claims -----------------------------------------------------------------------------


def claim(holds: bool, *what: object) -> None:
    if not holds:
        raise Broken(" ".join(map(str, what)))


def check(before: World, after: World) -> None:
    claim(all(not isinstance(c.state, protocol.Failed) for c in after.clients), "ends: refused")
    if after.objects is before.objects and after.cursor == before.cursor:
        return
    manifest = manifest_of(after.objects)
    for name, found in before.objects.stored:
        now = after.objects.get(name)
        same = now is None or now.content == found.content
        claim(name == MANIFEST or same, "once: overwritten", name)
    if manifest is None:
        claim(manifest_of(before.objects) is None, "kept: the manifest is gone")
        claim(after.cursor == 0, "cursor: moved, and nothing is archived")
        return
    claim(after.cursor <= manifest.end, "cursor: past the archive", after.cursor, manifest.end)
    at = manifest.floor
    for entry in manifest.entries:
        claim(entry.base >= at and entry.end > entry.base, "order", manifest.entries)
        at = entry.end
        found = after.objects.get(entry.object_name)
        claim(found is not None, "visible: no object", entry.object_name)
        claim(found.tag.etag == entry.etag, "visible: another ETag", entry.object_name)
        content = found.content._replace(final=entry.final, etag=entry.etag)
        claim(content == entry, "visible: other bytes", entry)
        claim(entry.object_name not in after.collected, "again: was collected", entry.object_name)
    check_kept(manifest_of(before.objects), manifest)


def check_kept(old: Manifest | None, new: Manifest) -> None:
    if old is None or old == new:
        return
    claim(new.floor >= old.floor and new.end >= old.end, "kept: it moves back", old, new)
    claim(new.sequence == old.sequence + 1, "kept: a commit was overwritten", old, new)
    there = {entry.base: entry for entry in new.entries}
    for entry in old.entries:
        if entry.end <= new.floor:
            continue
        now = there.get(entry.base)
        claim(now is not None and now.end >= entry.end, "kept: dropped", entry)
        claim(not entry.final or now == entry, "kept: a finished slab changed", entry, now)


def check_end(world: World) -> None:
    manifest = manifest_of(world.objects)
    claim(manifest is not None, "ends: no manifest")
    wanted = {e.base: e for c in world.clients for local, _ in c.rounds for e in local}
    there = {entry.base: entry for entry in manifest.entries}
    for base, entry in wanted.items():
        if entry.end > manifest.floor:
            claim(base in there and there[base].end >= entry.end, "ends: not archived", entry)
    used = {entry.object_name for entry in manifest.entries}
    orphans = [n for n, _ in world.objects.stored if n.startswith(SLABS) and n not in used]
    claim(len(orphans) <= 2, "ends: left over", orphans)
