"""A producer that takes rows: from their columns, if `_produce.c` could be compiled, otherwise by one
call of the client's for each.

The compiled half gets the producer's handle as every plugin of librdkafka does, and queues with the
function that the client's own call ends in. A row that it does not take (it has a callback, or is
invalid) goes through that call, which raises the error.
"""

from __future__ import annotations

import ctypes
import importlib
import logging
from collections import deque
from functools import cache, partial
from itertools import starmap
from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaException, Producer

from aolog.format.native.speed import backend
from bridge.kafka.client import made

if TYPE_CHECKING:
    from collections.abc import Callable

    from bridge.kafka.message_rows import MessageRows

_log = logging.getLogger("bridge.kafka")
_REFUSED_MAX = 2
_PLUGINS = "plugin.library.paths"
_FUNCTIONS = (
    "rd_kafka_producev", "rd_kafka_topic_new", "rd_kafka_topic_destroy",
    "rd_kafka_conf_interceptor_add_on_new",
)  # fmt: skip  # in the order in which the compiled half takes them


class RowProducer(Producer):
    """The client's, and `put`. Not thread-safe: one thread puts."""

    def __init__(
        self,
        settings: dict[str, Any],
        *,
        logger: logging.Logger | logging.LoggerAdapter[logging.Logger],
    ) -> None:
        compiled, path = _compiled()
        self._put: Callable[..., int] | None = None
        if compiled is not None:
            others = settings.get(_PLUGINS)
            settings = {**settings, _PLUGINS: f"{path};{others}" if others else path}
            compiled.begin()
        super().__init__(settings, logger=logger)
        if compiled is not None and (queue := compiled.queue()) is not None:
            self._put = partial(compiled.put, queue)

    def put(self, rows: MessageRows) -> None:
        """Queues all of them, in order. Raises what `produce` raises, about the row before `rows.at`."""
        put, columns = self._put, rows.columns()
        refused = 0  # in succession: then the next one will be refused too
        while put is not None and columns is not None and refused < _REFUSED_MAX:
            at = rows.at
            rows.skip_to(put(*columns, at, rows.end))
            refused = refused + 1 if rows.at == at else 0
            row = next(rows.calls(1), None)
            if row is None:
                return
            self.produce(*row)
        deque(starmap(self.produce, rows.calls(rows.end)), maxlen=0)  # faster than a Python loop

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self, *arguments: Any) -> Any:
        """Ends it: nothing can be put after this."""
        self._put = None  # and with it the queue, before the producer
        return super().close(*arguments)


@cache
def _compiled() -> tuple[Any, str]:
    """The compiled half, and its path for librdkafka; None if either is unavailable."""
    if backend != "compiled":
        return None, ""
    try:
        compiled: Any = importlib.import_module("bridge.kafka._produce")  # may be missing
        client = ctypes.CDLL(importlib.import_module("confluent_kafka.cimpl").__file__)
        compiled.bind(
            *(ctypes.cast(getattr(client, name), ctypes.c_void_p).value for name in _FUNCTIONS)
        )
        path = str(compiled.__file__)
        compiled.begin()
        made(Producer, {_PLUGINS: path, "log_level": 0})
        return (compiled if compiled.queue() is not None else None), path
    except (ImportError, OSError, AttributeError, KafkaException) as error:
        _log.debug("records are queued by one call each: %s", error)
        return None, ""
