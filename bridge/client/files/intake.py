"""Files of a directory into a log, each once; the bridge delivers the log.

    IN/name ──► IN/.taken/ADDRESS-name ──► one frame of the log ──► acknowledged ──► archived or deleted

The name in `.taken` says at which address the file's frame begins, and is durable before the frame
is written. After a crash: the file is in the log if there is a record at or after that address,
since nothing else appends and a frame is written whole or not at all. Then it waits for the
bridge's cursor; otherwise it is taken again. A file is taken when nothing has changed it for a second
and no process has it open for writing. A file that cannot be taken, or of which Kafka refused a
record, goes to the poison directory. Each line of a file is a record, except empty ones.
"""

from __future__ import annotations

import logging
import os
import re
import time
from collections.abc import Callable
from itertools import pairwise
from math import inf
from pathlib import Path
from typing import NamedTuple

from aolog import Reader, Writer
from aolog.errors import AddressBeyondEnd, AddressPruned, NoSuchCursor, NotALog, as_utf8, counted
from aolog.log.cursor_file import read_position
from aolog.read.gaps import reported_elsewhere
from aolog.storage.storage import Storage
from bridge.client.connection import CLIENT_ID
from bridge.client.files import file_system as files
from bridge.client.files.file_config import FileClient, ProducerClient
from bridge.client.files.file_system import Seen
from bridge.client.heartbeat import make_heartbeat
from bridge.config.names import dead_letter_path
from bridge.deliver.dead_letter import dead_letters
from bridge.kafka.client_limits import MESSAGE_BYTES_MAX, queue_kbytes_of

_log = logging.getLogger("bridge.files")
CURSOR = "bridge"
_TAKEN = ".taken"
_CLAIM = re.compile(r"(?P<begin>\d{20})-(?P<name>.+)", re.DOTALL)
_SETTLE_S = 1.0  # editors and copies write in steps; none pauses for longer within one
_FILE_BYTES_MAX = 64 << 20  # a file is one frame, and in memory
_NAME_BYTES_MAX = 220  # leaves room for the address in front
_OVERHEAD_BYTES = 200  # of a record in a request: framing, and the header that the bridge adds


class Taken(NamedTuple):
    """A file that is in the log, at addresses [begin, end)."""

    path: Path
    name: str
    begin: int
    end: int


