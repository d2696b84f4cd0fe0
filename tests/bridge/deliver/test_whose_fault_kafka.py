"""What is not the record's fault waits and is named, whatever becomes of poison: against Apache
Kafka with access control. 60 s: a server of its own."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from aolog import Writer
from bridge.deliver.at_least_once import topics
from bridge.errors import Undeliverable
from bridge.testing.apache_kafka import KafkaServer, KafkaUnavailable
from tests.bridge.against_kafka import committed_in, name_of
from tests.bridge.conftest import Run, append, cursor_of, fill, forwarder, records_of

pytestmark = [
    pytest.mark.kafka, pytest.mark.timeout(300), pytest.mark.xdist_group("strict kafka"),
]  # fmt: skip  # one server

DELIVERIES = pytest.mark.parametrize("delivery", ["at_least_once", "exactly_once"])
CURSORS = "aolog-bridge-cursors"


class Strict(KafkaServer):
    """Everybody but the tests' own clients has only the rights that it was granted."""

    def admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self.bootstrap_servers, "log_level": 0})

    def grant(self, kind: ResourceType, name: str, *operations: AclOperation) -> None:
        bindings = [
            AclBinding(
                kind, name, ResourcePatternType.LITERAL, "User:alice", "*", operation,
                AclPermissionType.ALLOW,
            )
            for operation in operations
        ]  # fmt: skip  # one call
        admin = self.admin()
        for future in admin.create_acls(bindings).values():
            future.result(timeout=30)

    def revoke(self) -> None:
        every = AclBindingFilter(
            ResourceType.ANY, None, ResourcePatternType.ANY, None, None, AclOperation.ANY,
            AclPermissionType.ANY,
        )  # fmt: skip  # one call
        admin = self.admin()
        for future in admin.delete_acls([every]).values():
            future.result(timeout=30)


@pytest.fixture(scope="module")
def strict(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Strict]:
    """A server with access control and without automatic topics, and a user alice without any
    right."""
    plain = "org.apache.kafka.common.security.plain.PlainLoginModule"
    try:
        server = Strict(
            tmp_path_factory.mktemp("strict") / "kafka",
            {
                "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
                "super.users": "User:ANONYMOUS",
                "auto.create.topics.enable": "false",
                "listener.name.sasl.sasl.enabled.mechanisms": "PLAIN",
                "listener.name.sasl.plain.sasl.jaas.config": (
                    f'{plain} required user_alice="secret";'
                ),
            },
            {"SASL": "SASL_PLAINTEXT", "FAR": "PLAINTEXT"},
            advertised={"FAR": "127.0.0.1:1"},
        )
    except KafkaUnavailable as error:
        if os.environ.get("CI") == "true":
            pytest.fail(str(error), pytrace=False)
        pytest.skip(str(error))
    with server:
        yield server


@pytest.fixture
def name(strict: Strict, tmp_path: Path) -> str:
    """A topic of the test's own, and nobody has any right."""
    strict.revoke()
    name = f"t-{tmp_path.name}"
    strict.create_topic(name)
    return name


@pytest.fixture
def as_alice(
    strict: Strict, log: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[..., Run]]:
    """Starts a forwarder that sets poison aside, as alice."""
    runs: list[Run] = []
    monkeypatch.setattr(topics, "REFUSED_PAUSE_S", 0.5)
    monkeypatch.setattr(topics, "TOPIC_WAIT_S", 1.0)

    def start(topic: str, delivery: str, **options: Any) -> Run:
        settings = {
            "security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN",
            "sasl.username": "alice", "sasl.password": "secret", **options.pop("settings", {}),
        }  # fmt: skip  # a table
        run = Run(
            forwarder(
                log,
                topic=topic,
                bootstrap_servers=strict.bootstrap_of("SASL"),
                settings=settings,
                delivery=delivery,
                **{"poison": "dead-letter", "commit_s": 0.05, **options},
            )
        )
        runs.append(run)
        return run

    yield start
    for run in runs:
        run.forwarder.stop()
    for run in runs:
        run.join(20)


