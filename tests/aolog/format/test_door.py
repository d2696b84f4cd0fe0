"""A door: plain records join the open frame and are kept; everything else goes to Python as it came."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

import aolog
from aolog.format.native import inlet

KINDS = dict.fromkeys((inlet.Door, inlet.PythonDoor))  # one, where the compiled half is absent
PLAIN: list[tuple[tuple[Any, ...], dict[str, Any]]] = [
    (("t", b"1"), {}), (("t", b"2", b"k"), {}), (("u", None, None), {}), (("t", b"3"), {"key": b"k"}),
    (("t", b"4", b"k", ()), {}), (("t", b"5"), {"headers": (), "key": b"j"}),
]  # fmt: skip  # a table
OTHERS: list[tuple[tuple[Any, ...], dict[str, Any]]] = [
    (("t", b"6", b"k", (("h", b"v"),)), {}), ((None, b"7"), {}), (("t", "8"), {}), (("t", b"9", "k"), {}),
    ((), {}), (("t",), {"value": b"1"}), (("t", b"2", b"k"), {"key": b"j"}), (("t", b"3"), {"another": 1}),
    (("t" * 250, b"4"), {}), (("t", b"5", None, (), 6), {}), (("t", b"7", None, [("h", b"v")]), {}),
]  # fmt: skip  # a table


class Calls:
    """The door's user."""

    def __init__(self, writer: aolog.Writer, kind: Any) -> None:
        self.kept: list[tuple[Any, ...]] = []
        self.passed_on: list[tuple[tuple[Any, ...], dict[str, Any]]] = []
        self.wakes = 0
        self.door = kind(writer, self.kept, self.otherwise, self.wake)

    def otherwise(self, *given: Any, **named: Any) -> None:
        self.passed_on.append((given, named))

    def wake(self) -> None:
        self.wakes += 1


@pytest.mark.skipif(aolog.backend != "compiled", reason="no record joins in Python")
def test_plain_records_join_and_are_kept_and_others_are_passed_on_unchanged(tmp_path: Path) -> None:
    with aolog.Writer(tmp_path / "log") as writer:
        writer.append(b"0")  # from now on records join
        calls = Calls(writer, inlet.Door)
        calls.door.is_open, calls.door.room = True, 1 << 20
        for given, named in PLAIN + OTHERS:
            calls.door.send(*given, **named)
    assert calls.passed_on == OTHERS
    with aolog.Reader(tmp_path / "log") as reader:
        found = [(r.topic, r.value, r.key) for r in reader][1:]
    expected = [("t", b"1", None), ("t", b"2", b"k"), ("u", None, None), ("t", b"3", b"k"),
                ("t", b"4", b"k"), ("t", b"5", b"j")]  # fmt: skip  # a table
    assert found == calls.kept == expected


@pytest.mark.parametrize("kind", KINDS)
def test_a_shut_door_passes_everything_on(tmp_path: Path, kind: Any) -> None:
    with aolog.Writer(tmp_path / "log") as writer:
        writer.append(b"0")
        calls = Calls(writer, kind)
        calls.door.room = 1 << 20
        calls.door.send("t", b"1")
    ((given, named),) = calls.passed_on
    assert (given[:2], named, calls.kept) == (("t", b"1"), {}, [])


@pytest.mark.skipif(aolog.backend != "compiled", reason="no record joins in Python")
def test_a_door_wakes_after_a_record_that_joined_if_that_is_wanted(tmp_path: Path) -> None:
    with aolog.Writer(tmp_path / "log") as writer:
        writer.append(b"0")
        calls = Calls(writer, inlet.Door)
        calls.door.is_open, calls.door.room = True, 1 << 20
        calls.door.send("t", b"1")
        calls.door.waits = True
        calls.door.send("t", b"2")
        calls.door.send("t", "3")
    assert (calls.wakes, len(calls.kept), len(calls.passed_on)) == (1, 2, 1)


@pytest.mark.skipif(aolog.backend != "compiled", reason="no record joins in Python")
def test_records_are_kept_up_to_a_bound(tmp_path: Path) -> None:
    with aolog.Writer(tmp_path / "log") as writer:
        writer.append(b"0")
        calls = Calls(writer, inlet.Door)
        calls.door.is_open, calls.door.room = True, 300
        for _ in range(3):
            calls.door.send("t", bytes(40), bytes(10))
        assert (len(calls.kept), len(calls.passed_on), calls.door.room) == (2, 1, 0)
        calls.door.room = 1
        calls.door.send("t", bytes(1_000))
        assert (len(calls.kept), calls.door.room) == (3, -1_099)


@pytest.mark.skipif(aolog.backend != "compiled", reason="no record joins in Python")
def test_a_door_holds_what_it_uses_and_frees_it(tmp_path: Path) -> None:
    with aolog.Writer(tmp_path / "log") as writer:
        writer.append(b"0")
        before = sys.getrefcount(writer)
        calls = Calls(writer, inlet.Door)
        calls.door.is_open, calls.door.room = True, 1 << 20
        value = bytes(100)
        held = sys.getrefcount(value)
        calls.door.send("t", value)
        assert sys.getrefcount(value) == held + 1  # the list's
        calls.kept.clear()
        assert sys.getrefcount(value) == held
        with pytest.raises(TypeError):
            inlet.Door(object(), [], print, print)  # type: ignore[arg-type]  # that is what is tried
        del calls.door
        assert sys.getrefcount(writer) == before
