"""What needs pytest: the contract of a storage of one's own, as tests."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

import aolog
from aolog.storage.storage import Storage
from aolog.storage.system import LOCK_EX, LOCK_NB

if TYPE_CHECKING:
    from aolog.storage.system import System

_CREATE = os.O_RDWR | os.O_CREAT | os.O_EXCL
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY
_LOCK = LOCK_EX | LOCK_NB


class SystemTests:
    """Of a class that derives from `aolog.storage.system.System` and replaces its calls: other files, or the
    same ones with a delay, a quota, or faults. A log on it is `Writer(path, storage=Storage(system))`.

    Subclass this under a name that begins with Test. Override `system` and `directory`.
    """

    @pytest.fixture
    def system(self) -> System:
        """The system, without faults."""
        raise NotImplementedError

    @pytest.fixture
    def directory(self, system: System) -> str:
        """An empty directory of it."""
        raise NotImplementedError

    @pytest.fixture
    def file(self, system: System, directory: str) -> str:
        """The path of a file with ten bytes."""
        return self.written(system, f"{directory}/file", b"0123456789")

    def written(self, system: System, path: str, content: bytes) -> str:
        """Makes a file. Returns its path."""
        fd = system.open(path, _CREATE, 0o600)
        assert system.pwritev(fd, [content], 0) == len(content)
        system.fdatasync(fd)
        system.close(fd)
        return path

    def content(self, system: System, path: str) -> bytes:
        """Of a file."""
        fd = system.open(path, os.O_RDONLY)
        try:
            return system.pread(fd, 1 << 20, 0)
        finally:
            system.close(fd)

    def test_parts_are_written_in_order_at_an_offset_and_a_hole_reads_as_zeros(
        self, system: System, file: str
    ) -> None:
        fd = system.open(file, os.O_RDWR)
        assert system.pwritev(fd, [b"ab", b"", memoryview(b"cd")], 12) == 4
        assert system.pread(fd, 100, 8) == b"89\0\0abcd"
        assert system.pread(fd, 2, 12) == b"ab"
        assert system.pread(fd, 100, 16) == b""
        system.ftruncate(fd, 3)
        system.ftruncate(fd, 5)
        assert system.pread(fd, 100, 0) == b"012\0\0"
        assert system.fstat(fd).st_size == 5
        system.fsync(fd)
        system.close(fd)

    def test_a_file_is_created_once_and_a_missing_one_is_not_found(
        self, system: System, directory: str, file: str
    ) -> None:
        with pytest.raises(FileExistsError):
            system.open(file, _CREATE, 0o600)
        for call in (system.lstat, system.unlink, lambda path: system.open(path, os.O_RDONLY)):
            with pytest.raises(FileNotFoundError):
                call(f"{directory}/missing")

    def test_names_are_listed_by_path_and_by_descriptor(
        self, system: System, directory: str, file: str
    ) -> None:
        system.mkdir(f"{directory}/below", 0o700)
        self.written(system, f"{directory}/below/other", b"")
        fd = system.open(directory, _DIRECTORY)
        assert sorted(system.listdir(directory)) == sorted(system.listdir(fd)) == ["below", "file"]
        system.fsync(fd)
        system.close(fd)
        assert system.lstat(file).st_ino != system.lstat(f"{directory}/below").st_ino

    def test_a_rename_replaces_a_link_does_not_and_an_open_file_outlives_its_name(
        self, system: System, directory: str, file: str
    ) -> None:
        other = self.written(system, f"{directory}/other", b"other")
        fd = system.open(file, os.O_RDONLY)
        with pytest.raises((FileExistsError, PermissionError)):  # the latter: it has no links
            system.link(other, file)
        system.replace(other, file)
        assert self.content(system, file) == b"other"
        assert system.pread(fd, 100, 0) == b"0123456789"
        system.close(fd)
        system.unlink(file)
        assert system.listdir(directory) == []

    def test_a_name_leads_to_its_file_and_no_longer_once_it_is_replaced(
        self, system: System, directory: str, file: str
    ) -> None:
        found, fd = system.lstat(file), system.open(directory, _DIRECTORY)
        assert system.leads_to(fd, "file", found.st_ino, found.st_dev, 10)
        assert not system.leads_to(fd, "file", found.st_ino, found.st_dev, 11)
        system.replace(self.written(system, f"{directory}/other", b"0123456789"), file)
        assert not system.leads_to(fd, "file", found.st_ino, found.st_dev, 10)
        system.close(fd)

    def test_a_directory_is_made_once_and_removed_when_it_is_empty(
        self, system: System, directory: str
    ) -> None:
        below = f"{directory}/below"
        system.mkdir(below, 0o700)
        with pytest.raises(FileExistsError):
            system.mkdir(below, 0o700)
        self.written(system, f"{below}/file", b"")
        with pytest.raises(OSError, match="not empty"):
            system.rmdir(below)
        system.unlink(f"{below}/file")
        system.rmdir(below)
        assert system.listdir(directory) == []

    def test_a_lock_has_one_holder_until_it_is_closed(self, system: System, file: str) -> None:
        first, second = (system.open(file, os.O_RDWR) for _ in range(2))
        system.flock(first, _LOCK)
        with pytest.raises(BlockingIOError):
            system.flock(second, _LOCK)
        system.close(first)
        system.flock(second, _LOCK)
        system.close(second)

    def test_it_has_room_random_bytes_and_a_boot(self, system: System, directory: str) -> None:
        assert system.free_bytes(directory) > 0
        assert len(system.random_bytes(16)) == 16
        assert system.random_bytes(16) != system.random_bytes(16)
        assert system.boot_id() == system.boot_id()
        assert len(system.boot_id()) == 16

    def test_a_log_is_written_locked_followed_pruned_and_opened_again(
        self, system: System, directory: str
    ) -> None:
        storage, path = Storage(system), f"{directory}/log"
        values = [b"%d" % number for number in range(300)]
        retention = aolog.Retention(max_slabs=2)
        with aolog.Writer(path, storage=storage, slab_bytes=4096, retention=retention) as log:
            with pytest.raises(aolog.errors.LogLocked):
                aolog.Writer(path, storage=storage)
            with aolog.Reader(path, storage=storage) as reader:
                found = []
                for value in values[:50]:
                    log.append(value)
                log.sync()
                found += [record.value for record in reader]
                assert found == values[:50]
            for value in values[50:]:
                log.append(value)
                log.flush()
        with aolog.Reader(path, storage=storage) as reader:
            left = [record.value for record in reader]
        assert left == values[-len(left) :]
        assert aolog.verify(path, storage=storage).gaps == []
