"""The least rights, against Apache Kafka with ACLs: with those of the table in
aolog/docs/how-to/kafka-security.md everything goes, and each one that is missing is named."""

from __future__ import annotations

import re
import uuid
from pathlib import Path
from typing import NamedTuple

import pytest

from bridge.client.buffer.buffer import Buffer
from bridge.client.buffer.kafka_provider import KafkaProvider
from bridge.errors import Undeliverable
from tests.bridge.against_kafka import EXACTLY, committed_in, messages_in, raw_committed
from tests.bridge.brokers import assert_arrived
from tests.bridge.forwarders import WAITS, Forward
from tests.bridge.logs import fill, records_of
from tests.bridge.processes import Process, Start
from tests.kafka.rights import Right, StrictKafka, User

pytestmark = pytest.mark.kafka

COUNT = 3_000
PAGE = Path(__file__).parents[3] / "aolog/docs/how-to/kafka-security.md"


class Row(NamedTuple):
    """Of the page's table. what: delivers or asks. on: TOPIC, the destination; CURSORS, the topic
    of cursor records."""

    what: str
    on: str
    rights: tuple[str, ...]
    purpose: str


TOPIC, CURSORS = "the destination topics", "the topic of cursor records"
IDS = "the transactional ids that begin with `aolog-bridge:`"
ALO, ONCE = "`run` and `replay`, at least once", "`run`, exactly once"
PLACE = "`seek` and `replay`, a place `kafka:...`"
BUFFER = "`Buffer` with a `KafkaProvider`"
TABLE = [
    Row(ALO, TOPIC, ("Write",), "to send"),
    Row(ALO, TOPIC, ("Read",), "to read back what has arrived; not with `--no-read-back`"),
    Row(ONCE, TOPIC, ("Write",), "to send"),
    Row(ONCE, CURSORS, ("Read", "Write", "DescribeConfigs"), "to keep the cursor, and check how"),
    Row(ONCE, IDS, ("Write",), "to begin and end transactions"),
    Row(PLACE, "that topic", ("Read",), "to read the record's header"),
    Row(BUFFER, TOPIC, ("Write",), "to send"),
]
CREATE = Row("any of them", "a topic that it is to create", ("Create",),
             "not with `--create-topics=never`")  # fmt: skip  # as the table


def test_the_page_has_the_table() -> None:
    def line(row: Row) -> str:
        return f"| {row.what} | {row.on} | {', '.join(row.rights)} | {row.purpose} |"

    assert "\n".join(map(line, [*TABLE, CREATE])) + "\n\n" in PAGE.read_text()


def rights_of(what: str, topic: str, cursors: str = "") -> list[Right]:
    """Of the rows of the table."""
    names = {
        TOPIC: ("Topic", topic),
        "that topic": ("Topic", topic),
        CURSORS: ("Topic", cursors),
        IDS: ("Transactional id", "aolog-bridge:*"),
    }
    return [(*names[r.on], right) for r in TABLE if r.what == what for right in r.rights]


class Place(NamedTuple):
    """What a test has of the cluster: names that nobody else uses, and a user without rights."""

    kafka: StrictKafka
    topic: str
    cursors: str
    user: User

    def make(self) -> None:
        """Both topics."""
        self.kafka.server.create_topic(self.topic, 2)
        self.kafka.server.create_topic(self.cursors, 1, {"cleanup.policy": "compact"})


def place_in(kafka: StrictKafka) -> Place:
    name = uuid.uuid4().hex[:8]
    return Place(kafka, f"to-{name}", f"cursors-{name}", kafka.user())


@pytest.fixture
def place(strict_kafka: StrictKafka) -> Place:
    made = place_in(strict_kafka)
    made.make()
    return made


