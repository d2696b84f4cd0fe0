"""A log in pandas, polars, DuckDB and pyarrow: one line each. A reader is an Arrow stream.

    python -m aolog.examples.dataframes LOG

Counts the records of each key with each library that is installed, and prints the ten keys with most; '' is
for records without a key.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any

import aolog


def by_pandas(path: str) -> dict[str, int]:
    """Needs pandas and pyarrow."""
    with aolog.Reader(path) as log:
        frame = log.to_arrow(["key"]).read_pandas()
    return {
        key.decode(): int(count)
        for key, count in frame.groupby(frame.key.fillna(b"")).size().items()
    }


def by_polars(path: str) -> dict[str, int]:
    """Needs polars and pyarrow."""
    polars: Any = import_module("polars")
    with aolog.Reader(path) as log:
        frame = polars.DataFrame(log)
    return {(key or b"").decode(): count for key, count in frame.group_by("key").len().iter_rows()}


def by_duckdb(path: str) -> dict[str, int]:
    """Needs duckdb and pyarrow."""
    duckdb: Any = import_module("duckdb")
    with aolog.Reader(path) as log:  # noqa: F841 -- the query names it
        rows = duckdb.sql("select key, count(*) from log group by key").fetchall()
    return {(key or b"").decode(): count for key, count in rows}


def by_pyarrow(path: str) -> dict[str, int]:
    """Needs pyarrow."""
    pyarrow: Any = import_module("pyarrow")
    with aolog.Reader(path) as log:
        rows = pyarrow.table(log).group_by("key").aggregate([([], "count_all")]).to_pylist()
    return {(row["key"] or b"").decode(): row["count_all"] for row in rows}


def ten_of(counts: dict[str, int]) -> str:
    """The ten keys with most records, and how many keys are not shown."""
    most = sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))[:10]
    left = len(counts) - len(most)
    shown = ", ".join(f"{key!r}: {count:,}" for key, count in most)
    return shown + (f", and {left:,} more keys" if left else "")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    for count in (by_pyarrow, by_pandas, by_polars, by_duckdb):
        try:
            print(count.__name__, ten_of(count(sys.argv[1])))  # noqa: T201
        except ModuleNotFoundError as error:
            print(count.__name__, error)  # noqa: T201
