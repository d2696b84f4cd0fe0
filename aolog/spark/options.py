"""The options of a read, parsed and checked as a whole before anything starts.

Text in, values out, and the option's name in every error; paths become absolute. Options have the names
of Spark's Kafka source, in any case. Options of that source without a meaning for a log
(`kafka.bootstrap.servers` and the like) are ignored; an unknown name is an error.
"""

from __future__ import annotations

import json
import re
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

from aolog.errors import UsageError, unique_names
from aolog.format.names import check_cursor_name
from aolog.log.units import DURATION_MAX_S, duration_seconds
from aolog.spark.options_parsing import (
    boolean,
    naming,
    place,
    refused,
    size,
    unknown,
    whole_number,
)
from aolog.spark.schema import COLUMNS, DEFAULT_COLUMNS

if TYPE_CHECKING:
    from collections.abc import Mapping


EARLIEST, LATEST = -2, -1  # as addresses in JSON; Kafka's numbers

# As for Spark's own files: Spark begins a task in the time of reading some tens of MB.
PARTITION_BYTES = 128 << 20
# Options of the Kafka source that are ignored, so that a job can change `kafka` to `aolog` and no more.
_IGNORED = {
    "groupidprefix", "kafkaconsumer.polltimeoutms", "fetchoffset.numretries",
    "fetchoffset.retryintervalms",
}  # fmt: skip  # a table
_INTEGER = re.compile(r"[+-]?[0-9]{1,19}")

Start: TypeAlias = "Literal['earliest', 'latest'] | dict[str, int]"


class Options(NamedTuple):
    """The options of a read. paths: absolute. subscribe, pattern: select logs by name; both None: all.
    begin, end: "earliest", "latest", or addresses by log. begin_times_us, end_times_us: timestamps by
    log, which override them; begin_us, end_us: of all logs, which override these. time_must_exist: a
    beginning after a log's last record is an error. columns: in this order. losses: counts what tasks
    skip (skipped.py)."""

    paths: tuple[str, ...]
    subscribe: tuple[str, ...] | None = None
    pattern: str | None = None
    begin: Start = "earliest"
    end: Start = "latest"
    begin_us: int | None = None
    end_us: int | None = None
    begin_times_us: dict[str, int] | None = None
    end_times_us: dict[str, int] | None = None
    time_must_exist: bool = False
    fail_on_loss: bool = True
    fail_on_corruption: bool = True
    partition_bytes: int = PARTITION_BYTES
    min_partitions: int = 1
    max_records_per_partition: int | None = None
    columns: tuple[str, ...] = DEFAULT_COLUMNS
    columns_named: bool = False
    max_bytes_per_trigger: int | None = None
    max_records_per_trigger: int | None = None
    min_records_per_trigger: int | None = None
    max_trigger_delay_s: float = 15 * 60
    cursor: str | None = None
    losses: Any = None

    def of_tasks(self) -> tuple[int, int, int | None]:
        """What `partitions` takes."""
        return self.partition_bytes, self.min_partitions, self.max_records_per_partition


# --- kinds of values ------------------------------------------------------------------------


def _milliseconds(name: str, text: str) -> int:
    if not _INTEGER.fullmatch(text.strip()):
        raise refused(name, f"{text[:40]!r} is not a whole number of milliseconds since the epoch")
    return int(text) * 1000


def _names(name: str, text: str) -> tuple[str, ...]:
    names = tuple(part.strip() for part in text.split(",") if part.strip())
    if not names:
        raise refused(name, "names nothing")
    return names


def _pattern(name: str, text: str) -> str:
    try:
        re.compile(text)
    except re.error as error:
        raise refused(name, f"{text!r} is not a regular expression: {error}") from None
    return text


def _columns(name: str, text: str) -> tuple[str, ...]:
    names = _names(name, text)
    for column in names:
        if column not in COLUMNS:
            raise refused(name, f"no column {column!r}", f"there are {', '.join(COLUMNS)}")
    if len(set(names)) < len(names):
        raise refused(name, "names a column twice")
    return names


