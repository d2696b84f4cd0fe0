"""What needs pytest: the contract of a `bridge.Provider`, as tests (see `ProviderTests`), and a broker."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager

import pytest

from bridge.client.buffer.buffer import Buffer
from bridge.client.buffer.provider import Message, Provider
from bridge.errors import Rejected
from bridge.kafka.embedded import EmbeddedBroker

_KEYS = 5
_FLUSH_S = 60.0  # generous: nothing waits so long when all is well


@pytest.fixture
def embedded_broker() -> Iterator[EmbeddedBroker]:
    """A Kafka broker in this process; `bootstrap_servers` is its address. It holds records in memory,
    creates topics with 4 partitions when they are used, and has no transactions."""
    with EmbeddedBroker() as broker:
        yield broker


class ProviderTests:
    """Subclass it under a name that begins with Test. Override `provider` and `arrived`. Override `outage`
    and `rejected` too, if the destination can fail, or can refuse a message for ever; otherwise these
    tests are skipped. All messages have the topic `topic`; those of one key have to arrive in order.
    """

    topic = "contract"

    @pytest.fixture
    def provider(self) -> Provider:
        """A provider that is not open, whose destination is empty and available."""
        raise NotImplementedError

    def arrived(self, provider: Provider) -> Sequence[Message]:
        """The messages that the destination has now, in order; timestamps to the millisecond."""
        raise NotImplementedError

    def outage(self, provider: Provider) -> AbstractContextManager[object]:  # noqa: ARG002 -- for overriding
        """While it is entered, the destination is unavailable."""
        pytest.skip("override `outage` to test an unavailable destination")

    def rejected(self) -> Message:
        """A message that the destination will never accept, and that `send` can recognise."""
        pytest.skip("override `rejected` to test a message that is never accepted")

    def message(self, number: int) -> Message:
        """One of a series with several keys."""
        value, key = b"%d" % number, b"k%d" % (number % _KEYS)
        return Message(self.topic, value, key, (("number", value),), 1_700_000_000_000_000)

    def values(self, provider: Provider, key: bytes | None) -> list[bytes | None]:
        """What arrived of one key, in order."""
        return [message.value for message in self.arrived(provider) if message.key == key]

    def deliver(self, provider: Provider, messages: Sequence[Message]) -> None:
        """Opens, sends, flushes and closes."""
        provider.open()
        for message in messages:
            provider.send(message)
        assert not list(provider.flush()), "flush reports messages that were not delivered"
        provider.close()

    def test_a_message_arrives_whole(self, provider: Provider) -> None:
        sent = self.message(7)
        self.deliver(provider, [sent])
        (message,) = self.arrived(provider)
        assert message[:3] == sent[:3]
        assert tuple(message.headers) == sent.headers
        assert message.timestamp_us // 1_000 == sent.timestamp_us // 1_000

    @pytest.mark.parametrize("key", [None, b"", b"\x00\xff"])
    @pytest.mark.parametrize("value", [None, b"", b"\x00\xff", b"x" * 100_000])
    def test_a_key_and_a_value_may_be_any_bytes_or_none(
        self, provider: Provider, key: bytes | None, value: bytes | None
    ) -> None:
        self.deliver(provider, [Message(self.topic, value, key, (("h", None),), 1_000_000)])
        assert [message[1:3] for message in self.arrived(provider)] == [(value, key)]

    def test_messages_of_a_key_arrive_in_order_and_once(self, provider: Provider) -> None:
        self.deliver(provider, [self.message(number) for number in range(1_000)])
        for key in range(_KEYS):
            expected = [b"%d" % number for number in range(key, 1_000, _KEYS)]
            assert self.values(provider, b"k%d" % key) == expected

    def test_a_flush_delivers_and_another_finds_nothing_to_report(self, provider: Provider) -> None:
        provider.open()
        assert not list(provider.flush())
        provider.send(self.message(1))
        assert not list(provider.flush())
        assert self.values(provider, b"k1") == [b"1"], "flush returned before it was delivered"
        assert not list(provider.flush())
        provider.close()

    def test_a_close_never_fails_and_it_can_be_opened_again(self, provider: Provider) -> None:
        provider.close()
        for number in (0, 5):
            self.deliver(provider, [self.message(number)])
            provider.close()
        assert self.values(provider, b"k0") == [b"0", b"5"]

    def test_a_buffer_delivers_everything_in_order_through_an_outage(
        self, provider: Provider
    ) -> None:
        """A stretch may be repeated; the first arrivals are complete and in order."""
        with Buffer(provider, mode="block", close_s=_FLUSH_S, retry_max_s=0.5) as buffer:
            for number in range(200):
                if number == 100:
                    assert buffer.flush(_FLUSH_S)
                    with self.outage(provider):
                        buffer.send(*self.message(number)[:4])
                        assert not buffer.flush(1.0), "delivered during an outage"
                else:
                    buffer.send(*self.message(number)[:4])
            assert buffer.flush(_FLUSH_S)
        for key in range(_KEYS):
            expected = [b"%d" % number for number in range(key, 200, _KEYS)]
            assert list(dict.fromkeys(self.values(provider, b"k%d" % key))) == expected

    def test_a_message_that_is_never_accepted_is_rejected_and_the_next_arrives(
        self, provider: Provider
    ) -> None:
        message = self.rejected()
        provider.open()
        with pytest.raises(Rejected):
            provider.send(message)
        provider.send(self.message(0))
        assert not list(provider.flush())
        provider.close()
        assert self.values(provider, b"k0") == [b"0"]
