"""Files of secrets that options name are followed while the bridge runs. (Those of a configuration, on a Kafka
with TLS and SASL: tests/bridge/kafka/test_security_kafka.py.)"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from bridge.kafka.embedded import EmbeddedBroker
from tests.bridge.conftest import Process, fill


def test_a_file_that_changes_is_used_and_one_that_is_wrong_or_missing_changes_nothing(
    bridge: Callable[..., Process], broker: EmbeddedBroker, tmp_path: Path
) -> None:
    file, log, delivered = tmp_path / "linger", tmp_path / "log", 10
    file.write_text("1\n")
    fill(log, delivered)
    given = ["--log", log, "--bootstrap-servers", broker.bootstrap_servers, "--topic", "t"]
    given += ["-X", f"linger.ms={{file={file}}}"]
    process = bridge("run", *given, "--json", "--status-seconds", "0.05")

    def goes_on() -> None:
        nonlocal delivered
        fill(log, 10)
        delivered += 10
        process.until(lambda s: s["acknowledged"] == delivered)

    process.until(lambda s: s["acknowledged"] == delivered)
    file.write_text("2\n")
    process.until(lambda _: process.stderr.count("has changed; reading it again") == 1)
    goes_on()
    file.write_text("soon\n")
    process.until(lambda _: process.stderr.count("a new file is wrong") == 1)
    goes_on()
    file.unlink()
    process.until(lambda _: process.stderr.count("a new file is wrong") == 2)
    goes_on()
    file.write_text("3\n")
    process.until(lambda _: process.stderr.count("has changed; reading it again") == 4)
    goes_on()
    assert process.terminate() == 0
    assert process.stderr.count("is wrong") == 2
