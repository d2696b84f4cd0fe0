"""The contract of a `bridge.Provider`, as tests: see `ProviderTests`."""

from __future__ import annotations

import math
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

import pytest

from bridge.buffer.buffer import Buffer
from bridge.buffer.provider import Message, Provider, Rejected

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["ProviderTests"]

_KEYS = 5
_FLUSH_S = 60.0  # generous: nothing waits so long when all is well


class ProviderTests:
    """Subclass it under a name that begins with Test. Override `provider` and `arrived`; override
    `outage` and `rejected` where the destination can fail, or can refuse a message for ever: without
    them, these tests are skipped.

    topic: of all messages. Messages of one key have to arrive in order; messages of different keys
    may arrive in any order.
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
        pytest.skip("the suite was not told how to make this destination unavailable")

    def rejected(self) -> Message:
        """A message that the destination will never accept, and that `send` can recognise."""
        pytest.skip("the suite was not told of a message that this destination never accepts")

    # --- messages -----------------------------------------------------------------------------

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
        try:
            for message in messages:
                provider.send(message)
            assert not list(provider.flush()), "flush reports messages that were not delivered"
        finally:
            provider.close()

    # --- the contract -------------------------------------------------------------------------

    def test_it_has_a_name_and_a_pause(self, provider: Provider) -> None:
        assert provider.name
        assert math.isfinite(provider.retry_wait_s)
        assert provider.retry_wait_s >= 0

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
        try:
            assert not list(provider.flush())
            provider.send(self.message(1))
            assert not list(provider.flush())
            assert self.values(provider, b"k1") == [b"1"], "flush returned before it was delivered"
            assert not list(provider.flush())
        finally:
            provider.close()

    def test_it_can_be_opened_again_after_a_close(self, provider: Provider) -> None:
        for number in (0, 5):
            self.deliver(provider, [self.message(number)])
        assert self.values(provider, b"k0") == [b"0", b"5"]

    def test_a_close_never_fails_also_when_it_is_not_open(self, provider: Provider) -> None:
        provider.close()
        provider.open()
        provider.send(self.message(0))
        provider.close()
        provider.close()

    def test_a_call_fails_while_the_destination_is_unavailable(self, provider: Provider) -> None:
        with self.outage(provider):
            with pytest.raises(Exception) as failure:  # noqa: PT011 -- a provider may raise any
                self.deliver(provider, [self.message(0)])
            assert not isinstance(failure.value, Rejected), "an outage says nothing of the message"
        self.deliver(provider, [self.message(5)])
        assert self.values(provider, b"k0")[-1] == b"5"

    def test_a_buffer_delivers_everything_in_order_through_an_outage(
        self, provider: Provider
    ) -> None:
        """A stretch may be repeated; the first arrivals are complete and in order."""
        with Buffer(provider, mode="block", close_s=_FLUSH_S, retry_max_s=0.5) as buffer:
            for number in range(100):
                buffer.send(*self.message(number)[:4])
            assert buffer.flush(_FLUSH_S)
            with self.outage(provider):
                buffer.send(*self.message(100)[:4])
                assert not buffer.flush(1.0), "delivered during an outage"
            assert buffer.flush(_FLUSH_S)
            for number in range(101, 200):
                buffer.send(*self.message(number)[:4])
            assert buffer.flush(_FLUSH_S)
        for key in range(_KEYS):
            expected = [b"%d" % number for number in range(key, 200, _KEYS)]
            assert list(dict.fromkeys(self.values(provider, b"k%d" % key))) == expected

    def test_a_message_that_is_never_accepted_is_rejected_and_the_next_arrives(
        self, provider: Provider
    ) -> None:
        provider.open()
        try:
            with pytest.raises(Rejected):
                provider.send(self.rejected())
            provider.send(self.message(0))
            assert not list(provider.flush())
        finally:
            provider.close()
        assert self.values(provider, b"k0") == [b"0"]
