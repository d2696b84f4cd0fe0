"""The sizes of a run. `small` is for tests: it proves that every case runs; its figures mean nothing."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["SIZES", "Size"]


class Size(NamedTuple):
    """The amounts of work; each case takes those that concern it."""

    records: int  # of a contender in each round; fewer if they would exceed bytes_max
    bytes_max: int
    records_slow: int  # of a contender that takes a thousand times longer
    record_bytes: tuple[int, ...]
    rounds: int  # without the warm-up
    slabs: tuple[int, ...]  # of the logs that are opened
    unsealed_bytes: int  # of a last slab without a seal
    seek_bytes: int  # of the log for seeks
    scale_records: tuple[int, ...]  # of the logs that show how costs grow
    scale_slabs: tuple[int, ...]
    scale_rounds: int
    memory_bytes: int  # of the log that a writer and readers go through
    memory_rounds: int
    imports: int  # rounds
    instructions: int  # thousands of records
    follow_records: int  # that are followed one by one
    follow_idle_s: float  # how long a follower waits in vain
    follow_rounds: int
    bridge_kafka: bool  # whether cases of the bridge also run against Apache Kafka, if available
    bridge_rounds: int  # of cases of the bridge that take long
    latency_seconds: float  # how long records are appended at a steady rate
    delivery_records: int  # that are delivered in every way
    delivery_slow: int  # the same, for a way that waits for each record
    backlog_bytes: int  # that a bridge drains
    spark_records: tuple[tuple[int, int], ...]  # (length, number) of the records for Spark
    spark_rounds: int
    spark_settings: dict[str, str]
    spark_slabs: tuple[int, int]  # logs, and slabs of all together, for which Spark makes a plan

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
        spark_records=((100, 2_000_000), (100, 8_000_000), (1024, 1_000_000)),
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
