"""Settings of the Kafka client as a configuration writes them: plain, or where a secret is read.

    "compression.type" = "zstd"                            plain
    "sasl.password" = {file = "/run/secrets/kafka"}        the file's text, without a last newline
    "sasl.password" = {env = "KAFKA_PASSWORD"}             an environment variable

Dotted keys may be written as tables too (`sasl.password = ...` without quotes is one in TOML).
Values from a file or the environment, and values whose key names a secret, are never shown.
"""

from __future__ import annotations

import difflib
import os
import re
import stat
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import SecretStr

__all__ = ["Setting", "exposures", "nearest", "read_settings", "read_text", "settings_of_options"]

_SECRET = re.compile(r"password|secret|token$|key\.pem|sasl\.oauthbearer\.config|sasl\.jaas")
_MASK = "**********"
_FILE_BYTES_MAX = 1 << 20  # keys, keystores and configurations are smaller
# Usual keys, for `nearest`: the client rejects an unknown key, but does not list the known ones. Any
# other key of librdkafka is accepted too.
_USUAL = """
batch.num.messages batch.size broker.address.family client.dns.lookup client.id client.rack
compression.codec compression.level compression.type connections.max.idle.ms
enable.ssl.certificate.verification linger.ms max.in.flight message.max.bytes metadata.max.age.ms
queue.buffering.max.kbytes queue.buffering.max.messages queue.buffering.max.ms
reconnect.backoff.max.ms reconnect.backoff.ms request.timeout.ms retry.backoff.max.ms
retry.backoff.ms sasl.kerberos.keytab sasl.kerberos.principal sasl.kerberos.service.name
sasl.mechanism sasl.mechanisms sasl.oauthbearer.client.id sasl.oauthbearer.client.secret
sasl.oauthbearer.config sasl.oauthbearer.method sasl.oauthbearer.scope
sasl.oauthbearer.token.endpoint.url sasl.password sasl.username security.protocol
socket.connection.setup.timeout.ms socket.keepalive.enable socket.nagle.disable socket.timeout.ms
ssl.ca.location ssl.ca.pem ssl.certificate.location ssl.certificate.pem ssl.cipher.suites
ssl.endpoint.identification.algorithm ssl.key.location ssl.key.password ssl.key.pem
ssl.keystore.location ssl.keystore.password sticky.partitioning.linger.ms
topic.metadata.refresh.interval.ms
"""
# Below this key, the client's own keys end in .file.
_HAS_FILE_KEYS = "sasl.oauthbearer.assertion"


class Setting(NamedTuple):
    """A value; its text is shown only if it is no secret. source: "file ..." or "environment ...",
    None if it was written out. exposure: how others on this machine can read a secret, and what to
    do; None if no way is known."""

    value: SecretStr
    source: str | None
    secret: bool
    exposure: str | None = None

    def shown(self) -> str:
        """For people."""
        if self.source is not None:
            return f"{_MASK} (from {self.source})"
        return _MASK if self.secret else self.value.get_secret_value()

    def __repr__(self) -> str:
        return f"Setting({self.shown()!r})"


def read_settings(
    given: object, base: Path, environment: Mapping[str, str]
) -> tuple[dict[str, Setting], list[str]]:
    """The settings, and what is wrong with them. base: directory of relative files."""
    found: dict[str, Setting] = {}
    problems: list[str] = []

    def enter(key: str, value: object) -> None:
        if isinstance(value, Mapping) and not _is_reference(key, value):
            for part, inner in value.items():
                enter(f"{key}.{part}" if key else str(part), inner)
            return
        setting = _setting(key, value, base, environment)
        if isinstance(setting, str):
            problems.append(f"{key}: {setting}" if key else setting)
        elif key in found:
            problems.append(f"{key}: appears twice")
        else:
            found[key] = setting

    enter("", given)
    return found, problems


