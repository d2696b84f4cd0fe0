"""The options of a writer: one frozen value, checked in one place before anything is touched."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple, Self, SupportsFloat

from aolog.errors import UsageError
from aolog.format.compression import packer
from aolog.log.retention import Retention, check_retention
from aolog.storage.storage import DIRECTORY_MODE
from aolog.write.validate import (
    BATCH_BYTES_MAX,
    RECORD_BYTES_MAX,
    SLAB_BYTES_MAX,
    check_mode,
    check_topic,
)

if TYPE_CHECKING:
    from aolog.format.compression import Compression

SLAB_BYTES = 64 << 20  # a file large enough that opening one is rare, small enough to prune
MAX_RECORD_BYTES = 64 << 20  # keeps a hostile length from allocating; raise it for larger records
BATCH_BYTES = 64 << 10  # smaller frames lose the advantage of batches, larger ones lose more
# Frames begin at any offset, but the page cache works in pages: an unaligned write of 64 KiB takes 1.8
# times as long as an aligned one, of 256 KiB 1.3, of a MiB 1.1, of two MiB no less.
FLUSH_BYTES = 1 << 20
UNBOUNDED = 1 << 62  # bytes or records: more than there can be, and still a machine integer
_INTEGERS = (
    ("slab_bytes", 1, SLAB_BYTES_MAX),
    ("batch_bytes", 0, BATCH_BYTES_MAX),  # 0: a frame a record
    ("max_record_bytes", 1, RECORD_BYTES_MAX),
    ("flush_records", 1, UNBOUNDED),
)


class WriterOptions(NamedTuple):
    """See Writer. Call `checked` before use."""

    slab_bytes: int = SLAB_BYTES
    slab_seconds: float | None = None
    batch_bytes: int = BATCH_BYTES
    flush_records: int | None = None
    flush_seconds: float | None = 1.0
    sync: Literal["interval", "never", "flush"] = "interval"
    sync_seconds: float = 1.0
    retention: Retention | None = None
    format: Literal["aolog", "queuefka"] = "aolog"
    topic: str | None = None
    max_record_bytes: int = MAX_RECORD_BYTES
    compression: Compression = "none"
    compression_level: int | None = None
    mode: int = DIRECTORY_MODE

    def checked(self) -> Self:
        """The same options. Raises UsageError that names the wrong one, CodecUnavailable."""
        for name, choices in (
            ("format", ("aolog", "queuefka")),
            ("sync", ("interval", "never", "flush")),
        ):
            if getattr(self, name) not in choices:
                raise UsageError(f"{name}={getattr(self, name)!r}", hint=f"use one of {choices}")
        self._check_numbers()
        check_mode(self.mode)
        check_topic(self.topic)
        check_retention(self.retention)
        packer(self.compression, self.compression_level)
        if self.format_1 and self.topic is not None:
            raise UsageError("format 1 has no place for a topic")
        if self.format_1 and self.compression != "none":
            raise UsageError(
                "format 1 has no compression", hint='use format="aolog", or compression="none"'
            )
        max_bytes = self.bounds.max_bytes
        if max_bytes is not None and max_bytes < 2 * self.slab_bytes:
            raise UsageError(
                f"Retention(max_bytes={max_bytes}) leaves no room for two slabs of "
                f"{self.slab_bytes} bytes",
                hint="lower slab_bytes (--slab-bytes), best to an eighth of the total, or raise the total",
            )
        return self

    def _check_numbers(self) -> None:
        given = self._asdict()
        for name, least, most in _INTEGERS:
            value = given[name]
            if value is None and name.startswith("flush"):
                continue
            if not hasattr(value, "__index__") or not least <= value <= most:
                raise UsageError(f"{name}={value!r}", hint=f"use an integer from {least} to {most}")
        for name in ("slab_seconds", "flush_seconds", "sync_seconds"):
            value = given[name]
            if value is not None and not (isinstance(value, SupportsFloat) and value > 0):  # type: ignore[operator]  # what is like a float compares
                raise UsageError(f"{name}={value!r}", hint="use a positive number, or None")

    @property
    def format_1(self) -> bool:
        """Whether the log is of format 1."""
        return self.format == "queuefka"

    @property
    def frame_bytes(self) -> int:
        """The bytes at which the open frame ends. Every record of format 1 is a frame."""
        return 0 if self.format_1 else self.batch_bytes

    @property
    def unwritten_bytes(self) -> int:
        """How many bytes may wait in memory."""
        return max(self.batch_bytes, FLUSH_BYTES)

    @property
    def unwritten_records(self) -> int:
        """How many records may wait in memory."""
        return self.flush_records or UNBOUNDED

    @property
    def bounds(self) -> Retention:
        """The retention; without bounds if none was given."""
        return self.retention or Retention()
