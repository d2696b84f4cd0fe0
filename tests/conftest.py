"""What all tests share.

Tests may run in parallel (`-n auto --dist loadgroup`). Workers print nothing, so the lines that tests
report with the fixture `said` are printed at the end of the run, with the time of each group of tests.
"""

from __future__ import annotations

import contextlib
import getpass
import logging
import os
import shutil
import signal
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.kafka.plugin import kafka, kafka_3_9, strict_kafka, topic

__all__ = [
    "kafka",
    "kafka_3_9",
    "pytest_addoption",
    "pytest_collection_modifyitems",
    "pytest_configure",
    "pytest_runtest_teardown",
    "pytest_terminal_summary",
    "pytest_xdist_auto_num_workers",
    "said",
    "strict_kafka",
    "topic",
]

# A shell without job control starts its background processes with interrupts ignored. Their children
# inherit that, so the processes that tests start would not end when a test interrupts them.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def _signals() -> Iterator[None]:
    """Commands that run in this process set handlers."""
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.getsignal(number) for number in numbers}
    yield
    for number, handler in before.items():
        if signal.getsignal(number) is not handler:
            signal.signal(number, handler)


# Tests with a Kafka run one after the other, as they stop and kill it. They mostly wait, so several
# such rows, each with a Kafka of its own, run in parallel. All files that are not named: the last.
_KAFKA_ROWS = {
    "test_exactly_once_kafka": "kafka 1",
    "test_forwarder_kafka": "kafka 2",
    "test_kafka_provider": "kafka 2",
}
_LAST_KAFKA_ROW = "kafka 3"
# Groups, and files, that take longest begin first, so that none of them runs alone at the end. Those with
# a Kafka mostly wait, and others compute: they begin in turns, so that both cores are used all the time.
_BEGIN_FIRST = (
    _LAST_KAFKA_ROW, "kafka 1", "secured kafka", "spark", "browser", "strict kafka", "test_exploration",
    "kafka 2", "test_spark_case", "kafka", "test_bridges", "rights", "test_mutants", "cluster", "site",
    "test_pages", "test_bench",
)  # fmt: skip  # a list


class OneDirectory:
    """A directory for all temporary files of a run and of its processes, killed ones too. It is removed at the
    end of a run in which nothing failed."""

    def __init__(self, config: pytest.Config) -> None:
        before = tempfile.gettempdir()
        self._where = tempfile.mkdtemp(prefix="aolog-")
        Path(self._where).chmod(0o711)  # for tests of two users
        self._of_java = Path(before, f"hsperfdata_{getpass.getuser()}")
        self._failed = True
        os.environ["TMPDIR"] = tempfile.tempdir = self._where
        os.environ["SPARK_SUBMIT_OPTS"] = f"-Djava.io.tmpdir={self._where}"
        if config.option.basetemp is None:
            config.option.basetemp = f"{self._where}/pytest"

    @pytest.hookimpl
    def pytest_sessionfinish(self, exitstatus: int) -> None:
        """What is left of a failure is kept."""
        self._failed = exitstatus not in {pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED}

    @pytest.hookimpl
    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Names what is kept."""
        if self._failed:
            terminalreporter.write_line(f"temporary files: {self._where}")

    @pytest.hookimpl(trylast=True)
    def pytest_unconfigure(self) -> None:
        """After the workers have ended."""
        if not self._failed:
            shutil.rmtree(self._where, ignore_errors=True)
        with contextlib.suppress(OSError):  # of Javas that ended; a running one has a file there
            self._of_java.rmdir()


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--long`: also the tests that take minutes or gigabytes."""
    parser.addoption("--long", action="store_true", help="also run the tests marked slow")


@pytest.fixture
def said(record_property: Callable[[str, object], None]) -> Callable[[str], None]:
    """Prints a line at the end of the run."""
    return lambda text: record_property("said", text)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """What tests said, and the time of each group."""
    for report in (r for reports in terminalreporter.stats.values() for r in reports):
        if getattr(report, "when", None) == "call":
            for name, text in report.user_properties:
                if name == "said":
                    terminalreporter.write_line(text)
    for group, seconds in _seconds_of_groups(terminalreporter).most_common():
        if seconds > 1:  # not a test whose id has an "@"
            terminalreporter.write_line(f"group {group}: {seconds:.0f} s")


def _seconds_of_groups(terminalreporter: pytest.TerminalReporter) -> Counter[str]:
    """By group, where xdist runs them: it appends the group to the test's id."""
    seconds = Counter[str]()
    for reports in terminalreporter.stats.values():
        for report in reports:
            if "@" in getattr(report, "nodeid", "") and hasattr(report, "duration"):
                seconds[report.nodeid.rpartition("@")[2]] += report.duration
    return seconds


def pytest_runtest_teardown() -> None:
    """A test that silences the warnings of thousands of damaged logs does so only for itself."""
    logging.getLogger("aolog").setLevel(logging.NOTSET)


@pytest.hookimpl(tryfirst=True)  # before pytest chooses a directory
def pytest_configure(config: pytest.Config) -> None:
    """xdist begins groups in the order of collection, which is set below. Examples of Hypothesis may take
    long on a loaded machine; with `--long` there are more."""
    if not hasattr(config, "workerinput"):  # workers of xdist use what the run has
        config.pluginmanager.register(OneDirectory(config))
    settings.register_profile("small", deadline=None, suppress_health_check=[HealthCheck.too_slow])
    settings.register_profile("long", settings.get_profile("small"), max_examples=1000)
    settings.load_profile("long" if config.getoption("--long") else "small")
    if hasattr(config.option, "loadscopereorder"):
        config.option.loadscopereorder = False


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """`-n auto`: one for each core, and four more for the tests with a Kafka, which mostly wait."""
    return (os.cpu_count() or 1) + 4


def _group_of(item: pytest.Item) -> str | None:
    """Tests of a group run one after the other in one worker: they share something that takes long
    to set up, or that they stop."""
    fixtures = getattr(item, "fixturenames", ())
    if (marker := item.get_closest_marker("xdist_group")) is not None:
        return str(marker.args[0])
    if item.path.stem == "test_rights_kafka":
        return "rights"
    if "strict_kafka" in fixtures or "kafka_3_9" in fixtures:
        return "strict kafka"
    if "kafka" in fixtures or item.get_closest_marker("kafka") is not None:
        return _KAFKA_ROWS.get(item.path.stem, _LAST_KAFKA_ROW)
    if "spark" in fixtures:
        return "spark"
    if item.path.parent.name == "bench" and "run" in fixtures:
        return item.path.stem
    return "Go" if "gotool" in fixtures else None


@pytest.hookimpl(tryfirst=True)  # before workers look at the groups
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Tests marked slow run only with `--long`. Tests get their groups; the longest come first."""
    ranks = {group: rank for rank, group in enumerate(_BEGIN_FIRST)}
    rank_of: dict[pytest.Item, int] = {}
    for item in items:
        if item.get_closest_marker("slow") is not None and not config.getoption("--long"):
            item.add_marker(pytest.mark.skip(reason="slow: run with --long"))
        group = _group_of(item)
        if group is not None and item.get_closest_marker("xdist_group") is None:
            item.add_marker(pytest.mark.xdist_group(group))
        rank_of[item] = ranks.get(group or item.path.stem, len(ranks))
    if hasattr(config, "workerinput"):  # one of xdist's workers, whose own option `dist` is "no"
        items.sort(key=rank_of.__getitem__)
