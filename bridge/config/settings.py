"""Settings of the Kafka client, and secrets: how a configuration writes them, and where they are read.

Keys are dotted, or nested tables (in TOML, `sasl.password = ...` without quotes is one); on a command line
KEY=VALUE. All are librdkafka's but one: "oauth_cb" = "module:function" names a function that returns a token.

    "compression.type" = "zstd"                            plain
    "sasl.password" = {file = "/run/secrets/kafka"}        the file's text, without a last newline
    "sasl.password" = {env = "KAFKA_PASSWORD"}             an environment variable

Values from a file or the environment, and values whose key names a secret, are never shown.
A file is read again when it changes: see `stamps`, `Setting.read_again` and `CurrentToken`. Every path begins
at a base: the directory of the configuration, or for an option the working directory.
"""

from __future__ import annotations

import logging
import os
import re
import select
import stat
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from pydantic import SecretStr

from bridge.config.names import load_function
from bridge.errors import WrongSetting
from bridge.kafka.known_settings import NO_FILES, names_a_file

TOKEN_MIN = 16  # characters; a shorter one can be guessed over a network
_OAUTH_CB = "oauth_cb"
_SECRET = re.compile(r"password|secret|token$|key\.pem|sasl\.oauthbearer\.config|sasl\.jaas")
_MASK = "**********"
_FILE_BYTES_MAX = 1 << 20  # keys, keystores and configurations are smaller
_PIPE_WAIT_S = 5  # a shell's <(command) may need a moment
# Below this key, the client's own keys end in .file.
_HAS_FILE_KEYS = "sasl.oauthbearer.assertion"
_REFERENCE = re.compile(r"\{\s*(file|env)\s*=\s*[\"']?(.*?)[\"']?\s*\}")
_log = logging.getLogger("bridge")

Stamps: TypeAlias = dict[str, tuple[int, int, int] | None]
"""By path: inode, size and time of change of a file; None where there is none."""


class Setting(NamedTuple):
    """A value; its text is shown only if it is no secret."""

    key: str
    value: SecretStr
    source: str | None  # "file ..." or "environment ..."; None if it was written out
    secret: bool
    exposure: str | None  # how others on this machine can read a secret, and what to do
    path: Path | None  # the file that the value was read from
    base: Path  # where the value begins, if it is a path itself

    def read_again(self) -> Setting:
        """With what its file holds now. Raises ValueError, which never quotes the value."""
        if self.path is None:
            return self
        found = setting_of(self.key, {"file": str(self.path)}, self.base)
        if isinstance(found, str):
            raise ValueError(found)  # noqa: TRY004 -- the value is wrong, not its type
        return found

    def shown(self) -> str:
        """For people."""
        if self.source is not None:
            return f"{_MASK} (from {self.source})"
        return _MASK if self.secret else self.value.get_secret_value()


def is_reference(key: str, value: Mapping[Any, Any]) -> bool:
    """Whether a table names the file or variable of a value, in place of keys."""
    return bool(key) and value.keys() in ({"file"}, {"env"}) and not key.startswith(_HAS_FILE_KEYS)


def setting_of(key: str, value: object, base: Path) -> Setting | str:
    """The setting, or what is wrong with it, without its value, which may be a secret. base: absolute, or the
    working directory."""
    if isinstance(value, Setting):
        return value  # an option of the command line
    source = exposure = path = None
    secret = _SECRET.search(key) is not None
    if isinstance(value, Mapping):
        ((kind, where),) = value.items()
        if not isinstance(where, str) or not where:
            return f"{kind} should be a non-empty string, not {_kind(where)}"
        if kind == "env":
            if where not in os.environ:
                return f"the environment has no variable {where}"
            value, source = os.environ[where], f"environment {where}"
        else:
            path = base / where
            try:
                text, mode = read_text(path), path.stat().st_mode
            except OSError as error:
                return f"{path}: {error.strerror}; the file holds the value and nothing else"
            except ValueError as error:
                return f"{path}: {error}"
            value, source = text.removesuffix("\n").removesuffix("\r"), f"file {path}"
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
    try:
        f"{key}{value}".encode()
    except UnicodeEncodeError:  # the client ends the process where a key has none
        return "has no UTF-8 form"
    if names_a_file(key) and value not in NO_FILES:
        value = str(base / value)
    return Setting(key, SecretStr(value), source, secret, exposure, path, base)


def _kind(value: object) -> str:
    """A value's type, as TOML and JSON name it."""
    names = {bool: "true or false", int: "a number", float: "a number", str: "a string",
             list: "a list", dict: "a table", type(None): "null"}  # fmt: skip  # a table
    return names.get(type(value), f"a {type(value).__name__}")


def read_settings(given: Mapping[Any, Any], base: Path) -> tuple[dict[str, Setting], list[str]]:
    """The settings, and what is wrong with them. base: directory of relative files."""
    found: dict[str, Setting] = {}
    problems: list[str] = []
    for key, value in dotted(given):
        setting = setting_of(key, value, base)
        if isinstance(setting, str):
            problems.append(f"{key}: {setting}")
        elif key in found:
            problems.append(f"{key}: appears twice")
        else:
            found[key] = setting
    return found, problems


def dotted(given: Mapping[Any, Any], table: str = "") -> Iterator[tuple[str, Any]]:
    """Each setting with its whole key, which may appear twice. table: the begin of all keys."""
    for part, value in given.items():
        key = f"{table}{part}"
        if isinstance(value, Mapping) and not is_reference(key, value):
            yield from dotted(value, f"{key}.")
        else:
            yield key, value


