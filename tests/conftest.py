"""What all tests share.

Tests may run side by side (`-n auto --dist loadgroup`). What a test says with the fixture `said`
stands at the end of the run, with the budget and the number of crashes: what a worker prints goes
nowhere.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
from collections import Counter
from collections.abc import Callable

import pytest

from tests.kafka.plugin import kafka, kafka_3_9, strict_kafka, topic

__all__ = [
    "kafka",
    "kafka_3_9",
    "pytest_addoption",
    "pytest_collection_finish",
    "pytest_collection_modifyitems",
    "pytest_runtest_teardown",
    "pytest_sessionfinish",
    "pytest_terminal_summary",
    "pytest_testnodedown",
    "pytest_xdist_auto_num_workers",
    "said",
    "strict_kafka",
    "topic",
]

_collected = pytest.StashKey[tuple[int, int]]()  # tests, and how many of them are slow

# A shell without job control has what it runs in the background ignore interrupts, and so would all
# that is begun here, and not end where a test interrupts it.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

_DEAR_TO_SET_UP = {"bench", "spark"}  # these go to one worker each
_FIRST_KAFKA = {"test_exactly_once_kafka", "test_kafka_provider"}  # about half of their time

_crashes_of_workers: Counter[str] = Counter()


def _crashes() -> Counter[str]:
    """Of this process: its tests may not be there at all."""
    killing = sys.modules.get("tests.crash.killing")
    return Counter() if killing is None else killing.COUNTS


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--long`: also the tests that take minutes or gigabytes."""
    parser.addoption("--long", action="store_true", help="also run the tests marked slow")


@pytest.fixture
def said(record_property: Callable[[str, object], None]) -> Callable[[str], None]:
    """Prints a line, whatever is captured."""
    return lambda text: record_property("said", text)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Counts what the small budget leaves out, and what the long one adds."""
    slow = sum(item.get_closest_marker("slow") is not None for item in session.items)
    session.config.stash[_collected] = (len(session.items), slow)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """A worker hands over what it counted."""
    if hasattr(session.config, "workeroutput"):
        counted = session.config.stash.get(_collected, (0, 0))
        session.config.workeroutput["counted"] = (counted, dict(_crashes()))


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node, error) -> None:
    """A worker ended. All of them collect the same tests, and each crashes in its own."""
    if "counted" in getattr(node, "workeroutput", {}):
        node.config.stash[_collected], crashes = node.workeroutput["counted"]
        _crashes_of_workers.update(crashes)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """What tests said, crashes, and the budget."""
    config = terminalreporter.config
    for report in (r for reports in terminalreporter.stats.values() for r in reports):
        if getattr(report, "when", None) == "call":
            for name, text in report.user_properties:
                if name == "said":
                    terminalreporter.write_line(text)
    crashes = _crashes() + _crashes_of_workers
    terminalreporter.write_line(
        f"crashes: {crashes['kills']} processes killed, {crashes['cuts']} power cuts"
    )
    count, slow = config.stash.get(_collected, (0, 0))
    chosen = "long" if config.getoption("--long") else "small"
    terminalreporter.write_line(
        f"budget: {chosen}; small: {count - slow} tests, long (--long): {count}"
    )


def pytest_runtest_teardown() -> None:
    """A test that damages logs by the thousand keeps their warnings down for itself only."""
    logging.getLogger("aolog").setLevel(logging.NOTSET)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """`-n auto`: one a core, and two more for the rows of tests with a Kafka, which mostly wait."""
    return (os.cpu_count() or 1) + 2


@pytest.hookimpl(tryfirst=True)  # before workers look at the groups
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Tests marked slow run only where they were asked for. The tests with a Kafka run one after the
    other, as they stop and kill it; mostly they wait, so that two such rows go side by side. Those
    that share what is dear to set up stay together."""
    for item in items:
        if item.get_closest_marker("slow") is not None and not config.getoption("--long"):
            item.add_marker(pytest.mark.skip(reason="slow: run with --long"))
        fixtures = getattr(item, "fixturenames", ())
        if "strict_kafka" in fixtures or "kafka_3_9" in fixtures:
            item.add_marker(pytest.mark.xdist_group("strict kafka"))
        elif "kafka" in fixtures or item.path.parent.name == "kafka":
            row = "kafka 1" if item.path.stem in _FIRST_KAFKA else "kafka 2"
            item.add_marker(pytest.mark.xdist_group(row))
        elif item.path.parent.name in _DEAR_TO_SET_UP:
            item.add_marker(pytest.mark.xdist_group(item.path.parent.name))
        elif "gotool" in fixtures:
            item.add_marker(pytest.mark.xdist_group("Go"))
