"""The bench of scans from a store: every contender gives back what it was given. No time is asserted. A minute,
for the JVM: only with `--long`."""

import pytest

from bench import sparks, stores
from bench.cases import store
from tests.bench.running import CASES_OF_STORES, run_small

pytestmark = pytest.mark.slow


def test_every_contender_gives_back_the_values_that_it_was_given(tmp_path):
    if (reason := sparks.missing() or stores.missing()) is not None:
        pytest.skip(reason)
    _, document = run_small(CASES_OF_STORES, tmp_path)
    (group,) = document["groups"]
    results = {result["name"]: result for result in group["results"]}
    assert results.keys() == {
        store.HERE, store.NEAR, store.FAR, store.PARQUET, store.PARQUET_NEAR, store.PARQUET_FAR,
    }  # fmt: skip  # a set
    for result in results.values():
        assert result["records"] == 4_000
        assert result["digest"] == result["expected_digest"] != None  # noqa: E711 -- a chain
