"""Real input for the demo: the lines of files, by default of this Python's standard library."""

from __future__ import annotations

import sysconfig
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from aolog.errors import UsageError

RECORDS_MIN = 50_000  # with fewer, the demo would end before the outage begins
LINE_BYTES_MAX = 512 << 10  # half of what brokers accept by default; longer lines are cut


class Sample(NamedTuple):
    """Files to append. times: how often. records: of all times."""

    what: str
    files: list[Path]
    records: int
    times: int

    def lines(self) -> Iterator[tuple[bytes, bytes]]:
        """Key and value of each record, in order: the file's name, and the line without its end. Memory
        holds one line."""
        for _ in range(self.times):
            yield from _lines(self.files)


def _lines(files: list[Path]) -> Iterator[tuple[bytes, bytes]]:
    for path in files:
        key = str(path).encode("utf-8", "surrogateescape")[-120:]
        with path.open("rb") as file:
            while line := file.readline(LINE_BYTES_MAX):
                yield key, line.rstrip(b"\n")


def choose(paths: Sequence[str]) -> Sample:
    """The given files, which can be read, or the standard library's text. Raises UsageError for files
    without a line."""
    if paths:
        what = paths[0] if len(paths) == 1 else f"{len(paths)} files"
        files = [Path(path) for path in paths]
    else:
        what = "the standard library's text"
        files = sorted(Path(sysconfig.get_path("stdlib")).glob("*.py"))  # without its packages
    records = sum(1 for _ in _lines(files))
    if records == 0:
        raise UsageError(f"{what}: there is no line in it", hint="name files with text")
    times = -(-RECORDS_MIN // records)
    return Sample(what, files, records * times, times)