class Intake:
    """Takes files until it is closed. One thread calls it. settle_s: how long a file has to be
    unchanged. Raises LogLocked, StorageError, OSError: then it is failed; a new one recovers."""

    def __init__(
        self,
        client: FileClient,
        table: ProducerClient,
        *,
        settle_s: float = _SETTLE_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client = client
        self._table = table
        self._settle_s = settle_s
        self._clock = clock
        self._storage = Storage()
        self._seen: dict[str, tuple[Seen, float]] = {}
        self._next_file_s = self._next_beat_s = 0.0
        settings = client.options.settings
        self._record_bytes_max = min(
            int(settings.get("message.max.bytes", MESSAGE_BYTES_MAX)) - _OVERHEAD_BYTES,
            queue_kbytes_of(settings) * 1024,
        )
        self._claims = client.directory / _TAKEN
        self._claims.mkdir(mode=0o700, exist_ok=True)
        claims = map(_CLAIM.fullmatch, sorted(files.list_names(self._claims)))
        found = [(int(c["begin"]), c["name"]) for c in claims if c]  # others are somebody else's
        logged = {begin for begin, _ in found if is_in_log(client.log, begin)}
        # The bridge prunes what it has sent. Retention here would also prune before its first commit.
        self._writer = Writer(client.log, topic=table.topic)
        self._pending = self._recover(found, logged)

    # --- after a crash ------------------------------------------------------------------------

    def _recover(self, found: list[tuple[int, str]], logged: set[int]) -> list[Taken]:
        """found: address and name of each file that was taken. logged: which addresses are in the log."""
        # An empty file begins where the next one does.
        ends = dict(pairwise([*sorted(logged), self._writer.end]))
        pending = []
        for begin, name in found:
            claim = self._claims / f"{begin:020d}-{name}"
            if begin in logged:
                pending.append(Taken(claim, name, begin, ends[begin]))
            else:
                what = "%s was taken when the last run ended; it is taken again"
                _log.warning(what, as_utf8(name))
                files.move(claim, self._client.directory, name)
        return pending

    # --- one step -----------------------------------------------------------------------------

    def step(self) -> None:
        """Finishes files that are acknowledged, and takes one more if there is one."""
        self._finish()
        now_s = self._clock()
        interval_s = self._table.heartbeat_interval
        if interval_s is not None and now_s >= self._next_beat_s:
            self._next_beat_s = now_s + interval_s
            client_id = self._client.options.settings.get("client.id", CLIENT_ID)
            self._writer.append(make_heartbeat(self._table.topic, client_id).to_json())
        if now_s >= self._next_file_s and self._take_one(now_s):
            self._next_file_s = now_s + self._table.time_per_file

    def _take_one(self, now_s: float) -> bool:
        directory = self._client.directory
        names = [n for n in files.list_names(directory) if n.endswith(self._table.file_extension)]
        self._seen = {name: seen for name, seen in self._seen.items() if name in names}
        for name in names:
            path = directory / name
            try:
                seen = files.see(path)
                if seen is None:
                    if path.is_dir() and not path.is_symlink():
                        continue
                    self._set_aside(path, name, "it is not a regular file")
                elif len(name.encode(errors="surrogateescape")) > _NAME_BYTES_MAX:
                    self._set_aside(path, name, f"its name is longer than {_NAME_BYTES_MAX} bytes")
                elif self._is_settled(path, name, seen, now_s):
                    self._take(path, name, seen)
                    return True
            except FileNotFoundError:
                continue
            except PermissionError as error:
                self._set_aside(path, name, error.strerror or "it cannot be read")
        return False

    def _is_settled(self, path: Path, name: str, seen: Seen, now_s: float) -> bool:
        before, since_s = self._seen.get(name, (None, now_s))
        if before != seen:
            self._seen[name] = seen, now_s
            since_s = now_s
        return now_s - since_s >= self._settle_s and not files.is_open_for_writing(path)

    def _take(self, path: Path, name: str, seen: Seen) -> None:
        """The name in `.taken` is durable before the frame, and the frame before the next file."""
        self._writer.sync()  # so that `end` is where the next record begins, also after a crash
        begin = self._writer.end
        claim = files.move(path, self._claims, f"{begin:020d}-{name}")
        if files.see(claim) != seen or files.is_open_for_writing(claim):
            files.move(claim, self._client.directory, name)  # somebody began to write
            return
        data = files.read(claim, _FILE_BYTES_MAX + 1)
        lines = list(filter(None, (line.removesuffix(b"\r") for line in data.split(b"\n"))))
        longest = max(map(len, lines), default=0)
        if len(data) > _FILE_BYTES_MAX:
            self._set_aside(claim, name, f"it is larger than {_FILE_BYTES_MAX} bytes")
        elif longest > self._record_bytes_max:
            self._set_aside(
                claim, name, f"a line has {longest} bytes; Kafka takes {self._record_bytes_max}"
            )
        else:
            if lines:
                self._writer.append_many(lines)
                self._writer.sync()
            self._pending.append(Taken(claim, name, begin, self._writer.end))
            _log.info("%s: %s taken", as_utf8(name), counted(len(lines), "record", ","))

    # --- the end of a file --------------------------------------------------------------------

    def _finish(self) -> None:
        if not self._pending:
            return
        passed = self._acknowledged()
        while self._pending and self._pending[0].end <= passed:
            taken = self._pending.pop(0)
            refused = self._refused_in(taken)
            if refused:
                self._set_aside(
                    taken.path, taken.name,
                    f"Kafka refused {counted(refused, 'record')} of it; they are in the dead-letter log",
                )  # fmt: skip  # one call
                continue
            if self._client.archive is not None:
                files.move(taken.path, self._client.archive, taken.name)
            else:
                taken.path.unlink(missing_ok=True)
                self._storage.sync_directory(str(self._claims))

    def _acknowledged(self) -> float:
        """The address of the first record that is not acknowledged; infinite if there is none."""
        try:
            position = read_position(str(self._client.log), CURSOR, self._storage, durable=True)
        except NoSuchCursor:
            return -1
        with Reader(self._client.log, start=position.address, on_gap=reported_elsewhere) as reader:
            record = reader.read()
        return inf if record is None else record.address

    def _refused_in(self, taken: Taken) -> int:
        """How many records of a file are dead letters."""
        path = dead_letter_path(os.fspath(self._client.log), CURSOR)
        return sum(
            letter is not None and taken.begin <= letter.origin.address < taken.end
            for letter in dead_letters(path, self._storage)
        )

    def _set_aside(self, path: Path, name: str, why: str) -> None:
        self._client.poison.mkdir(mode=0o700, exist_ok=True)
        target = files.move(path, self._client.poison, name)
        _log.error("%s is set aside as %s: %s", as_utf8(name), as_utf8(str(target)), why)

    def close(self) -> None:
        """Flushes the log and ends. Files that are not acknowledged wait for the next run."""
        self._writer.close()


def is_in_log(log: Path, begin: int) -> bool:
    """Whether there is a record at or after an address, or was one: pruned ones were delivered."""
    try:
        with Reader(log, start=begin, on_gap=reported_elsewhere) as reader:
            return reader.read() is not None
    except AddressPruned:
        return True
    except (AddressBeyondEnd, NotALog):
        return False
