"""Kafka as a Buffer's destination: a broker that comes and goes, poison, partitions, wrong settings."""

from __future__ import annotations

import gc
import sys
import threading
import time
import weakref
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from aolog.errors import UsageError
from bridge.client.buffer.buffer import Buffer
from bridge.client.buffer.kafka_provider import KafkaProvider
from bridge.client.buffer.memory_queue import Batch
from bridge.client.buffer.provider import Message, NotDelivered
from bridge.client.buffer.provider_sender import ProviderSender
from bridge.config.routing import partition_of_key
from bridge.errors import Rejected, Unanswered, WrongSetting
from bridge.kafka.embedded import EmbeddedBroker
from bridge.testing.apache_kafka.server import KafkaServer
from bridge.testing.providers import MemoryProvider
from tests.bridge.brokers import PARTITIONS, TOPIC, consume_any
from tests.kafka.plugin import TopicFactory
from tests.waiting import SOON_S, in_thread, wait_until

QUICK: dict[str, Any] = {"live_after_s": 0.2, "retry_max_s": 0.5, "close_s": 60.0}


def values_by_key(found: list[Any]) -> dict[bytes, list[int]]:
    values: dict[bytes, list[int]] = {}
    for message in found:
        values.setdefault(message.key(), []).append(int(message.value()))
    return values


def test_messages_arrive_in_the_partitions_of_java_with_all_they_carry(
    broker: EmbeddedBroker, tmp_path: Path
) -> None:
    provider = KafkaProvider(broker.bootstrap_servers)
    with Buffer(provider, tmp_path / "log", mode="always", **QUICK) as buffer:
        for number in range(2_000):
            buffer.send(TOPIC, b"%d" % number, b"k%d" % (number % 7), [("h", b"v")])
        buffer.send(TOPIC, None, None)
    found = consume_any(broker.bootstrap_servers)
    assert all(abs(m.timestamp()[1] / 1_000 - time.time()) < SOON_S for m in found)
    keyed = [m for m in found if m.key() is not None]
    assert len(keyed) == len(found) - 1
    for message in keyed:
        assert partition_of_key(message.key(), PARTITIONS) == message.partition()
        assert message.headers() == [("h", b"v")]
    assert values_by_key(keyed) == {b"k%d" % k: list(range(k, 2_000, 7)) for k in range(7)}


@pytest.mark.parametrize(
    "wrong",
    [
        {"headers": (("\ud800", b"x"),)},  # ended the process
        {"headers": ((b"name", b"x"),)},
        {"headers": 5},
        {"headers": (("a\0b", b"x"),)},  # arrived with another name
        {"value": 5},
        {"key": "\ud800"},
        {"timestamp_us": 2**80},
    ],
    ids=lambda wrong: next(iter(wrong)),
)
def test_what_can_be_no_message_is_rejected_also_without_a_buffer(
    broker: EmbeddedBroker, wrong: dict[str, Any]
) -> None:
    provider = KafkaProvider(broker.bootstrap_servers)
    provider.open()
    with pytest.raises(Rejected):
        provider.send(Message(TOPIC, b"x")._replace(**wrong))
    provider.send(Message(TOPIC, b"y", headers=(("name", None),)))
    assert not provider.flush()
    provider.close()
    (found,) = consume_any(broker.bootstrap_servers)
    assert found.value() == b"y"
    assert abs(found.timestamp()[1] / 1_000 - time.time()) < SOON_S  # it was sent without a time


