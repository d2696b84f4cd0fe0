"""Which topics a pull is of: names, patterns, and the lines of a file that may change meanwhile."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable
from pathlib import Path

from aolog.errors import UsageError
from bridge.config.names import check_topic
from bridge.errors import DestinationError, Unanswered
from bridge.kafka.catalog import Catalog, Topic

_log = logging.getLogger("bridge")
_INTERNAL = "__"  # as Kafka's own topics are named; no pattern means them


def _check(text: str) -> None:
    """A topic's name, or a pattern that begins with ^. Raises UsageError."""
    if text.startswith("^"):
        try:
            re.compile(text)
        except re.error as error:
            raise UsageError(f"{text!r} is not a regular expression: {error}") from None
    else:
        check_topic(text)


class WantedTopics:
    """given: names and patterns. file: more of them, one a line; empty lines and # are skipped. Raises
    UsageError for a wrong or unreadable one."""

    def __init__(self, given: Iterable[str], file: str | None) -> None:
        self._given, self._file = tuple(given), file
        self._warned: str | None = None
        self._lines()

    def describe(self, catalog: Catalog) -> list[Topic]:
        """As they are now. Raises UsageError for a wrong or unreadable file, DestinationError for a
        missing name, or if there is none."""
        return catalog.topics(self._names(catalog))

    def look(self, catalog: Catalog) -> tuple[list[str], dict[str, Topic]] | None:
        """While a pull runs: the names that are wanted now, and those that exist. None if that cannot be
        known. Logs a warning for a missing name and a wrong file. Raises Unanswered."""
        try:
            names = self._names(catalog)
            found = catalog.existing(names)
        except Unanswered:
            raise
        except (DestinationError, UsageError) as error:
            self._warn(f"the topics stay as they are: {error}")
            return None
        missing = [repr(name) for name in names if name not in found]
        self._warn(f"there is no topic {', '.join(missing)}" if missing else None)
        return names, found

    def _warn(self, text: str | None) -> None:
        """Once, until it changes."""
        if text is not None and text != self._warned:
            _log.warning("%s", text)
        self._warned = text

    def _names(self, catalog: Catalog) -> list[str]:
        lines = self._lines()
        patterns = [line for line in lines if line.startswith("^")]
        wanted = dict.fromkeys(line for line in lines if line not in patterns)
        for name in catalog.names() if patterns else ():
            if not name.startswith(_INTERNAL) and any(re.match(each, name) for each in patterns):
                wanted[name] = None
        if not wanted:
            raise DestinationError(
                "no topic matches", hint="`aolog-bridge topics` lists the topics of the cluster"
            )
        return list(wanted)

    def _lines(self) -> list[str]:
        found = list(self._given)
        if self._file is not None:
            try:
                text = Path(self._file).read_text(encoding="utf-8")
            except (OSError, UnicodeDecodeError) as error:
                raise UsageError(f"cannot read {self._file}: {error}") from None
            stripped = (line.strip() for line in text.splitlines())
            found += [line for line in stripped if line and not line.startswith("#")]
        for each in found:
            _check(each)
        return found
