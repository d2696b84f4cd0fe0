"""The end of the interpreter: what is open then, in a process of its own."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from aolog import Writer
from tests.aolog.conftest import Child, assert_clean, read_all, values

PRELUDE = """
import atexit, os, sys
root = sys.argv[1]

"""


def run(code: str, root: Path) -> str:
    """Its errors, once it has ended well."""
    with Child(PRELUDE + code, str(root)) as child:
        _, errors = child.wait()
    return errors


def messages(log: Path) -> list[str]:
    """Of the lines that a LogHandler has appended."""
    return [json.loads(record.value or b"")["message"] for record in read_all(str(log))]


def assert_closed(log: Path) -> None:
    """As `close` leaves it."""
    assert_clean(str(log))
    with Writer(log) as writer:
        assert writer.opening.case == "sealed"


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
import aolog, logging

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


def test_what_logging_itself_passes_on_at_exit_is_kept(tmp_path: Path) -> None:
    errors = run(
        """
import logging.handlers
import aolog

handler = aolog.LogHandler(f"{root}/log")
first = logging.handlers.MemoryHandler(1000)  # closed after its target
second = logging.handlers.MemoryHandler(1000, target=aolog.LogHandler(f"{root}/other"))
first.setTarget(handler)
logging.basicConfig(level=logging.INFO, handlers=[first, second])
for n in range(100):
    logging.info("%d", n)
""",
        tmp_path,
    )
    assert errors == ""
    for name in ("log", "other"):
        assert messages(tmp_path / name) == [str(n) for n in range(100)]
        assert_closed(tmp_path / name)


@pytest.mark.parametrize("first", ["import logging", "import aolog; aolog.Writer"])
def test_lines_that_are_logged_after_the_end_of_logging_are_kept_as_in_a_file(
    tmp_path: Path, first: str
) -> None:
    errors = run(
        f"""
atexit.register(lambda: logging.warning("last"))
{first}
import aolog, logging

atexit.register(lambda: logging.warning("second"))
file, log = logging.FileHandler(f"{{root}}/file"), aolog.LogHandler(f"{{root}}/log")
file.setFormatter(logging.Formatter("%(message)s"))
logging.basicConfig(handlers=[file, log])
logging.warning("first")
""",
        tmp_path,
    )
    assert errors == ""
    assert messages(tmp_path / "log") == ["first", "second", "last"]
    assert (tmp_path / "file").read_text().split() == ["first", "second", "last"]
    assert_clean(str(tmp_path / "log"))


OPTIONS = ["", "sync='flush'", "sync='never'", "flush_seconds=None, sync='never'", "batch_bytes=0",
           "retention=aolog.Retention(max_age_s=1e6)", "format='queuefka'"]  # fmt: skip  # a list


def test_what_exit_handlers_append_is_kept_whatever_the_options(tmp_path: Path) -> None:
    errors = run(
        f"""
def late():
    for n, log in enumerate(logs):
        log.append(b"late")
        log.append_many([b"both", b"or none"])
        readers[n].commit()  # readers go on, too
    unused.append(b"the first")
    opened = aolog.Writer(f"{{root}}/opened")
    opened.append(b"a")
    opened.close()
    kept.append(aolog.Writer(f"{{root}}/kept"))
    kept[0].append(b"a")

atexit.register(late)
import aolog
kept = []
logs = [aolog.Writer(f"{{root}}/{{n}}", **options)
        for n, options in enumerate([dict({"), dict(".join(OPTIONS)})])]
for log in logs:
    log.append(b"early")
    log.flush()
readers = [aolog.Reader(log.path, cursor="c") for log in logs]
for reader in readers:
    reader.read()
unused = aolog.Writer(f"{{root}}/unused")
""",
        tmp_path,
    )
    assert errors == ""
    for n, options in enumerate(OPTIONS):
        log = str(tmp_path / str(n))
        assert values(log) == [b"early", b"late", b"both", b"or none"]
        assert values(log, cursor="c") == [b"late", b"both", b"or none"]
        assert_clean(log) if "queuefka" in options else assert_closed(Path(log))
    assert values(str(tmp_path / "unused")) == [b"the first"]
    for name in ("opened", "kept"):
        assert values(str(tmp_path / name)) == [b"a"]
    for name in ("unused", "opened", "kept"):
        assert_closed(tmp_path / name)


def test_exit_makes_everything_durable_and_later_records_survive_the_process_at_once(
    tmp_path: Path,
) -> None:
    """os._exit: the writer is never deleted, as if a daemon thread had held it."""
    errors = run(
        """
def late():
    assert log.durable == log.end
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("aolog")]
    log.append(b"late")
    print("ends", flush=True)
    os._exit(0)

atexit.register(late)
import aolog, threading
log = aolog.Writer(f"{root}/log", sync_seconds=1000)
log.append(b"early")
log.flush()
""",
        tmp_path,
    )
    assert errors == ""
    with Writer(tmp_path / "log") as writer:
        assert writer.opening.case == "unsealed"
    assert values(str(tmp_path / "log")) == [b"early", b"late"]
    assert_clean(str(tmp_path / "log"))


def test_a_record_that_a_finalizer_appends_is_kept_or_refused_in_words(tmp_path: Path) -> None:
    errors = run(
        """
import aolog, logging
log = aolog.Writer(f"{root}/log")
log.append(b"early")
logging.basicConfig(handlers=[aolog.LogHandler(f"{root}/lines")])

class Last:
    def __del__(self):
        logging.warning("a line")
        log.append(b"late")

last = Last()
""",
        tmp_path,
    )
    assert messages(tmp_path / "lines") == ["a line"] or "closed" in errors
    kept = values(str(tmp_path / "log"))
    assert kept == [b"early", b"late"] or (kept == [b"early"] and "aolog.errors." in errors)
    assert_clean(str(tmp_path / "log"))
    assert_clean(str(tmp_path / "lines"))


def test_a_daemon_thread_that_appends_and_syncs_does_not_hold_up_the_end(tmp_path: Path) -> None:
    errors = run(
        """
import aolog, threading
log = aolog.Writer(f"{root}/log")
begun = threading.Event()

def work():
    while True:
        log.append(b"x")
        log.sync()
        begun.set()

for _ in range(3):
    threading.Thread(target=work, daemon=True).start()
begun.wait()
""",
        tmp_path,
    )
    assert errors == ""
    assert set(values(str(tmp_path / "log"))) == {b"x"}
    assert_clean(str(tmp_path / "log"))


def test_a_disk_that_is_full_at_exit_is_reported_and_what_was_flushed_stays(tmp_path: Path) -> None:
    errors = run(
        """
import aolog
from aolog.storage.storage import Storage
from aolog.storage.system import System

class Full(System):
    def pwritev(self, fd, parts, offset):
        if is_full:
            raise OSError(28, "full")
        return os.pwritev(fd, parts, offset)

is_full = False
log = aolog.Writer(f"{root}/log", storage=Storage(Full()), flush_seconds=None)
log.append(b"flushed")
log.flush()
log.append(b"lost")
is_full = True
""",
        tmp_path,
    )
    assert "log was not closed: " in errors
    assert "No space left on device" in errors
    assert "Traceback" not in errors
    assert values(str(tmp_path / "log")) == [b"flushed"]
