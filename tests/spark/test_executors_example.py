"""The example `aolog.examples.spark_executors`, on Spark."""

import aolog
from aolog.examples.spark_executors import write_rejected


def test_each_task_s_rejected_lines_are_in_a_log_of_its_own(tmp_path, spark):
    lines = [f"sensor {i}" if i % 3 else f"sensor x{i}" for i in range(30)] + ["alone"]
    frame = spark.createDataFrame([(line,) for line in lines], "value string").repartition(3)
    write_rejected(frame, str(tmp_path))
    logs = sorted(tmp_path.iterdir())
    assert len(logs) == 3
    found = {}
    for log in logs:
        with aolog.Reader(log) as reader:
            assert reader.topic == "rejected"
            found |= {record.value.decode(): dict(record.headers)["reason"] for record in reader}
    expected = {f"sensor x{i}": b"no number" for i in range(0, 30, 3)}
    assert found == {**expected, "alone": b"not two words"}
