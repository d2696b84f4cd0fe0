"""The demo's Spark stage: a DataFrame's rows arrive in Kafka, each once.

DataFrame ► format("aolog") ► log ► (process) bridge run --drain ► embedded broker ► comparison
"""

from __future__ import annotations

import subprocess
import sys
import time
from typing import TYPE_CHECKING, NamedTuple

from aolog import Reader
from aolog.errors import AologError
from bridge.cli.demo.compare import Comparison
from bridge.kafka.embedded import EmbeddedBroker
from bridge.kafka.topic_reader import TopicReader

if TYPE_CHECKING:
    from collections.abc import Callable

TOPIC = "spark"
PARTITIONS = 4
RECORDS = 20_000  # with headers and keys, less than the broker keeps
LOG = "events"
_SETTINGS = {
    "spark.master": "local[2]",
    "spark.ui.enabled": "false",
    "spark.driver.memory": "512m",
    "spark.driver.host": "127.0.0.1",  # nothing leaves this machine
    "spark.driver.bindAddress": "127.0.0.1",
}
_DRAIN_S = 60.0
_ARRIVAL_S = 10.0  # the rest counts as missing after this time without a message


class SparkStage(NamedTuple):
    """Rows that were written, and how they arrived. seconds: with the start of Spark."""

    rows: int
    seconds: float
    lost: int
    repeated: int
    disordered: int
    altered: int

    @property
    def ok(self) -> bool:
        """Every row once, in the log's order."""
        return self.rows == RECORDS and not any(self[2:])


def run_spark_stage(root: str, say: Callable[[str], None]) -> SparkStage:
    """Writes, forwards and compares. root: a new directory. Raises UsageError without PySpark or
    Java, AologError where the forwarding process failed."""
    from aolog.spark.session import in_our_words, session

    begun_s = time.monotonic()
    with session(_SETTINGS, told=say) as spark, in_our_words():
        frame = spark.range(RECORDS).selectExpr(
            "concat('key ', id % 100) AS key", "concat('row ', id) AS value"
        )
        frame.write.format("aolog").mode("append").option("log", LOG).save(root)
    say(f"{RECORDS:,} rows of a DataFrame are in the log")
    log = f"{root}/{LOG}"
    with EmbeddedBroker() as broker:
        broker.create_topic(TOPIC, PARTITIONS)
        _drain(log, broker.bootstrap_servers)
        compared = _compare(log, broker.bootstrap_servers)
    say("and in Kafka: read back and compared")
    return SparkStage(
        rows=compared.matched + compared.missing,
        seconds=round(time.monotonic() - begun_s, 1),
        lost=compared.missing,
        repeated=compared.repeated,
        disordered=compared.disordered + compared.strangers,
        altered=compared.altered,
    )


def _drain(log: str, bootstrap_servers: str) -> None:
    command = [
        sys.executable, "-m", "bridge", "run", "--log", log, "--topic", TOPIC,
        "--bootstrap-servers", bootstrap_servers, "--drain", "--json",
    ]  # fmt: skip  # a command line
    try:
        subprocess.run(command, capture_output=True, text=True, timeout=_DRAIN_S, check=True)
    except subprocess.TimeoutExpired:
        raise AologError(f"the log was not drained within {_DRAIN_S:.0f} s") from None
    except subprocess.CalledProcessError as error:
        lines = error.stderr.strip().splitlines() or ["it printed no error"]
        raise AologError(
            f"the forwarding process ended with {error.returncode}: {lines[-1]}"
        ) from None


def _compare(log: str, bootstrap_servers: str) -> Comparison:
    compared = Comparison(PARTITIONS)
    consumer = TopicReader(bootstrap_servers, TOPIC, PARTITIONS)
    try:
        with Reader(log) as reader:
            compared.appended(reader)
        heard_s = time.monotonic()
        while compared.unmatched and time.monotonic() - heard_s < _ARRIVAL_S:
            arrived = consumer.poll(0.1)
            if arrived:
                heard_s = time.monotonic()
                compared.arrived(arrived)
                compared.match()
        compared.match(final=True)
    finally:
        consumer.close()
    return compared
