"""The bench of Spark: every contender gives back what it was given, and a wrong one is no result.
No time is asserted. A minute, for the JVM and the processes of Python that it starts: only with `--long`."""

import pytest

from bench import sparks
from bench.cases import spark
from tests.bench.running import CASES_OF_SPARK, run_small

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    if (reason := sparks.missing()) is not None:
        pytest.skip(reason)
    return run_small(CASES_OF_SPARK, tmp_path_factory.mktemp("bench"))


def test_every_contender_gives_back_the_values_that_it_was_given(run):
    _, document = run
    wide, narrow, streaming, writing, first = document["groups"]
    expected = wide["results"][0]["expected_digest"]
    assert expected.startswith("400000 bytes, crc32s ")
    alone = {spark.FILES, spark.NOOP, spark.LIMIT}  # of them only bytes and rows are known
    for group in (wide, narrow, writing):
        for result in group["results"]:
            assert result["records"] == 4_000
            assert result["digest"] == (None if result["name"] in alone else expected)
    assert [result["name"] for result in wide["results"]] == [
        spark.SOURCE, spark.SCAN, spark.EMBEDDED, spark.BY_ROWS, spark.OWN_COLUMNS, spark.LIMIT,
    ]  # fmt: skip  # a list
    assert {spark.PARQUET, spark.ZSTD, spark.TEXT} < {one["name"] for one in narrow["results"]}
    stored = {one["name"]: one["stored_bytes"] for one in writing["results"]}
    assert stored[spark.ZSTD] < 400_000 < stored[spark.SOURCE] < 450_000
    assert {result["records"] for result in first["results"]} == {1}
    assert [result["name"] for result in streaming["results"]] == [
        spark.SOURCE, spark.LIMIT, spark.PARQUET,
    ]  # fmt: skip  # a list
    assert {result["records"] for result in streaming["results"]} == {4_000}
    for group in (narrow, streaming):  # most of it is Java's
        assert all(result["median_cpu_ns"] * 4_000 > 10_000_000 for result in group["results"])
