"""What `run` does: it runs a supervisor, reports its status, and ends the process. SIGTERM and SIGINT stop
the supervisor; SIGHUP makes it reload."""

from __future__ import annotations

import logging
import os
import queue
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from types import FrameType
from typing import TYPE_CHECKING, Any

from bridge.cli.options import warn_of

if TYPE_CHECKING:
    from bridge.config.models import Config
    from bridge.operate.access import Access
    from bridge.supervise.status import Overview

_log = logging.getLogger("bridge")
INTERRUPTED = 128  # plus the signal's number: the usual exit status
# Options that are keys of a cluster in the configuration.
_OF_A_CLUSTER = {"bootstrap_servers": "clusters.bootstrap_servers", "settings": "clusters.settings"}


def run_bridge(
    file: str | None,
    given: dict[str, Any],
    *,
    drain: bool,
    as_json: bool,
    verbose: bool,
    fail_fast: bool,
) -> None:
    """Forwards the logs of a configuration, or of options alone, and ends the process. file: the
    configuration. given: options of the command line, by name. fail_fast: see Supervisor."""
    from aolog.storage.storage import Storage
    from bridge.cli.report import reporter
    from bridge.config.load import load
    from bridge.operate.log_lines import set_up
    from bridge.operate.scrub import Scrubber
    from bridge.supervise.supervisor import Supervisor

    over = {_OF_A_CLUSTER.get(name, name): value for name, value in given.items()}

    def read() -> Config:
        config = load(file, over)
        warn_of(config.exposures())
        return config

    if fail_fast:  # the path may be other than UTF-8, which a configuration refuses
        config = load(file, {**over, "logs": ["LOG"]}).model_copy(update={"logs": given["logs"]})
    else:
        config = load(file, over)
    set_up(config.log_format, verbose=verbose)
    warn_of(config.exposures())
    read_again = None if file is None else read
    access = _access_of(config)
    supervisor = Supervisor(config, drain=drain, read=read_again, fail_fast=fail_fast)
    signals = on_signals(supervisor.stop, supervisor.reload)
    with ExitStack() as stack:
        report = stack.enter_context(reporter(as_json=as_json, stop=supervisor.stop))
        scrubber = Scrubber(
            supervisor.statuses, Storage(), every_s=config.scrub_seconds or 0.0,
            bytes_per_s=config.scrub_bytes_per_second,
        )  # fmt: skip  # one value
        if config.scrub_seconds is not None:
            stack.enter_context(scrubber)
        archiving = None
        if config.archive is not None:
            from bridge.supervise.archiving import Archiving

            archiving = stack.enter_context(Archiving(supervisor.statuses, config, Storage()))
        if access is not None:
            from bridge.operate.endpoint import serving
            from bridge.operate.monitor import Monitor

            monitor = Monitor(
                supervisor.statuses, Storage(), waits=supervisor.waiting_for,
                log_max_bytes=config.log_max_bytes, scrubbed=scrubber.of,
                archived=(lambda _: None) if archiving is None else archiving.of,
            )  # fmt: skip  # one value
            stack.enter_context(serving(access, monitor, controls=supervisor))

        def notify_and_report(overview: Overview) -> None:
            _notify("READY=1\nWATCHDOG=1")  # it is ready, and its main thread makes progress
            report(overview)

        status = supervisor.run(notify_and_report, every_s=config.status_seconds)
        _notify("STOPPING=1")
    short = drain and signals and not supervisor.drained
    sys.exit(INTERRUPTED + signals[-1] if short else status)


def _access_of(config: Config) -> Access | None:
    """To the endpoint; None without one. Raises UsageError for an address that may not be served: before
    anything is begun."""
    if config.http is None:
        return None
    from bridge.config.settings import CurrentToken
    from bridge.operate.access import Access

    token = config.http_token and CurrentToken("http_token", config.http_token)
    access = Access(config.http, token, tuple(config.http_hosts))
    access.address()
    return access


def _notify(state: str) -> None:
    """Sends systemd a state such as READY=1 or WATCHDOG=1: one datagram to the socket in NOTIFY_SOCKET, if
    that is set. Never raises: a missed watchdog restarts the service."""
    address = os.environ.get("NOTIFY_SOCKET")
    if not address:
        return
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as to:
            to.setblocking(False)
            to.connect("\0" + address[1:] if address.startswith("@") else address)
            to.send(state.encode())
    except OSError as error:
        _log.warning("systemd was not notified of %s: %s", state, error)


@contextmanager
def beside(
    run: Callable[[], None], *, stop: Callable[[], None], on_end: Callable[[], None]
) -> Iterator[None]:
    """Calls `run` in a thread beside the block. stop: ends it, after the block. on_end: called when it has
    ended, to end the block. Raises what it failed with."""
    with ThreadPoolExecutor(1) as threads:
        running = threads.submit(run)
        running.add_done_callback(lambda _: on_end())
        try:
            yield
        finally:
            stop()
    running.result()


def on_signals(stop: Callable[[], None], reload: Callable[[], None] | None = None) -> list[int]:
    """From now on SIGTERM and SIGINT call `stop`, and SIGHUP calls `reload`, both in a thread of their own: a
    handler runs between two statements of the main thread, which may hold the lock that the call takes (an
    Event's `set` does). Returns the list of SIGTERM and SIGINT that came, which grows."""
    came: list[int] = []
    calls: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()  # its put is reentrant

    def stopping(number: int, _frame: FrameType | None) -> None:
        came.append(number)
        calls.put(stop)

    def carry_out() -> None:
        while True:
            calls.get()()

    threading.Thread(target=carry_out, name="signals", daemon=True).start()
    signal.signal(signal.SIGTERM, stopping)
    signal.signal(signal.SIGINT, stopping)
    if (call := reload) is not None:
        signal.signal(signal.SIGHUP, lambda *_: calls.put(call))
    return came
