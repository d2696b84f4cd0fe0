"""Damage in a log's files."""

from __future__ import annotations

from pathlib import Path

from tests.aolog.conftest import flip


def damage(log: Path, *, at: float = 0.5, length: int = 64) -> None:
    """Bytes in the middle of the first slab are not what was written."""
    slab = min(log.glob("*.slab"))
    flip(slab, int(slab.stat().st_size * at), length)