def test_plain_messages_are_queued_at_once_up_to_one_that_is_not(broker: EmbeddedBroker) -> None:
    provider = KafkaProvider(broker.bootstrap_servers)
    provider.open()
    headers = (), (("h", b"v"), ("none", None), ("", b"")), (("h", b"v"),)
    plain = [
        Message(TOPIC, b"%d" % i, b"k", headers[i], 1_700_000_000_000_000 + i) for i in range(3)
    ]
    others: list[Any] = [
        Message(TOPIC, b"x", b"k", (("h", b"v"), ("a\0b", b""))), Message(TOPIC, b"x")._replace(headers=[("h", b"v")]),
        Message(TOPIC, b"x")._replace(headers=(("h", b"v"), ("h", "v"))), Message(TOPIC, b"x", b"k", (("\ud800", b"v"),)),
        Message(TOPIC, bytes(2_000_000), b"k", (("h", b"v"),)), Message("another", b"x"), Message(TOPIC, b"x")._replace(value=5),
        Message(TOPIC, b"x", timestamp_us=-1), Message(TOPIC, b"x", timestamp_us=2**80), (TOPIC, b"x"), None,
    ]  # fmt: skip  # a table
    assert provider.send_all(list(plain), 0) == 0, "the topic was not looked for"
    provider.send(plain[0])
    queues = provider.send_all(list(plain), 1) == 3
    assert queues or provider.send_all(list(plain), 1) == 1  # without the compiled half
    for other in others:
        assert provider.send_all([plain[0], other], 1) == 1
    assert not provider.flush()
    provider.close()
    found = consume_any(broker.bootstrap_servers)
    assert [m.value() for m in found] == ([b"0", b"1", b"2"] if queues else [b"0"])
    assert {m.timestamp()[1] for m in found} == {1_700_000_000_000}
    assert [tuple(m.headers() or ()) for m in found] == list(headers[: len(found)])


def test_a_message_larger_than_the_clients_queue_is_rejected_and_others_arrive(
    broker: EmbeddedBroker,
) -> None:
    provider = KafkaProvider(broker.bootstrap_servers, {"queue.buffering.max.kbytes": "32"})
    provider.open()
    provider.send((TOPIC, b"x" * 20_000, b"k", (), 1))
    with pytest.raises(Rejected, match=r"over queue.buffering.max.kbytes=32"):
        provider.send((TOPIC, b"x" * 33_000, b"k", (), 1))
    provider.send((TOPIC, b"x" * 32_768, b"k", (), 1))
    assert not list(provider.flush())
    provider.close()
    assert [len(m.value()) for m in consume_any(broker.bootstrap_servers)] == [20_000, 32_768]


def test_a_message_to_a_name_that_no_topic_can_have_is_rejected(broker: EmbeddedBroker) -> None:
    buffer = Buffer(KafkaProvider(broker.bootstrap_servers), mode="block", **QUICK)
    buffer.send("a\0b", b"bad")
    buffer.send(TOPIC, b"good")
    with pytest.raises(NotDelivered, match="not a valid topic name") as caught:
        buffer.close()
    assert [message.value for message in caught.value.undelivered] == [b"bad"]
    assert [m.value() for m in consume_any(broker.bootstrap_servers)] == [b"good"]


def test_a_message_too_large_comes_back_and_its_neighbours_arrive(
    kafka: KafkaServer, topic: TopicFactory, tmp_path: Path
) -> None:
    """Refused by the broker in one request with its neighbours, and by the client at once."""
    name = topic(1, {"max.message.bytes": "20000"})
    provider = KafkaProvider(kafka.bootstrap_servers, {"linger.ms": "50"})
    buffer = Buffer(provider, tmp_path / "log", mode="buffer", **QUICK)
    rejected = []
    for number in range(300):
        size = {100: 30_000, 200: 3_000_000}.get(number, 10)
        try:
            buffer.send(name, (b"%d" % number).ljust(size), b"k")
        except NotDelivered as error:
            rejected += error.undelivered
            buffer.send(name, (b"%d" % number).ljust(size), b"k")

    def all_rejected() -> bool:
        try:
            buffer.flush(0.1)
        except NotDelivered as error:
            rejected.extend(error.undelivered)
        return len(rejected) == 2

    wait_until(all_rejected)
    buffer.close()
    assert sorted(int(m.value or b"") for m in rejected) == [100, 200]
    values = values_by_key(consume_any(kafka.bootstrap_servers, name, 1))[b"k"]
    assert list(dict.fromkeys(values)) == [n for n in range(300) if n not in {100, 200}]


