"""What goes to Spark's workers: where their Python lacks the package, the error is a line that says
which worker, which Python and what to do."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest
from pyspark import cloudpickle
from pyspark.sql.types import BinaryType, StructField, StructType

from aolog.spark.datasource import source_class
from aolog.spark.kafka_sink import KafkaTarget, sender
from aolog.spark.sink import batch_writer, stream_writer
from tests.aolog.conftest import fill
from tests.spark.driving import batch_reader, source, struct
from tests.spark.standalone import bare_python

VALUE = StructType([StructField("value", BinaryType())])
LINE = (
    r"aolog\.errors\.UsageError: the worker on \S+, \S+ \(Python 3\.\d+\.\d+\), has no module 'aolog'; "
    r"install it there \(pip install '[\w-]+\[spark\]'\), ship it \(--py-files\), or set "
    r"PYSPARK_PYTHON to a Python that has it before the session is made"
)


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Python with all that workers need but this package."""
    return bare_python(tmp_path_factory.mktemp("bare"))


def made(kind: str, path: Path) -> object:
    """Each kind of thing that this package sends to workers."""
    if not path.exists():
        fill(path, [b"x"])
    match kind:
        case "class":
            return source_class()
        case "source":
            return source(path)
        case "pinned source":
            pinned = source(path)
            pinned.schema()
            return pinned
        case "reader":
            return batch_reader(path)[0]
        case "stream's reader":
            return source(path).streamReader(struct("value"))
        case "writer":
            return batch_writer({"path": str(path)}, VALUE, False)
        case "stream's writer":
            return stream_writer({"path": str(path)}, VALUE, False)
        case "sender":
            return sender(KafkaTarget("k:1", "t", {}, str(path)))
    raise AssertionError(kind)


@pytest.mark.parametrize(
    "kind",
    ["class", "source", "pinned source", "reader", "stream's reader", "writer", "stream's writer",
     "sender"],
)  # fmt: skip  # names
def test_a_worker_without_the_package_says_so_in_a_line(tmp_path, bare, kind):
    """As Spark's worker unpickles it and tells of what is raised. 2 s: a Python each."""
    sent = cloudpickle.dumps(made(kind, tmp_path / "log"))
    worker = (
        "import sys\n"
        "from pyspark.serializers import CPickleSerializer\n"
        "from pyspark.util import handle_worker_exception\n"
        "try:\n"
        "    CPickleSerializer().loads(sys.stdin.buffer.read())\n"
        "except BaseException as error:\n"
        "    handle_worker_exception(error, sys.stdout.buffer)\n"
    )
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    ended = subprocess.run(
        [bare, "-c", worker],
        input=sent, cwd=tmp_path, env=environment, capture_output=True, check=True,
    )  # fmt: skip  # one process
    assert re.fullmatch(LINE + r"\n", ended.stdout[8:].decode()), ended  # behind two numbers
