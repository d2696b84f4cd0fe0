"""Providers for tests of `bridge.Buffer`."""

from __future__ import annotations

from bridge.client.buffer import provider
from bridge.testing import MemoryProvider


class Limited(MemoryProvider):
    """Takes no more than so many in all."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self.most = most

    def send(self, message: provider.Message) -> None:
        if len(self.messages) >= self.most:
            raise ConnectionError("no more for now")
        super().send(message)