def test_order_holds_while_a_real_broker_is_killed_and_stopped(
    kafka: KafkaServer, topic: TopicFactory, tmp_path: Path
) -> None:
    name = topic(3)
    provider = KafkaProvider(kafka.bootstrap_servers, delivery_s=2.0)
    stop = threading.Event()
    with Buffer(provider, tmp_path / "log", mode="buffer", **QUICK) as buffer:

        def work() -> None:
            number = 0
            while not stop.is_set():
                buffer.send(name, b"%d" % number, b"k%d" % (number % 5))
                number += 1
                time.sleep(0.0005)

        sending = in_thread(work)
        try:
            for end in (kafka.kill, kafka.stop):
                wait_until(lambda: buffer.status().state == "live")
                end()
                wait_until(lambda: buffer.status().state == "buffering")
                kafka.start()
            wait_until(lambda: buffer.status().state == "live")
        finally:
            stop.set()
            sending.result()
        assert buffer.flush(SOON_S)  # delivered, or safe in the log
        wait_until(lambda: buffer.status().in_backlog + buffer.status().in_memory == 0)
        sent = buffer.status().delivered
    values = values_by_key(consume_any(kafka.bootstrap_servers, name, 3))
    firsts = {key: list(dict.fromkeys(found)) for key, found in values.items()}
    total = sum(map(len, firsts.values()))
    assert total <= sent
    for key, found in firsts.items():
        assert found == list(range(int(key[1:]), total, 5))


# --- a client whose outcomes are planned ---------------------------------------------------------

SILENT = KafkaError(KafkaError.NO_ERROR)  # stands for no outcome at all
FAILED = KafkaError(KafkaError._UNKNOWN_PARTITION)
TOO_LARGE = KafkaError(KafkaError.MSG_SIZE_TOO_LARGE)
DELIVERY_S = 7.5


class Sent:
    """A message, as the client gives it to a report."""

    def __init__(self, topic: str, key: bytes, value: bytes) -> None:
        self.topic, self.key, self.value = (lambda: topic), (lambda: key), (lambda: value)


class Client:
    """Stands for confluent_kafka's Producer: outcomes as planned, one or several like ones a
    poll, in order; none after a silent one, which takes the time of the poll. It reports failures only."""

    plan: list[KafkaError | None]  # of the next messages; later ones are delivered
    room: int
    asked: list[bytes]
    arrived: list[bytes]
    made: list[weakref.ref[Client]]
    now_s: float
    queue_all = None  # as where it cannot be compiled

    def __init__(self, *_: object, **__: object) -> None:
        self.queue: list[tuple[Sent, Any, KafkaError | None]] = []
        Client.made.append(weakref.ref(self))

    def __len__(self) -> int:
        return len(self.queue)

    def list_topics(self, *_: object, **__: object) -> Any:
        topics = {"t": SimpleNamespace(error=None, partitions=[0])}
        return SimpleNamespace(topics=topics, cluster_id="c")

    def produce(self, topic: str, value: bytes, key: bytes, _at: int, report: Any, *_: Any) -> None:
        if len(self.queue) >= Client.room:
            raise BufferError
        Client.asked.append(value)
        outcome = Client.plan.pop(0) if Client.plan else None
        self.queue.append((Sent(topic, key, value), report, outcome))

    def poll(self, timeout_s: float) -> None:
        first = self.queue[0][2] if self.queue else SILENT
        if first is SILENT:
            Client.now_s += timeout_s
        while self.queue and self.queue[0][2] is first is not SILENT:
            sent, report, error = self.queue.pop(0)
            if error is None:
                Client.arrived.append(sent.value())
            else:
                report(error, sent)

    def failures(self) -> list[None]:
        return []

    def purge(self, **_: object) -> None:
        for sent, report, _error in self.queue:
            report(KafkaError(KafkaError._PURGE_QUEUE), sent)
        self.queue.clear()


@pytest.fixture
def provider(monkeypatch: pytest.MonkeyPatch) -> KafkaProvider:
    Client.plan, Client.room, Client.asked, Client.arrived = [], 1_000, [], []
    Client.made, Client.now_s = [], 1_000.0
    clock = SimpleNamespace(monotonic=lambda: Client.now_s)
    monkeypatch.setattr("bridge.kafka.connection.RowProducer", Client)
    monkeypatch.setattr("bridge.client.buffer.kafka_provider.time", clock)
    return KafkaProvider("nowhere:1", delivery_s=DELIVERY_S)