def _place(name: str, text: str) -> Start:
    """`earliest`, `latest`, or JSON: {"log": address}, or as for Kafka {"log": {"0": address}}."""
    if text.strip().lower() in {"earliest", "latest"}:
        return "earliest" if text.strip().lower() == "earliest" else "latest"
    hint = 'use earliest, latest, or JSON such as {"name": 8192}, where -2 is the earliest and -1 the latest'
    parsed = _by_log(text)
    if parsed is None:
        raise refused(
            name,
            f"{text[:100]!r} is neither earliest, latest, nor JSON that has each log once",
            hint,
        )
    return {
        log: _number(name, log, value, "address", hint, EARLIEST) for log, value in parsed.items()
    }


def _times(name: str, text: str) -> dict[str, int]:
    """Microseconds by log, of JSON in milliseconds: {"log": 0}, or as for Kafka {"log": {"0": 0}}."""
    hint = 'use JSON such as {"name": 1700000000000}, in milliseconds since the epoch'
    parsed = _by_log(text)
    if parsed is None:
        raise refused(name, f"{text[:100]!r} is not JSON that has each log once", hint)
    least = -(1 << 50)
    return {log: 1000 * _number(name, log, v, "time", hint, least) for log, v in parsed.items()}


def _assigned(name: str, text: str) -> tuple[str, ...]:
    """The logs of JSON as for Kafka: {"log": [0]}."""
    parsed = _by_log(text)
    if parsed is None:
        raise refused(
            name, f'{text[:100]!r} is not JSON such as {{"name": [0]}} that has each log once'
        )
    for log, numbers in parsed.items():
        if not isinstance(numbers, list):
            raise refused(
                name, f"{numbers!r} is not a list of the partitions of {log!r}", "such as [0]"
            )
        if numbers not in ([], [0]):
            raise refused(name, f"{log!r} has one partition, 0, not {numbers}")
    names = tuple(log for log, numbers in parsed.items() if numbers)
    if not names:
        raise refused(name, "names nothing")
    return names


def _by_log(text: str) -> dict[str, Any] | None:
    """A JSON object that has each name once; None for other text."""
    try:
        parsed = json.loads(text, object_pairs_hook=unique_names)
    except (ValueError, RecursionError):
        return None
    return parsed if isinstance(parsed, dict) else None


def _number(name: str, log: str, value: Any, what: str, hint: str, least: int) -> int:
    if isinstance(value, dict) and list(value) == ["0"]:
        value = value["0"]
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value < 1 << 63:
        raise refused(name, f"{value!r} is no {what} in {log!r}", hint)
    return value


def _delay(name: str, text: str) -> float:
    """Seconds. As for Spark, `min` are minutes, and a number alone is milliseconds."""
    text = text.strip().lower()
    found = duration_seconds(f"{text}ms" if text.isdecimal() else text.replace("min", "m"))
    if found is None or found > DURATION_MAX_S:
        raise refused(name, f"{text[:40]!r} is not a duration", "such as 30s, 15m or 1h")
    return found


def _cursor(name: str, text: str) -> str:
    with naming(name):
        check_cursor_name(text)
    return text


