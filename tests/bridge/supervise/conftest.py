"""What tests of the supervisor share."""

from __future__ import annotations

import os

import pytest


@pytest.fixture
def unlisted(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """Errors of directories that cannot be listed, by their paths."""
    errors: dict[str, int] = {}
    scandir = os.scandir

    def listing(path: str) -> object:
        if str(path) in errors:
            raise OSError(errors[str(path)], "no")
        return scandir(path)

    monkeypatch.setattr(os, "scandir", listing)
    return errors
