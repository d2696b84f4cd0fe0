"""A file as a Buffer's provider: a line of JSON for each message."""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import IO

from bridge.client.buffer.provider import Message


class FileProvider:
    """Appends each message to a file as a line of JSON: topic, key, value, headers, timestamp_us.

    UTF-8 is written as text, other bytes as {"base64": ...}. Delivered means written to the
    operating system. A write that fails may leave a part of a line; `open` ends that line, and the
    message is written again on a line of its own.
    """

    retry_wait_s = 1.0

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = Path(path)
        self._file: IO[bytes] | None = None
        self.name = f"file {path}"

    def open(self) -> None:
        """Opens the file for appending, and ends its last line. Raises OSError."""
        self._file = self._path.open("ab", buffering=0)
        if _is_cut_off(self._path):
            self._file.write(b"\n")

    def send(self, message: Message) -> None:
        """Writes a line. Raises OSError."""
        assert self._file is not None
        line = json.dumps(
            {
                "topic": message.topic,
                "key": bytes_as_json(message.key),
                "value": bytes_as_json(message.value),
                "headers": [[name, bytes_as_json(value)] for name, value in message.headers],
                "timestamp_us": message.timestamp_us,
            }
        ).encode() + b"\n"  # fmt: skip  # an object, then its end
        written = self._file.write(line)
        if written != len(line):
            raise OSError(f"{self._path}: {written} of {len(line)} bytes written")

    def flush(self) -> Iterable[int]:
        """Everything is written already."""
        return ()

    def close(self) -> None:
        """Closes the file."""
        if self._file is not None:
            self._file.close()
            self._file = None


def _is_cut_off(path: Path) -> bool:
    """Whether the file's last line has no end. False for a pipe, and if it cannot be read."""
    try:
        with path.open("rb") as file:
            file.seek(-1, 2)  # from its end
            return file.read() != b"\n"
    except OSError:  # among others: it is empty
        return False


def bytes_as_json(data: bytes | None) -> str | dict[str, str] | None:
    """Text, {"base64": ...} for other bytes than UTF-8, or null."""
    if data is None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}
