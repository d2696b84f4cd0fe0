"""A Spark session with two cores, the same values in every format that it reads, and two sources to
compare with.

The values are random letters. A text file holds them unchanged, a length in characters equals one in
bytes, and a codec gains little.
"""

from __future__ import annotations

import os
import warnings
import zlib
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import aolog
from bench.child import ROOT
from bench.measure import Wrong
from bench.payloads import Proof, make_payloads

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from aolog.read.batch import Batch

__all__ = ["AGAIN", "BATCH_BYTES", "LOGS", "ROWS", "Content", "as_source", "cpu_seconds", "missing",
           "proof_of", "session", "total"]  # fmt: skip  # names

LOGS = 4  # two for each core, below one root
BATCH_BYTES = 3 << 20  # as the source's
ROWS, AGAIN = "aolog_rows", "aolog_again"
_OF_READER = {"offset": "address"}  # the reader's name for a column of the source
_ONCE = 100_000  # values made at a time
_LETTERS = bytes(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"[i & 63]
                 for i in range(256))  # fmt: skip  # a table


def missing() -> str | None:
    """The reason if Spark is not available."""
    from aolog.errors import UsageError

    for package in ("pyspark", "pyarrow"):
        if find_spec(package) is None:
            return f"{package} is not installed"
    from aolog.spark import ensure_java

    try:
        ensure_java()
    except UsageError as error:
        return str(error)
    return None


def cpu_seconds() -> float:
    """What this process, Spark's Java and its Python workers have used, with those that ended."""
    parents: dict[int, int] = {}
    ticks: dict[int, int] = {}
    for entry in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = entry.read_text().rpartition(")")[2].split()
        except OSError:  # it ended
            continue
        pid = int(entry.parent.name)
        parents[pid], ticks[pid] = int(fields[1]), sum(map(int, fields[11:15]))
    ours = {os.getpid()}
    while more := {pid for pid, parent in parents.items() if parent in ours} - ours:
        ours |= more
    return sum(ticks.get(pid, 0) for pid in ours) / os.sysconf("SC_CLK_TCK")


@contextmanager
def session(directory: str, settings: Mapping[str, str]) -> Iterator[SparkSession]:
    """A session with the master local[2], aolog's source and sink, and the sources of rows.py. settings:
    besides the fixed ones."""
    from pyspark.sql import SparkSession

    from aolog.spark import ensure_java, register
    from bench.rows import AgainSource, RowsSource

    ensure_java()
    inherited = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), inherited]))
    try:
        spark = (
            SparkSession.builder.master("local[2]")
            .appName("bench")
            .config("spark.ui.enabled", "false")
            .config("spark.ui.showConsoleProgress", "false")
            .config(map=dict(settings))
            .config("spark.driver.host", "127.0.0.1")
            .config("spark.driver.bindAddress", "127.0.0.1")
            .config("spark.local.dir", directory)
            .config("spark.sql.warehouse.dir", f"{directory}/warehouse")
            .config("spark.sql.catalogImplementation", "in-memory")
            .config("spark.sql.session.timeZone", "UTC")
            .config("spark.sql.sources.parallelPartitionDiscovery.threshold", "1000")
            .getOrCreate()
        )
        spark.sparkContext.setLogLevel("OFF")
        register(spark)
        spark.dataSource.register(RowsSource)
        spark.dataSource.register(AgainSource)
        try:
            with warnings.catch_warnings():
                # PySpark 4 says so of pandas 3, which it looks for and does not use here
                warnings.filterwarnings("ignore", "PySpark does not yet fully support pandas")
                yield spark
        finally:
            spark.stop()
    finally:
        if inherited is None:
            del os.environ["PYTHONPATH"]
        else:
            os.environ["PYTHONPATH"] = inherited


def as_source(batch: Batch, log: str, columns: list[str]) -> pa.RecordBatch:
    """A reader's batch with the columns that the source gives."""
    import pyarrow as pa

    same = {name: pa.scalar(0, pa.int32()) for name in ("partition", "timestampType")}
    same["log"] = pa.scalar(log)
    made = batch.to_arrow([_OF_READER.get(name, name) for name in columns if name not in same])
    arrays = [
        pa.repeat(same[name], len(made))
        if name in same
        else made.column(_OF_READER.get(name, name))
        for name in columns
    ]
    return pa.RecordBatch.from_arrays(arrays, names=columns)


@dataclass(frozen=True)
class Content:
    """The same values as logs, Parquet, text, and the logs' files as they are."""

    directory: str
    records: int
    bytes: int
    proof: Proof

    @property
    def logs(self) -> str:
        return f"{self.directory}/logs"

    def copy(self, kind: str) -> str:
        """A directory of Spark's own files. kind: parquet, zstd or text."""
        return f"{self.directory}/{kind}"

    @property
    def stored(self) -> int:
        """Bytes of the logs' files."""
        return sum(path.stat().st_size for path in Path(self.logs).rglob("*.slab"))

    @classmethod
    def make(cls, spark: SparkSession, directory: str, records: int, length: int) -> Content:
        """Writes all formats. Raises Wrong if Spark's copies differ from the logs."""
        numbers, crcs = count(), 0
        for i in range(LOGS):
            with aolog.Writer(f"{directory}/logs/{i}", sync="never") as log:
                left = records * (i + 1) // LOGS - records * i // LOGS
                while left:
                    values = _letters(min(left, _ONCE), length, next(numbers))
                    crcs += sum(map(zlib.crc32, values))
                    log.append_many(values)
                    left -= len(values)
        proof = Proof(records, f"{records * length} bytes, crc32s {crcs:x}")
        made = cls(directory, records, records * length, proof)
        frame = spark.read.format("aolog").option("columns", "value").load(made.logs)
        write_files(frame, "parquet", "none", made.copy("parquet"))
        write_files(frame, "parquet", "zstd", made.copy("zstd"))
        write_files(frame, "text", "none", made.copy("text"))
        return made


def _letters(number: int, length: int, seed: int) -> list[bytes]:
    return [value.translate(_LETTERS) for value in make_payloads(number, length, seed)]


def write_files(frame: DataFrame, kind: str, codec: str, path: str) -> None:
    """A column `value`, as files of Spark's own kinds."""
    if kind == "text":
        frame = frame.selectExpr("cast(value AS string) AS value")
    frame.write.format(kind).option("compression", codec).save(path)


def total(frame: DataFrame, column: str = "value") -> tuple[int, int]:
    """(rows, bytes in that column): each value goes to the JVM and is used."""
    row: Any = frame.selectExpr("count(*)", f"sum(octet_length({column}))").first()
    return row[0], row[1] or 0


def proof_of(frame: DataFrame) -> Proof:
    """The proof of the values, in any order."""
    row: Any = frame.selectExpr(
        "count(*)", "sum(octet_length(value))", "sum(crc32(cast(value AS binary)))"
    ).first()
    if not row[0]:
        raise Wrong("there is nothing")
    return Proof(row[0], f"{row[1]} bytes, crc32s {row[2]:x}")
