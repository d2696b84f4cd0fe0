"""Rows that are awaited, compiled and in Python: both do the same."""

from __future__ import annotations

import asyncio
import gc
import weakref
from typing import Any

import pytest

import aolog
from aolog.format.native import speed

compiled = pytest.importorskip(
    "aolog.format.native._speed", reason="no compiler: everything runs in Python"
)
RECORDS = (speed.rising(7), *map(speed.shared, (1, None, b"v", (), None)))


class Seen:
    """Whose end can be seen."""


@pytest.mark.parametrize(
    ("rows", "async_rows"),
    [(speed.PythonRows, speed.PythonAsyncRows), (compiled.Rows, compiled.AsyncRows)],
)
def test_rows_are_awaited_one_by_one(rows, async_rows):
    def made(first: int, end: int) -> Any:
        return rows(aolog.Record, RECORDS, first, end)

    expected = [*made(1, 4), *made(6, 8)]

    async def main() -> None:
        parts = [made(1, 4), made(6, 8)]

        async def more(awaited: Any) -> aolog.Record:
            await asyncio.sleep(0)
            for part in parts:
                for row in part:
                    awaited.take(part)
                    return row
            raise StopAsyncIteration

        awaited = async_rows(more)
        assert [await asyncio.wait_for(anext(awaited), 60) for _ in range(2)] == expected[:2]
        assert await anext(awaited, None) == expected[2]
        assert [row async for row in awaited] == expected[3:]
        for _ in range(2):
            assert await anext(awaited, None) is None

    asyncio.run(main())


def test_compiled_rows_are_only_awaited():
    awaited = compiled.AsyncRows(None)
    with pytest.raises(TypeError, match="takes Rows"):
        awaited.take(iter([]))
    awaited.take(compiled.Rows(aolog.Record, RECORDS, 0, 3))
    with pytest.raises(RuntimeError, match="async for"):
        list(awaited)
    assert at_once(anext(awaited)).address == 7
    once = anext(awaited)
    at_once(once)
    with pytest.raises(RuntimeError, match="async for"):
        at_once(once)
    assert at_once(anext(awaited)).address == 9
    with pytest.raises(TypeError, match="not callable"):
        anext(awaited)
    for _ in range(2):  # a cycle
        awaited = compiled.AsyncRows([])
        seen = weakref.ref(kept := Seen())
        awaited.take(compiled.Rows(None, (speed.shared([awaited, kept]),), 0, 1))
        del awaited, kept
    gc.collect()
    assert seen() is None


def at_once(awaitable: Any) -> Any:
    """The result of one that does not wait."""
    try:
        next(awaitable.__await__())
    except StopIteration as ended:
        return ended.value
    raise AssertionError("it waits")