def settings_of_options(pairs: Iterable[str]) -> dict[str, Setting]:
    """From KEY=VALUE on a command line; VALUE may be {file=PATH} or {env=NAME}. The last value of a key
    counts. Raises ValueError, which never quotes a value."""
    found: dict[str, Setting] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        key = key.strip()
        if not equals or not key:
            raise ValueError("a setting is not KEY=VALUE (its text may be a secret)")
        match = _REFERENCE.fullmatch(value)
        given = value if match is None else {match[1]: match[2]}
        setting = setting_of(key, given, Path())
        if isinstance(setting, str):
            raise ValueError(f"{key}: {setting}")  # noqa: TRY004 -- the value is wrong, not its type
        if setting.secret and setting.source is None:
            seen = "the process list shows it; write KEY={file=PATH}, or set it in a configuration"
            setting = setting._replace(exposure=seen)
        found[key] = setting
    return found


def plain_values(settings: Mapping[str, Setting]) -> dict[str, Any]:
    """For the client, with secrets; oauth_cb as a function. Raises WrongSetting if that cannot be loaded."""
    plain: dict[str, Any] = {key: s.value.get_secret_value() for key, s in settings.items()}
    if _OAUTH_CB in plain:
        try:
            plain[_OAUTH_CB] = load_function(plain[_OAUTH_CB])
        except ValueError as error:
            raise WrongSetting(f"{_OAUTH_CB}: {error}", hint="write module:function") from None
    return plain


def refused_keys(
    settings: Mapping[str, Any], refusal: Callable[[Mapping[str, Any]], str | None]
) -> dict[str, str]:
    """Why a client refuses settings, by key; under "" if it refuses only their combination. refusal: why it
    refuses some settings, None if it takes them."""
    together = refusal(settings)
    if together is None:
        return {}
    alone = {key: refusal({key: value}) for key, value in settings.items()}
    # Otherwise only the other keys are missing. The client may name the key by an alias.
    named = {
        key: said
        for key, said in alone.items()
        if said is not None and (key in said or "configuration property" in said)
    }
    return named or {"": together}


def exposures(settings: Mapping[str, Setting]) -> list[str]:
    """For each secret that others on this machine can read: its key, how, and what to do."""
    return [f"{key}: {s.exposure}" for key, s in settings.items() if s.exposure is not None]


# --- files ----------------------------------------------------------------------------------


def stamps(settings: Mapping[str, Setting]) -> Stamps:
    """Of the files that hold these settings, or are named by them. A value that differs means that a file
    was replaced or written."""
    named = {str(s.path) for s in settings.values() if s.path is not None} | {
        s.value.get_secret_value() for key, s in settings.items() if names_a_file(key)
    }
    found: Stamps = {}
    for path in sorted(named):
        try:
            seen = os.stat(path)  # noqa: PTH116 -- an empty path is the current directory for a Path
        except (OSError, ValueError):
            found[path] = None
        else:
            found[path] = seen.st_ino, seen.st_size, seen.st_mtime_ns
    return found


class CurrentToken:
    """A token that is replaced in its file while the process runs. Call it for the present one. Any thread.

    name: of the setting, for log lines. While the file is missing or wrong, the token before stays, and that
    is logged once.
    """

    def __init__(self, name: str, setting: Setting) -> None:
        self._name, self._setting = name, setting
        self._stamps = stamps({name: setting})

    def __call__(self) -> str:
        """One `stat`; reads the file if it has changed."""
        found = stamps({self._name: self._setting})
        if found != self._stamps:
            self._stamps = found  # before the reading: a change during it is read next time
            self._read()
        return self._setting.value.get_secret_value()

    def _read(self) -> None:
        try:
            new = self._setting.read_again()
            why = wrong_token(new.value.get_secret_value())
        except ValueError as error:
            new, why = self._setting, str(error)
        if why is None:
            self._setting = new
            _log.info("%s: the new one is in use", self._name, extra={"event": "rotated"})
        else:
            event = {"event": "rotation_refused"}
            _log.error("%s: %s; the one before stays", self._name, why, extra=event)


def wrong_token(token: str) -> str | None:
    """Why a token is too weak, None if it is not."""
    return f"has {len(token)} characters" if len(token) < TOKEN_MIN else None


def read_text(path: Path) -> str:
    """The text of a file that a person wrote. Reads at most 1 MiB, as the path may name a device or a
    log by mistake. Raises OSError, and ValueError for a larger file, for text that is not UTF-8, and for a
    pipe that nobody writes into, and closes, within 5 s."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with open(descriptor, "rb") as file:  # noqa: PTH123 -- it is open
        if stat.S_ISFIFO(os.fstat(descriptor).st_mode):
            data = _read_pipe(descriptor)
        else:
            os.set_blocking(descriptor, True)
            data = file.read(_FILE_BYTES_MAX + 1)
    if len(data) > _FILE_BYTES_MAX:
        raise ValueError(f"is larger than {_FILE_BYTES_MAX} bytes (1 MiB), the most that is read")
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise ValueError("is not UTF-8 text") from None


def _read_pipe(pipe: int) -> bytes:
    """All of it, or more than may be read. Raises OSError, ValueError."""
    poll = select.poll()
    poll.register(pipe, select.POLLIN)
    until_s, data = time.monotonic() + _PIPE_WAIT_S, b""
    while len(data) <= _FILE_BYTES_MAX:
        if not poll.poll(max(0.0, until_s - time.monotonic()) * 1000):
            what = "its writer did not close it within" if data else "nothing wrote into it for"
            raise ValueError(f"is a pipe, and {what} {_PIPE_WAIT_S} s")
        piece = os.read(pipe, _FILE_BYTES_MAX)
        if not piece:
            break
        data += piece
    return data
