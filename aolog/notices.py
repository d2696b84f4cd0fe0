"""What the log has to say to the program's own log: a logger called `aolog`.

logging is imported when there is something to say: most logs never have, and it would be a sixth
of what importing this costs.
"""

from __future__ import annotations

__all__ = ["as_utf8", "counted", "fault", "one_line", "records_lost", "warn"]

_CALLER = 2  # frames up: the line that is told is theirs


def warn(message: str, *args: object) -> None:
    """Something was done about it, or nothing has to be."""
    import logging

    logging.getLogger("aolog").warning(message, *args, stacklevel=_CALLER)


def fault(message: str, *args: object) -> None:
    """Something is lost, and there is no caller left to raise it to."""
    import logging

    logging.getLogger("aolog").error(message, *args, stacklevel=_CALLER)


def counted(count: int, noun: str, spec: str = "") -> str:
    """'1 record', '2 records'; spec: of the number, as `format` has it."""
    return f"{count:{spec}} {noun}{'' if count == 1 else 's'}"


def records_lost(count: int | None) -> str:
    """'1 record', 'an unknown number of records': a gap's."""
    return "an unknown number of records" if count is None else counted(count, "record")


def one_line(text: str) -> str:
    """The text with everything escaped that is not printable."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def as_utf8(text: str) -> str:
    """The text with everything written out that has no UTF-8 form, as a path may have."""
    return text.encode(errors="backslashreplace").decode()
