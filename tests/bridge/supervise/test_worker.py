"""One log and one cluster: pauses between tries, and what is counted when a run ends."""

from __future__ import annotations

import queue
from pathlib import Path

import pytest

from aolog.errors import StorageFull
from bridge.config.load import load
from bridge.deliver.rate_limit import RateLimit
from bridge.supervise.options import cluster_options
from bridge.supervise.worker import Worker
from tests.bridge.conftest import NOWHERE


@pytest.fixture
def worker(tmp_path: Path) -> Worker:
    config = load(None, {"root": str(tmp_path), "clusters.bootstrap_servers": NOWHERE})
    options = cluster_options(config, RateLimit())["main"]
    return Worker("a", str(tmp_path / "a"), options, queue.SimpleQueue())


@pytest.mark.parametrize(("ran_s", "pauses_s"), [(24 * 3600, [1, 1, 1]), (5, [1, 2, 4])])
def test_a_pause_grows_only_where_a_log_fails_soon(
    worker: Worker, monkeypatch: pytest.MonkeyPatch, ran_s: float, pauses_s: list[float]
) -> None:
    now_s = 1_000.0
    monkeypatch.setattr("time.monotonic", lambda: now_s)
    for pause_s in pauses_s:
        worker.phase, worker.since_s = "running", now_s
        now_s += ran_s
        worker.take_end()
        worker.retry(StorageFull("no room"))
        assert worker.phase == "waiting"
        assert pause_s / 2 <= worker.retry_at_s - now_s <= pause_s
