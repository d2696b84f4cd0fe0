"""What all tests share."""

from __future__ import annotations

import logging

import pytest

from tests.kafka.plugin import kafka, topic

__all__ = [
    "kafka",
    "pytest_addoption",
    "pytest_collection_finish",
    "pytest_collection_modifyitems",
    "pytest_runtest_teardown",
    "topic",
]


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--long`: also the tests that take minutes or gigabytes."""
    parser.addoption("--long", action="store_true", help="also run the tests marked slow")


def pytest_collection_finish(session: pytest.Session) -> None:
    """Says what the small budget leaves out, and what the long one adds."""
    slow = sum(item.get_closest_marker("slow") is not None for item in session.items)
    chosen = "long" if session.config.getoption("--long") else "small"
    small = len(session.items) - slow
    print(f"\nbudget: {chosen}; small: {small} tests, long (--long): {small + slow}")


def pytest_runtest_teardown() -> None:
    """A test that damages logs by the thousand keeps their warnings down for itself only."""
    logging.getLogger("aolog").setLevel(logging.NOTSET)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Tests marked slow run only where they were asked for."""
    if config.getoption("--long"):
        return
    for item in items:
        if item.get_closest_marker("slow") is not None:
            item.add_marker(pytest.mark.skip(reason="slow: run with --long"))
