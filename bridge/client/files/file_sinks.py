"""A log's records into files, each record in one file, once.

CountedFiles writes files of N messages or T seconds. A file is written under a hidden name that says which
addresses it holds; then the cursor is committed past them; then the file gets its name. After a crash a
hidden file that the cursor has passed gets its name, and any other is removed and written again.

DailyFiles appends to one file a day, by the records' timestamps in UTC; a record without a day in the years 1 to
9999 goes to the file of the present day. A small hidden file says how far
the log was written and how long the day's files were then. After a crash they are cut to that.

Values are written as they are, each with a newline where it has none at its end. Empty ones are
passed over, as hazdev-broker does.
"""

from __future__ import annotations

import json
import logging
import re
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

from aolog import Reader
from aolog.errors import MALFORMED, CorruptionError, NoSuchCursor
from aolog.log.cursor_file import read_position
from aolog.read.seek import EPOCH
from aolog.record import Record
from aolog.storage.storage import Storage
from bridge.client.files import file_system as files

_log = logging.getLogger("bridge.files")
CURSOR = "files"
_PART = re.compile(r"\.(?P<name>.+)\.(?P<begin>\d{20})-(?P<end>\d{20})\.part")
_STATE = ".aolog-archive"
_STATE_BYTES_MAX = 1 << 20
_DAYS = 8  # files whose length is kept: late records go to their own day
_STEP_RECORDS = 10_000  # a step's memory is bounded


def line_of(value: bytes) -> bytes:
    """The value, with a newline at its end."""
    return value if value.endswith(b"\n") else value + b"\n"


def day_of(timestamp_us: int | None) -> str | None:
    """The day in UTC, such as 2026-01-31; None of no time, and of one outside the years 1 to 9999."""
    if timestamp_us is None:
        return None
    try:
        return (EPOCH + timedelta(microseconds=timestamp_us)).date().isoformat()
    except OverflowError:
        return None


def protected_reader(log: Path) -> Reader:
    """A reader whose cursor exists from the first moment: without it retention protects nothing."""
    reader = Reader(log, cursor=CURSOR)
    if not reader.has_cursor_position:
        reader.commit()
    return reader


class CountedFiles:
    """Files of at most `messages` messages; with fewer after `seconds`, if given. One thread calls
    it. Raises as Reader does, and OSError."""

    def __init__(
        self,
        log: Path,
        directory: Path,
        *,
        messages: int,
        seconds: float | None,
        name: str,
        extension: str,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._directory = directory
        self._messages = messages
        self._seconds = seconds
        self._name = name
        self._extension = extension
        self._clock = clock
        self._finish_parts(log)
        self._reader = protected_reader(log)
        self._lines: list[bytes] = []
        self._begin = self._reader.tell()
        self._since_s = 0.0

    def _finish_parts(self, log: Path) -> None:
        try:
            passed = read_position(str(log), CURSOR, Storage(), durable=True).address
        except NoSuchCursor:
            passed = 0
        for path in self._directory.glob(".*.part"):
            found = _PART.fullmatch(path.name)
            if found is None:
                continue
            if int(found["end"]) <= passed:
                files.move(path, self._directory, found["name"])
            else:
                path.unlink(missing_ok=True)

    def step(self) -> None:
        """Writes every file that is due. What is not due waits in the log."""
        while (record := self._reader.read()) is not None:
            if not record.value:
                continue
            if not self._lines:
                self._since_s = self._clock()
            self._lines.append(line_of(record.value))
            if len(self._lines) >= self._messages:
                self._write()
        if not self._lines and self._reader.tell() != self._begin:  # retention may remove them
            self._reader.commit()
            self._begin = self._reader.tell()
        waited_s = self._clock() - self._since_s
        if self._lines and self._seconds is not None and waited_s >= self._seconds:
            self._write()

    def _write(self) -> None:
        end = self._reader.tell()
        now_ms = time.time_ns() // 1_000_000
        name = files.free_name(
            self._directory, lambda i: f"{now_ms + i}{self._name}.{self._extension}"
        )
        part = self._directory / f".{name}.{self._begin:020d}-{end:020d}.part"
        files.write(part, b"".join(self._lines))
        files.sync_directory(self._directory)
        self._reader.commit()
        files.move(part, self._directory, name)
        self._lines.clear()
        self._begin = end

    def close(self) -> None:
        """Ends. What is not in a file is read again by the next run."""
        self._reader.close()


class DailyFiles:
    """A file for each day, UTC: `2026-01-31_NAME.EXTENSION`. One thread calls it. Raises as Reader
    does, and OSError."""

    def __init__(self, log: Path, directory: Path, *, name: str, extension: str) -> None:
        self._directory = directory
        self._suffix = (f"_{name}" if name else "") + f".{extension}"
        self._state_path = directory / _STATE
        self._address, self._lengths = self._recover()
        self._reader = protected_reader(log)
        if self._address > self._reader.tell():
            self._reader.seek(self._address)

    def _recover(self) -> tuple[int, dict[str, int]]:
        """Cuts files to where they were when the state was written. Raises CorruptionError."""
        if not files.size_of(self._state_path):
            return 0, {}
        try:
            state = json.loads(files.read(self._state_path, _STATE_BYTES_MAX))
            address = int(state["address"])
            lengths = {str(name): int(length) for name, length in state["files"].items()}
        except MALFORMED as error:
            raise CorruptionError(
                f"how far the log was written cannot be read: {error}",
                hint="restore it; or remove it: records after the log's cursor may then be in a file twice",
                path=str(self._state_path),
            ) from None
        for name, length in lengths.items():
            size = files.size_of(self._directory / name)
            if size > length:
                files.truncate(self._directory / name, length)
            elif size < length:
                _log.error(
                    "%s has %d bytes, and %d were written: somebody cut it", name, size, length
                )
        return address, lengths

    def step(self) -> None:
        """Appends every record of the log to its day's file."""
        by_name: dict[str, list[bytes]] = {}
        count = 0
        while count < _STEP_RECORDS and (record := self._reader.read()) is not None:
            count += 1
            if record.value:
                by_name.setdefault(self._file_of(record), []).append(line_of(record.value))
        if not by_name:
            if count:
                self._reader.commit()  # retention may remove them
            return
        for name in by_name:
            self._lengths.setdefault(name, files.size_of(self._directory / name))
        self._save()  # how long they were, before they grow
        for name, lines in by_name.items():
            self._lengths[name] = files.append(self._directory / name, b"".join(lines))
        files.sync_directory(self._directory)
        self._address = self._reader.tell()
        days = sorted(self._lengths.keys() - by_name.keys())
        for name in days[: max(0, len(self._lengths) - _DAYS)]:
            del self._lengths[name]
        self._save()
        self._reader.commit()

    def _file_of(self, record: Record) -> str:
        day = day_of(record.timestamp)
        if day is None:
            day = day_of(time.time_ns() // 1_000)
            _log.warning("the record at address %d has no day; it goes to %s", record.address, day)
        return f"{day}{self._suffix}"

    def _save(self) -> None:
        state = {"address": self._address, "files": self._lengths}
        files.write(self._state_path, json.dumps(state).encode())
        files.sync_directory(self._directory)

    def close(self) -> None:
        """Ends."""
        self._reader.close()