def read_text(path: Path) -> str:
    """The text of a file that a person wrote. Reads at most 1 MiB, as the path may name a device or a
    log by mistake. Raises OSError, and ValueError for a larger file and for text that is not UTF-8."""
    with path.open("rb") as file:
        data = file.read(_FILE_BYTES_MAX + 1)
    if len(data) > _FILE_BYTES_MAX:
        raise ValueError(f"is larger than {_FILE_BYTES_MAX} bytes (1 MiB), the most that is read")
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise ValueError("is not UTF-8 text") from None


_REFERENCE = re.compile(r"\{\s*(file|env)\s*=\s*[\"']?(.*?)[\"']?\s*\}")


def settings_of_options(pairs: Iterable[str]) -> dict[str, Setting]:
    """From KEY=VALUE on a command line; VALUE may be {file=PATH} or {env=NAME}. The last value of a key
    counts. Raises ValueError, which never quotes a value."""
    found: dict[str, Setting] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        key = key.strip()
        if not equals or not key:
            word = pair.split()[0] if pair.split() else ""
            about = f": {word}" if word in _USUAL.split() else ""
            raise ValueError(f"a setting is not KEY=VALUE{about} (its text may be a secret)")
        match = _REFERENCE.fullmatch(value)
        given = value if match is None else {match[1]: match[2]}
        setting = _setting(key, given, Path(), os.environ)
        if isinstance(setting, str):
            raise ValueError(f"{key}: {setting}")  # noqa: TRY004 -- the value is wrong, not its type
        if setting.secret and setting.source is None:
            seen = "the process list shows it; write KEY={file=PATH}, or set it in a configuration"
            setting = setting._replace(exposure=seen)
        found[key] = setting
    return found


def exposures(settings: Mapping[str, Setting]) -> list[str]:
    """For each secret that others on this machine can read: its key, how, and what to do."""
    return [f"{key}: {s.exposure}" for key, s in settings.items() if s.exposure is not None]


def nearest(key: str) -> str:
    """A hint with the nearest usual key for an unknown one; '' if none is near."""
    near = difflib.get_close_matches(key, _USUAL.split(), n=1, cutoff=0.75)
    return f"; did you mean {near[0]!r}?" if near and near[0] != key else ""


def _is_reference(key: str, value: Mapping[Any, Any]) -> bool:
    return bool(key) and value.keys() in ({"file"}, {"env"}) and not key.startswith(_HAS_FILE_KEYS)


def _setting(key: str, value: object, base: Path, environment: Mapping[str, str]) -> Setting | str:
    """The setting, or what is wrong with it, without its value, which may be a secret."""
    if isinstance(value, Setting):
        return value  # an option of the command line
    source = exposure = None
    secret = _SECRET.search(key) is not None
    if isinstance(value, Mapping):
        ((kind, where),) = value.items()
        if not isinstance(where, str) or not where:
            return f"{kind} should be a non-empty string, not {_kind(where)}"
        if kind == "env":
            if where not in environment:
                return f"the environment has no variable {where}"
            value, source = environment[where], f"environment {where}"
        else:
            path = base / where
            try:
                value, mode = read_text(path), path.stat().st_mode
            except OSError as error:
                return f"{path}: {error.strerror}; the file holds the value and nothing else"
            except ValueError as error:
                return f"{path}: {error}"
            value, source = value.removesuffix("\n").removesuffix("\r"), f"file {path}"
            if secret and mode & stat.S_IROTH:
                exposure = f"every user of this machine can read {path}; chmod o= it"
    elif isinstance(value, bool):
        value = str(value).lower()
    elif isinstance(value, int | float):
        value = str(value)
    if not isinstance(value, str):
        return f"should be a string, a number, true or false, not {_kind(value)}"
    if "\0" in value:
        return "contains a NUL"
    return Setting(SecretStr(value), source, secret, exposure)


def _kind(value: object) -> str:
    """A value's type, as TOML and JSON name it."""
    names = {bool: "true or false", int: "a number", float: "a number", str: "a string",
             list: "a list", dict: "a table", type(None): "null"}  # fmt: skip  # a table
    return names.get(type(value), f"a {type(value).__name__}")
