"""Free ports on loopback, each for one process."""

from __future__ import annotations

import contextlib
import fcntl
import random
import socket
from typing import Final

from bridge.testing.apache_kafka.jars import cache_directory

# Ports below Linux' range for outgoing connections (32768 up). In that range a client that
# keeps trying to reach a server that is down can be given the server's own port, connect to
# itself, and so keep the server from coming back.
PORTS: Final = range(20_000, 32_000)
# Locks on the ports that this process was given, one file each, until it ends.
_claims: Final = contextlib.ExitStack()


def free_ports(count: int) -> list[int]:
    """Free ports, all different; no other process that asks here gets them while this one runs."""
    ports: list[int] = []
    folder = cache_directory() / "ports"
    folder.mkdir(parents=True, exist_ok=True)
    # Not the seeded generator: processes with one seed would ask for the same ports.
    for port in random.SystemRandom().sample(PORTS, len(PORTS)):
        if len(ports) == count:
            return ports
        with contextlib.suppress(OSError), contextlib.ExitStack() as ours:
            claim = ours.enter_context((folder / str(port)).open("w"))
            fcntl.flock(claim, fcntl.LOCK_EX | fcntl.LOCK_NB)
            with socket.socket() as probe:
                probe.bind(("127.0.0.1", port))
            ports.append(port)
            _claims.enter_context(ours.pop_all())
    raise AssertionError(f"no {count} free ports in {PORTS}")
