"""A test that takes a seed runs once, and with `--long` on many logs."""

from __future__ import annotations

import pytest

from tests.crash.killing import LONG_FACTOR


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A test that takes a seed runs once, and with `--long` on so many logs of its own."""
    if "seed" in metafunc.fixturenames:
        long = metafunc.config.getoption("--long")
        metafunc.parametrize("seed", range(LONG_FACTOR if long else 1))
