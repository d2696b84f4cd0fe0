"""A log's records into files, each record in one file, once.

CountedFiles writes files of N messages or T seconds. A file is written under a hidden name that says which
addresses it holds; then the cursor is committed past them; then the file gets its name. After a crash a
hidden file that the cursor has passed gets its name, and any other is removed and written again.

DailyFiles appends to one file a day, by the records' timestamps in UTC; a record without a day in the years 1 to
9999 goes to the file of the present day. A small hidden file says where the last step began in the log, and how
long its files were then. Unless the cursor has passed that, they are cut to it, and the step is repeated:

    @   killed                                    cursor     files
    A   before the state is written               past it    stay: the state is of the step before
    B   after that, before the cursor's commit    at it      are cut
    C   after the commit                          past it    stay

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
from aolog.errors import MALFORMED, CorruptionError
from aolog.read.seek import EPOCH
from aolog.record import Record
from aolog.storage.storage import Storage
from bridge.client.files import file_system as files
from bridge.client.files.file_config import ArchiveClient, ConsumerClient, FileClient

_log = logging.getLogger("bridge.files")
CURSOR = "files"
_PART = re.compile(r"\.(?P<name>.+)\.(?P<begin>\d{20})-(?P<end>\d{20})\.part")
_STATE = ".aolog-archive"
_STATE_BYTES_MAX = 1 << 20
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
    """A reader whose cursor exists from the first moment: without it retention protects nothing. The cursor is durable,
    also if the process that wrote it was killed."""
    reader = Reader(log, cursor=CURSOR)
    reader.commit()
    return reader


class CountedFiles:
    """Files of so many messages; with fewer after so many seconds, if given. One thread calls it. Raises as
    Reader does, and OSError."""

    def __init__(
        self,
        client: FileClient,
        table: ConsumerClient,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._directory = client.directory
        self._table = table
        self._clock = clock
        self._reader = protected_reader(client.log)
        self._finish_parts(self._reader.tell())
        self._lines: list[bytes] = []
        self._begin = self._reader.tell()
        self._since_s = 0.0

    def _finish_parts(self, passed: int) -> None:
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
            if len(self._lines) >= self._table.messages_per_file:
                self._write()
        if not self._lines and self._reader.tell() != self._begin:  # retention may remove them
            self._reader.commit()
            self._begin = self._reader.tell()
        seconds, waited_s = self._table.time_per_file, self._clock() - self._since_s
        if self._lines and seconds is not None and waited_s >= seconds:
            self._write()

    def _write(self) -> None:
        end = self._reader.tell()
        now_ms = time.time_ns() // 1_000_000
        suffix = f"{self._table.file_name}.{self._table.file_extension}"
        name = files.free_name(self._directory, lambda i: f"{now_ms + i}{suffix}")
        part = self._directory / f".{name}.{self._begin:020d}-{end:020d}.part"
        files.write(part, b"".join(self._lines))
        Storage().sync_directory(str(self._directory))
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

    def __init__(self, client: FileClient, table: ArchiveClient) -> None:
        self._directory = client.directory
        name = f"_{table.file_name}" if table.file_name else ""
        self._suffix = f"{name}.{table.file_extension}"
        self._state_path = client.directory / _STATE
        begin, lengths = self._last_step()
        self._reader = protected_reader(client.log)
        if lengths and begin >= self._reader.tell():
            self._reader.seek(begin)  # first: a log that was made anew does not have it
            for file, length in lengths.items():
                if files.size_of(self._directory / file) > length:
                    files.truncate(self._directory / file, length)

    def _last_step(self) -> tuple[int, dict[str, int]]:
        """Where it began in the log, and how long its files were then. Raises CorruptionError."""
        if not files.size_of(self._state_path):
            return 0, {}
        try:
            state = json.loads(files.read(self._state_path, _STATE_BYTES_MAX))
            lengths = {str(name): int(length) for name, length in state["files"].items()}
            # "address": of an earlier version, which also stored where a step ended.
            return int(state["begin"] if "begin" in state else state["address"]), lengths
        except MALFORMED as error:
            raise CorruptionError(
                f"how far the log was written cannot be read: {error}",
                hint="restore it; or remove it: records after the log's cursor may then be in a file twice",
                path=str(self._state_path),
            ) from None

    def step(self) -> None:
        """Appends every record of the log to its day's file."""
        begin, count = self._reader.tell(), 0
        by_name: dict[str, list[bytes]] = {}
        while count < _STEP_RECORDS and (record := self._reader.read()) is not None:
            count += 1
            if record.value:
                by_name.setdefault(self._file_of(record), []).append(line_of(record.value))
        if by_name:
            lengths = {name: files.size_of(self._directory / name) for name in by_name}
            state = {"begin": begin, "files": lengths}
            files.write(self._state_path, json.dumps(state).encode())
            Storage().sync_directory(str(self._directory))
            for name, lines in by_name.items():
                files.append(self._directory / name, b"".join(lines))
            Storage().sync_directory(str(self._directory))
        if count:
            self._reader.commit()  # the step is finished; retention may remove its records

    def _file_of(self, record: Record) -> str:
        day = day_of(record.timestamp)
        if day is None:
            day = day_of(time.time_ns() // 1_000)
            _log.warning("the record at address %d has no day; it goes to %s", record.address, day)
        return f"{day}{self._suffix}"

    def close(self) -> None:
        """Ends."""
        self._reader.close()
