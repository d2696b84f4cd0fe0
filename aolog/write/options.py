"""The options of a writer: one table, whose rows are the fields of one frozen value.

A field of `WriterOptions` says all of an option: name, type and default, and in `About` its unit, its range,
what it does, and which question it answers. Checks, `help(aolog.Writer)`, `aolog append --help`, Spark's sink
and their pages are made from that. The signature of `Writer` repeats names, types and defaults, for editors
and type checkers; a test compares them.
"""

from functools import cache
from textwrap import dedent, fill
from types import NoneType
from typing import (
    Annotated,
    Any,
    Literal,
    NamedTuple,
    Self,
    SupportsFloat,
    TypeAlias,
    TypeVar,
    get_args,
    get_origin,
)

from aolog.errors import UsageError
from aolog.format.compression import Compression, packer
from aolog.log.retention import Retention
from aolog.log.units import size_text
from aolog.queuefka.format1 import without
from aolog.storage.storage import DIRECTORY_MODE
from aolog.write.validate import (
    BATCH_BYTES_MAX,
    RECORD_BYTES_MAX,
    SLAB_BYTES_MAX,
    check_mode,
    check_topic,
)

SLAB_BYTES = 64 << 20  # a file large enough that opening one is rare, small enough to prune
MAX_RECORD_BYTES = 64 << 20  # keeps a hostile length from allocating; raise it for larger records
BATCH_BYTES = 64 << 10  # smaller frames lose the advantage of batches, larger ones lose more
# Frames begin at any offset, but the page cache works in pages: an unaligned write of 64 KiB takes 1.8
# times as long as an aligned one, of 256 KiB 1.3, of a MiB 1.1, of two MiB no less.
FLUSH_BYTES = 1 << 20
UNBOUNDED = 1 << 62  # bytes or records: more than there can be, and still a machine integer

Group: TypeAlias = Literal[
    "How large", "How long in memory", "How safe", "How much disk", "A new log"
]
Unit: TypeAlias = Literal["", "bytes", "records", "seconds", "level", "octal"]
_T = TypeVar("_T")


class About(NamedTuple):
    """What a row says beside name, type and default."""

    group: Group  # the question of users that it answers
    unit: Unit
    least: int  # with `most` the range of bytes, records and levels; otherwise both are 0
    most: int
    sentence: str  # what it does; names no other option, which has another name in each place


class Waiting(NamedTuple):
    """Records on their way."""

    bytes: int  # in memory only
    records: int  # in memory only
    unsynced: int  # records that no sync has covered


