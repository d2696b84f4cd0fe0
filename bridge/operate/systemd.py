"""systemd's notification protocol: one datagram to the socket in NOTIFY_SOCKET. Does nothing without it."""

from __future__ import annotations

import logging
import os
import socket

_log = logging.getLogger("bridge")


def notify(state: str) -> None:
    """Sends a state such as READY=1 or WATCHDOG=1. Never raises: a missed watchdog restarts the service."""
    address = os.environ.get("NOTIFY_SOCKET")
    if not address:
        return
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as to:
            to.setblocking(False)
            to.connect("\0" + address[1:] if address.startswith("@") else address)
            to.send(state.encode())
    except OSError as error:
        _log.warning("systemd was not notified of %s: %s", state, error)
