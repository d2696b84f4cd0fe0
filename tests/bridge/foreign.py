"""Records as other programs produce them: headers' names that are not UTF-8, and any timestamp.

confluent-kafka's producer refuses such names, so this uses librdkafka's own, in the same library.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any, NamedTuple

from confluent_kafka import cimpl

_lib = ctypes.CDLL(cimpl.__file__)
_PRODUCER, _COPY, _SOON_MS = 0, 2, 30_000
_TOPIC, _PARTITION, _VALUE, _FLAGS, _TIMESTAMP, _HEADERS = 1, 3, 4, 7, 8, 10  # rd_kafka_vtype_t


class Foreign(NamedTuple):
    """headers: names and values. timestamp_ms: as it is stored; -1 for none, 0 for the present."""

    value: bytes
    headers: Sequence[tuple[bytes, bytes | None]] = ()
    timestamp_ms: int = 0


class _Memory(ctypes.Structure):
    _fields_ = (("at", ctypes.c_char_p), ("size", ctypes.c_size_t))


class _Any(ctypes.Union):
    _fields_ = (
        ("text", ctypes.c_char_p), ("i32", ctypes.c_int32), ("i64", ctypes.c_int64),
        ("at", ctypes.c_void_p), ("memory", _Memory), ("_", ctypes.c_char * 64),
    )  # fmt: skip  # a table


class _Argument(ctypes.Structure):
    _fields_ = (("kind", ctypes.c_int), ("of", _Any))


def _function(name: str, result: Any, *arguments: Any) -> Any:
    found = _lib[name]  # not as an attribute: other users have prototypes of their own
    found.restype, found.argtypes = result, arguments
    return found


_at, _text, _int, _size = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int, ctypes.c_ssize_t
_conf_new = _function("rd_kafka_conf_new", _at)
_conf_set = _function("rd_kafka_conf_set", _int, _at, _text, _text, _text, _size)
_new = _function("rd_kafka_new", _at, _int, _at, _text, _size)
_headers_new = _function("rd_kafka_headers_new", _at, _size)
_header_add = _function("rd_kafka_header_add", _int, _at, _text, _size, _text, _size)
_produce = _function("rd_kafka_produceva", _at, _at, ctypes.POINTER(_Argument), _size)
_error = _function("rd_kafka_error_string", _text, _at)
_flush = _function("rd_kafka_flush", _int, _at, _int)
_destroy = _function("rd_kafka_destroy", None, _at)


def produce_foreign(
    servers: str, topic: str, records: Sequence[Foreign], partition: int = 0
) -> None:
    """All of them, in order."""
    said = ctypes.create_string_buffer(512)
    conf = _conf_new()
    assert _conf_set(conf, b"bootstrap.servers", servers.encode(), said, len(said)) == 0, said.value
    producer = _new(_PRODUCER, conf, said, len(said))
    assert producer, said.value
    for record in records:
        error = _produce(producer, *_arguments(topic, partition, record))
        assert not error, _error(error)
    assert _flush(producer, _SOON_MS) == 0
    _destroy(producer)


def _arguments(topic: str, partition: int, record: Foreign) -> tuple[Any, int]:
    headers = _headers_new(len(record.headers))
    for name, value in record.headers:
        _header_add(headers, name, len(name), value, -1 if value is None else len(value))
    given = (
        (_TOPIC, {"text": topic.encode()}), (_PARTITION, {"i32": partition}),
        (_VALUE, {"memory": _Memory(record.value, len(record.value))}), (_FLAGS, {"i32": _COPY}),
        (_TIMESTAMP, {"i64": record.timestamp_ms}), (_HEADERS, {"at": headers}),
    )  # fmt: skip  # a table
    arguments = [_Argument(kind, _Any(**of)) for kind, of in given]
    return (_Argument * len(arguments))(*arguments), len(arguments)
