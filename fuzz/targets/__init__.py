"""The targets, each in a file of its own, imported when it is asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fuzz.target import Target

__all__ = ["TARGETS", "load"]

TARGETS = ("frame", "log", "recovery", "cursor")


def load(name: str) -> type[Target]:
    """The target of that name."""
    if name == "frame":
        from fuzz.targets.frame import FrameTarget

        return FrameTarget
    if name == "log":
        from fuzz.targets.log import LogTarget

        return LogTarget
    if name == "recovery":
        from fuzz.targets.recovery import RecoveryTarget

        return RecoveryTarget
    if name == "cursor":
        from fuzz.targets.cursor import CursorTarget

        return CursorTarget
    raise ValueError(f"no target is named {name!r}")
