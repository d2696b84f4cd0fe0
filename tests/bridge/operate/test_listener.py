"""Which connections the listening socket takes."""

from __future__ import annotations

import logging
import socket
from contextlib import ExitStack, closing

import pytest

from bridge.operate import listener
from bridge.operate.listener import Listener


def test_a_few_connections_are_taken_whatever_the_process_has_open(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Otherwise a probe would end a bridge that has many logs, and nobody could look at it."""
    monkeypatch.setattr(listener.resource, "getrlimit", lambda _: (4, 4))  # more are open
    caplog.set_level(logging.WARNING, "bridge.http")
    with closing(Listener("here", "127.0.0.1", 0, most=100)) as listening, ExitStack() as stack:

        def accepted() -> socket.socket:
            client = socket.create_connection(listening.getsockname())
            stack.enter_context(client)
            return stack.enter_context(listening.accept()[0])

        taken = [accepted() for _ in range(4)]
        with pytest.raises(ConnectionAbortedError):
            accepted()
        taken[0].close()
        accepted()
    assert "raise ulimit -n" in caplog.text
    assert "4 are open, one was closed at once" in caplog.text
