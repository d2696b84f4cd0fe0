"""A producer that takes rows: from their columns, if `_produce.c` could be compiled, otherwise by one
call of the client's for each.

The compiled half gets the producer's handle as every plugin of librdkafka does, and queues with the
function that the client's own call ends in. A row that it does not take (it has a callback, or is
invalid) goes through that call, which raises the error. It can also note the messages that fail, so that
none needs a callback.
"""

from __future__ import annotations

import ctypes
import importlib
import logging
from collections import deque
from functools import cache, partial
from itertools import starmap
from typing import TYPE_CHECKING, Any, TypeAlias

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
    "rd_kafka_conf_interceptor_add_on_new", "rd_kafka_topic_name",
    "rd_kafka_interceptor_add_on_acknowledgement", "rd_kafka_interceptor_add_on_destroy",
)  # fmt: skip  # in the order in which the compiled half takes them


Failure: TypeAlias = "tuple[bytes, bytes | None, bytes | None, int]"
"""Topic, value and key of a message, and the code of its error."""


class RowProducer(Producer):
    """The client's, and `put`. Not thread-safe: one thread puts.

    reports: whether `failures` may be called. queue_plain: queues a message for the partition that the client
    chooses; takes topic, value, key and milliseconds, and returns False, with nothing queued, if it is not
    plain or the client refuses it. None if it could not be compiled, or without reports: then there are no
    failures either.
    """

    def __init__(
        self,
        settings: dict[str, Any],
        *,
        logger: logging.Logger | logging.LoggerAdapter[logging.Logger],
        reports: bool = False,
    ) -> None:
        compiled, path = _compiled()
        self._put: Callable[..., int] | None = None
        self.queue_plain: Callable[..., bool] | None = None
        self._failures: Callable[[], list[Failure | None] | None] = _no_failures
        if compiled is not None:
            others = settings.get(_PLUGINS)
            settings = {**settings, _PLUGINS: f"{path};{others}" if others else path}
            compiled.begin(reports)
        super().__init__(settings, logger=logger)
        if compiled is not None and (queue := compiled.queue()) is not None:
            self._put = partial(compiled.put, queue)
            self._failures = partial(compiled.failures, queue)
            if reports and self._failures() is not None:
                self.queue_plain = partial(compiled.produce, queue)

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

    def failures(self) -> list[Failure | None]:
        """The messages that failed since the last call, in order, whatever queued them. An entry None: some
        more failed, for which there was no memory. The client notes one before it reports it, or counts it as done."""
        return self._failures() or []

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self, *arguments: Any) -> Any:
        """Ends it: nothing can be put after this."""
        self._put = self.queue_plain = None  # and with them the queue, before the producer
        self._failures = _no_failures
        return super().close(*arguments)


def _no_failures() -> None:
    """Failures are not collected."""


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
        compiled.begin(False)
        made(Producer, {_PLUGINS: path, "log_level": 0})
        return (compiled if compiled.queue() is not None else None), path
    except (ImportError, OSError, AttributeError, KafkaException) as error:
        _log.debug("records are queued by one call each: %s", error)
        return None, ""
