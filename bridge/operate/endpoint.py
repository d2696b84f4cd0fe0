"""The HTTP endpoint of a bridge: the page, its stream of events, metrics, health, status, and actions.

    GET  /          the page
    GET  /events    server-sent events: `status` each second, `points` of the last hour
    GET  /metrics   for Prometheus
    GET  /healthz   200 while every thread makes progress, else 503 with the logs whose thread hangs
    GET  /readyz    200 while the root and the logs exist, the cluster of each running or idle log
                    answers, and no error stopped one; else 503
    GET  /status    {"overview": ..., "summary": ..., "clusters": [...], "logs": [...]}: of a log see health.py; scrub:
                    see scrub.py; archive: see supervise/archiving.py
    GET  /log       one log in detail: its slabs and disk (?log=NAME&cluster=NAME)
    POST /token     204 with the token, else 401
    POST /action    {"action": "pause" | "resume" | "retry", "log": NAME, "cluster": NAME}; with the token
    POST /seek      {"to": PLACE, "dry_run": BOOL, "log": NAME, "cluster": NAME} of a paused log; with the token

Answers are made of the last statuses: no request reads a log or asks a cluster. access.py decides
who is answered, server.py serves.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

import aolog
from bridge.operate.access import Access
from bridge.operate.health import log_row
from bridge.operate.log_lines import Problems
from bridge.operate.metrics import exposition
from bridge.operate.monitor import Monitor
from bridge.operate.page import load_page
from bridge.operate.server import (
    LIMITS,
    SAMPLE_S,
    Limits,
    Streams,
    carry_out,
    error,
    event,
    json_response,
    served,
)
from bridge.supervise.status import LogStatus, overview
from bridge.supervise.supervisor import Action, Supervisor

_log = logging.getLogger("bridge.http")

LOGS_SHOWN = 200  # of a process with thousands, the page shows the worst ones
_EVENT = {"event": "action"}
_ACTIONS: dict[str, Action] = {"pause": "pause", "resume": "resume", "retry": "try_again"}


@contextmanager
def serving(
    access: Access, monitor: Monitor, *, controls: Supervisor | None = None, limits: Limits = LIMITS
) -> Iterator[tuple[str, int]]:
    """Serves in a thread of its own; yields the address that it listens on. The thread samples the
    monitor, too. controls: what acts for a request with the token. Raises UsageError where it cannot listen."""
    problems = Problems()
    page, policy = load_page("bridge.operate", "page.html")
    answers = _Answers(page, access, monitor, controls, problems, Streams(limits.streams))
    monitor.sample()
    logging.getLogger().addHandler(problems)
    try:
        with served(answers.routes(), access, policy, limits=limits, sample=monitor.sample) as at:
            yield at
    finally:
        logging.getLogger().removeHandler(problems)


@dataclass(eq=False)
class _Answers:
    """One method a route."""

    page: str
    access: Access
    monitor: Monitor
    controls: Supervisor | None
    problems: Problems
    streams: Streams

    def routes(self) -> Starlette:
        """The application."""
        return Starlette(
            routes=[
                Route("/", self._show_page),
                Route("/events", self._events),
                Route("/metrics", self._metrics),
                Route("/healthz", self._healthz),
                Route("/readyz", self._readyz),
                Route("/status", self._status),
                Route("/log", self._one_log),
                Route("/token", self._check_token, methods=["POST"]),
                Route("/action", self._action, methods=["POST"]),
                Route("/seek", self._seek, methods=["POST"]),
            ]
        )

    async def _show_page(self, _: Request) -> Response:
        return HTMLResponse(self.page)

    async def _metrics(self, _: Request) -> Response:
        body, kind = exposition(self.monitor)
        return Response(body, media_type=kind)

    async def _healthz(self, _: Request) -> Response:
        return _verdict("stuck", [log for log in self.monitor.look() if log.stuck], None)

    async def _readyz(self, _: Request) -> Response:
        not_ready = [log for log in self.monitor.look() if not log.ready]
        return _verdict("not_ready", not_ready, self.monitor.waits())

    async def _status(self, _: Request) -> Response:
        logs = self.monitor.look()
        shown = [{**log_row(log), **self._beside(log)} for log in logs]
        return json_response({**self._whole(logs), "logs": shown})

    def _whole(self, logs: Sequence[LogStatus]) -> dict[str, Any]:
        """All logs together."""
        return {
            "overview": overview(logs, waiting_for=self.monitor.waits())._asdict(),
            "summary": self.monitor.summary(logs),
            "clusters": [cluster._asdict() for cluster in self.monitor.health.clusters],
        }

    def _beside(self, log: LogStatus) -> dict[str, Any]:
        """What is known of a log beside its delivery."""
        scrub, archive = self.monitor.scrubbed(log.path), self.monitor.archived(log.path)
        return {
            "scrub": None if scrub is None else scrub._asdict(),
            "archive": None if archive is None else archive._asdict(),
        }

    async def _one_log(self, request: Request) -> Response:
        log = self._find(request.query_params.get("log"), request.query_params.get("cluster"))
        if log is None:
            return error(404, "there is no such log", "see /status")
        slabs = self.monitor.measured(log.path)
        scrub = self.monitor.scrubbed(log.path)
        damaged = {*log.damaged, *(() if scrub is None else scrub.gaps)}
        return json_response(
            {
                **log_row(log),
                **self._beside(log),
                "slabs": [{"base": base, "bytes": size} for base, size in slabs.files],
                "pruned_slabs": slabs.pruned,
                "damaged": sorted(damaged),
                "disk": None if slabs.disk is None else slabs.disk._asdict(),
            }
        )

    async def _check_token(self, request: Request) -> Response:
        return self._refused(request) or Response(status_code=204)

    async def _action(self, request: Request) -> Response:
        def act(controls: Supervisor, given: dict[str, Any]) -> None:
            controls.control(_ACTIONS[given["action"]], str(given["log"]), str(given["cluster"]))
            _log.warning("%s of %s by HTTP", given["action"], given["log"], extra=_EVENT)

        return await self._do(request, act)

    async def _seek(self, request: Request) -> Response:
        def act(controls: Supervisor, given: dict[str, Any]) -> dict[str, Any]:
            log, cluster, to = (str(given[name]) for name in ("log", "cluster", "to"))
            moved = controls.seek(log, cluster, to.strip(), dry_run=given["dry_run"] is not False)
            if moved.done:
                _log.warning("cursor of %s moved to %d by HTTP", log, moved.address, extra=_EVENT)
            return moved._asdict()

        return await self._do(request, act)

    async def _do(
        self, request: Request, act: Callable[[Supervisor, dict[str, Any]], object]
    ) -> Response:
        """Does what a request with the token asks for."""
        if (refused := self._refused(request)) is not None:
            return refused
        controls = self.controls
        assert controls is not None
        return await carry_out(request, lambda given: act(controls, given))

    def _refused(self, request: Request) -> Response | None:
        """The answer to a request without the token."""
        if self.access.token is None:
            return error(401, "an action needs a token", "start with --http-token-file")
        if not self.access.may_act(request.headers.get("authorization")):
            return error(401, "the token is missing or wrong", "Authorization: Bearer TOKEN")
        return None

    def _find(self, name: str | None, cluster: str | None) -> LogStatus | None:
        return next(
            (x for x in self.monitor.look() if x.log == name and cluster in {None, x.cluster}), None
        )

    # --- the stream ---------------------------------------------------------------------------

    async def _events(self, _: Request) -> Response:
        after_s = 0.0

        async def events() -> bytes:
            nonlocal after_s
            status = event("status", self._snapshot())
            if not (points := self.monitor.points(after_s)):
                return status
            after_s = points[-1].time_s
            return event("points", [point._asdict() for point in points]) + status

        return self.streams.answer(events, SAMPLE_S)

    def _snapshot(self) -> dict[str, Any]:
        """All of one moment: its numbers add up."""
        logs = sorted(self.monitor.look(), key=_badness, reverse=True)
        return {
            **self._whole(logs),
            "version": aolog.__version__,
            "can_act": self.controls is not None and self.access.token is not None,
            "troubles": [trouble._asdict() for trouble in self.monitor.health.troubles],
            "logs": [log_row(log) for log in logs[:LOGS_SHOWN]],
            "logs_left_out": max(0, len(logs) - LOGS_SHOWN),
            "problems": self.problems.latest(),
        }


def _badness(log: LogStatus) -> tuple[bool, bool, float, int]:
    lost = log.lost_records + log.dead_lettered + log.dropped
    return log.error is not None, log.state == "blocked", log.lag_seconds or 0.0, lost


def _verdict(name: str, found: list[LogStatus], waits: str | None) -> Response:
    shown: dict[str, Any] = {
        "ok": not found and waits is None,
        name: [
            {"log": x.log, "cluster": x.cluster, "state": x.state, "error": x.error} for x in found
        ],
    }
    if waits is not None:
        shown["error"] = waits
    return json_response(shown, 200 if shown["ok"] else 503)
