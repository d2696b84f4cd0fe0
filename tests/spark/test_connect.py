"""Spark Connect: a server with aolog installed, and a client that has neither its files nor its Java."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pyspark
import pytest

import aolog
import aolog.spark
from bridge.testing.apache_kafka.ports import free_ports
from tests.spark.standalone import START_SECONDS_MAX

ROOT = Path(__file__).parents[2]
_SPARK = Path(pyspark.__file__).parent
_SERVER = "org.apache.spark.sql.connect.service.SparkConnectServer"

_CLIENT = """
import json, sys
import aolog.spark
from pyspark.sql import SparkSession

url, root, out = sys.argv[1:]
spark = SparkSession.builder.remote(url).getOrCreate()
aolog.spark.register(spark)
logs = spark.read.format("aolog").load(root)
said = {"read": sorted(bytes(row.value).decode() for row in logs.select("value").collect())}
rows = logs.selectExpr("value", "'copy' as log")
rows.write.format("aolog").mode("append").save(out)
stream = spark.readStream.format("aolog").load(root).selectExpr("value", "'stream' as log")
sink = stream.writeStream.format("aolog").option("checkpointLocation", out + ".state")
sink.trigger(availableNow=True).start(out).awaitTermination()
for name, ask in (
    ("bad", lambda: spark.read.format("aolog").option("onCorruption", "x").load(root).collect()),
    ("verify", lambda: aolog.spark.verify(spark, root)),
    ("scan", lambda: aolog.spark.scan(spark, root)),
):
    try:
        ask()
    except Exception as error:
        said[name] = str(error)
print(json.dumps(said))
"""


@contextlib.contextmanager
def server(directory: Path) -> Iterator[str]:
    """On loopback; its url once it listens. Its workers find the tree."""
    (port,) = free_ports(1)
    aolog.spark.ensure_java()
    settings = {
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": port,
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": "512m",
        "spark.ui.enabled": "false",
        "spark.local.dir": directory / "spark",
        "spark.sql.warehouse.dir": directory / "warehouse",
    }
    conf = [part for name, value in settings.items() for part in ("--conf", f"{name}={value}")]
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    said = directory / "server.log"
    with said.open("wb") as log:
        process = subprocess.Popen(
            [str(_SPARK / "bin" / "spark-class"), "org.apache.spark.deploy.SparkSubmit",
             "--master", "local[2]", *conf, "--class", _SERVER, "spark-internal"],
            env=os.environ | {"PYTHONPATH": path, "PYSPARK_PYTHON": sys.executable},
            stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=directory,
        )  # fmt: skip  # a command line
    try:
        until_s = time.monotonic() + START_SECONDS_MAX
        while True:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                break
            assert process.poll() is None, said.read_text(errors="replace")[-3000:]
            assert time.monotonic() < until_s, said.read_text(errors="replace")[-3000:]
            time.sleep(0.1)
        yield f"sc://127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()


@pytest.mark.slow
def test_a_session_of_spark_connect_reads_writes_and_streams(tmp_path: Path) -> None:
    """Half a minute, most of it the server's start."""
    pytest.importorskip("grpc", reason="needs pip install 'pyspark[connect]'")
    with aolog.Writer(tmp_path / "in" / "log") as log:
        log.append_many([b"%d" % i for i in range(5)])
    with server(tmp_path) as url:
        ended = subprocess.run(
            [sys.executable, "-c", _CLIENT, url, str(tmp_path / "in"), str(tmp_path / "out")],
            env=os.environ | {"PYTHONPATH": str(ROOT)},
            cwd=tmp_path, capture_output=True, text=True, check=False, timeout=200,
        )  # fmt: skip  # one process
    assert ended.returncode == 0, ended.stderr
    said = json.loads(ended.stdout.splitlines()[-1])
    assert said["read"] == list("01234")
    assert "option onCorruption: 'x' is neither fail nor skip" in said["bad"]
    assert "the paths are on the server" in said["verify"]
    assert "the paths are on the server" in said["scan"]
    for name in ("copy", "stream"):
        values = [record.value for record in aolog.Reader(tmp_path / "out" / name)]
        assert sorted(values) == [b"%d" % i for i in range(5)]
