"""A secret's text as its file has it now: for a token that is replaced while the process runs."""

from __future__ import annotations

import logging
from collections.abc import Callable

from bridge.config.secrets import Setting, stamps

_log = logging.getLogger("bridge")


class CurrentText:
    """Call it for the text. Any thread.

    name: of the setting, for log lines. wrong: why a text cannot be used, None if it can. While the file
    is missing or wrong the text before stays, and that is logged once.
    """

    def __init__(self, name: str, setting: Setting, wrong: Callable[[str], str | None]) -> None:
        self._name, self._setting, self._wrong = name, setting, wrong
        self._stamps = stamps({name: setting})

    def __call__(self) -> str:
        """One `stat`; reads the file if it has changed."""
        found = stamps({self._name: self._setting})
        if found != self._stamps:
            self._stamps = found  # before the reading: a change during it is read next time
            self._read()
        return self._setting.value.get_secret_value()

    def _read(self) -> None:
        try:
            new = self._setting.read_again()
            why = self._wrong(new.value.get_secret_value())
        except ValueError as error:
            new, why = self._setting, str(error)
        if why is None:
            self._setting = new
            _log.info("%s: the new one is in use", self._name, extra={"event": "rotated"})
        else:
            event = {"event": "rotation_refused"}
            _log.error("%s: %s; the one before stays", self._name, why, extra=event)