@pytest.fixture
def sender(provider: KafkaProvider) -> ProviderSender:
    return ProviderSender(provider, lambda *_: None, retry_max_s=0.0)


def batch_of(count: int, topic: str = "t") -> Batch:
    return Batch([Message(topic, b"%d" % number, b"k") for number in range(count)])


def values_left(batch: Batch) -> list[bytes | None]:
    return [batch.messages[i].value for i in batch.left()]


def clients() -> int:
    return sum(client() is not None for client in Client.made)


NOT_DELIVERED = pytest.mark.parametrize(
    ("outcome", "said"),
    [(SILENT, "no answer within 7.5 s"), (FAILED, "_UNKNOWN_PARTITION")],
    ids=["silent", "failed"],
)


@NOT_DELIVERED
def test_nothing_is_sent_after_a_suspect_that_is_not_delivered(
    sender: ProviderSender, outcome: KafkaError, said: str
) -> None:
    """Each waited in turn for as long as a message may take, and one arrived before another."""
    batch = batch_of(5)
    Client.plan = [TOO_LARGE] * 5  # of one request: all are suspects
    assert sender.deliver(batch)
    Client.asked, Client.plan = [], [None, outcome]
    assert said in (sender.deliver(batch) or "")
    assert Client.asked == [b"0", b"1"]
    assert values_left(batch) == [b"1", b"2", b"3", b"4"]
    Client.asked, Client.plan = [], [TOO_LARGE]  # one after the other still
    assert sender.deliver(batch) is None
    assert sender.rejected == 1
    assert Client.arrived == [b"0", b"2", b"3", b"4"]


@NOT_DELIVERED
def test_after_a_message_that_is_not_delivered_none_enters_a_full_queue(
    sender: ProviderSender, outcome: KafkaError, said: str
) -> None:
    batch = batch_of(10)
    Client.room, Client.plan = 3, [None, outcome]
    assert said in (sender.deliver(batch) or "")
    assert Client.arrived == [b"0"]
    assert values_left(batch) == [b"%d" % number for number in range(1, 10)]
    assert sender.deliver(batch) is None
    assert Client.arrived == [b"%d" % number for number in range(10)]


@NOT_DELIVERED
def test_after_a_message_that_is_not_delivered_a_new_client_sends(
    provider: KafkaProvider, outcome: KafkaError, said: str
) -> None:
    """Also where the provider is not opened again. What is known to be delivered stays so."""
    for begin in (0, 5):
        messages = batch_of(10).messages[begin : begin + 5]
        Client.plan = [None, None, outcome]
        for message in messages:
            provider.send(message)
        failed = provider.flush()
        assert list(failed) == [2, 3, 4]
        assert said in failed[2]
        for message in messages[2:]:
            provider.send(message)
        assert provider.flush() == {}
    assert Client.arrived == [b"%d" % number for number in range(10)]
    assert len(Client.made) == 3


def test_a_message_that_takes_too_long_is_noticed_by_the_next_one(provider: KafkaProvider) -> None:
    """Not only by `flush`: those that come later do not put it off. Until `flush` has reported it,
    nothing more is taken."""
    Client.plan = [None, SILENT]
    first, second, *more = batch_of(1_000).messages
    provider.send(first)
    provider.send(second)
    sent = 2
    with pytest.raises(Unanswered, match="no answer within"):
        for message in more:
            provider.send(message)
            Client.now_s += DELIVERY_S / 10
            sent += 1
    assert 10 < sent < 15
    for _ in range(2):
        with pytest.raises(Unanswered):
            provider.send(more[-1])
    assert len(Client.asked) == sent
    assert list(provider.flush()) == list(range(1, sent))
    provider.send(second)
    assert provider.flush() == {}
    assert Client.arrived == [b"0", b"1"]


def test_what_was_delivered_long_ago_is_not_late(provider: KafkaProvider) -> None:
    """Its outcome may be heard only when the next message is sent."""
    for message in batch_of(3).messages:
        provider.send(message)
        Client.now_s += DELIVERY_S * 1.1
    assert provider.flush() == {}
    assert len(Client.made) == 1


