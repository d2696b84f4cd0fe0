"""A partition whose leader is down delays no other partition. Against two embedded brokers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bridge.config.routing import partition_of_key
from bridge.deliver.status import Status
from bridge.kafka.embedded import EmbeddedBroker
from tests.bridge.brokers import TOPIC, assert_arrived, consume
from tests.bridge.forwarders import WAITS, Forward
from tests.bridge.logs import fill, records_of


@pytest.fixture
def two() -> Iterator[EmbeddedBroker]:
    """Two brokers: even partitions are led by the first, odd ones by the second."""
    with EmbeddedBroker(2) as broker:
        broker.create_topic(TOPIC, 2)
        yield broker


@pytest.mark.parametrize("when", ["at the start", "under way"])
def test_a_leader_that_is_down_delays_only_its_own_partitions(
    two: EmbeddedBroker, log: Path, forward: Forward, when: str
) -> None:
    """More than the client's queue holds, for either. 10 s each."""
    options: dict[str, Any] = {
        "bootstrap_servers": two.bootstrap_servers,
        "settings": {"compression.type": "lz4"},  # the broker keeps 5 MiB a partition
    }
    fill(log, 2000)
    run = forward(**options)
    run.until(lambda s: s.acknowledged == 2000)
    if when == "at the start":
        run.stop()
    two.set_down(2)
    fill(log, range(2000, 150_000))
    up = wanted(log)
    before = 2000
    if when == "at the start":
        run, before = forward(**options), 0
    status = run.until(lambda s: there(s) >= before + up)
    assert there(status) == before + up
    assert status.held_back == 1
    assert status.committed < records_of(log)[-1].address
    two.set_up(2)
    run.until(lambda s: there(s) == before + 148_000)
    run.stop()
    assert_arrived(records_of(log), consume(two.bootstrap_servers, TOPIC, 2))


def there(status: Status) -> int:
    """Records that arrived. Of some the answer may be lost with a connection that is given up: they
    are recognised on the next one, and skipped."""
    return status.acknowledged + status.skipped


def wanted(log: Path) -> int:
    """Records after the 2,000th for the partition that is up."""
    return sum(partition_of_key(r.key or b"", 2) == 0 for r in records_of(log)[2000:])


def test_a_partition_that_never_answered_delays_no_other(
    two: EmbeddedBroker, log: Path, forward: Forward
) -> None:
    """Its leader is down before the bridge ever saw the topic: so it has no checkpoint."""
    fill(log, 3000)
    two.set_down(2)
    waits = WAITS._replace(silent_pause_s=0.5)
    run = forward(bootstrap_servers=two.bootstrap_servers, waits=waits)
    up = sum(partition_of_key(r.key or b"", 2) == 0 for r in records_of(log))
    status = run.until(lambda s: s.acknowledged == up)
    assert (status.held_back, status.standing, status.state) == (1, 0, "sending")
    assert f"{TOPIC}/1 waits" in (status.error or "")
    two.set_up(2)
    run.until(lambda s: s.acknowledged == 3000)
    run.stop()
    assert_arrived(records_of(log), consume(two.bootstrap_servers, TOPIC, 2))
