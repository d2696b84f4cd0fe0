"""All that can happen to the programs that write below a URL in plain calls: the sink, a hold, a compaction.

They are not state machines as the archiver's round is (archive.py), so a program's state is the list of answers
that it has got: it runs again from its beginning with these answers, up to its next request. The worlds, the
faults and the crashes are those of archive.py; a request may also be carried out a second time later.
A program that died begins again, in its next life. Time does not pass, and random bytes follow from
the life.

    visible    an entry of the manifest has its slab, with the entry's bytes
    once       an object's content never changes under its name
    kept       what a manifest had stays, unless retention drops it, and each commit follows the one before
    order      entries follow one another
    whole      of a batch, all slabs of one attempt are in the manifest, or none
    held       what an archive has when a hold has ended stays
    ends       without a further fault every program ends; each batch is there once, and few objects are left over
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache
from typing import NamedTuple

from aolog.format.archive import MANIFEST, PACKS, PENDING, SLABS, Entry, Manifest
from aolog.storage.objects.requests import Delete, Put, Refused, Unclear
from aolog.storage.system import System
from aolog.testing.objects import Objects
from tests.explore.archive import Broken, brief, claim, manifest_of, path_to

URL = "s3://bucket/log"
LEFT_OVER_MAX = (
    4  # objects: of an attempt that died or came late, and of one that was carried out late
)
BATCHES: dict[str, tuple[str, str]] = {}  # by a slab's checksum: its batch, and the attempt at it
SLABS_OF_ATTEMPT = 2


class Paused(Exception):
    """The program waits for the answer to this request."""


class Replayed:
    """Takes the place of a client: gives these answers, and then pauses."""

    url = URL
    requests = sent_bytes = 0

    def __init__(self, answers: tuple[object, ...]) -> None:
        self._answers = iter(answers)

    def send(self, request):
        if (answer := next(self._answers, None)) is None:
            raise Paused(request)
        return answer

    def ask(self, request):
        while isinstance(answer := self.send(request), Unclear):
            pass
        return answer


class Life(System):
    """Of a program. Its random bytes are the same in each run."""

    def __init__(self, name: str, number: int) -> None:
        self.name, self.number, self._count = name, number, 0

    def random_bytes(self, size: int, /) -> bytes:
        self._count += 1
        text = f"{self.name} {self.number} {self._count}"
        return hashlib.sha256(text.encode()).digest()[:size]


class Actor(NamedTuple):
    """answers: that its program has got in this life."""

    name: str
    life: int = 1
    answers: tuple[object, ...] = ()


class World(NamedTuple):
    objects: Objects
    actors: tuple[Actor, ...]
    flying: tuple[object, ...]  # requests that may still be carried out
    faults: int  # that may still happen
    crashes: int


class Scenario(NamedTuple):
    """begin: what is there before. programs: by name; called with the client and the life."""

    name: str
    begin: Callable[[], Objects]
    programs: tuple[tuple[str, Callable[[Replayed, Life], object]], ...]
    faults: int
    crashes: int
    batches: tuple[str, ...] = ()  # that are in the log at the end, once
    aborted: tuple[str, ...] = ()  # that may be
    drops: bool = False  # whether a retention runs
    holds: bool = False  # whether the archive is held at the end
    may_raise: tuple[str, ...] = ()  # programs that another one may refuse
    lacks: frozenset[str] = (
        frozenset()
    )  # what the store does not do, see Objects: then a claim must break


def explore(scenario: Scenario, most: int | None = None) -> int:
    """The number of distinct worlds. Raises Broken with the path to the one that breaks a claim."""
    return _Exploration(scenario).run(most)


class _Exploration:
    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        self._programs = dict(scenario.programs)
        self._runs: dict[Actor, tuple[str, object]] = {}

    def run(self, most: int | None) -> int:
        scenario = self.scenario
        actors = tuple(Actor(name) for name, _ in scenario.programs)
        objects = scenario.begin()._replace(lacks=scenario.lacks)
        begun = World(objects, actors, (), scenario.faults, scenario.crashes)
        came_from: dict[World, tuple[World, str] | None] = {begun: None}
        todo = [begun]
        while todo:
            world = todo.pop()
            try:
                ended = all(self.state(actor)[0] != "asks" for actor in world.actors)
                for text, after in self.steps(world):
                    if after in came_from:
                        continue
                    came_from[after] = (world, text)
                    last = after
                    self.check(world, after)
                    todo.append(after)
                if ended and not world.flying:
                    last = world
                    self.check_end(world)
            except Broken as error:
                path = path_to(last, came_from)
                raise Broken(f"{scenario.name}: {error}\n{path}") from None
            if most is not None and len(came_from) >= most:
                break
        return len(came_from)

    def state(self, actor: Actor) -> tuple[str, object]:
        """("asks", its next request), ("returned", what) or ("raised", an error)."""
        if (found := self._runs.get(actor)) is None:
            found = self._runs[actor] = self._run(actor)
        return found

    def _run(self, actor: Actor) -> tuple[str, object]:
        client, life = Replayed(actor.answers), Life(actor.name, actor.life)
        try:
            return "returned", self._programs[actor.name](client, life)
        except Paused as paused:
            return "asks", paused.args[0]
        except Broken:
            raise
        except Exception as error:  # `check_end` judges it
            return "raised", error

    # --- what can happen ------------------------------------------------------------------------

    def steps(self, world: World) -> Iterator[tuple[str, World]]:
        for i, request in enumerate(world.flying):
            rest = world.flying[:i] + world.flying[i + 1 :]
            objects, _ = world.objects.after(request)
            yield f"late {brief(request)}", world._replace(objects=objects, flying=rest)
        for i, actor in enumerate(world.actors):
            kind, wanted = self.state(actor)
            if kind != "asks":
                continue
            yield from _of_request(world, i, wanted)
            if world.crashes:
                yield from _deaths(world, i, wanted)

    # --- the claims -----------------------------------------------------------------------------

    def check(self, before: World, after: World) -> None:
        if after.objects is before.objects:
            return
        for name, found in before.objects.stored:
            now = after.objects.get(name)
            same = now is None or now.content == found.content
            claim(name == MANIFEST or same, "once: overwritten", name)
        old, new = manifest_of(before.objects), manifest_of(after.objects)
        if new is None:
            claim(old is None, "kept: the manifest is gone")
            return
        at = new.floor
        for entry in new.entries:
            claim(at <= entry.base < entry.end, "order", entry.base)
            at = entry.end
            found = after.objects.get(entry.object_name)
            claim(found is not None, "visible: no object", entry.object_name)
            claim(found.tag.etag == entry.etag, "visible: another ETag", entry.object_name)
            if isinstance(found.content, bytes):
                claim(_bytes_are_right(entry, found.content), "visible: other bytes", entry.base)
        if old is not None and old != new:
            self._check_kept(old, new)
        self._check_whole(new)

    def _check_kept(self, old: Manifest, new: Manifest) -> None:
        claim(new.sequence == old.sequence + 1, "kept: a commit was overwritten")
        claim(new.end >= old.end and new.floor >= old.floor, "kept: it moves back")
        claim(not old.held or new.floor == old.floor, "held: dropped")
        claim(self.scenario.drops or new.floor == old.floor, "kept: dropped")
        there = {entry.base: (entry.end, entry.sha256, entry.header) for entry in new.entries}
        for entry in old.entries:
            same = there.get(entry.base) == (entry.end, entry.sha256, entry.header)
            claim(same or entry.end <= new.floor, "kept: changed", entry.base)

    def _check_whole(self, manifest: Manifest) -> None:
        attempts: dict[str, Counter[str]] = {}
        for entry in manifest.entries:
            if (found := BATCHES.get(entry.sha256)) is not None:
                attempts.setdefault(found[0], Counter())[found[1]] += 1
        for batch, counts in attempts.items():
            claim(len(counts) == 1, "whole: two attempts at", batch)
            claim(set(counts.values()) == {SLABS_OF_ATTEMPT}, "whole: a part of", batch)

    def check_end(self, world: World) -> None:
        for actor in world.actors:
            kind, what = self.state(actor)
            fine = kind == "returned" or actor.name in self.scenario.may_raise
            claim(fine, "ends:", actor.name, repr(what))
        manifest = manifest_of(world.objects) or Manifest("")
        there = {BATCHES[e.sha256][0] for e in manifest.entries if e.sha256 in BATCHES}
        needed, allowed = set(self.scenario.batches), set(self.scenario.aborted)
        claim(needed <= there <= needed | allowed, "ends: these batches", sorted(there))
        claim(manifest.held == self.scenario.holds, "held: not in force")
        used = {name for e in manifest.entries for name in (e.object_name, e.slab_name)}
        left = [name for name, _ in world.objects.stored
                if name.startswith((SLABS, PENDING, PACKS)) and name not in used]  # fmt: skip  # one list
        claim(len(left) <= LEFT_OVER_MAX, "ends: left over", left)


@cache
def _bytes_are_right(entry: Entry, content: bytes) -> bool:
    packed = entry.packed
    if packed is not None:
        begin, end = packed.span(0, entry.size)
        content = packed.unpacked(content[begin:end], 0, entry.size, entry.pack)
    return hashlib.sha256(content).hexdigest() == entry.sha256


def _of_request(world: World, i: int, wanted) -> Iterator[tuple[str, World]]:
    name = f"{world.actors[i].name}: {brief(wanted)}"

    def answered(world: World, answer) -> World:
        actor = world.actors[i]
        return _with(world, i, actor._replace(answers=(*actor.answers, answer)))

    objects, answer = world.objects.after(wanted)
    done = world._replace(objects=objects)
    yield name, answered(done, answer)
    if not world.faults or not isinstance(wanted, Put | Delete):
        return  # a request that only reads is asked again
    faults = world.faults - 1
    world, done = world._replace(faults=faults), done._replace(faults=faults)
    later = world._replace(flying=_flown(world, wanted))
    yield f"{name}, answer lost", answered(done, Unclear("lost"))
    yield f"{name}, lost", answered(world, Unclear("lost"))
    yield f"{name}, delayed", answered(later, Unclear("lost"))
    yield f"{name}, again later", answered(done._replace(flying=later.flying), answer)
    twice, second = done.objects.after(wanted)
    yield f"{name}, doubled", answered(done._replace(objects=twice), second)
    if isinstance(wanted, Put):
        yield f"{name}, 409", answered(world, Refused())
        yield f"{name}, 409 and delayed", answered(later, Refused())


def _deaths(world: World, i: int, wanted) -> Iterator[tuple[str, World]]:
    actor = world.actors[i]
    dead = world._replace(crashes=world.crashes - 1)
    new = Actor(actor.name, actor.life + 1)
    text = brief(wanted)
    yield f"{actor.name}: dies before {text}", _with(dead, i, new)
    if isinstance(wanted, Put | Delete):
        objects, _ = dead.objects.after(wanted)
        yield f"{actor.name}: dies after {text}", _with(dead._replace(objects=objects), i, new)
        later = dead._replace(flying=_flown(dead, wanted))
        yield f"{actor.name}: dies, later {text}", _with(later, i, new)


def _flown(world: World, wanted) -> tuple[object, ...]:
    return tuple(sorted([*world.flying, wanted], key=repr))


def _with(world: World, i: int, actor: Actor) -> World:
    return world._replace(actors=(*world.actors[:i], actor, *world.actors[i + 1 :]))
