"""What the log has to say to the program's own log: a logger called `aolog`.

logging is imported when there is something to say: most logs never have, and it would be a sixth
of what importing this costs.
"""

from __future__ import annotations

__all__ = [
    "as_utf8",
    "counted",
    "escape_controls",
    "fault",
    "one_line",
    "records_lost",
    "to_json",
    "warn",
]

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
    """The text with everything escaped that is not printable; paths as `as_utf8` shows them."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in as_utf8(text))


# C0 but for newline and tab, DEL, C1, line separators, and characters that reverse the direction of
# text: a terminal acts on all of these.
_CONTROLS = "[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]"


def escape_controls(text: str) -> str:
    """The text with its control characters as JSON escapes them, but for newlines and tabs: harmless
    on a terminal, and a line of JSON still says the same."""
    import json
    import re

    return re.sub(_CONTROLS, lambda found: json.dumps(found[0])[1:-1], text)


def as_utf8(text: str) -> str:
    """The text with the bytes of paths decoded as UTF-8, whatever the locale made of them. Bytes
    that are no UTF-8 are escaped."""
    try:
        return text.encode(errors="surrogateescape").decode(errors="backslashreplace")
    except UnicodeEncodeError:  # half of a pair, which stands for no byte
        return text.encode(errors="backslashreplace").decode()


def to_json(value: object, *, ascii_only: bool = False) -> str:
    """One line. Text is left as it is where all of it is printable; paths are shown as `as_utf8`
    shows them."""
    import json
    import re

    def shown(path: re.Match[str]) -> str:
        return json.dumps(as_utf8(path[0]), ensure_ascii=False)[1:-1]

    text = json.dumps(value, ensure_ascii=False, default=str)
    if not text.isprintable():
        text = re.sub("[\ud800-\udfff]+", shown, text)
    if text.isprintable() and (text.isascii() or not ascii_only):
        return text
    return json.dumps(json.loads(text))
