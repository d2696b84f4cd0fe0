"""A session for this package's own programs, and Spark's errors as errors of this project."""

from __future__ import annotations

import logging
import os
import re
import signal
import warnings
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

import aolog.spark
from aolog import errors
from aolog.errors import AologError, UsageError, install_command
from aolog.spark.kafka_sink import JobFailed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from pyspark.sql import SparkSession

# The last line of a traceback, which Spark passes as text from process to process.
_RAISED = re.compile(r"(?:^|: )aolog\.[\w.]*?\.?(\w+): (.+)$", re.MULTILINE)
_MESSAGE_MAX = 500  # characters; Spark's messages may have pages
_STAGE = re.compile(r"Job aborted due to stage failure: [^\n]+")
_SUBMITTED = "PYSPARK_GATEWAY_PORT"  # set if spark-submit has started the JVM


@contextmanager
def session(
    conf: Mapping[str, str] | None = None, *, tell: Callable[[str], None] = lambda _: None
) -> Iterator[SparkSession]:
    """Yields the active session, or a new one that ends with the block, with the source registered.
    tell: called with a message before Spark is started, which takes seconds. Raises UsageError without
    PySpark or Java, JobFailed."""
    if _SUBMITTED not in os.environ:
        aolog.spark.ensure_java()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # of PySpark, about pandas 3
            from pyspark.sql import SparkSession
    except ModuleNotFoundError as error:
        raise UsageError(f"no module {error.name!r}", hint=install_command("spark")) from None
    active = SparkSession.getActiveSession()
    if active is not None:
        aolog.spark.register(active)
        yield active
        return
    tell("starting Spark")
    from py4j.protocol import Py4JError

    _quieten_gateway()
    builder = SparkSession.builder.appName("aolog")
    for name, value in ({"spark.ui.showConsoleProgress": "false"} | dict(conf or {})).items():
        builder = builder.config(name, value)
    with in_our_words(), _uninterrupted():
        spark = builder.getOrCreate()
    try:
        with in_our_words():
            spark.sparkContext.setLogLevel("OFF")  # the caller reports errors, once
            aolog.spark.register(spark)
        yield spark
    finally:
        with suppress(ConnectionError, Py4JError):  # its Java may have ended
            spark.stop()


@contextmanager
def _uninterrupted() -> Iterator[None]:
    """Delays Ctrl-C until the end of the block: an interrupted start would leave a Java that nobody
    ends."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _quieten_gateway() -> None:
    """py4j also logs what it raises, with tracebacks, in part through the root logger."""
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    logging.getLogger().addFilter(_not_of_gateway)


def _not_of_gateway(record: logging.LogRecord) -> bool:
    return "py4j" not in record.pathname


@contextmanager
def in_our_words() -> Iterator[None]:
    """Converts Spark's errors. An AologError that was raised in another process of Spark is raised
    again as what it was. Any other error becomes UsageError if Spark rejects the plan, otherwise
    JobFailed, with the first words of Spark's message."""
    from py4j.protocol import Py4JError
    from pyspark.errors import AnalysisException, PySparkException

    try:
        yield
    except ConnectionError as error:
        raise JobFailed(
            f"Spark's Java, or a server that the job calls, does not answer: {error}"
        ) from error
    except (PySparkException, Py4JError) as error:
        text = str(error)
        ours = our_error(text)
        if ours is not None:
            raise ours from error
        words = " ".join(text.partition("\n\n")[0].split())[:_MESSAGE_MAX]
        if (stage := _STAGE.search(text)) is not None and stage[0][:60] not in words:
            words += f": {' '.join(stage[0].split())[:_MESSAGE_MAX]}"
        if isinstance(error, AnalysisException):
            raise UsageError(words) from error
        raise JobFailed(words) from error


def our_error(text: str) -> AologError | None:
    """The last AologError in the text of a failed job; None if there is none."""
    kinds = {name: getattr(errors, name) for name in errors.__all__} | {"JobFailed": JobFailed}
    for name, message in reversed(_RAISED.findall(text)):
        if name in kinds:
            kind: type[AologError] = kinds[name]
            return kind(message.strip())
    return None
