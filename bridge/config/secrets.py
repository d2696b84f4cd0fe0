"""Where a secret is read: a setting's value is plain, in a file, or in an environment variable.

    "compression.type" = "zstd"                            plain
    "sasl.password" = {file = "/run/secrets/kafka"}        the file's text, without a last newline
    "sasl.password" = {env = "KAFKA_PASSWORD"}             an environment variable

Values from a file or the environment, and values whose key names a secret, are never shown.
A file is read again when it changes: see `stamps` and `Setting.read_again`. Every path begins at a base:
the directory of the configuration, or for an option the working directory.
"""

from __future__ import annotations

import os
import re
import select
import stat
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from pydantic import SecretStr

from bridge.kafka.setting_files import NO_FILES, names_a_file

_SECRET = re.compile(r"password|secret|token$|key\.pem|sasl\.oauthbearer\.config|sasl\.jaas")
_MASK = "**********"
_FILE_BYTES_MAX = 1 << 20  # keys, keystores and configurations are smaller
_PIPE_WAIT_S = 5  # a shell's <(command) may need a moment
# Below this key, the client's own keys end in .file.
_HAS_FILE_KEYS = "sasl.oauthbearer.assertion"

Stamps: TypeAlias = dict[str, tuple[int, int, int] | None]
"""By path: inode, size and time of change of a file; None where there is none."""


class Setting(NamedTuple):
    """A value; its text is shown only if it is no secret."""

    value: SecretStr
    source: str | None  # "file ..." or "environment ..."; None if it was written out
    secret: bool
    exposure: str | None = None  # how others on this machine can read a secret, and what to do
    path: Path | None = None  # the file that the value was read from
    base: Path | None = None  # where the value begins, if it is a path itself

    def read_again(self) -> Setting:
        """With what its file holds now. Raises ValueError."""
        return self if self.path is None else _from_file(self.path, self.base, secret=self.secret)

    def shown(self) -> str:
        """For people."""
        if self.source is not None:
            return f"{_MASK} (from {self.source})"
        return _MASK if self.secret else self.value.get_secret_value()

    def __repr__(self) -> str:
        return f"Setting({self.shown()!r})"


def is_reference(key: str, value: Mapping[Any, Any]) -> bool:
    """Whether a table names the file or variable of a value, in place of keys."""
    return bool(key) and value.keys() in ({"file"}, {"env"}) and not key.startswith(_HAS_FILE_KEYS)


def setting_of(key: str, value: object, base: Path) -> Setting | str:
    """The setting, or what is wrong with it, without its value, which may be a secret."""
    if isinstance(value, Setting):
        return value  # an option of the command line
    source = None
    is_path = names_a_file(key)
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
            try:
                return _from_file(base / where, base if is_path else None, secret=secret)
            except ValueError as error:
                return str(error)
    elif isinstance(value, bool):
        value = str(value).lower()
    elif isinstance(value, int | float):
        value = str(value)
    if not isinstance(value, str):
        return f"should be a string, a number, true or false, not {_kind(value)}"
    if "\0" in value:
        return "contains a NUL"
    if not (_is_text(key) and _is_text(value)):
        return "has no UTF-8 form"
    if is_path:
        value = _located(value, base)
    return Setting(SecretStr(value), source, secret)


def _located(path: str, base: Path) -> str:
    return path if path in NO_FILES else str(base / path)


def _is_text(text: str) -> bool:
    """Whether it has a UTF-8 form: the client ends the process where a key has none."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _from_file(path: Path, base: Path | None, *, secret: bool) -> Setting:
    """base: see Setting. Raises ValueError, which never quotes the value."""
    try:
        value, mode = read_text(path), path.stat().st_mode
    except OSError as error:
        raise ValueError(
            f"{path}: {error.strerror}; the file holds the value and nothing else"
        ) from None
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None
    value = value.removesuffix("\n").removesuffix("\r")
    if "\0" in value:
        raise ValueError("contains a NUL")
    exposure = None
    if secret and mode & stat.S_IROTH:
        exposure = f"every user of this machine can read {path}; chmod o= it"
    if base is not None:
        value = _located(value, base)
    return Setting(SecretStr(value), f"file {path}", secret, exposure, path, base)


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


def exposures(settings: Mapping[str, Setting]) -> list[str]:
    """For each secret that others on this machine can read: its key, how, and what to do."""
    return [f"{key}: {s.exposure}" for key, s in settings.items() if s.exposure is not None]


def _kind(value: object) -> str:
    """A value's type, as TOML and JSON name it."""
    names = {bool: "true or false", int: "a number", float: "a number", str: "a string",
             list: "a list", dict: "a table", type(None): "null"}  # fmt: skip  # a table
    return names.get(type(value), f"a {type(value).__name__}")
