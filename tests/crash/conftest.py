"""How often something was killed is told at the end."""

from __future__ import annotations

import pytest

from tests.crash.killing import COUNTS, LONG_FACTOR


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A test that takes a seed runs once, and with `--long` on so many logs of its own."""
    if "seed" in metafunc.fixturenames:
        long = metafunc.config.getoption("--long")
        metafunc.parametrize("seed", range(LONG_FACTOR if long else 1))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """One line."""
    terminalreporter.write_line(
        f"crashes: {COUNTS['kills']} processes killed, {COUNTS['cuts']} power cuts"
    )
