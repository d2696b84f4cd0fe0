"""Histories: what is done to a log before the lights go out."""

from __future__ import annotations

import json
from random import Random
from typing import Any, NamedTuple

# (name, arguments):
#   append SIZE, many COUNT SIZE, flush, sync
#   mark                       sync, then what the writer's thread writes when nothing comes
#   commit NAME COUNT          read so many records on from the cursor, commit
#   commit_and_die NAME COUNT  the same in a process that is killed before the commit is synced
#   prune SLABS                keep so many, and what cursors need
#   prune_and_die SLABS        the same in a process that is killed before its first unlink is synced
#   reopen                     close and open
#   kill                       the process dies; open again
#   full                       the disk, until somebody syncs or opens again
#   short                      all writes, from here on
Step = tuple[Any, ...]


class Case(NamedTuple):
    """A history to be explored. options: the writer's. piece: bytes that are written whole. seed:
    of the choice among more states than are wanted."""

    name: str
    seed: int
    piece: int
    options: dict[str, Any]
    steps: list[Step]

    @property
    def format_1(self) -> bool:
        return self.options.get("format") == "queuefka"

    @property
    def synced(self) -> bool:
        return self.options.get("sync", "interval") != "never"

    def to_json(self) -> str:
        return json.dumps(self._asdict(), separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> Case:
        read = json.loads(text)
        return cls(**(read | {"steps": [tuple(step) for step in read["steps"]]}))


SMALL = 8192 + 600  # a slab of a few hundred bytes of frames
TINY = 1  # a slab a frame
# Orders that are known to be dangerous, each with what could go wrong.
BY_HAND: dict[str, tuple[dict[str, Any], list[Step]]] = {
    # the log's own directory, and the first slab's name, are durable with the first sync
    "first_sync": ({}, [("append", 30), ("sync",)]),
    "first_sync_after_kill": ({}, [("kill",), ("append", 30), ("sync",)]),
    "flush_is_no_sync": ({"sync": "never"}, [("append", 700), ("flush",), ("append", 700), ("flush",)]),
    "every_flush_is_a_sync": ({"sync": "flush"}, [("append", 300), ("flush",), ("append", 900), ("flush",)]),
    "acknowledged_behind_torn": (
        {"batch_bytes": 0},
        [("append", 600), ("sync",), ("append", 600), ("append", 600), ("flush",)],
    ),
    "mark_behind_sync": ({}, [("append", 100), ("mark",), ("append", 700), ("flush",)]),
    "rotate": ({"slab_bytes": SMALL}, [("many", 3, 250), ("many", 3, 250), ("append", 20), ("flush",)]),
    "rotate_each_frame": (
        {"slab_bytes": TINY, "batch_bytes": 0},
        [("append", 40), ("append", 40), ("append", 600), ("flush",)],
    ),
    "rotate_never": (
        {"slab_bytes": SMALL, "sync": "never"},
        [("many", 3, 250), ("many", 3, 250), ("many", 2, 90), ("flush",)],
    ),
    "commit": ({}, [("append", 40), ("append", 40), ("flush",), ("commit", "c", 1), ("commit", "c", 1)]),
    "commit_never": (
        {"sync": "never"},
        [("append", 40), ("append", 700), ("flush",), ("commit", "c", 2), ("append", 40), ("flush",)],
    ),
    "commit_then_append": (
        {"batch_bytes": 0},
        [("append", 600), ("flush",), ("commit", "c", 1), ("append", 600), ("flush",), ("commit", "c", 1)],
    ),
    "commit_before_prune": (
        {"slab_bytes": TINY, "batch_bytes": 0},
        [("append", 40), ("append", 40), ("append", 40), ("flush",), ("commit", "c", 2), ("prune", 1)],
    ),
    "prune_two": (
        {"slab_bytes": TINY, "batch_bytes": 0},
        [("append", 40), ("append", 40), ("append", 40), ("sync",), ("prune", 1), ("append", 40), ("sync",)],
    ),
    "two_cursors": (
        {"slab_bytes": TINY, "batch_bytes": 0},
        [("append", 40), ("append", 40), ("flush",), ("commit", "a", 2), ("commit", "b", 1), ("prune", 1),
         ("commit", "b", 1), ("prune", 1)],
    ),
    "reopen": ({}, [("append", 40), ("reopen",), ("append", 40), ("sync",), ("reopen",)]),
    "kill_with_tail": ({}, [("append", 700), ("flush",), ("kill",), ("append", 300), ("sync",)]),
    "kill_twice": (
        {"batch_bytes": 0},
        [("append", 300), ("flush",), ("kill",), ("append", 300), ("flush",), ("kill",), ("append", 300), ("sync",)],
    ),
    "kill_behind_rotation": (
        {"slab_bytes": SMALL},
        [("many", 3, 250), ("many", 3, 250), ("append", 20), ("kill",), ("append", 20), ("sync",)],
    ),
    "cursor_over_kill": (
        {},
        [("append", 40), ("flush",), ("commit", "c", 1), ("kill",), ("append", 40), ("flush",),
         ("commit", "c", 1)],
    ),
    "often_synced_in_small_slabs": (
        {"slab_bytes": SMALL},
        [*[("append", 20), ("sync",)] * 8, ("append", 300), ("sync",), ("append", 300), ("flush",),
         ("many", 2, 200)],
    ),
    "synced_often": (
        {"slab_bytes": 8192 + 2000},
        [*[("append", 20), ("sync",)] * 9, ("append", 700), ("flush",), ("many", 2, 300), ("sync",),
         ("many", 2, 300), ("flush",)],
    ),
    "synced_often_then_killed": (
        {"slab_bytes": 1 << 20, "batch_bytes": 0},
        [*[("append", 20), ("sync",)] * 9, ("append", 20), ("flush",), ("kill",), ("append", 20), ("sync",)],
    ),
    "synced_often_on_a_full_disk": (
        {"slab_bytes": 1 << 20},
        [*[("append", 20), ("sync",)] * 7, ("append", 20), ("flush",), ("full",), ("sync",), ("append", 20),
         ("sync",)],
    ),
    "full_disk": (
        {"slab_bytes": SMALL},
        [("many", 2, 250), ("full",), ("many", 2, 250), ("flush",), ("append", 30), ("sync",)],
    ),
    "full_at_rotation": (
        {"slab_bytes": TINY, "batch_bytes": 0},
        [("append", 40), ("full",), ("append", 40), ("append", 40), ("sync",)],
    ),
    "short_writes": (
        {"slab_bytes": SMALL, "batch_bytes": 0},
        [("short",), ("append", 300), ("sync",), ("append", 300), ("commit", "c", 1), ("append", 300), ("sync",)],
    ),
    "commit_dies_before_prune": (
        {"slab_bytes": TINY, "batch_bytes": 0},
        [("append", 40), ("append", 40), ("append", 40), ("sync",), ("commit", "c", 1),
         ("commit_and_die", "c", 2), ("prune", 1), ("sync",)],
    ),
    "commit_over_one_that_died": (
        {"batch_bytes": 200},
        [("many", 3, 300), ("commit", "c", 2), ("sync",), ("short",), ("commit_and_die", "c", 1),
         ("commit", "c", 2), ("commit", "c", 2)],
    ),
    "prune_dies": (
        {"slab_bytes": TINY, "batch_bytes": 0},
        [("append", 40), ("append", 40), ("append", 40), ("sync",), ("prune_and_die", 1), ("prune", 1)],
    ),
    "large_frame": ({}, [("append", 9000), ("flush",), ("append", 10), ("sync",)]),
    "queuefka": (
        {"format": "queuefka"},
        [("append", 300), ("flush",), ("append", 700), ("sync",), ("append", 300), ("flush",)],
    ),
    "queuefka_first_sync_after_kill": ({"format": "queuefka"}, [("kill",), ("append", 30), ("sync",)]),
    "queuefka_rotate": (
        {"format": "queuefka", "slab_bytes": 500},
        [("append", 300), ("append", 300), ("append", 300), ("flush",), ("commit", "c", 2), ("sync",)],
    ),
    "queuefka_kill": (
        {"format": "queuefka", "slab_bytes": 900},
        [("append", 300), ("append", 300), ("flush",), ("kill",), ("append", 600), ("sync",)],
    ),
    "queuefka_prune": (
        {"format": "queuefka", "slab_bytes": 100},
        [("append", 120), ("append", 120), ("append", 120), ("sync",), ("prune", 1), ("append", 50), ("sync",)],
    ),
}  # fmt: skip  # a table

_STEPS: list[tuple[int, Step]] = [
    (8, ("append", 20)), (4, ("append", 400)), (2, ("append", 1100)), (2, ("append", 3000)),
    (3, ("many", 4, 30)), (1, ("many", 5, 700)), (1, ("short",)), (1, ("commit_and_die", "c", 1)),
    (2, ("many", 3, 300)), (4, ("flush",)), (4, ("sync",)), (1, ("mark",)), (3, ("commit", "c", 2)),
    (1, ("commit", "d", 5)), (1, ("prune", 1)), (1, ("prune", 2)), (1, ("prune_and_die", 1)), (1, ("reopen",)), (1, ("kill",)),
    (1, ("full",)),
]  # fmt: skip  # weights


def drawn(seed: int) -> Case:
    """A case drawn from a seed, of 5 to 30 steps."""
    rng = Random(seed)
    options: dict[str, Any] = {
        "sync": rng.choice(["interval", "interval", "flush", "never"]),
        "slab_bytes": rng.choice([TINY, SMALL, SMALL, 8192 + 2000, 1 << 20]),
        "batch_bytes": rng.choice([0, 0, 200, 64 << 10]),
    }
    often: list[Step] = []
    if rng.random() < 0.15:
        options |= {"format": "queuefka", "slab_bytes": rng.choice([300, 1500, 1 << 20])}
    elif rng.random() < 0.15:
        options |= {"slab_bytes": 8192 + 2000}
        often = [("append", 20), ("sync",)] * 8  # zeros ahead of the frames
    weights, steps = zip(*_STEPS, strict=True)
    # Each slab is opened at each look: where they are small, there are few.
    most = 12 if options["slab_bytes"] < 8192 + 2000 else 30
    chosen = rng.choices(steps, weights, k=rng.randint(5, most))
    return Case(f"seed-{seed}", seed, rng.choice([512, 512, 4096]), options, [*often, *chosen])


def by_hand(name: str) -> Case:
    options, steps = BY_HAND[name]
    seed = 10**6 + sorted(BY_HAND).index(name)
    return Case(name, seed, 512, options, steps)


def case_named(name: str) -> Case:
    """seed-N, or one of BY_HAND."""
    return drawn(int(name[5:])) if name.startswith("seed-") else by_hand(name)


def all_cases(drawn_count: int) -> list[Case]:
    return [by_hand(name) for name in BY_HAND] + [drawn(seed) for seed in range(drawn_count)]
