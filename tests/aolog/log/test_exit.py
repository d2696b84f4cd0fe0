"""The end of the interpreter: what is open then, in a process of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.aolog.conftest import Child, assert_clean, values

PRELUDE = """
import atexit, logging, os, sys
root = sys.argv[1]

"""


def run(code: str, root: Path) -> str:
    """Its errors, once it has ended well."""
    with Child(PRELUDE + code, str(root)) as child:
        _, errors = child.wait()
    return errors


@pytest.mark.parametrize(
    ("call", "error", "reported"),
    [
        ("close", "OSError(9, 'no')", "close: Bad file descriptor"),
        ("fdatasync", "ZeroDivisionError()", "broken was not closed: ZeroDivisionError()"),
        ("fdatasync", "KeyboardInterrupt()", "broken was not closed: KeyboardInterrupt()"),
        ("fdatasync", "SystemExit(3)", "broken was not closed: SystemExit(3)"),
    ],
)
def test_whatever_the_closing_of_one_log_raises_the_others_are_closed_and_it_is_reported(
    tmp_path: Path, call: str, error: str, reported: str
) -> None:
    errors = run(
        f"""
import aolog
from aolog.storage.storage import Storage
from aolog.storage.system import System

class Broken(System):
    def {call}(self, fd):
        if is_broken:
            raise {error}
        getattr(os, "{call}")(fd)

is_broken = False
first = aolog.Writer(f"{{root}}/first", flush_seconds=None)
broken = aolog.Writer(f"{{root}}/broken", storage=Storage(Broken()))
last = aolog.Writer(f"{{root}}/last", flush_seconds=None)
for log in (first, broken, last):
    log.append(b"x")
is_broken = True
""",
        tmp_path,
    )
    for name in ("first", "last"):
        assert values(str(tmp_path / name)) == [b"x"]
        assert_clean(str(tmp_path / name))
    assert str(tmp_path / "broken") in errors
    assert reported in errors


def test_a_handler_of_logging_that_raises_stops_no_other_log_from_being_closed(
    tmp_path: Path,
) -> None:
    errors = run(
        """
import aolog

def refuse(record):
    raise ZeroDivisionError("in a filter")

logging.getLogger("aolog").addFilter(refuse)
logs = [aolog.Writer(f"{root}/{n}", flush_seconds=None) for n in range(3)]
for log in logs:
    log.append(b"x")
logs[1]._tail = None
""",
        tmp_path,
    )
    assert "in a filter" in errors
    for name in ("0", "2"):
        assert values(str(tmp_path / name)) == [b"x"]
        assert_clean(str(tmp_path / name))