def killed_and_drained(place: Place, log: Path, bridge: Start, *options: str) -> Process:
    """A bridge that is killed under way, and another one that drains."""
    run = ("run", "--log", log, "--topic", place.topic, "--json", "--status-seconds", "0.05",
           "--commit-seconds", "0.1", *place.user.arguments, *options)  # fmt: skip  # a command line
    fill(log, COUNT)
    first = bridge(*run, "-X", "batch.num.messages=10")
    first.until(lambda s: s["acknowledged"] > 100)
    first.kill()
    second = bridge(*run, "--drain")
    assert second.end() == 0
    return second


def deliver_with_least_rights(place: Place, log: Path, bridge: Start, delivery: str) -> None:
    at_least_once = delivery == "at_least_once"
    place.user.grant(rights_of(ALO if at_least_once else ONCE, place.topic, place.cursors))
    options = () if at_least_once else (*EXACTLY, "--cursor-topic", place.cursors)
    killed_and_drained(place, log, bridge, *options)
    arrived = committed_in(place.kafka.server, place.topic, 2)
    assert_arrived(records_of(log), arrived, topic=place.topic)


@pytest.mark.parametrize("delivery", ["at_least_once", "exactly_once"])
def test_the_least_rights_suffice_for_a_delivery_that_is_killed_and_goes_on(
    place: Place, log: Path, bridge: Start, delivery: str
) -> None:
    deliver_with_least_rights(place, log, bridge, delivery)


MISSING = [
    (ALO, TOPIC, "Write", "topic '?{topic}'?.* TOPIC_AUTHORIZATION_FAILED"),
    (ALO, TOPIC, "Read", "the right Read on topic '{topic}' is missing: .*--no-read-back"),
    (ONCE, TOPIC, "Write", "the right Describe on topic '{topic}' is missing"),
    *(
        (ONCE, CURSORS, right, f"the right {right} on topic '{{cursors}}' is missing")
        for right in ("Read", "Write", "DescribeConfigs")
    ),
    (ONCE, IDS, "Write", "TRANSACTIONAL_ID_AUTHORIZATION_FAILED"),
]


@pytest.mark.parametrize(("what", "on", "right", "said"), MISSING)
def test_a_right_that_is_missing_is_named_before_anything_is_sent_and_granted_while_it_waits(
    place: Place,
    log: Path,
    forward: Forward,
    caplog: pytest.LogCaptureFixture,
    what: str,
    on: str,
    right: str,
    said: str,
) -> None:
    fill(log, 100)
    rights = rights_of(what, place.topic, place.cursors)
    (lacking,) = (each for each in rights if each[2] == right
                  and each[1] == {TOPIC: place.topic, CURSORS: place.cursors}.get(on, each[1])
                  and (on != IDS or each[0] != "Topic"))  # fmt: skip  # one choice
    place.user.grant(each for each in rights if each != lacking)
    place.user.grant([("Topic", f"other-{place.topic}", "Write")])  # on some topic, for idempotence
    run = forward(
        topic=place.topic,
        bootstrap_servers=place.user.bootstrap_servers,
        settings=place.user.settings,
        delivery="at_least_once" if what == ALO else "exactly_once",
        cursor_topic=place.cursors,
        waits=WAITS._replace(silent_pause_s=0.5),
    )
    words = said.format(topic=re.escape(place.topic), cursors=re.escape(place.cursors))
    run.until(lambda s: re.search(words, f"{s.error} {caplog.text}"))
    assert messages_in(place.kafka.server, place.topic, 2) == []
    if (what, right) in {
        (ALO, "Read"),
        (ONCE, "DescribeConfigs"),
    }:  # the others are waited for, too
        place.user.grant([lacking])
        run.until(lambda s: s.acknowledged == 100)
    run.forwarder.stop()


