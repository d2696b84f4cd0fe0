"""What the explorations share."""

from __future__ import annotations

import time

import pytest

from aolog.storage import clock


@pytest.fixture
def no_time_passes(monkeypatch) -> None:
    monkeypatch.setattr(clock, "now_us", lambda: 1_795_890_000_000_000)
    monkeypatch.setattr(time, "sleep", lambda _: None)
