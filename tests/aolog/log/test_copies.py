"""What holds a descriptor cannot be copied or pickled; values can."""

from __future__ import annotations

import asyncio
import copy
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import aolog
from aolog import LogHandler, Reader, Writer, aio
from aolog.storage.directory import Inside
from aolog.storage.storage import Storage
from tests.aolog.conftest import assert_clean, fill, values


def pickled(held: object) -> object:
    return pickle.loads(pickle.dumps(held))


def cloudpickled(held: object) -> object:
    cloudpickle = pytest.importorskip("pyspark.cloudpickle")  # as Spark ships a task's function
    return pickle.loads(cloudpickle.dumps(lambda: held))()


WAYS = [copy.copy, copy.deepcopy, pickled, cloudpickled]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("hold", "advice"),
    [
        (lambda path: Reader(path), "path and the cursor's name"),
        (lambda path: Reader(path, cursor="c"), "path and the cursor's name"),
        (lambda path: Writer(path), "open a Writer where it is used"),
        (lambda path: LogHandler(path), "make a handler where it is used"),
        (lambda path: aio.Reader(path), "path and the cursor's name"),
        (lambda path: aio.Writer(path), "open a Writer where it is used"),
        (lambda path: Storage().open_directory(path), "pass its path"),
        (lambda path: Storage().open_read(Inside(path, f"{0:020}.slab")), "pass its path"),
    ],
    ids=["reader", "cursor", "writer", "handler", "aio reader", "aio writer", "directory", "file"],
)
def test_what_holds_a_descriptor_is_not_copied_and_the_error_says_what_to_pass(
    log_path: str, hold: Callable[[str], Any], advice: str, way: Callable[[object], object]
) -> None:
    fill(log_path, [b"a"])
    held = hold(log_path)
    try:
        with pytest.raises(TypeError, match=advice):
            way(held)
    finally:
        closing = held.close()
        if closing is not None:
            asyncio.run(closing)
    if way is not copy.copy:  # a part of something else that is copied
        with pytest.raises(TypeError, match=advice):
            way({"log": [held]})


def test_a_refused_copy_leaves_the_original_as_it_was(log_path: str) -> None:
    with Writer(log_path) as writer, Reader(log_path, cursor="c") as reader:
        writer.append_many([b"a", b"b"])
        writer.flush()
        assert reader.read() is not None
        for held in (writer, reader):
            for way in WAYS:
                with pytest.raises(TypeError):
                    way(held)
        reader.commit()
        writer.append(b"c")
    assert values(log_path, cursor="c") == [b"b", b"c"]
    assert_clean(log_path)


def test_a_derived_class_may_say_how_it_is_pickled(log_path: str) -> None:
    fill(log_path, [b"a"])
    with Reopened(log_path) as reader, pickled(reader) as copied:  # type: ignore[attr-defined]
        assert [record.value for record in copied] == [record.value for record in reader] == [b"a"]


class Reopened(Reader):
    def __reduce__(self) -> Any:
        return Reopened, (self.path,)


@pytest.mark.parametrize("way", WAYS)
def test_values_are_copied(log_path: str, way: Callable[[Any], Any]) -> None:
    with Writer(log_path) as writer:
        writer.append(b"a", key=b"k", headers=[("h", b"v")])
        writer.flush()
        with Reader(log_path, cursor="c") as reader:
            record = reader.read()
            reader.commit()
            lag = reader.lag()
        for value in (record, lag, writer.opening, aolog.Gap(1, 2, "damage", 3), aolog.Retention(),
                      *aolog.cursors(log_path), aolog.verify(log_path)):  # fmt: skip  # a list
            assert way(value) == value


@pytest.mark.parametrize("way", WAYS)
def test_an_error_about_a_file_in_an_open_directory_is_copied_with_its_words(
    tmp_path: Path, way: Callable[[Any], Any]
) -> None:
    with Storage().open_directory(str(tmp_path)) as directory:
        error = aolog.StorageFailed("read: no", hint="try", path=directory / "file", errno=5)
        copied = way(error)
    assert (type(copied), str(copied), copied.details) == (type(error), str(error), error.details)
