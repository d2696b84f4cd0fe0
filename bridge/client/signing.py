"""Signatures at the clients: a producer signs what it sends, a consumer verifies what it receives.

The bytes are those of aolog/format/signature.py. What a consumer does with a record that is forged or
unsigned: `raise` (the default) raises SignatureForged or SignatureMissing, and the next poll goes on after
the record; `drop` drops it, with a log line and a count. It is never returned.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

from aolog.errors import AologError
from aolog.format.signature import Keys, parse_keys, sign
from bridge.client.config import SigningTable
from bridge.client.errors import SignatureForged, SignatureMissing, WrongType
from bridge.config.settings import read_text
from bridge.kafka.consumed import headers_of

_APPENDED_BY_THE_BROKER = 2  # confluent-kafka's TIMESTAMP_LOG_APPEND_TIME

Sign: TypeAlias = Callable[[str, "bytes | None", "bytes | None", int], tuple[str, bytes]]
"""The header to send with a message: by topic, key, value and timestamp in milliseconds."""


def keys_of(table: SigningTable, base: Path) -> Keys:
    """Of a client's configuration. Raises WrongConfiguration."""
    path = base / table.key_file
    try:
        return parse_keys(read_text(path), str(path))
    except OSError as error:
        problem = f"{path}: {error.strerror}"
    except ValueError as error:
        problem = f"{path}: {error}"
    except AologError as error:
        problem = str(error)
    raise WrongType([f"Signing: {problem}"])


def signer_of(table: SigningTable, base: Path) -> Sign:
    """Of a producer's configuration. Raises WrongConfiguration."""
    keys = keys_of(table, base)
    try:
        key = keys.signer(table.key_id)
        key.sign(b"")  # a missing library is found now
    except AologError as error:
        raise WrongType([f"Signing: {error}"]) from None
    return partial(sign, key)


def verify(keys: Keys, message: Any) -> None:
    """Of confluent-kafka's message. Raises SignatureForged, SignatureMissing."""
    kind, timestamp_ms = message.timestamp()
    verdict = keys.check(
        headers_of(message)[0], message.topic(), message.key(), message.value(),
        None if kind == _APPENDED_BY_THE_BROKER else timestamp_ms,
    )  # fmt: skip  # one call
    if verdict.ok:
        return
    place = {
        "topic": message.topic(),
        "partition": message.partition(),
        "offset": message.offset(),
    }
    where = "{topic}/{partition}@{offset}".format_map(place)
    if verdict.signed:
        raise SignatureForged(f"{where} is forged: {verdict.reason}", **place)
    raise SignatureMissing(f"{where} has no signature", **place)
