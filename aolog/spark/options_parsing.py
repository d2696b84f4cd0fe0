"""Parsers that the options of reads and of writes share, and the errors that name an option."""

from __future__ import annotations

import re
from contextlib import contextmanager
from difflib import get_close_matches
from typing import TYPE_CHECKING

from aolog.errors import RecordRefused, UsageError
from aolog.log.units import size_bytes
from aolog.storage.objects.url import is_url, normal_url
from aolog.storage.storage import absolute

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

# `int` accepts digits of other scripts too, and refuses numbers of more than 4,300 digits.
_DIGITS = re.compile(r"[0-9]{1,19}")

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):")
_AUTHORITY = re.compile(r"//([^/]*)")


def refused(name: str, problem: str, hint: str | None = None) -> UsageError:
    """The error about an option."""
    return UsageError(f"option {name}: {problem}", hint=hint)


@contextmanager
def naming(name: str) -> Iterator[None]:
    """Names this option in a RecordRefused or UsageError of the block."""
    try:
        yield
    except (RecordRefused, UsageError) as error:
        raise refused(name, error.reason, error.hint) from None


def unknown(key: str, names: Mapping[str, str]) -> UsageError:
    """The error about an unknown option. names: those of all options, by their lower case."""
    near = get_close_matches(key, names, 1)
    hint = f"did you mean {names[near[0]]}?" if near else f"there are {', '.join(names.values())}"
    return refused(key, "is not known", hint)


def boolean(name: str, text: str, yes: str = "true", no: str = "false") -> bool:
    """Whether it is the word `yes`, in any case, rather than `no`. Raises UsageError for another one."""
    if text.lower() not in {yes, no}:
        raise refused(name, f"{text!r} is neither {yes} nor {no}")
    return text.lower() == yes


def whole_number(name: str, text: str, least: int = 1, most: int = (1 << 63) - 1) -> int:
    """The number. Raises UsageError."""
    number = int(text) if _DIGITS.fullmatch(text := text.strip()) else least - 1
    if not least <= number <= most:
        raise refused(name, f"{text[:40]!r} is not a whole number from {least} to {most}")
    return number


def size(name: str, text: str, least: int = 1, most: int = (1 << 63) - 1) -> int:
    """A size in bytes. Raises UsageError."""
    number = size_bytes(text) or 0
    if not least <= number <= most:
        raise refused(
            name,
            f"{text[:40]!r} is not a number of bytes from {least} to {most}",
            "such as 1048576, 64m or 1g",
        )
    return number


def directory(text: str) -> str:
    """The absolute path of a directory, without `file:`: the same on the driver and on every executor.
    Raises UsageError for an empty path, and for a URL of anything but a file system."""
    if not text:
        raise refused(
            "path",
            "names no log and no root of logs",
            'load("/path"), save("/path"); of SQL, temporary views work: CREATE TEMPORARY '
            "VIEW name USING aolog OPTIONS (path '/path')",
        )
    if "\0" in text:
        raise refused("path", f"{text!r} has a NUL in it")
    scheme = _SCHEME.match(text)
    if scheme is None:
        return absolute(text)
    if scheme[1].lower() != "file":
        raise refused(
            "path",
            f"{text}: {scheme[1]}: is not a file system for logs",
            "name a directory that is mounted at the same path on the driver and every executor (or "
            f"./{text}, if the name of a directory has a colon)",
        )
    rest = text[scheme.end() :]
    if (host := _AUTHORITY.match(rest)) is not None:
        if host[1].lower() not in {"", "localhost"}:
            raise refused(
                "path",
                f"{text}: a file of another host, {host[1]}",
                "such as file:///path, or /path",
            )
        rest = rest[host.end() :]
    if not rest.startswith("/"):
        raise refused(
            "path", f"{text}: file: needs an absolute path", "such as file:///path, or /path"
        )
    return absolute("/" + rest.lstrip("/"))


def place(text: str) -> str:
    """As `directory`, for what is only read: also the URL of an object store, in its normal form."""
    is_local = text.startswith("file:")
    return normal_url(text) if is_url(text) and not is_local else directory(text)