def grant_all_but_topics(strict: Strict) -> None:
    read_write = (AclOperation.READ, AclOperation.WRITE, AclOperation.DESCRIBE)
    strict.grant(
        ResourceType.TOPIC, CURSORS, *read_write, AclOperation.CREATE,
        AclOperation.DESCRIBE_CONFIGS,
    )  # fmt: skip  # a list
    strict.grant(ResourceType.BROKER, "kafka-cluster", AclOperation.IDEMPOTENT_WRITE)
    strict.grant(ResourceType.GROUP, "aolog-bridge-cursors", AclOperation.READ)
    every = AclBinding(
        ResourceType.TRANSACTIONAL_ID, "*", ResourcePatternType.LITERAL, "User:alice", "*",
        AclOperation.ALL, AclPermissionType.ALLOW,
    )  # fmt: skip  # one call
    admin = strict.admin()  # which gives up what is asked of it when it goes
    for future in admin.create_acls([every]).values():
        future.result(timeout=30)


@DELIVERIES
@pytest.mark.parametrize("rights", [(), (AclOperation.DESCRIBE,)], ids=["none", "describe"])
def test_records_of_a_topic_that_is_forbidden_wait_and_arrive_once_it_is_allowed(
    strict: Strict, name: str, log: Path, as_alice: Callable[..., Run], delivery: str,
    rights: tuple[AclOperation, ...],
) -> None:  # fmt: skip  # one call
    grant_all_but_topics(strict)
    if rights:
        strict.grant(ResourceType.TOPIC, name, *rights)
    fill(log, 5_000)
    run = as_alice(name, delivery)
    status = run.until(lambda s: name in (s.error or ""))
    assert "grant" in (status.error or "")
    assert "Write and Describe on the topic" in (status.error or "")
    assert (status.dead_lettered, status.acknowledged, status.lag_records) == (0, 0, 5_000)
    assert not (log / "dead-letter").exists()
    strict.grant(
        ResourceType.TOPIC, name, AclOperation.READ, AclOperation.WRITE, AclOperation.DESCRIBE
    )
    run.forwarder.reopen()  # as SIGHUP does
    run.until(lambda s: s.acknowledged == 5_000)
    assert run.stop().error is None
    found = committed_in(strict, name)
    assert [m.address for m in found] == [record.address for record in records_of(log)]


@DELIVERIES
@pytest.mark.parametrize("rights", [(), (AclOperation.DESCRIBE,)], ids=["none", "describe"])
def test_a_drain_into_a_topic_that_is_forbidden_ends_with_an_error_that_names_the_right(
    strict: Strict, name: str, log: Path, as_alice: Callable[..., Run], delivery: str,
    rights: tuple[AclOperation, ...],
) -> None:  # fmt: skip  # one call
    grant_all_but_topics(strict)
    if rights:
        strict.grant(ResourceType.TOPIC, name, *rights)
    fill(log, 100)
    with pytest.raises(Undeliverable, match=name) as caught:
        as_alice(name, delivery, drain=True).end()
    reads_first = delivery == "at_least_once" and bool(rights)  # what has arrived: needs Read
    code = "NO_READ" if reads_first else "TOPIC_AUTHORIZATION_FAILED"
    assert caught.value.details["refusal"] == code
    assert "Write and Describe" in (caught.value.hint or "")
    assert not (log / "dead-letter").exists()


def test_without_the_right_to_write_anything_the_rights_that_would_do_are_named(
    strict: Strict, name: str, log: Path, as_alice: Callable[..., Run]
) -> None:
    strict.grant(ResourceType.TOPIC, name, AclOperation.DESCRIBE)
    fill(log, 10)
    run = as_alice(name, "at_least_once")
    status = run.until(lambda s: "CLUSTER_AUTHORIZATION_FAILED" in (s.error or ""))
    assert "grant Write on a topic, or IdempotentWrite on the cluster" in (status.error or "")


