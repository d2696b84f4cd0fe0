"""How often something was killed is told at the end."""

from __future__ import annotations

import pytest

from tests.crash.killing import COUNTS, LONG_FACTOR


@pytest.fixture
def times(request: pytest.FixtureRequest) -> int:
    """How often to do what the small budget does once."""
    return LONG_FACTOR if request.config.getoption("--long") else 1


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """One line."""
    terminalreporter.write_line(
        f"crashes: {COUNTS['kills']} processes killed, {COUNTS['cuts']} power cuts"
    )
