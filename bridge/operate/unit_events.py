"""What `status` shows of an archive of `pull`: that it is one, and its finished units. bridge.pull writes them."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from aolog import Reader
from bridge.supervise.discovery import find_logs

CLAIMS = ".pull"
"""The directory of an archive in which processes claim partitions and units."""
UNITS_FILE = "units.json"
"""In CLAIMS: the archive is of units."""


POSITIONS_FILE = "pull-positions.json"
"""In a log that `pull` fills."""
ORDER_FILE = "pull-units"
"""In a log that `pull --units` fills: its records are in the order of units."""


def is_pulled(path: str) -> bool:
    """Whether `pull` fills this log."""
    return any(Path(path, name).exists() for name in (POSITIONS_FILE, ORDER_FILE))


def events_root(root: str) -> str:
    """The directory of an archive's event logs: one a worker, one event for each finished unit."""
    return f"{os.path.normpath(root)}-events"


def events_of(root: str) -> list[dict[str, Any]]:
    """All finished units of an archive, by time; empty if it has no units."""
    found: list[dict[str, Any]] = []
    if not Path(root, CLAIMS, UNITS_FILE).exists():  # ROOT-events may be anything
        return found
    for path in find_logs(events_root(root)).values():
        with Reader(path) as reader:
            found += [json.loads(record.value or b"") for record in reader]
    return sorted(found, key=lambda event: event["ts"])
