"""Python's logging into a log."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator

import pytest

from aolog import LogHandler
from tests.aolog.conftest import read_all


@pytest.fixture
def logger() -> Iterator[logging.Logger]:
    found = logging.getLogger("shop.orders")
    found.setLevel(logging.DEBUG)
    found.propagate = False
    yield found
    found.handlers.clear()


def test_lines_become_records_with_the_logger_as_key_and_the_time_of_the_line(
    log_path: str, logger: logging.Logger
) -> None:
    handler = LogHandler(log_path, logging.INFO)
    logger.addHandler(handler)
    logger.info("order %d, %s", 7, "ø")
    logger.debug("below the level")
    try:
        raise ValueError("no stock")
    except ValueError:
        logger.exception("failed")
    assert len(read_all(log_path)) == 2  # the error flushed them
    handler.close()
    handler.close()
    first, second = read_all(log_path)
    found = json.loads(first.value or b"")
    assert (found["message"], found["level"]) == ("order 7, ø", "info")
    assert first.key == b"shop.orders"
    assert first.timestamp == pytest.approx(found["time"] * 1e6, abs=2)
    assert "no stock" in json.loads(second.value or b"")["exception"]


def test_an_error_of_the_log_does_not_stop_the_program(
    log_path: str, logger: logging.Logger, capsys: pytest.CaptureFixture[str]
) -> None:
    handler = LogHandler(log_path, max_record_bytes=200)
    logger.addHandler(handler)
    logger.info("x" * 1000)
    logger.info("small")
    handler.flush()
    assert "max_record_bytes" in capsys.readouterr().err
    assert len(read_all(log_path)) == 1
    handler.close()
    logger.info("after the end")
    handler.flush()
    assert "closed" in capsys.readouterr().err