@pytest.mark.parametrize("delivery", ["at_least_once", "exactly_once"])
def test_a_drain_into_a_forbidden_topic_ends_with_an_error_that_names_the_right(
    place: Place, log: Path, forward: Forward, delivery: str
) -> None:
    fill(log, 100)
    what = ALO if delivery == "at_least_once" else ONCE
    rights = rights_of(what, f"other-{place.topic}", place.cursors)
    place.user.grant([*rights, ("Topic", place.topic, "Describe")])
    run = forward(
        topic=place.topic, bootstrap_servers=place.user.bootstrap_servers, drain=True,
        settings=place.user.settings, delivery=delivery, cursor_topic=place.cursors,
        poison="dead-letter", waits=WAITS._replace(refused_pause_s=0.5),
    )  # fmt: skip  # one call
    with pytest.raises(Undeliverable, match=place.topic) as caught:
        run.end()
    assert "Write and Describe" in (caught.value.hint or "")
    assert not (log / "dead-letter").exists()


def test_without_reading_back_no_right_to_read_is_needed_and_records_may_arrive_twice(
    place: Place, log: Path, bridge: Start
) -> None:
    place.user.grant([("Topic", place.topic, "Write")])
    second = killed_and_drained(place, log, bridge, "--no-read-back")
    arrived = {message.address for message in messages_in(place.kafka.server, place.topic, 2)}
    assert arrived == {record.address for record in records_of(log)}
    assert "are sent again, and may arrive twice" in second.stderr


def test_a_place_in_kafka_needs_the_right_to_read(place: Place, log: Path, bridge: Start) -> None:
    fill(log, 10)
    place.user.grant([("Topic", place.topic, "Write")])
    run = ("run", "--log", log, "--topic", place.topic, "--drain", "--no-read-back")
    assert bridge(*run, *place.user.arguments).end() == 0
    full = next(m for m in messages_in(place.kafka.server, place.topic, 2) if m.offset == 0)
    where = f"kafka:{place.topic}/{full.partition}@0"
    for command in (
        ("seek", log, "--to", where),
        ("replay", log, "--from", where, "--to", "latest", "--topic", place.topic),
    ):
        refused = bridge(*command, *place.user.arguments)
        assert refused.end() == 6
        assert f"the right Read on topic '{place.topic}' is missing" in refused.stderr
        assert "grant Read" in refused.stderr
    place.user.grant(rights_of(PLACE, place.topic))
    assert bridge("seek", log, "--to", where, *place.user.arguments).end() == 0


def test_a_buffer_needs_the_right_to_write(place: Place, tmp_path: Path) -> None:
    place.user.grant(rights_of(BUFFER, place.topic))
    provider = KafkaProvider(place.user.bootstrap_servers, place.user.settings)
    with Buffer(provider, tmp_path / "waiting", mode="buffer") as buffer:
        buffer.send(place.topic, b"hello")
        assert buffer.flush(30)
    found = [m for p in range(2) for m in raw_committed(place.kafka.server, place.topic, p)]
    assert [message.value() for message in found] == [b"hello"]


def test_a_topic_of_cursor_records_is_created_only_with_the_right_to(
    strict_kafka: StrictKafka, log: Path, forward: Forward
) -> None:
    place = place_in(strict_kafka)
    strict_kafka.server.create_topic(place.topic)
    fill(log, 10)
    place.user.grant(rights_of(ONCE, place.topic, place.cursors))
    run = forward(
        topic=place.topic, bootstrap_servers=place.user.bootstrap_servers, drain=True,
        settings=place.user.settings, delivery="exactly_once", cursor_topic=place.cursors,
    )  # fmt: skip  # one call
    wanted = f"the right Create on topic '{place.cursors}' is missing"
    run.until(lambda s: wanted in str(s.error))
    place.user.grant([("Topic", place.cursors, "Create")])
    assert run.end().acknowledged == 10


# --- an earlier Kafka --------------------------------------------------------------------------


@pytest.mark.parametrize("delivery", ["at_least_once", "exactly_once"])
def test_kafka_3_9_asks_for_the_same_rights(
    kafka_3_9: StrictKafka, log: Path, bridge: Start, delivery: str
) -> None:
    place = place_in(kafka_3_9)
    place.make()
    deliver_with_least_rights(place, log, bridge, delivery)
