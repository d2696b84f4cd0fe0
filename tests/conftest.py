"""What all tests share."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from tests.kafka.plugin import kafka, topic

__all__ = [
    "kafka",
    "pytest_addoption",
    "pytest_collection_finish",
    "pytest_collection_modifyitems",
    "topic",
]


@pytest.fixture(autouse=True)
def _level_of_the_library_s_logger() -> Iterator[None]:
    """What fuzz/ makes quiet is heard again in the next test."""
    logger = logging.getLogger("aolog")
    level = logger.level
    yield
    logger.setLevel(level)


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--long`: also the tests that take minutes or gigabytes."""
    parser.addoption("--long", action="store_true", help="also run the tests marked slow")


def pytest_collection_finish(session: pytest.Session) -> None:
    """Says what the small budget leaves out, and what the long one adds."""
    slow = sum(item.get_closest_marker("slow") is not None for item in session.items)
    chosen = "long" if session.config.getoption("--long") else "small"
    small = len(session.items) - slow
    print(f"\nbudget: {chosen}; small: {small} tests, long (--long): {small + slow}")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Tests marked slow run only where they were asked for."""
    if config.getoption("--long"):
        return
    for item in items:
        if item.get_closest_marker("slow") is not None:
            item.add_marker(pytest.mark.skip(reason="slow: run with --long"))
