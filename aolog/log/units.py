"""Sizes and durations as people write them. Pure: text in, numbers out."""

from __future__ import annotations

import re

_SIZE = re.compile(r"([0-9]{1,19}(?:\.[0-9]{1,19})?) ?(?:([kmgtp])(i?b)?|b)?", re.IGNORECASE)
_POWERS = {"k": 1, "m": 2, "g": 3, "t": 4, "p": 5}
_DURATION_PART = r"([0-9]+(?:\.[0-9]+)?)(ms|s|m|h|d|w)"
_DURATION = re.compile(rf"(?:{_DURATION_PART})+")
DURATION_MAX_S = 100 * 365 * 86400.0  # larger ones overflow in clocks and waits
_UNITS_S = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}


def size_bytes(text: str) -> int | None:
    """'10k', '64M', '1GiB' or '5GB' in bytes; None if the text is not a size. As in coreutils, k and KiB
    are 1024, KB is 1000."""
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        return None
    number, prefix, suffix = match.groups()
    base = 1000 if (suffix or "").lower() == "b" else 1024
    scale = base ** _POWERS[prefix.lower()] if prefix else 1
    return int(number) * scale if number.isdigit() else int(float(number) * scale)


def size_text(count: int) -> str:
    """65536 as '64 KiB', in the largest unit of which it is a whole number."""
    for power, unit in ((5, "PiB"), (4, "TiB"), (3, "GiB"), (2, "MiB"), (1, "KiB")):
        whole, rest = divmod(count, 1024**power)
        if whole and not rest:
            return f"{whole} {unit}"
    return f"{count}"


def duration_seconds(text: str) -> float | None:
    """'90s', '15m', '1h30m', '7d' or '0.5' in seconds; None if the text is not a duration."""
    text = text.strip().lower()
    if re.fullmatch(r"[0-9]+(\.[0-9]+)?", text):
        return float(text)
    if not _DURATION.fullmatch(text):
        return None
    parts = re.findall(_DURATION_PART, text)
    return sum(float(number) * _UNITS_S[unit] for number, unit in parts)
