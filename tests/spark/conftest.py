"""One Spark for all tests of this directory, in one worker: it takes seconds and memory."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import aolog.spark
from tests.aolog.maintenance.archive.stores import environment

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """local[2], as small as Spark goes. Python's side finds the tests and the tree."""
    from pyspark.sql import SparkSession  # whoever runs other tests need not wait for it

    aolog.spark.ensure_java()
    inherited = os.environ.get("PYTHONPATH", "")
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), inherited]))
    where = tmp_path_factory.mktemp("spark")
    with socket.create_server(("127.0.0.1", 0)) as free:  # where test_object_store.py has one
        os.environ |= environment(f"http://127.0.0.1:{free.getsockname()[1]}")
    session = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.memory", "512m")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.codegen.wholeStage", "false")
        .config("spark.sql.codegen.factoryMode", "NO_CODEGEN")
        .config("spark.sql.adaptive.enabled", "false")
        .config("spark.sql.catalogImplementation", "in-memory")
        .config("spark.sql.warehouse.dir", str(where / "warehouse"))
        .config("spark.local.dir", str(where))
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.streaming.forceDeleteTempCheckpointLocation", "true")
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("OFF")
    aolog.spark.register(session)
    from tests.spark.sinks import Sink

    session.dataSource.register(Sink)
    yield session
    session.stop()
    os.environ["PYTHONPATH"] = inherited


@pytest.fixture
def load(spark: SparkSession) -> Callable[..., DataFrame]:
    """A batch of logs: `load(path, option=value)`."""

    def load(path: object, schema: str | None = None, **options: object) -> DataFrame:
        reader = spark.read.format("aolog").options(**options)
        if schema is not None:
            reader = reader.schema(schema)
        return reader.load([str(each) for each in path] if isinstance(path, list) else str(path))

    return load


@pytest.fixture
def looks_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The rest between two looks is real time, and tested by itself."""
    from aolog.spark import watching

    monkeypatch.setattr(watching, "LOOK_EVERY_S", 0.0)
    monkeypatch.setattr(watching, "LIST_EVERY_S", 0.0)
    monkeypatch.setattr(watching, "_REST", 0)