@pytest.mark.parametrize("call", ["open", "send"])
def test_a_failure_with_a_cause_keeps_nothing_alive(call: str) -> None:
    """The cause has a traceback of its own, whose frames refer to those that called them."""
    made: list[weakref.ref[set[str]]] = []

    class Failing(MemoryProvider):
        def open(self) -> None:
            self._fail("open")

        def send(self, message: Message) -> None:
            self._fail("send")

        def _fail(self, name: str) -> None:
            if name == call:
                held = {name}
                made.append(weakref.ref(held))
                try:
                    raise KeyError(name)
                except KeyError as error:
                    raise ConnectionError("no") from error

    sender = ProviderSender(Failing(), lambda *_: None, retry_max_s=0.0)
    gc.collect()
    gc.disable()
    try:
        assert sender.deliver(batch_of(1)) == "no"
        assert [held() for held in made] == [None]
    finally:
        gc.enable()


def test_what_an_open_that_failed_has_made_is_closed_and_gone(
    sender: ProviderSender, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In an outage there was one client more, with its threads, after each try."""
    purged: list[object] = []

    def silent(*_: object, **__: object) -> None:
        raise KafkaException(KafkaError(KafkaError._TRANSPORT))

    monkeypatch.setattr(Client, "list_topics", silent)
    monkeypatch.setattr(Client, "purge", lambda *_: purged.append(1))
    gc.collect()
    gc.disable()
    try:
        for _ in range(3):
            assert sender.deliver(batch_of(1))
        assert clients() == 0
    finally:
        gc.enable()
    assert len(Client.made) == len(purged) == 3


def test_a_client_that_failed_is_ended_while_no_exception_is_handled(
    provider: KafkaProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client keeps one for ever, with all that its frames hold, if a call fails meanwhile."""
    handled: list[object] = []

    def fails(*_: object) -> None:
        raise KafkaException(KafkaError(KafkaError._FATAL))

    provider.send(batch_of(1).messages[0])
    monkeypatch.setattr(Client, "poll", fails)
    monkeypatch.setattr(Client, "purge", lambda *_: handled.append(sys.exc_info()[1]))
    assert list(provider.flush()) == [0]
    assert handled == [sys.exc_info()[1]], "what an earlier test left behind, at most"


# --- wrong settings, no cluster ------------------------------------------------------------------


def test_a_wrong_setting_is_named_before_anything_is_sent() -> None:
    with pytest.raises(WrongSetting, match="lingerr"):
        KafkaProvider("localhost:1", {"lingerr.ms": "1"})


def test_servers_that_are_no_text_are_refused() -> None:
    settings: Any = {"bootstrap.servers": "localhost:1"}
    with pytest.raises(UsageError, match="is a dict"):
        KafkaProvider(settings)


@pytest.mark.parametrize("delivery_s", [0.0, -1.0, float("nan"), float("inf")])
def test_a_time_that_is_none_is_refused(delivery_s: float) -> None:
    with pytest.raises(UsageError, match="delivery_s"):
        KafkaProvider("localhost:1", delivery_s=delivery_s)


def test_a_cluster_that_is_unreachable_is_waited_for_and_reported(tmp_path: Path) -> None:
    with Buffer(KafkaProvider("127.0.0.1:1"), tmp_path / "log", **QUICK) as buffer:
        buffer.send(TOPIC, b"1")
        wait_until(lambda: "127.0.0.1:1" in (buffer.status().error or ""))
        assert buffer.flush(SOON_S), "it is in the log"
        assert buffer.status().in_backlog == 1


def test_a_flush_of_nothing_is_not_late_while_the_client_reports_errors(
    provider: KafkaProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its length counts these, too."""
    provider.send(batch_of(1).messages[0])
    assert provider.flush() == {}
    Client.now_s += DELIVERY_S * 2
    lengths = iter([1, 1, 1, 0])
    monkeypatch.setattr(Client, "__len__", lambda _: next(lengths, 0))
    assert provider.flush() == {}
    assert len(Client.made) == 1