# fmt: off
class WriterOptions(NamedTuple):
    """The table. Call `checked` before use."""

    slab_bytes: Annotated[int | None, About("How large", "bytes", 1, SLAB_BYTES_MAX,
        "Size at which a slab is sealed and the next one begins. By default 64 MiB; in a log whose size "
        "is bounded an eighth of the bound, if that is less.")] = None
    slab_seconds: Annotated[float | None, About("How large", "seconds", 0, 0,
        "Time after its first record at which a slab is sealed.")] = None
    batch_bytes: Annotated[int, About("How large", "bytes", 0, BATCH_BYTES_MAX,
        "Records are collected into frames of about this size; 0: a frame for each.")] = BATCH_BYTES
    max_record_bytes: Annotated[int, About("How large", "bytes", 1, RECORD_BYTES_MAX,
        "Largest record: value, key, headers and topic, with a few bytes for each.")] = MAX_RECORD_BYTES

    flush_records: Annotated[int | None, About("How long in memory", "records", 1, UNBOUNDED,
        "Number of records in memory that are flushed at once. A MiB of them always is.")] = None
    flush_seconds: Annotated[float | None, About("How long in memory", "seconds", 0, 0,
        "Maximum delay before readers see a record and it survives a crash of the process.")] = 1.0

    sync: Annotated[Literal["interval", "never", "flush"], About("How safe", "", 0, 0,
        "When flushed records are synced and survive power loss: at an interval, at each flush, or "
        "never before the slab is sealed. Closing the log always syncs.")] = "interval"
    sync_seconds: Annotated[float, About("How safe", "seconds", 0, 0,
        "Interval of syncs, while there is something to sync; they come sooner if some MiB wait.")] = 1.0
    sync_records: Annotated[int | None, About("How safe", "records", 1, UNBOUNDED,
        "Number of records without a sync at which an append syncs before it returns.")] = None

    retention: Annotated[Retention | None, About("How much disk", "", 0, 0,
        "Bounds of the log, and what happens when it is full.")] = None
    compression: Annotated[Compression, About("How much disk", "", 0, 0,
        "Codec of frames, from the extra `compression`. Small frames, and those that do not shrink, "
        "are stored as they are. Readers need no option.")] = "none"
    compression_level: Annotated[int | None, About("How much disk", "level", 1, 22,
        "zstd: 1 to 22, by default 1; lz4: 1 to 12, all in its slow mode.")] = None

    format: Annotated[Literal["aolog", "queuefka"], About("A new log", "", 0, 0,
        "Format of the log; queuefka is format 1, of the Go program.")] = "aolog"
    topic: Annotated[str | None, About("A new log", "", 0, 0,
        "Topic of records that have none of their own.")] = None
    mode: Annotated[int, About("A new log", "octal", 0, 0,
        "Mode of directories that are created, whatever the umask; files get the same bits.")] = DIRECTORY_MODE
    # fmt: on

    def checked(self) -> Self:
        """The same options. Raises UsageError that names the wrong one, CodecUnavailable."""
        for option in table().values():
            option.check(getattr(self, option.name))
        check_mode(self.mode)
        check_topic(self.topic)
        check_retention(self.retention)
        packer(self.compression, self.compression_level)
        if self.sync_records is not None and self.sync == "never":
            raise UsageError(
                f"sync_records={self.sync_records} with sync='never'", hint='use sync="interval"'
            )
        if not self.has_headers and self.topic is not None:
            raise UsageError(f"topic={self.topic!r}: the log {without('topics')}")
        if not self.has_headers and self.compression != "none":
            raise UsageError(
                f"compression={self.compression!r}: the log {without('compression')}",
                hint='use format="aolog", or compression="none"',
            )
        max_bytes = self.bounds.max_bytes
        if max_bytes is not None and max_bytes < 2 * self.full_bytes:
            raise UsageError(
                f"Retention(max_bytes={max_bytes}) leaves no room for two slabs of "
                f"{self.full_bytes} bytes",
                hint="leave out slab_bytes, or raise the total",
            )
        return self

    @property
    def has_headers(self) -> bool:
        """Whether slabs have headers, and records more than a value."""
        return self.format != "queuefka"

    @property
    def full_bytes(self) -> int:
        """The bytes at which a slab is full. Retention removes whole slabs: eight in a bounded log."""
        if self.slab_bytes is not None:
            return self.slab_bytes
        return max(1, min(SLAB_BYTES, (self.bounds.max_bytes or 8 * SLAB_BYTES) // 8))

    @property
    def frame_bytes(self) -> int:
        """The bytes at which the open frame ends. Without headers every record is a frame."""
        return self.batch_bytes if self.has_headers else 0

    @property
    def most_waiting(self) -> Waiting:
        """What may wait: an append that reaches a bound flushes or syncs."""
        in_memory = max(self.batch_bytes, FLUSH_BYTES), self.flush_records or UNBOUNDED
        return Waiting(*in_memory, self.sync_records or UNBOUNDED)

    @property
    def bounds(self) -> Retention:
        """The retention; without bounds if none was given."""
        return self.retention or Retention()


class Option(NamedTuple):
    """A row of the table, for those who read it."""

    name: str  # of the keyword
    default: Any
    choices: tuple[str, ...]  # the values of a choice; () for other types
    may_be_none: bool
    about: About

    def check(self, value: Any) -> None:
        """Raises UsageError if the value is not one of the choices, out of range, or of another type."""
        _, unit, least, most, _ = self.about
        if value is None and self.may_be_none:
            return
        if self.choices:
            is_right, hint = value in self.choices, f"one of {', '.join(self.choices)}"
        elif unit == "seconds":
            is_right, hint = isinstance(value, SupportsFloat) and value > 0, "a positive number"  # type: ignore[operator]  # what is like a float compares
        elif unit in {"bytes", "records", "level"}:
            is_right = hasattr(value, "__index__") and least <= value <= most
            hint = f"an integer from {least} to {most}"
        else:
            return  # `checked` asks the module that knows the type
        if not is_right:
            or_none = ", or None" if self.may_be_none else ""
            raise UsageError(f"{self.name}={value!r}", hint=f"use {hint}{or_none}")

    @property
    def default_text(self) -> str:
        """The default as people write it; "none" for None."""
        if self.default is None:
            return "none"
        if self.about.unit == "bytes":
            return size_text(self.default)
        if self.about.unit == "seconds":
            return f"{self.default:g} s"
        return f"{self.default:o}" if self.about.unit == "octal" else f"{self.default}"

    @property
    def range_text(self) -> str:
        """The values that it takes."""
        _, unit, least, most, _ = self.about
        if self.choices:
            return ", ".join(self.choices[:-1]) + f" or {self.choices[-1]}"
        if unit == "bytes":
            return f"{size_text(least)} to {size_text(most)}"
        if unit == "records":
            return f"{least} or more"
        return f"{least} to {most}" if unit == "level" else unit


@cache
def table() -> dict[str, Option]:
    """The rows by name, in order: those of a group are together."""
    return {name: _row(name, of) for name, of in WriterOptions.__annotations__.items()}


def _row(name: str, annotation: Any) -> Option:
    kind, about = get_args(annotation)
    either = get_args(kind)
    return Option(
        name=name,
        default=WriterOptions._field_defaults[name],
        choices=either if get_origin(kind) is Literal else (),
        may_be_none=NoneType in either,
        about=about,
    )


def documented(owner: type[_T]) -> type[_T]:
    """Adds the table to a class's docstring, if it has one: `python -OO` has none."""
    if owner.__doc__ is None:
        return owner
    first, _, rest = owner.__doc__.partition("\n")
    lines, group = [first, dedent(rest).rstrip()], None
    for option in table().values():
        if option.about.group != group:
            group = option.about.group
            lines.append(f"\n**{group}**\n")
        default = "" if option.default is None else f"default {option.default_text}"
        known = ", ".join(filter(None, [option.range_text, default]))
        lines.append(f"{option.name} : {known}" if known else option.name)
        indent = " " * 4
        lines.append(fill(option.about.sentence, 96, initial_indent=indent, subsequent_indent=indent))
    owner.__doc__ = "\n".join(lines)
    return owner


def check_retention(retention: object) -> Retention:
    """The argument `retention`; None means no bounds. Raises UsageError."""
    if retention is None:
        return Retention()
    if isinstance(retention, Retention):
        return retention
    raise UsageError(
        f"retention={retention!r}",
        hint="use aolog.Retention, for instance Retention(max_bytes=...)",
    )