def test_a_transactional_id_that_is_forbidden_is_named_in_one_line(
    strict: Strict, name: str, log: Path, as_alice: Callable[..., Run],
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip  # one call
    grant_all_but_topics(strict)
    admin = strict.admin()
    every = AclBindingFilter(
        ResourceType.TRANSACTIONAL_ID, None, ResourcePatternType.ANY, None, None, AclOperation.ANY,
        AclPermissionType.ANY,
    )  # fmt: skip  # one call
    for future in admin.delete_acls([every]).values():
        future.result(timeout=30)
    fill(log, 10)
    run = as_alice(name, "exactly_once")
    told = name_of(log).transactional_id
    status = run.until(lambda s: told in (s.error or ""))
    assert "TRANSACTIONAL_ID_AUTHORIZATION_FAILED" in (status.error or "")
    assert "grant Write and Describe on the transactional id" in (status.error or "")
    time.sleep(3.0)  # it is tried again and again
    assert len([line for line in caplog.messages if told in line]) == 1


@DELIVERIES
def test_without_the_right_to_describe_settings_poison_is_found_and_the_right_is_named_once(
    strict: Strict, name: str, log: Path, as_alice: Callable[..., Run], delivery: str,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip  # one call
    caplog.set_level(logging.INFO, "bridge")
    grant_all_but_topics(strict)
    strict.grant(
        ResourceType.TOPIC, name, AclOperation.READ, AclOperation.WRITE, AclOperation.DESCRIBE
    )
    strict.configure("TOPIC", name, "cleanup.policy", "compact")
    strict.configure("TOPIC", name, "retention.ms", "-1")
    with Writer(log) as writer:
        for number in range(50):
            append(writer, range(number * 20, number * 20 + 20))
            writer.append(b"no key", timestamp=number * 20_000_000)
    begin_s = time.monotonic()
    status = as_alice(name, delivery, drain=True).end()
    assert time.monotonic() - begin_s < 30.0
    assert (status.dead_lettered, status.acknowledged + status.skipped) == (50, 1_000)
    assert len([line for line in caplog.messages if "DescribeConfigs" in line]) == 1
    assert all(m.key is not None for m in committed_in(strict, name))


def test_an_address_that_the_cluster_advertises_is_named_as_such(
    strict: Strict, name: str, log: Path
) -> None:
    fill(log, 10)
    run = Run(forwarder(log, topic=name, bootstrap_servers=strict.bootstrap_of("FAR")))
    try:
        status = run.until(lambda s: "127.0.0.1:1: connection refused" in (s.error or ""))
        assert "advertises this address" in (status.error or "")
    finally:
        run.forwarder.stop()
        run.end(20)


@DELIVERIES
def test_records_of_a_topic_that_is_missing_wait_and_arrive_once_it_is_made(
    strict: Strict, name: str, log: Path, as_alice: Callable[..., Run], delivery: str
) -> None:
    late = f"{name}-late"
    run_as_anonymous = {"bootstrap_servers": strict.bootstrap_servers, "settings": {}}
    with Writer(log) as writer:
        append(writer, range(100))
        stray = writer.append(b"stray", topic=late)
        append(writer, range(100, 200))
    run = Run(
        forwarder(
            log, topic=name, delivery=delivery, poison="dead-letter", commit_s=0.05,
            **run_as_anonymous,
        )
    )  # fmt: skip  # one call
    try:
        status = run.until(lambda s: late in (s.error or "") and s.acknowledged >= 100)
        assert "create it" in (status.error or "")
        assert cursor_of(log) <= stray
        assert not (log / "dead-letter").exists()
        strict.create_topic(late)
        run.until(lambda s: s.acknowledged == 201)
    finally:
        run.forwarder.stop()
        status = run.end(20)
    assert status.dead_lettered == 0
    assert [m.address for m in committed_in(strict, late)] == [stray]
