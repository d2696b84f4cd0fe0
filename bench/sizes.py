"""How much is measured. `small` is for tests: it proves that all of it runs, and times nothing."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["SIZES", "Size"]


class Size(NamedTuple):
    """records: a contender's in each round, fewer where they would pass `bytes_max`.
    records_slow: of a contender that takes a thousand times longer. rounds: that count. slabs, and
    unsealed_bytes of a last one: of the logs that are opened. seek_bytes: of a log in which is
    sought. scale_records, scale_slabs: of the
    logs that show how a cost grows; scale_rounds of them. memory_bytes: of the log that a writer
    and readers go through, memory_rounds times. imports: rounds. instructions: thousands of
    records. follow_records: that are followed one by one, follow_rounds times; follow_idle_s: that
    a follower waits in vain. bridge_kafka: whether cases of the bridge also run against Apache Kafka, where it can
    be had. bridge_rounds: of those cases that take long. latency_seconds: how long a beat goes on.
    delivery_records, of which delivery_slow where each is waited for: that are delivered in every
    way. backlog_bytes: that a bridge drains. spark_records: lengths, and how many of each Spark
    reads and writes, spark_rounds times, with spark_settings; spark_slabs: of how many logs,
    and how many slabs they have together, it makes a plan."""

    records: int
    bytes_max: int
    records_slow: int
    record_bytes: tuple[int, ...]
    rounds: int
    slabs: tuple[int, ...]
    unsealed_bytes: int
    seek_bytes: int
    scale_records: tuple[int, ...]
    scale_slabs: tuple[int, ...]
    scale_rounds: int
    memory_bytes: int
    memory_rounds: int
    imports: int
    instructions: int
    follow_records: int
    follow_idle_s: float
    follow_rounds: int
    bridge_kafka: bool
    bridge_rounds: int
    latency_seconds: float
    delivery_records: int
    delivery_slow: int
    backlog_bytes: int
    spark_records: tuple[tuple[int, int], ...]
    spark_rounds: int
    spark_settings: dict[str, str]
    spark_slabs: tuple[int, int]

    def records_of(self, record_bytes: int) -> int:
        return max(1, min(self.records, self.bytes_max // record_bytes))


SIZES = {
    # several frames even at 256 KiB a frame, for each length
    "small": Size(
        6_000,
        600_000,
        60,
        (100,),
        1,
        (1, 10),
        1 << 18,
        seek_bytes=1 << 20,
        scale_records=(1_000, 4_000),
        scale_slabs=(1, 6),
        scale_rounds=1,
        memory_bytes=2_000_000,
        memory_rounds=1,
        imports=1,
        instructions=1,
        follow_records=30,
        follow_idle_s=0.3,
        follow_rounds=1,
        bridge_kafka=False,
        bridge_rounds=1,
        latency_seconds=0.2,
        delivery_records=2_000,
        delivery_slow=20,
        backlog_bytes=2_000_000,
        spark_records=((100, 4_000),),
        spark_rounds=1,
        # a JVM that starts soon and compiles little
        spark_settings={
            "spark.driver.memory": "512m",
            "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
            "spark.sql.codegen.wholeStage": "false",
            "spark.sql.codegen.factoryMode": "NO_CODEGEN",
        },
        spark_slabs=(4, 12),
    ),
    # 20 MB: as large as the last cache; ten times as much gave the same ratios
    "normal": Size(
        200_000,
        50_000_000,
        2_000,
        (100,),
        11,
        (1, 100, 10_000),
        64 << 20,
        seek_bytes=128 << 20,
        scale_records=(10_000, 100_000, 1_000_000),
        scale_slabs=(1, 10, 100, 1_000),
        scale_rounds=5,
        memory_bytes=1_000_000_000,
        memory_rounds=3,
        imports=21,
        instructions=20,
        follow_records=500,
        follow_idle_s=5.0,
        follow_rounds=3,
        bridge_kafka=True,
        bridge_rounds=3,
        latency_seconds=5.0,
        delivery_records=100_000,
        delivery_slow=500,
        backlog_bytes=1_000_000_000,
        spark_records=((100, 1_000_000), (100, 8_000_000), (1024, 1_000_000)),
        spark_rounds=3,
        spark_settings={"spark.driver.memory": "4g"},
        spark_slabs=(1_000, 10_000),
    ),
    # several slabs
    "large": Size(
        2_000_000,
        200_000_000,
        10_000,
        (20, 100, 1024),
        7,
        (1, 100, 10_000, 100_000),
        1 << 30,
        seek_bytes=1 << 30,
        scale_records=(100_000, 1_000_000, 10_000_000, 100_000_000),
        scale_slabs=(1, 10, 100, 1_000, 10_000),
        scale_rounds=3,
        memory_bytes=1_000_000_000,
        memory_rounds=3,
        imports=41,
        instructions=50,
        follow_records=1000,
        follow_idle_s=10.0,
        follow_rounds=5,
        bridge_kafka=True,
        bridge_rounds=1,
        latency_seconds=20.0,
        delivery_records=100_000,
        delivery_slow=500,
        backlog_bytes=10_000_000_000,
        spark_records=((20, 8_000_000), (100, 8_000_000), (1024, 4_000_000)),
        spark_rounds=3,
        spark_settings={"spark.driver.memory": "4g"},
        spark_slabs=(1_000, 10_000),
    ),
}
