"""A crash-safe, append-only log, embedded in the program that produces data.

    with aolog.Writer("path") as log:
        log.append(b"value", key=b"key")
        log.sync()
    for record in aolog.Reader("path"):
        print(record.address, record.value)

A log has one writer and any number of readers. `aolog/docs/explanation/guarantees.md` has the guarantees,
`aolog/FORMAT.md` the format. The import loads only the errors; each other name is loaded at its first
use (PEP 562), numpy when a batch is decoded, pyarrow when a batch becomes Arrow.
"""

import os
import sys
from _thread import RLock
from importlib import import_module

from aolog.errors import *  # noqa: F403 -- errors.__all__ is the public list
from aolog.errors import __all__ as _errors

TYPE_CHECKING = False  # as typing's, whose import takes longer than this module

if TYPE_CHECKING:
    from aolog.format.native.speed import backend
    from aolog.log.retention import Retention
    from aolog.maintenance.repair import Repaired, backup, repair
    from aolog.maintenance.report import Report
    from aolog.maintenance.verify import Cursor, cursors, verify
    from aolog.read.batch import Batch
    from aolog.read.reader import Reader
    from aolog.record import Gap, Lag, Record
    from aolog.write.log_handler import LogHandler
    from aolog.write.writer import Writer

__version__ = "0.1.0"

__all__ = [
    "Batch",
    "Cursor",
    "Gap",
    "Lag",
    "LogHandler",
    "Reader",
    "Record",
    "Repaired",
    "Report",
    "Retention",
    "Writer",
    "backend",
    "backup",
    "cursors",
    "repair",
    "verify",
    *_errors,
]

_MODULES = {
    "Batch": "read.batch",
    "Cursor": "maintenance.verify",
    "Gap": "record",
    "Lag": "record",
    "LogHandler": "write.log_handler",
    "Reader": "read.reader",
    "Record": "record",
    "Repaired": "maintenance.repair",
    "Report": "maintenance.report",
    "Retention": "log.retention",
    "Writer": "write.writer",
    "backend": "format.native.speed",
    "backup": "maintenance.repair",
    "cursors": "maintenance.verify",
    "repair": "maintenance.repair",
    "verify": "maintenance.verify",
}


# Held during a load and during a fork: otherwise a child forked during an import would wait forever for
# a thread that it does not have.
_loading = RLock()
if sys.platform != "win32":
    os.register_at_fork(
        before=_loading.acquire, after_in_parent=_loading.release, after_in_child=_loading.release
    )


if not TYPE_CHECKING:  # otherwise mypy would accept any name

    def __getattr__(name: str) -> object:
        if name not in _MODULES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        if sys.platform == "win32":
            from aolog.errors import not_on_windows

            raise not_on_windows()
        with _loading:
            found = getattr(import_module(f"aolog.{_MODULES[name]}"), name)
        globals()[name] = found
        return found


def __dir__() -> list[str]:
    return sorted({*__all__, *(name for name in globals() if name.startswith("__"))})
