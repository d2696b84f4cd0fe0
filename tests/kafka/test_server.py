"""The Kafka that other tests rely on: it is real, keeps its word over a crash, and says why not."""

from __future__ import annotations

import base64
import os
import subprocess
import sys
import threading
import uuid
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer

from bridge.testing.apache_kafka import KafkaDied, KafkaServer, KafkaUnavailable, jars, server
from tests.bridge.against_kafka import raw_committed

if TYPE_CHECKING:
    from tests.kafka.plugin import TopicFactory

pytestmark = pytest.mark.kafka

ROOT = Path(__file__).parents[2]
# One generous bound for whatever must happen soon; nothing here waits for it when all is well.
SOON_S = 30.0


def producer(kafka: KafkaServer, **config: object) -> Producer:
    return Producer(
        {
            "bootstrap.servers": kafka.bootstrap_servers,
            "acks": "all",
            "reconnect.backoff.max.ms": 250,
            "log_level": 0,
            **{key.replace("_", "."): value for key, value in config.items()},
        }
    )


def test_a_paused_server_does_not_answer_and_a_resumed_one_does(
    kafka: KafkaServer, topic: TopicFactory
) -> None:
    name = topic()
    sender = producer(kafka, message_timeout_ms=0)
    sender.produce(name, b"warm", None, 0)
    assert sender.flush(SOON_S) == 0
    kafka.pause()
    sender.produce(name, b"held", None, 0)
    assert sender.flush(1.0) == 1
    kafka.resume()
    assert sender.flush(SOON_S) == 0
    assert [record.value() for record in raw_committed(kafka, name)] == [b"warm", b"held"]


@pytest.mark.usefixtures("kafka")  # for its skip
def test_the_error_of_a_server_that_cannot_start_quotes_its_log(tmp_path: Path) -> None:
    with pytest.raises(KafkaDied, match=r"Invalid value often for configuration num\.io\.threads"):
        KafkaServer(tmp_path, {"num.io.threads": "often"})


@pytest.mark.parametrize(("ci", "outcome"), [("", "1 skipped"), ("true", "1 error")])
def test_without_java_there_is_one_clear_line_and_in_ci_a_failure(ci: str, outcome: str) -> None:
    run = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-rsE", "-p", "no:cacheprovider"),
            f"{__file__}::test_a_paused_server_does_not_answer_and_a_resumed_one_does",
        ],
        env={**os.environ, "CI": ci, "PATH": "/nonexistent", "JAVA_HOME": ""},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert outcome in run.stdout
    assert "no Kafka server: java is not installed" in run.stdout
    assert run.returncode == (1 if ci else 0)


def fake_maven(folder: Path, script: str, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Put a program called mvn into the path; answers a file to which each call adds a line."""
    calls = folder / "calls"
    program = folder / "mvn"
    program.write_text(f'#!/bin/sh\necho call >> {calls}\nfor to in "$@"; do :; done\n{script}\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(folder), prepend=os.pathsep)
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
    return calls


FETCHES = 'to=${to#-DoutputDirectory=}; mkdir -p "$to"; sleep 0.2; echo jar > "$to/kafka.jar"'


def test_jars_are_fetched_once_for_several_threads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = fake_maven(tmp_path, FETCHES, monkeypatch)
    askers = [threading.Thread(target=jars) for _ in range(4)]
    for asker in askers:
        asker.start()
    for asker in askers:
        asker.join()
    assert [path.name for path in jars().iterdir()] == ["kafka.jar"]
    assert jars().parent == tmp_path / "cache" / "aolog-bridge"
    assert calls.read_text() == "call\n"


def test_a_fetch_that_fails_half_way_leaves_no_jars(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_maven(tmp_path, f"{FETCHES}; exit 7", monkeypatch)
    with pytest.raises(KafkaUnavailable, match=r"mvn fetched no jars \(7\)"):
        jars()
    fake_maven(tmp_path, FETCHES, monkeypatch)
    assert [path.name for path in jars().iterdir()] == ["kafka.jar"]


def test_a_cluster_id_is_never_taken_for_an_option(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server.uuid, "uuid4", lambda: uuid.UUID(bytes=b"\xf8" * 16))
    made = server.cluster_id()
    assert not made.startswith("-")
    assert len(base64.urlsafe_b64decode(made + "==")) == 16
