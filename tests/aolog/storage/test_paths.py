"""What is no path is refused by every call that takes one, before anything is made."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import aolog
from aolog import aio
from aolog.publish.leftovers import abort
from aolog.publish.pending import PendingLog
from aolog.publish.publication import publish


class Bytes(os.PathLike[bytes]):
    def __fspath__(self) -> bytes:
        return b"log"


async def opened(path: Any) -> None:
    async with aio.Writer(path):
        pass


JOB = "ab" * 16
CALLS: dict[str, Callable[[Any], object]] = {
    "Writer": aolog.Writer,
    "LogHandler": aolog.LogHandler,
    "aio.Writer": lambda path: asyncio.run(opened(path)),
    "Reader": aolog.Reader,
    "verify": aolog.verify,
    "cursors": aolog.cursors,
    "repair": lambda path: aolog.repair(path, "copy"),
    "repair, into": lambda path: aolog.repair("log", path),
    "backup": lambda path: aolog.backup(path, "copy"),
    "backup, into": lambda path: aolog.backup("log", path),
    "publish": lambda path: publish(path, JOB, []),
    "abort": lambda path: abort(path, JOB),
    "PendingLog": lambda path: PendingLog(path, "log", JOB),
}
NO_PATHS = {
    "empty": ("", "the path is empty"),
    "bytes": (b"log", "neither str nor os.PathLike of str; os.fsdecode"),
    "like bytes": (Bytes(), "neither str nor os.PathLike of str"),
    "none": (None, "None is neither str nor os.PathLike"),
    "number": (3, "3 is neither str nor os.PathLike"),
    "null byte": ("log\0", r"no file can have the path 'log\\x00'"),
    "surrogate": ("log\ud800", r"no file can have the path 'log\\ud800'"),
}


@pytest.mark.parametrize(("path", "problem"), NO_PATHS.values(), ids=NO_PATHS)
@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_what_is_no_path_is_a_usage_error_and_nothing_is_made(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    call: Callable[[Any], object],
    path: Any,
    problem: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    with aolog.Writer("log") as writer:
        writer.append(b"x")
    with pytest.raises(aolog.UsageError, match=problem) as caught:
        call(path)
    assert not isinstance(caught.value, aolog.NotALog)
    assert os.listdir() == ["log"]


def test_an_unset_variable_makes_no_log_of_an_empty_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(aolog.UsageError, match=r'the path is empty; .*"\." is'):
        aolog.Writer("")
    assert os.listdir() == []
    with aolog.Writer(".") as writer:
        writer.append(b"x")
    assert [record.value for record in aolog.Reader(".")] == [b"x"]


def test_a_name_that_is_no_text_is_a_path(tmp_path: Path) -> None:
    path = os.fsdecode(os.fsencode(tmp_path) + b"/\xff")
    with aolog.Writer(path) as writer:
        writer.append(b"x")
    assert [record.value for record in aolog.Reader(path)] == [b"x"]
    assert os.listdir(os.fsencode(tmp_path)) == [b"\xff"]
