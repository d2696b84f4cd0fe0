"""`_produce.c`, the compiled half of queueing.py, messages.py and runs.py, as a plugin of librdkafka.

It gets a client's handle as every plugin does: the client's settings name it, and the thread that makes the client
asks for what it noted meanwhile.
"""

from __future__ import annotations

import ctypes
import importlib
import logging
from functools import cache
from typing import Any, NamedTuple

from confluent_kafka import KafkaException, Producer

from aolog.format.native.speed import backend
from bridge.kafka.client import made

_log = logging.getLogger("bridge.kafka")
_PLUGINS = "plugin.library.paths"
NOTHING, FAILURES, ARRIVALS = range(3)  # what is to be collected


class Plugin(NamedTuple):
    """half: the compiled module. path: its file, for librdkafka."""

    half: Any
    path: str

    def begin(self, settings: dict[str, Any], collected: int = NOTHING) -> dict[str, Any]:
        """This thread makes a client next, with the settings that this returns."""
        self.half.begin(collected)
        others = str(settings.get(_PLUGINS, "")).rstrip(";")
        # Ours is the last: it takes further messages while it is called for one.
        return {**settings, _PLUGINS: f"{others};{self.path}" if others else self.path}


@cache
def plugin() -> Plugin | None:
    """None if it could not be compiled, or the client does not take it."""
    if backend != "compiled":
        return None
    try:
        half: Any = importlib.import_module("bridge.kafka._produce")  # may be missing
        client = ctypes.CDLL(importlib.import_module("confluent_kafka.cimpl").__file__)
        half.bind(client._handle)  # noqa: SLF001 -- documented by ctypes
        found = Plugin(half, str(half.__file__))
        made(Producer, found.begin({"log_level": 0}))
        return found if half.queue() is not None else None
    except (ImportError, OSError, AttributeError, KafkaException) as error:
        _log.debug("records are queued and taken by one call each: %s", error)
        return None
