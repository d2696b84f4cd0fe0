"""The Kafka client's check of settings. This room knows no client: the package `bridge` sets the check when
it is imported, so before any configuration is read, and before a model is built in Python."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

check: Callable[[dict[str, Any]], None]
"""Raises WrongSetting for a setting that the client does not know, or that the bridge sets itself."""
