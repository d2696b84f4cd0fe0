"""The alerts, the dashboard and the runbook, held against each other and against the metrics."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from aolog.storage.storage import Storage
from bridge.operate.metrics import exposition
from bridge.operate.monitor import Monitor
from tests.bridge.operate.endpoints import LOG

promql = pytest.importorskip("promql_parser")

ROOT = Path(__file__).parents[3]
DEPLOY = ROOT / "bridge/deploy"
RUNBOOK = ROOT / "aolog/docs/how-to/runbook.md"
# Of Prometheus itself, and labels that it adds.
NOT_OURS = {"up"}


def alerts() -> list[dict[str, str]]:
    """name and expr of each, read without a YAML library: the file is ours."""
    text = (DEPLOY / "prometheus/alerts.yml").read_text()
    found = re.findall(r"- alert: (\w+)\n +expr: (>\n(?: {10}.*\n)+|.*\n)", text)
    return [{"name": name, "expr": expr.lstrip(">").strip()} for name, expr in found]


def queries() -> list[str]:
    dashboard = json.loads((DEPLOY / "grafana/dashboard.json").read_text())
    return [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]


def names_in(node: Any) -> set[str]:
    """The metrics that an expression selects."""
    if isinstance(node, promql.VectorSelector):
        return {node.name}
    if isinstance(node, promql.MatrixSelector):
        return names_in(node.vector_selector)
    parts = [getattr(node, name, None) for name in ("expr", "lhs", "rhs")]
    args = getattr(node, "args", None)
    inner = [part for part in parts if part is not None] + (list(args) if args else [])
    return set().union(*(names_in(part) for part in inner)) if inner else set()


def published() -> set[str]:
    monitor = Monitor(lambda: [LOG], Storage())
    monitor.sample()
    text = exposition(monitor)[0].decode()
    found = set()
    for family in text_string_to_metric_families(text):
        found |= {f"{family.name}_total" if family.type == "counter" else family.name}
    return found


@pytest.mark.parametrize(
    "command", [["check", "rules", "alerts.yml"], ["test", "rules", "alerts_test.yml"]]
)
def test_prometheus_own_tool_accepts_the_alerts_and_their_tests(command: list[str]) -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        if os.environ.get("CI"):
            pytest.fail("there is no promtool; .ci/run installs it")
        pytest.skip("there is no promtool")
    done = subprocess.run(
        [promtool, *command],
        cwd=DEPLOY / "prometheus",
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_alert_is_tested_and_has_an_entry_in_the_runbook() -> None:
    tested = (DEPLOY / "prometheus/alerts_test.yml").read_text()
    entries = re.findall(r"^## (\w+)$", RUNBOOK.read_text(), re.MULTILINE)
    names = [alert["name"] for alert in alerts()]
    assert len(names) == 15
    assert entries == names
    for name in names:
        assert re.search(rf"alertname: {name}\n +exp_alerts:", tested), name


@pytest.mark.parametrize("expression", [*(a["expr"] for a in alerts()), *queries()])
def test_every_query_parses_and_asks_for_metrics_that_the_bridge_has(expression: str) -> None:
    text = expression.replace("$__rate_interval", "5m").replace("$__range", "1h")
    names = names_in(promql.parse(text))
    assert names
    names -= NOT_OURS
    assert names <= published()
