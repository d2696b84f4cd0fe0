"""The Kafka that other tests rely on says why it is not there."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from bridge.testing.apache_kafka.jars import KafkaUnavailable, jars
from bridge.testing.apache_kafka.server import KafkaDied, KafkaServer
from tests.kafka.plugin import started

pytestmark = pytest.mark.kafka


@pytest.mark.usefixtures("kafka")  # for its skip
def test_the_error_of_a_server_that_cannot_start_quotes_its_log(tmp_path: Path) -> None:
    with pytest.raises(KafkaDied, match=r"Invalid value often for configuration num\.io\.threads"):
        KafkaServer(tmp_path, {"num.io.threads": "often"})


@pytest.mark.parametrize(
    ("ci", "outcome"), [("", pytest.skip.Exception), ("true", pytest.fail.Exception)]
)
def test_without_java_tests_are_skipped_with_one_clear_line_and_in_ci_they_fail(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ci: str, outcome: type[BaseException]
) -> None:
    monkeypatch.setenv("CI", ci)
    monkeypatch.setenv("PATH", "/nonexistent")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    with pytest.raises(outcome, match="no Kafka server: java is not installed"):
        started(lambda: KafkaServer(tmp_path))


def test_a_fetch_that_fails_half_way_leaves_no_jars_and_one_that_succeeds_is_the_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "mvn"
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))

    def fake_maven(status: int) -> None:
        program.write_text(
            '#!/bin/sh\nfor to in "$@"; do :; done\nto=${to#-DoutputDirectory=}\n'
            f'mkdir -p "$to"; echo jar > "$to/kafka.jar"; exit {status}\n'
        )
        program.chmod(0o755)

    fake_maven(7)
    with pytest.raises(KafkaUnavailable, match=r"mvn fetched no jars \(7\)"):
        jars()
    fake_maven(0)
    assert [path.name for path in jars().iterdir()] == ["kafka.jar"]
    fake_maven(7)
    assert jars().parent == tmp_path / "cache" / "aolog-bridge"
