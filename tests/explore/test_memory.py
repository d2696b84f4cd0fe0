"""What is remembered of a state is what a look at it would give; nothing else is taken for it."""

from __future__ import annotations

import os

import pytest

from aolog.storage.storage import Storage
from aolog.testing import SimulatedSystem
from tests.explore.history import case_named
from tests.explore.memory import Memory
from tests.explore.observe import observe
from tests.explore.run import Run, still_clock


def written(system: SimulatedSystem, path: str, data: bytes) -> None:
    fd = system.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
    system.pwritev(fd, [data], 0)
    system.close(fd)


def follow(storage: Storage) -> bytes:
    """Reads a name in /a, then what is under that name."""
    system = storage.system
    text = b"/a"
    for _ in range(2):
        fd = system.open(text.decode(), os.O_RDONLY)
        text = system.pread(fd, 100, 0)
        system.close(fd)
    return text


def test_a_look_is_repeated_only_where_something_it_asked_about_differs():
    memory, system = Memory(), SimulatedSystem()
    for path, data in {"/a": b"/b", "/b": b"1", "/c": b"2"}.items():
        written(system, path, data)
    assert [memory.look("x", system, follow) for _ in range(3)] == [b"1"] * 3
    assert memory.hits == 2
    written(system, "/c", b"3")  # nobody asked about it
    assert memory.look("x", system, follow) == b"1"
    assert memory.hits == 3
    written(system, "/b", b"4")
    assert memory.look("x", system, follow) == b"4"
    written(system, "/a", b"/c")
    assert memory.look("x", system, follow) == b"3"
    assert memory.look("y", system, follow) == b"3"
    assert memory.hits == 3
    written(system, "/a", b"/b")
    assert memory.look("x", system, follow) == b"4"
    assert memory.hits == 4


def test_names_in_a_directory_and_names_that_are_not_there_are_asked_about_too():
    memory, system = Memory(), SimulatedSystem()
    system.mkdir("/d")
    look = lambda storage: (storage.exists("/d/no"), storage.list_names("/d"))
    assert memory.look("x", system, look) == (False, [])
    written(system, "/d/yes", b"")
    assert memory.look("x", system, look) == (False, ["yes"])
    written(system, "/d/no", b"")
    assert memory.look("x", system, look) == (True, ["yes", "no"])
    assert memory.hits == 0


def test_a_look_that_changes_what_it_looks_at_is_refused():
    system = SimulatedSystem()
    with pytest.raises(AssertionError, match="changes the system"):
        Memory().look("x", system, lambda _: written(system, "/f", b"1"))


@pytest.mark.parametrize("name", ["commit_then_append", "commit_over_one_that_died", "seed-13"])
def test_a_state_is_observed_the_same_with_and_without_a_memory(name):
    """Seconds."""
    case = case_named(name)
    memory, states = Memory(), 0
    with still_clock():
        for point in Run(case).run().points:
            for digest, system in point.system.snapshot().power_cut(limit=20):
                kept, draw = system.snapshot(), digest[0]
                remembered = observe(case, system, memory, power_cut=True, draw=draw)
                assert remembered == observe(case, kept, Memory(), power_cut=True, draw=draw)
                states += 1
    assert states > 20
    assert memory.hits > states
