"""Errors of the destination and of the configuration. Codes and exit statuses are as in `aolog.errors`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any

from aolog.errors import AologError, UsageError, library_missing


class WrongSetting(UsageError):
    """A setting that the Kafka client refuses, or that the bridge's guarantees forbid."""

    code = "wrong_setting"


class DestinationError(AologError):
    """The cluster refused, or `transaction.timeout.ms` is above its brokers'
    `transaction.max.timeout.ms`. Nothing is lost: the log keeps what was not acknowledged."""

    code = "destination"
    exit_status = 6


class Unanswered(DestinationError):
    """A cluster gave no answer to a question, or none that can be used yet. Try again later."""

    code = "unanswered"


class ReadForbidden(Unanswered):
    """The right Read on a topic is missing, which the question needs. Grant it; or at_least_once goes on
    without with `--no-read-back`."""

    code = "read_forbidden"


class NoSuchTopic(DestinationError):
    """The cluster has no topic, or no partition, of this name, or does not show it to this user. Correct the
    name, create the topic, or grant Describe."""

    code = "no_such_topic"


class Undeliverable(DestinationError):
    """Drained, except for records that wait; the first is at `details["address"]`. It blocks its lane
    and the cursor. A topic or a right is missing, or the cluster will never accept the record;
    `--poison dead-letter` sets aside only the latter."""

    code = "undeliverable"


class Fenced(DestinationError):
    """Another bridge has taken over this log's delivery (exactly once), and continues where this one
    was cut off. Nothing is lost or repeated. Run one bridge for each log; give a copied log its own
    UUID: `aolog repair LOG --into COPY --new-uuid`."""

    code = "fenced"
    exit_status = 7


class OtherCluster(DestinationError):
    """The cursor belongs to another Kafka cluster than the servers, or to another cluster of the
    configuration, as after a change of the default. Nothing was sent or changed. Correct that, or
    give each cluster its `cursor`. To move on purpose: `aolog-bridge seek LOG --forget-cluster`."""

    code = "other_cluster"


class NotIsolated(DestinationError):
    """The cluster shows records of aborted transactions, or has no transactions (as the embedded
    broker): use `at_least_once` there. No record of the log was sent."""

    code = "not_isolated"
    exit_status = 8


class CursorTopicUnfit(DestinationError):
    """The topic for cursor records needs exactly one partition and `cleanup.policy=compact`. Nothing
    was sent or changed. Correct it, or name another with `--cursor-topic`."""

    code = "cursor_topic_unfit"
    exit_status = 8


class Rejected(Exception):
    """Raised by `Provider.send`: the destination will never accept this message."""


class NotRunning(AologError):
    """No bridge answers at the address that `status` asked. Start it, or name its address."""

    code = "not_running"
    exit_status = 6


class WrongConfiguration(UsageError):
    """The bridge's configuration is wrong; nothing was started or changed. `problems`: each with its
    path in the file (`clusters.main.settings`). Never contains a secret's value."""

    code = "wrong_configuration"

    def __init__(self, problems: Sequence[str], *, path: str | None = None) -> None:
        self.problems = problems
        self.path = path
        super().__init__("; ".join(problems), path=path, problems=problems)


def loading(
    package: str, modules: Mapping[str, str]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """`__getattr__` and `__dir__` of a package that imports each public name when it is used, from these modules.
    The first raises ModuleNotFoundError, which says how to install an optional library that is missing."""

    def load(name: str) -> Any:
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        try:
            found = getattr(import_module(f"{package}.{modules[name]}"), name)
        except ModuleNotFoundError as error:
            missing = library_missing(error) or error
            raise ModuleNotFoundError(str(missing), name=error.name) from None
        setattr(sys.modules[package], name, found)
        return found

    return load, lambda: sorted({*modules, *vars(sys.modules[package])})
