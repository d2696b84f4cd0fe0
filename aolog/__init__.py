"""A crash-safe, append-only log, embedded where data is made.

    with aolog.Writer("path") as log:
        log.append(b"value", key=b"key")
        log.sync()
    for record in aolog.Reader("path"):
        print(record.address, record.value)

One writer a log, any number of readers. See the README for what is guaranteed, and
`aolog/FORMAT.md` for what is on disk. Importing this is light: numpy is imported when a batch
is decoded, pyarrow when one becomes Arrow.
"""

from aolog.batch import Batch
from aolog.cursor import Cursor
from aolog.errors import *  # noqa: F403 -- errors.__all__ is the public list
from aolog.errors import __all__ as _errors
from aolog.reader import Reader
from aolog.record import Gap, Lag, Record
from aolog.repair import Repaired, repair
from aolog.retention import Retention
from aolog.speed import backend
from aolog.verify import Report, cursors, verify
from aolog.writer import Writer

__version__ = "0.1.0"

__all__ = [
    "Batch",
    "Cursor",
    "Gap",
    "Lag",
    "Reader",
    "Record",
    "Repaired",
    "Report",
    "Retention",
    "Writer",
    "backend",
    "cursors",
    "repair",
    "verify",
    *_errors,
]