READERS: dict[str, tuple[str, Any]] = {
    "subscribe": ("subscribe", _names),
    "assign": ("subscribe", _assigned),
    "subscribePattern": ("pattern", _pattern),
    "startingOffsets": ("begin", _place),
    "endingOffsets": ("end", _place),
    "startingTimestamp": ("begin_us", _milliseconds),
    "endingTimestamp": ("end_us", _milliseconds),
    "startingOffsetsByTimestamp": ("begin_times_us", _times),
    "endingOffsetsByTimestamp": ("end_times_us", _times),
    "startingOffsetsByTimestampStrategy": (
        "time_must_exist",
        partial(boolean, yes="error", no="latest"),
    ),
    "failOnDataLoss": ("fail_on_loss", boolean),
    "onCorruption": ("fail_on_corruption", partial(boolean, yes="fail", no="skip")),
    "maxPartitionBytes": ("partition_bytes", size),
    "minPartitions": ("min_partitions", whole_number),
    "maxRecordsPerPartition": ("max_records_per_partition", whole_number),
    "columns": ("columns", _columns),
    "maxBytesPerTrigger": ("max_bytes_per_trigger", size),
    "maxRecordsPerTrigger": ("max_records_per_trigger", whole_number),
    "minOffsetsPerTrigger": ("min_records_per_trigger", whole_number),
    "maxTriggerDelay": ("max_trigger_delay_s", _delay),
    "cursor": ("cursor", _cursor),
}
_BY_LOWER = {name.lower(): name for name in READERS}
# Options that add a column.
_INCLUDE = {"includeHeaders": "headers", "includeGaps": "gap"}
_OTHERS = {"path", "paths", "maxoffsetspertrigger", *map(str.lower, _INCLUDE)}
_OF_STREAMS = (
    "maxBytesPerTrigger", "maxRecordsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay", "cursor",
)  # fmt: skip  # a table
_OF_BATCHES = ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp")
_SELECT = ("assign", "subscribe", "subscribePattern")  # one of them at most


def read_options(given: Mapping[str, str], *, stream: bool | None) -> Options:
    """The options of a read. stream: whether it is a stream; None if unknown. Raises UsageError, which
    names the option."""
    given = {key.lower(): value for key, value in given.items()}
    if "provider" in given and given.keys() & {"location", "owner"}:
        raise UsageError(
            "CREATE TABLE ... USING aolog is not supported: Spark forgets the table's path",
            hint="use CREATE TEMPORARY VIEW name USING aolog OPTIONS (path '...')",
        )
    if "maxoffsetspertrigger" in given:  # the Kafka source's name
        given.setdefault("maxrecordspertrigger", given["maxoffsetspertrigger"])
    known = {}
    for key, text in given.items():
        name = _BY_LOWER.get(key)
        if name is None:
            _check_unknown(key)
            continue
        if stream is not None and name in (_OF_BATCHES if stream else _OF_STREAMS):
            wanted, given_one = ("batch", "stream") if stream else ("stream", "batch")
            raise refused(name, f"needs a {wanted}; this is a {given_one}")
        field, reader = READERS[name]
        known[field] = reader(name, text)
    select = [name for name in _SELECT if name.lower() in given]
    if len(select) > 1:
        raise refused(select[0], f"{select[0]} and {select[1]} exclude each other")
    least, most = known.get("min_records_per_trigger"), known.get("max_records_per_trigger")
    if least and most and least > most:
        raise refused("minOffsetsPerTrigger", f"{least} is above maxRecordsPerTrigger, {most}")
    known["columns_named"] = "columns" in known
    more = [
        column
        for option, column in _INCLUDE.items()
        if boolean(option, given.get(option.lower(), "false"))
    ]
    if more:
        known["columns"] = _with_columns(known.get("columns"), more)
    return Options(paths=read_paths(given), **known)


def _with_columns(named: tuple[str, ...] | None, more: list[str]) -> tuple[str, ...]:
    """named: by the option columns, in its order; the default ones are in the order of the table."""
    if named is None:
        return tuple(name for name in COLUMNS if name in {*DEFAULT_COLUMNS, *more})
    return tuple(dict.fromkeys((*named, *more)))


def _check_unknown(key: str) -> None:
    if key in _OTHERS or key in _IGNORED or key.startswith("kafka."):
        return
    names = {**{name.lower(): name for name in _INCLUDE}, **_BY_LOWER}
    raise unknown(key, names)


def read_paths(given: Mapping[str, str]) -> tuple[str, ...]:
    """The absolute paths, or URLs of object stores, of `load(path)`, `load([a, b])` or `option("path", ...)`,
    each once."""
    texts: Any = []
    if "paths" in given:
        try:
            texts = json.loads(given["paths"])
        except (ValueError, RecursionError):
            texts = None
        if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
            raise refused("paths", "is not a JSON list of paths", "load([a, b]) makes it")
    if "path" in given:
        texts.append(given["path"])
    return tuple(dict.fromkeys(map(place, texts or [""])))
