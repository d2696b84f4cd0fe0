"""The keys of the configuration that are options of `aolog-bridge run`: their defaults and descriptions.

Pure: plain values, so that a command line can show them without pydantic, whose import takes longer than all
else that `run --help` does. `models` adds the bounds and checks the values of both.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple, TypeAlias, get_args

Delivery: TypeAlias = Literal["at_least_once", "exactly_once"]
Poison: TypeAlias = Literal["stop", "drop", "dead-letter"]
LogFormat: TypeAlias = Literal["auto", "text", "json"]


class Option(NamedTuple):
    """kind: of a value; or the values, if there are few. about: ends without a full stop."""

    kind: type[int | float | str] | tuple[str, ...]
    default: Any
    about: str


OPTIONS = {
    "delivery": Option(
        get_args(Delivery), "at_least_once",
        "with exactly_once, records and cursor are in one transaction",
    ),
    "max_in_flight_bytes": Option(
        int, 128 << 20, "keys and values in memory that Kafka has not acknowledged, of all logs together;"
        " with exactly_once also those of open transactions. Each connected log has an equal part: 32 MiB"
        " at most, two of the largest records (message.max.bytes) at least",
    ),
    "cursor_topic": Option(
        str, "aolog-bridge-cursors", "topic of cursor records, with exactly_once"
    ),
    "transaction_records": Option(
        int, 10_000, "maximum records in a transaction of exactly_once"
    ),
    "transaction_seconds": Option(
        float, 0.5, "maximum age of a transaction of exactly_once; consumers see its records when it is"
        " committed",
    ),
    "poison": Option(
        get_args(Poison), "stop", "what to do with a record that the cluster will never accept: stop its"
        " partition until SIGHUP or a restart (with exactly_once the whole log), count and drop it, or"
        " write it to LOG/dead-letter; records whose topic is missing or forbidden wait",
    ),
    "records_per_second": Option(float, None, "average limit per log"),
    "bytes_per_second": Option(float, None, "average limit per log, of keys and values"),
    "total_records_per_second": Option(float, None, "limit of all logs together"),
    "total_bytes_per_second": Option(float, None, "limit of all logs together"),
    "commit_seconds": Option(float, 1.0, "interval between commits of a cursor"),
    "stop_seconds": Option(float, 5.0, "how long a stop waits for acknowledgements"),
    "park_seconds": Option(float, 30.0, "how long an idle log stays connected"),
    "scrub_seconds": Option(
        float, None, "interval between checks of each log for damage; by default none"
    ),
    "scrub_bytes_per_second": Option(float, 10e6, "how fast the checks of all logs read, at most"),
    "http": Option(
        str, None, "HOST:PORT of the page, /metrics, /healthz, /readyz and /status; HOST defaults to"
        " loopback",
    ),
    "status_seconds": Option(float, 1.0, "interval between lines of --json"),
    "log_format": Option(
        get_args(LogFormat), "auto",
        "format of log lines; auto: JSON unless standard error is a terminal",
    ),
}  # fmt: skip  # a table
