"""Log lines: one event a line, JSON unless a person reads it, and repetition bounded."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from bridge.deliver.log_lines import naming
from bridge.operate import log_lines
from bridge.operate.log_lines import REPEATS_MAX, Problems, Repetition
from tests.aolog.commands import on_terminal
from tests.bridge.brokers import NOWHERE
from tests.bridge.logs import fill
from tests.bridge.processes import Start
from tests.waiting import wait_until


class Shown(logging.Handler):
    """What a handler with the filter shows, and a clock that the test moves."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__()
        self.now_s = 1000.0
        monkeypatch.setattr(log_lines.time, "monotonic", lambda: self.now_s)
        self.addFilter(Repetition())
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)

    @property
    def messages(self) -> list[str]:
        return [record.getMessage() for record in self.records]


@pytest.fixture
def logger() -> logging.Logger:
    logger = logging.getLogger("tests.lines")
    logger.setLevel(logging.DEBUG)
    logger.propagate = False
    return logger


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch, logger: logging.Logger) -> Iterator[Shown]:
    handler = Shown(monkeypatch)
    logger.addHandler(handler)
    yield handler
    logger.removeHandler(handler)


def test_a_line_that_repeats_is_left_out_and_the_next_minute_says_how_often(
    shown: Shown, logger: logging.Logger
) -> None:
    for number in range(100):
        logger.warning("refused %d times by %s", number, "broker 1")
    assert len(shown.records) == REPEATS_MAX
    shown.now_s += 61
    logger.warning("refused %d times by %s", 100, "broker 1")
    assert len(shown.records) == REPEATS_MAX + 1
    assert shown.records[-1].left_out == 100 - REPEATS_MAX
    shown.now_s += 61
    logger.warning("refused %d times by %s", 101, "broker 1")
    assert not hasattr(shown.records[-1], "left_out")


def test_lines_that_differ_in_words_level_or_log_are_not_alike(
    shown: Shown, logger: logging.Logger
) -> None:
    for number in range(50):
        logger.info("%s goes to main", f"app/{number}")
        with naming(f"app/{number}"):
            logger.warning("connecting anew")
            logger.error("connecting anew")
    assert len(shown.records) == 150


def test_what_other_code_logs_never_raises_where_it_is_logged(
    shown: Shown, logger: logging.Logger, capsys: pytest.CaptureFixture[str]
) -> None:
    logger.warning({"an": "object"})
    assert len(shown.records) == 1
    problems = Problems()
    problems.handle(shown.records[0])
    wrong = logging.LogRecord("", logging.WARNING, "", 0, "a number: %d", ("that is none",), None)
    problems.handle(wrong)
    assert [problem["message"] for problem in problems.latest()] == ["{'an': 'object'}"]
    assert "Logging error" in capsys.readouterr().err


def test_lines_are_json_unless_standard_error_is_a_terminal(bridge: Start, log: Path) -> None:
    fill(log, 1)
    arguments = ("run", "--root", log.parent, "--topic", "t", "--bootstrap-servers", NOWHERE)
    process = bridge(*arguments)
    wait_until(lambda: "goes to" in process.stderr)
    assert process.terminate() == 0
    lines = [json.loads(line) for line in process.stderr.splitlines()]
    assert {"time", "level", "logger", "message"} <= lines[0].keys()
    assert (lines[0]["level"], lines[0]["event"]) == ("info", "log_found")
    text = bridge(*arguments, "--log-format", "text")
    wait_until(lambda: "goes to" in text.stderr)
    assert text.terminate() == 0
    assert " INFO bridge.supervisor: log goes to " in text.stderr
    status, seen = on_terminal("bridge", *arguments, stop_at=b"goes to")
    assert status == 0
    assert b" INFO bridge.supervisor: log goes to " in seen
