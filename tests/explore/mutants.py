"""Defects of the library that crash exploration must find, or it finds nothing.

Each breaks one rule, by a patch in a process of its own (`python -m tests.explore --mutant NAME`);
the exploration of its case must end with a violation of one of its clauses.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from aolog.log import cursor_file, retention
from aolog.log.walk import Damage, Frame, Tail
from aolog.read.cursor import Commits
from aolog.storage.directory import Directory
from aolog.storage.file import File
from aolog.storage.storage import Storage
from aolog.write import opening, recovery
from aolog.write.log_tail import LogTail


class Mutant(NamedTuple):
    """apply: breaks the library. case: in which it shows. clauses: of which one is violated."""

    apply: Callable[[], None]
    case: str
    clauses: tuple[str, ...]


def _skip_directory_sync() -> None:
    Directory.sync = lambda self: None  # type: ignore[method-assign]


def _skip_sync_before_rename() -> None:
    real = File.datasync
    File.datasync = lambda self: None if self.path.endswith(".tmp") else real(self)  # type: ignore[method-assign]


def _forget_rest_of_short_write() -> None:
    def once(self: File, parts: Any, offset: int) -> None:
        self._system.pwritev(self.fd, [bytes(part) for part in parts], offset)

    File.pwrite_all = once  # type: ignore[method-assign]


def _unlink_before_cursor_is_durable() -> None:
    real = cursor_file.read_position

    def not_durable(path: str, name: str, files: Storage, *, durable: bool = False) -> Any:
        return real(path, name, files, durable=False)

    retention.read_position = not_durable


def _cut_at_first_bad_frame() -> None:
    def to_first_damage(slab: Any) -> tuple[int, int, int, bool, int]:
        walker, records, end = slab.walker(), 0, slab.data_begin
        while isinstance(found := walker.next(), Frame):
            records, end = found.header.ordinal + found.header.records, found.end
        assert isinstance(found, Damage | Tail)
        return end, records, 0, False, end

    real = opening._end_of_frames
    opening._end_of_frames = lambda slab: real(slab) if slab.seal() else to_first_damage(slab)


def _reuse_addresses_after_power_cut() -> None:
    def no_further_than_the_file(last: Any, cursors: list[int], jump: Any) -> int:
        return recovery._aligned(max(last.base + last.size, *cursors, 0))

    recovery._above = no_further_than_the_file


def _cursor_without_sync() -> None:
    real = File.datasync
    File.datasync = lambda self: None if self.path.endswith(".cursor") else real(self)  # type: ignore[method-assign]


def _commit_before_log_is_durable() -> None:
    Commits._last_slab = lambda self, address: None  # type: ignore[method-assign]


def _nothing_kept_aside() -> None:
    real = opening.decide
    opening.decide = lambda *args, **more: real(*args, **more)._replace_aside()  # type: ignore[attr-defined]
    recovery.Decision._replace_aside = lambda self: recovery.Decision(  # type: ignore[attr-defined]
        self.case, self.cut_at, False, self.next_base, self.new_epoch
    )


def _acknowledge_without_sync() -> None:
    def datasync(self: LogTail, _slab: object, end: int) -> None:
        self.durable = max(self.durable, end)

    LogTail.datasync = datasync  # type: ignore[method-assign]


def _trust_a_name_that_is_there() -> None:
    def make_directory(self: Storage, path: str, mode: int | None = None) -> None:
        if not self.exists(path):
            real(self, path, mode)

    real = Storage.make_directory
    Storage.make_directory = make_directory  # type: ignore[method-assign]


MUTANTS = {
    "skip_directory_sync": Mutant(_skip_directory_sync, "first_sync", ("durable", "faults")),
    "skip_sync_before_rename": Mutant(
        _skip_sync_before_rename, "first_sync", ("durable", "raised")
    ),
    "forget_rest_of_short_write": Mutant(
        _forget_rest_of_short_write, "short_writes", ("durable", "raised", "history")
    ),
    "unlink_before_cursor_is_durable": Mutant(
        _unlink_before_cursor_is_durable, "commit_dies_before_prune", ("retention",)
    ),
    "cut_at_first_bad_frame": Mutant(
        _cut_at_first_bad_frame, "acknowledged_behind_torn", ("recovery", "durable")
    ),
    "reuse_addresses_after_power_cut": Mutant(
        _reuse_addresses_after_power_cut, "large_frame", ("reused", "recovery")
    ),
    "cursor_without_sync": Mutant(_cursor_without_sync, "commit", ("cursor",)),
    "commit_before_log_is_durable": Mutant(
        _commit_before_log_is_durable, "commit_then_append", ("cursor",)
    ),
    "nothing_kept_aside": Mutant(_nothing_kept_aside, "flush_is_no_sync", ("kept",)),
    "acknowledge_without_sync": Mutant(
        _acknowledge_without_sync, "first_sync", ("durable", "history")
    ),
    "trust_a_name_that_is_there": Mutant(
        _trust_a_name_that_is_there, "first_sync_after_kill", ("durable", "faults")
    ),
}
