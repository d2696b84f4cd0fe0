"""Logs that are copied and put back, as backups are."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from tests.bridge.brokers import Message


def numbers(messages: Iterable[Message]) -> Counter[int]:
    """With which number each value begins, and how often."""
    return Counter(int((message.value or b"").split()[0]) for message in messages)


def once(*parts: Iterable[int]) -> Counter[int]:
    return Counter(number for part in parts for number in part)


def copy_of(log: Path) -> Path:
    backup = log.with_name(f"{log.name}-backup")
    shutil.rmtree(backup, ignore_errors=True)
    return Path(shutil.copytree(log, backup))


def put_back_anew(log: Path, backup: Path) -> None:
    """Other files under the old names."""
    put = Path(shutil.copytree(backup, log.with_name(f"{log.name}-put")))  # not the old inodes
    shutil.rmtree(log)
    put.rename(log)


def put_back_in_place(log: Path, backup: Path) -> None:
    """The same files with their old bytes, as a snapshot has them."""
    for path in [p for p in log.rglob("*") if p.is_file()]:
        old = backup / path.relative_to(log)
        if old.exists():
            with path.open("r+b") as file:
                file.write(old.read_bytes())
                file.truncate()
        else:
            path.unlink()
