"""What the page of the simulator sets, and the sentence that each change is in the list of events."""

from __future__ import annotations

from typing import Literal, NamedTuple

from aolog.errors import UsageError

Mode = Literal["log", "block", "error", "buffer", "always"]
MODES: tuple[Mode, ...] = ("log", "block", "error", "buffer", "always")
RATE_MAX, DELAY_MS_MAX = 5_000, 5_000
ON_DISK: frozenset[Mode] = frozenset({"log", "buffer", "always"})  # modes that keep records on disk
_MODES = {
    "log": "records go through a log and the bridge",
    "block": "a Buffer in the program sends; its send waits during failures, and nothing is on disk",
    "error": "a Buffer in the program sends; its send fails during failures, and nothing is on disk",
    "buffer": "a Buffer in the program sends; records go to disk during failures",
    "always": "a Buffer in the program sends; every record goes through the disk",
}
_SWITCHES = {
    "down": ("the broker goes down", "the broker is up again"),
    "rejecting": ("the broker rejects everything", "the broker accepts records again"),
    "full": ("the program's disk is full", "the program's disk has room again"),
}


class Settings(NamedTuple):
    """What the page sets."""

    rate: int = 200  # records a second
    delay_ms: int = 0  # of the broker's answers
    mode: Mode = "log"
    down: bool = False
    rejecting: bool = False
    full: bool = False  # the program's disk


def check(settings: Settings) -> None:
    """Raises UsageError for a value of another type, or out of range."""
    for name, default in Settings._field_defaults.items():
        value = getattr(settings, name)
        if type(value) is not type(default):  # true is an int too
            raise UsageError(f"{name} = {value!r}", hint=f"a value such as {default!r}")
    if not 0 <= settings.rate <= RATE_MAX:
        raise UsageError(f"rate = {settings.rate}", hint=f"0 to {RATE_MAX}")
    if not 0 <= settings.delay_ms <= DELAY_MS_MAX:
        raise UsageError(f"delay_ms = {settings.delay_ms}", hint=f"0 to {DELAY_MS_MAX}")
    if settings.mode not in MODES:
        raise UsageError(f"mode = {settings.mode}", hint="one of " + ", ".join(MODES))


def sentence(name: str, value: object) -> str:
    """The change of a setting, as an event."""
    if name in _SWITCHES:
        return _SWITCHES[name][not value]
    if name == "mode":
        return _MODES[str(value)]
    if name == "rate":
        return f"the program writes {value:,} records a second" if value else "the program pauses"
    return f"the broker answers after {value:,} ms" if value else "the broker answers at once"
