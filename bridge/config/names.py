"""Valid names: of a topic, of a bridge's cursor and its dead-letter log, of a cluster's servers, of the HTTP
endpoint, of a function of the user's."""

from __future__ import annotations

import re
from collections.abc import Callable
from importlib import import_module
from typing import Any

from aolog.errors import UsageError
from aolog.format.names import check_cursor_name
from aolog.storage.directory import Inside
from aolog.write.validate import TOPIC_NAME
from bridge.errors import WrongSetting

# As librdkafka reads them: with or without a protocol and a port.
_SERVER = re.compile(
    r"((plaintext|ssl|sasl_plaintext|sasl_ssl)://)?"
    r"(?P<host>\[[0-9a-fA-F:.%]+\]|[^\s:/\[\]]+)(:(?P<port>[0-9]{1,5}))?",
    re.IGNORECASE,
)
_PORT_MAX = 65_535
FUNCTION_NAME = r"^[A-Za-z_][\w.]*:[A-Za-z_][\w.]*$"  # of a transform, or of `oauth_cb`

BRIDGE = "bridge"  # a bridge's cursor, unless it has another name
BUFFER = "buffer"  # a Buffer's, of the log through which it sends
REPLAY = "replay"  # a replay's own cursor


def check_topic(name: str) -> str:
    """The same name. Raises UsageError if no topic can have it."""
    if re.fullmatch(TOPIC_NAME, name) is None:
        raise UsageError(
            f"{name!r} is not a valid topic name",
            hint="use up to 249 of letters, digits, '.', '_', '-'",
        )
    return name


def check_cursor(name: str) -> None:
    """Raises UsageError if it is not a valid cursor name, or if replays use it."""
    check_cursor_name(name)
    if name == REPLAY:
        raise UsageError(f"the cursor {name!r} is reserved for replays", hint="use another name")


def dead_letter_path(log_path: str, cursor: str) -> Inside:
    """The directory of the log of what a bridge with this cursor set aside."""
    return Inside(log_path, "dead-letter" + ("" if cursor == BRIDGE else f"-{cursor}"))


def check_servers(servers: str) -> None:
    """Raises WrongSetting if it is not a list of HOST:PORT, separated by commas."""
    for server in servers.split(","):
        found = _SERVER.fullmatch(server.strip())
        if found is None or not 0 < int(found["port"] or 9092) <= _PORT_MAX:
            raise WrongSetting(
                f"bootstrap_servers: {server.strip()!r} is not HOST:PORT",
                hint="write brokers as kafka:9092, several separated by commas",
            )


def address_of(text: str) -> tuple[str, int]:
    """HOST and PORT of `HOST:PORT`, `[::1]:PORT` or `:PORT`. Raises UsageError."""
    host, colon, port = text.rpartition(":")
    number = int(port) if re.fullmatch("[0-9]{1,5}", port) else None
    if not colon or number is None or number > 0xFFFF or "\x00" in host:
        raise UsageError(f"{text!r} is not HOST:PORT", hint="such as 127.0.0.1:9100, or :9100")
    return host.removeprefix("[").removesuffix("]") or "127.0.0.1", number


def load_function(name: str) -> Callable[[Any], Any]:
    """Imports the function `module:function`. Raises ValueError, with the reason."""
    module, _, attribute = name.partition(":")
    try:
        found: Any = import_module(module)
        for part in attribute.split("."):
            found = getattr(found, part)
    except Exception as error:  # noqa: BLE001 -- a module may raise anything
        raise ValueError(f"cannot be loaded: {type(error).__name__}: {error}") from None
    if not callable(found):
        raise ValueError(f"{name} is not a function")  # noqa: TRY004 -- as the model reports it
    function: Callable[[Any], Any] = found
    return function
