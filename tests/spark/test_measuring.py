"""The bench of Spark counts nobody's time whose work was not done: here, where a Spark runs already."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bench.cases.spark import READ_TARGETS, WRITE_TARGETS, load, reader
from bench.measure import Wrong
from bench.sparks import Content, proof_of


@pytest.mark.slow  # half a minute: other values are caught by the cases of the bench, too
def test_a_reader_of_other_bytes_is_no_result_and_neither_is_one_of_other_values(tmp_path, spark):
    content = Content.make(spark, str(tmp_path), 100, 20)
    assert content.proof.records == 100
    frame = load(spark, content, "aolog")
    right = reader("right", content, lambda: frame, "none")
    with right.session(str(tmp_path)) as work:
        assert work() == 100
    assert right.proof is not None
    assert right.proof(str(tmp_path)) == content.proof
    short = replace(content, bytes=content.bytes + 1)
    with (
        pytest.raises(Wrong, match="short: read 2000 bytes of 2001"),
        reader("short", short, lambda: frame, "none").session(str(tmp_path)) as work,
    ):
        work()
    altered = frame.selectExpr("reverse(value) AS value")
    assert proof_of(altered).records == 100
    assert proof_of(altered) != content.proof


def test_targets_are_rates_at_least():
    targets = (*READ_TARGETS, *WRITE_TARGETS)
    assert [round(1 / one.ratio_max, 2) for one in targets] == [0.9, 0.9, 0.9, 2.5, 0.75]
