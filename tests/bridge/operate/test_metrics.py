"""Metrics: their values, their bounds, their reference page."""

from __future__ import annotations

import re

from prometheus_client.parser import text_string_to_metric_families

from aolog import Gap
from aolog.docs import generated
from aolog.storage.storage import Storage
from bridge.deliver.losses import LogLosses
from bridge.kafka import telemetry
from bridge.kafka.stalls import Stall
from bridge.operate.metrics import LOGS_MAX, exposition
from bridge.operate.monitor import Monitor
from bridge.supervise.status import LogStatus, removed
from bridge.supervise.turns import Phase
from tests.bridge.operate.endpoints import LOG, STATUS


def text_of(*logs: LogStatus) -> str:
    monitor = Monitor(lambda: list(logs), Storage())
    monitor.sample()
    return exposition(monitor)[0].decode()


def values_of(*logs: LogStatus) -> dict[tuple[str, str | None, str | None], float]:
    return {
        (s.name, s.labels.get("log"), s.labels.get("state")): s.value
        for family in text_string_to_metric_families(text_of(*logs))
        for s in family.samples
    }


def test_values_are_those_of_the_status_and_counts_add_up() -> None:
    blocked = LOG._replace(log="s", phase=Phase.STANDING, state="blocked", error="no")
    values = values_of(LOG, blocked)
    assert values["aolog_bridge_records_acknowledged_total", "a", None] == 10
    assert values["aolog_bridge_lag_seconds", "a", None] == 2.5
    assert values["aolog_bridge_cluster_reachable", "a", None] == 1
    assert values["aolog_bridge_durable_address", "a", None] == 8
    assert values["aolog_bridge_state", "s", "blocked"] == 1
    assert values["aolog_bridge_state", "s", "live"] == 0
    parts = ("records_acknowledged_total", "records_skipped_total", "records_lost_total",
             "records_dead_lettered_total", "records_dropped_total",
             "records_filtered_total", "lag_records")  # fmt: skip  # a list
    assert values["aolog_bridge_records_seen", "a", None] == sum(
        values[f"aolog_bridge_{name}", "a", None] for name in parts
    )
    assert ("process_resident_memory_bytes", None, None) in values


def test_what_is_not_known_is_left_out() -> None:
    text = text_of(LOG._replace(status=STATUS._replace(lag_records=None, lag_seconds=None)))
    assert "aolog_bridge_lag_bytes{" in text
    assert "aolog_bridge_lag_records{" not in text
    assert "aolog_bridge_disk_full_seconds{" not in text


def test_logs_beyond_the_bound_are_summed_in_one_row() -> None:
    logs = [LOG._replace(log=f"log {i:04}") for i in range(LOGS_MAX + 7)]
    values = values_of(*logs)
    names = {log for name, log, _ in values if name == "aolog_bridge_lag_records"}
    assert len(names) == LOGS_MAX + 1
    assert values["aolog_bridge_records_acknowledged_total", "other", None] == 70
    assert values["aolog_bridge_lag_seconds", "other", None] == 2.5  # the oldest, not a sum


def test_totals_never_fall_when_a_log_is_removed() -> None:
    """Neither one with a row of its own, nor one of the others."""
    logs = [LOG._replace(log=f"log {i:04}", acknowledged=i) for i in range(LOGS_MAX + 7)]
    monitor = Monitor(lambda: list(logs), Storage())

    def totals() -> dict[tuple[str, str], float]:
        monitor.sample()
        return {
            (s.name, s.labels["log"]): s.value
            for family in text_string_to_metric_families(exposition(monitor)[0].decode())
            for s in family.samples
            if family.type == "counter" and "log" in s.labels and s.name.endswith("_total")
        }

    before = totals()
    for gone in (3, LOGS_MAX + 2):
        left = [logs[gone], *[log for log in logs if log.phase == Phase.REMOVED]]
        logs = [log for log in logs if log not in left] + [removed("main", left)]
        after = totals()
        both = before.keys() & after.keys()
        assert len(both) >= len(before) - 2 * 12
        assert {key: (before[key], after[key]) for key in both if after[key] < before[key]} == {}
        before = after
    logs.append(LOG._replace(log="new"))
    assert ("aolog_bridge_gaps_total", "new") in totals()  # the first one's row is free


def test_a_stalled_partition_is_named() -> None:
    stall = Stall(topic="t", partition=3, leader="b1:9092, node 1", seconds=12.5)
    text = text_of(LOG._replace(status=STATUS._replace(stalled=(stall,))))
    assert (
        'aolog_bridge_stalled_seconds{cluster="main",leader="b1:9092, node 1",log="a",'
        'partition="3",topic="t"} 12.5'
    ) in text


def test_names_with_control_characters_or_other_bytes_are_safe() -> None:
    odd = LOG._replace(log=b"bad\xff\x1b[31m\x07".decode(errors="surrogateescape"))
    text = text_of(odd)
    assert "\x1b" not in text
    assert r'log="bad\\xff\\x1b[31m\\x07"' in text


def test_the_reference_page_lists_exactly_what_is_published() -> None:
    documented = set(re.findall(r"^\| `(aolog_bridge_\w+)`", generated.metrics(), re.MULTILINE))
    families = text_string_to_metric_families(text_of(LOG))
    published = {
        f.name + ("_total" if f.type == "counter" else "")
        for f in families
        if f.name.startswith("aolog_bridge") and not f.name.endswith("_created")
    }
    published = {name if name != "aolog_bridge" else "aolog_bridge_info" for name in published}
    assert published == documented


def total(name: str, **labels: str) -> float:
    return telemetry.REGISTRY.get_sample_value(f"aolog_bridge_{name}_total", labels) or 0.0


def test_requests_that_were_retried_are_counted_over_all_clients_and_never_fall() -> None:
    def statistics(retries: int) -> dict[str, object]:
        broker = {
            "nodeid": 1, "nodename": "b1:9092", "rtt": {"cnt": 0}, "outbuf_cnt": 0,
            "waitresp_cnt": 0, "txretries": retries,
        }  # fmt: skip  # one value
        return {"brokers": {"b1": broker}}

    before = total("requests_retried", broker="b1:9092")
    first: dict[str, int] = {}
    second: dict[str, int] = {}
    for client, retries in ((first, 2), (first, 5), (second, 1), (first, 5)):
        telemetry.note_brokers(statistics(retries), client)
    assert total("requests_retried", broker="b1:9092") - before == 5 + 1


def test_lost_records_are_counted_by_reason_and_each_once() -> None:
    before = {
        reason: total("records_lost_by_reason", reason=reason) for reason in ("pruned", "corrupt")
    }
    losses = LogLosses()
    losses.pruned([(Gap(0, 100, "pruned", 10), 0)])
    losses.pruned([(Gap(0, 150, "pruned", 15), 0)])  # more of the same
    losses.met(Gap(200, 300, "corrupt", 7), 20)
    after = {reason: total("records_lost_by_reason", reason=reason) for reason in before}
    assert {reason: after[reason] - before[reason] for reason in before} == {
        "pruned": 15,
        "corrupt": 7,
    }
