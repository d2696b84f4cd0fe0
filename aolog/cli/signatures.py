"""Signatures on the command line: the key file, and what was found."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from aolog.cli.output import out
from aolog.errors import UsageError, counted
from aolog.format.signature import parse_keys

if TYPE_CHECKING:
    from aolog.format.signature import Keys
    from aolog.maintenance.signatures import Signatures

_BYTES_MAX = 1 << 20  # thousands of keys: FILE may be /dev/zero


def read_keys(name: str) -> Keys:
    """Raises UsageError."""
    return parse_keys(read_file(name, _BYTES_MAX).decode(errors="replace"), name)


def read_file(name: str, bytes_max: int) -> bytes:
    """A file that the user names. Raises UsageError."""
    try:
        with Path(name).open("rb") as file:
            data = file.read(bytes_max + 1)
    except OSError as error:
        raise UsageError(f"{name}: {error.strerror}") from None
    if len(data) > bytes_max:
        raise UsageError(f"{name}: is larger than {bytes_max} bytes")
    return data


def signatures_to_json(found: Signatures) -> dict[str, Any]:
    """All of it, named."""
    return {**found._asdict(), "wrong": [wrong._asdict() for wrong in found.wrong]}


def print_signatures(found: Signatures) -> None:
    """For people."""
    out.line("")
    out.line(
        f"signatures: {counted(found.signed, 'record', ',')} as signed, "
        f"{found.unsigned:,} without a signature, {found.forged:,} forged"
    )
    for wrong in found.wrong:
        out.line(f"  {wrong.address}: {wrong.reason}")
