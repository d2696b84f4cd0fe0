"""`_report.c`, the compiled half of deliveries and of Buffer's messages."""

from __future__ import annotations

import importlib
from typing import Any

from aolog.format.native.speed import backend


def compiled(name: str) -> Any:
    """What it has of this name; None if it could not be compiled."""
    if backend != "compiled":
        return None
    try:
        return getattr(importlib.import_module("bridge.client._report"), name)
    except (ImportError, AttributeError):
        return None
