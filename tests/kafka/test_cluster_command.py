"""`aolog-bridge cluster`: a Kafka that others can use as it says, and that leaves nothing."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner

from bridge.cli import main

pytestmark = [pytest.mark.kafka, pytest.mark.xdist_group("cluster")]


@contextmanager
def cluster(*options: str) -> Iterator[tuple[subprocess.Popen, str]]:
    """The command, and the first line that it printed."""
    command = [sys.executable, "-m", "bridge", "cluster", *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process, process.stdout.readline()
        finally:
            process.terminate()  # and not killed: its servers would be left
            process.wait(60)


@pytest.mark.usefixtures("kafka")  # for its skip
@pytest.mark.parametrize(
    ("options", "number", "replicas"),
    [
        (["--tls", "--sasl", "--server-config", "num.partitions=5"], signal.SIGINT, 1),
        (["--nodes", "3"], signal.SIGTERM, 3),
    ],
    ids=["secured", "three nodes"],
)
def test_a_cluster_can_be_used_as_it_says_and_leaves_nothing(options, number, replicas):
    with cluster(*options, "--json") as (process, line):
        told = json.loads(line)
        more = [word for pair in told["settings"].items() for word in ("-X", "=".join(pair))]
        topics = ["topics", "--bootstrap-servers", told["bootstrap_servers"], *more, "--json"]
        made = CliRunner().invoke(main, [*topics, "--create", "t"])
        assert made.exit_code == 0, made.output
        partitions = json.loads(made.stdout)["partitions"]
        assert len(partitions[0]["replicas"]) == replicas
        assert len(partitions) == (5 if replicas == 1 else 3)
        file = Path(told["properties"])
        assert file.stat().st_mode & 0o777 == 0o600
        written = dict(each.split("=", 1) for each in file.read_text().splitlines())
        assert written == {"bootstrap.servers": told["bootstrap_servers"], **told["settings"]}
        process.send_signal(number)
        assert process.wait(60) == 0
    assert len(told["nodes"]) == replicas
    for node in told["nodes"]:
        with pytest.raises(ProcessLookupError):
            os.kill(node["pid"], 0)
    assert not file.parent.exists()


@pytest.mark.usefixtures("kafka")
def test_a_node_that_dies_ends_the_command_with_an_error():
    with cluster("--json") as (process, line):
        os.kill(json.loads(line)["nodes"][0]["pid"], signal.SIGKILL)
        assert process.wait(60) == 6


@pytest.mark.usefixtures("kafka")
def test_jars_that_are_no_kafka_are_an_error(tmp_path):
    result = CliRunner().invoke(main, ["cluster", "--jars", str(tmp_path)])
    assert result.exit_code == 6
    assert "formatting the storage failed" in result.stderr
