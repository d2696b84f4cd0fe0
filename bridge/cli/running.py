"""What `run` does: one log as it is, or many under a supervisor."""

from __future__ import annotations

import signal
import sys
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

from aolog.errors import NotALog
from bridge.cli.options import client_values, warn_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType

    from bridge.config.models import Config

__all__ = ["INTERRUPTED", "on_signals", "run_many", "run_one"]

_CURSOR = "bridge"
INTERRUPTED = 128  # and the signal's number: an exit status, as of other programs


def run_one(path: str, given: dict[str, Any], *, drain: bool, as_json: bool, verbose: bool) -> None:
    """Forwards a log in this thread. given: options that were given, by name."""
    from bridge.cli.report import reporter
    from bridge.config.names import check_cursor, check_servers
    from bridge.deliver.forwarder import OPTIONS, Forwarder
    from bridge.deliver.rate_limit import Pace
    from bridge.kafka.producer import check
    from bridge.operate.log_lines import set_up
    from bridge.supervise.one import One

    set_up(as_json=given.get("log_format") == "json", verbose=verbose)
    settings, cursor = client_values(given.get("settings", {})), given.get("cursor", _CURSOR)
    check(settings)
    check_servers(given["bootstrap_servers"])
    check_cursor(cursor)
    with _telling_a_tree(path):
        forwarder = Forwarder(
            path,
            topic=given.get("topic"),
            bootstrap_servers=given["bootstrap_servers"],
            settings=settings,
            cursor=cursor,
            drain=drain,
            commit_s=given.get("commit_seconds", 1.0),
            stop_s=given.get("stop_seconds", 5.0),
            prune_delivered=given.get("prune", False),
            shared_pace=Pace(
                records_per_s=given.get("total_records_per_second"),
                bytes_per_s=given.get("total_bytes_per_second"),
            ),
            **{name: given[name] for name in OPTIONS if name in given},
        )
    signals = on_signals(forwarder.stop, forwarder.reopen)
    one = One(path, forwarder)
    with ExitStack() as stack:
        report = stack.enter_context(reporter(as_json=as_json, drain=drain, stop=forwarder.stop))
        if "http" in given:
            from bridge.operate.web import serving

            stack.enter_context(serving(given["http"], one.look))
        status = forwarder.run(one.through(report), every_s=given.get("status_seconds", 1.0))
    if drain:
        if signals and not forwarder.drained(status):
            sys.exit(INTERRUPTED + signals[-1])
        forwarder.check_whole()


def run_many(
    file: str | None, given: dict[str, Any], *, drain: bool, as_json: bool, verbose: bool
) -> None:
    """Forwards the logs of a configuration, or of options alone, and ends the process."""
    from bridge.cli.report import reporter
    from bridge.config.files import load
    from bridge.operate.log_lines import set_up
    from bridge.supervise.supervisor import Supervisor

    over = {_KEYS.get(name, name): value for name, value in given.items()}

    def read() -> Config:
        config = load(file, over)
        warn_of(config.exposures())
        return config

    config = load(file, over)
    set_up(as_json=config.log_format == "json", verbose=verbose)
    warn_of(config.exposures())
    supervisor = Supervisor(config, drain=drain, read=None if file is None else read)
    signals = on_signals(supervisor.stop, supervisor.reload)
    with ExitStack() as stack:
        report = stack.enter_context(reporter(as_json=as_json, drain=drain, stop=supervisor.stop))
        if config.http is not None:
            from bridge.operate.web import serving

            stack.enter_context(serving(config.http, supervisor.look, supervisor.waits))
        status = supervisor.run(report, every_s=config.status_seconds)
    short = drain and signals and not supervisor.drained
    sys.exit(INTERRUPTED + signals[-1] if short else status)


_KEYS = {"bootstrap_servers": "clusters.bootstrap_servers", "settings": "clusters.settings"}


@contextmanager
def _telling_a_tree(path: str) -> Iterator[None]:
    """Of a directory that is no log it is told that it has some below it."""
    try:
        yield
    except NotALog:
        from bridge.supervise.discovery import find_logs

        if below := find_logs(path):
            raise NotALog(
                f"no log, but there are logs below it ({min(below)})",
                hint="for a tree of logs, name it with --root",
                path=path,
            ) from None
        raise


def on_signals(stop: Callable[[], None], reload: Callable[[], None] | None = None) -> list[int]:
    """What SIGTERM and SIGINT, and SIGHUP, do from now on. Those of the former that came."""
    came: list[int] = []

    def stopping(number: int, _frame: FrameType | None) -> None:
        came.append(number)
        stop()

    def reloading(_signal: int, _frame: FrameType | None) -> None:
        assert reload is not None
        reload()

    signal.signal(signal.SIGTERM, stopping)
    signal.signal(signal.SIGINT, stopping)
    if reload is not None:
        signal.signal(signal.SIGHUP, reloading)
    return came
