"""Names that a bridge's cursor, a cluster's servers and the endpoint's address may have."""

from __future__ import annotations

import re

from aolog.errors import UsageError
from aolog.log.names import check_cursor_name
from bridge.errors import WrongSetting

__all__ = ["REPLAY", "address_of", "check_cursor", "check_servers"]

# As librdkafka reads them: a protocol, which it ignores if it is ours, and a port may be missing.
_SERVER = re.compile(
    r"((plaintext|ssl|sasl_plaintext|sasl_ssl)://)?"
    r"(?P<host>\[[0-9a-fA-F:.%]+\]|[^\s:/\[\]]+)(:(?P<port>[0-9]{1,5}))?",
    re.IGNORECASE,
)
_PORT_MAX = 65_535

REPLAY = "replay"  # of a replay, which moves and removes it


def check_cursor(name: str) -> None:
    """Raises UsageError if it is not a valid name for a cursor, or that of a replay."""
    check_cursor_name(name)
    if name == REPLAY:
        raise UsageError(f"the cursor {name!r} is that of a replay", hint="use another name")


def check_servers(servers: str) -> None:
    """Raises WrongSetting if it is no list of HOST:PORT, by commas."""
    for server in servers.split(","):
        found = _SERVER.fullmatch(server.strip())
        if found is None or not 0 < int(found["port"] or 9092) <= _PORT_MAX:
            raise WrongSetting(
                f"bootstrap_servers: {server.strip()!r} is no HOST:PORT",
                hint="name brokers as kafka:9092, several by commas",
            )


def address_of(text: str) -> tuple[str, int]:
    """HOST and PORT of `HOST:PORT`, `[::1]:PORT` or `:PORT`. Raises UsageError."""
    host, colon, port = text.rpartition(":")
    number = int(port) if re.fullmatch("[0-9]{1,5}", port) else None
    if not colon or number is None or number > 0xFFFF or "\x00" in host:
        raise UsageError(f"{text!r} is no HOST:PORT", hint="such as 127.0.0.1:9100, or :9100")
    return host.removeprefix("[").removesuffix("]") or "127.0.0.1", number
