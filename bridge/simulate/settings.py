"""What the page of the simulator sets, and the sentence that each change is in the list of events."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, ValidationError

from aolog.errors import UsageError
from bridge.config.models import StrictTable

Mode = Literal["log", "block", "error", "buffer", "always"]
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


class Settings(StrictTable):
    """What the page sets."""

    rate: int = Field(default=200, ge=0, le=5_000)  # records a second
    delay_ms: int = Field(default=0, ge=0, le=5_000)  # of the broker's answers
    mode: Mode = "log"
    down: bool = False
    rejecting: bool = False
    full: bool = False  # the program's disk


def changed(settings: Settings, changes: dict[str, Any]) -> Settings:
    """Raises UsageError for a name that is unknown, and a value of another type, or out of range."""
    try:
        return Settings.model_validate({**settings.model_dump(), **changes})
    except ValidationError as error:
        found = error.errors(include_url=False)[0]
        raise UsageError(f"{'.'.join(map(str, found['loc']))}: {found['msg']}") from None


def sentence(name: str, value: object) -> str:
    """The change of a setting, as an event."""
    if name in _SWITCHES:
        return _SWITCHES[name][not value]
    if name == "mode":
        return _MODES[str(value)]
    if name == "rate":
        return f"the program writes {value:,} records a second" if value else "the program pauses"
    return f"the broker answers after {value:,} ms" if value else "the broker answers at once"
