"""The simulation: the processes, the broker, the faults, and what has happened so far.

One thread reads what arrives at the broker and turns the simulation, ten times a second; one for each process
reads its reports. The page sets values (`set`) and presses buttons (`press`).
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
import threading
import time
from collections import deque
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from aolog.errors import AologError, UsageError
from aolog.storage.storage import Storage
from bridge.kafka.embedded import EmbeddedBroker
from bridge.kafka.fetcher import Fetcher
from bridge.operate.monitor import Measured, look_at_slabs
from bridge.simulate.child import Child
from bridge.simulate.counts import Counts
from bridge.simulate.settings import ON_DISK, Settings, changed, sentence

BUTTONS = ("error", "kill", "crash-append", "crash-flush", "crash-sync")

TOPIC = "simulated"
TURN_S = 0.1
RESTART_S = 1.0  # a process that was killed begins again after this
_PRODUCE = 0  # Kafka's number of the request
_TIMED_OUT, _NOT_ENOUGH_REPLICAS = 7, 19  # Kafka's codes; a client tries both again
_EVENTS_KEPT = 100
_PRUNED_SHOWN = 20
_RATE_S = 2.0
_FROM_THE_FIRST = {(TOPIC, 0): -2}  # the client's number for the first offset that there is


@dataclass
class _Round:
    """What begins anew with `reset`. first_run: of the program; records of earlier rounds are ignored."""

    settings: Settings
    directory: str
    first_run: int
    run: int
    program: Child = field(init=False)
    bridge: Child | None = None
    counts: Counts = field(default_factory=Counts)
    events: deque[dict[str, Any]] = field(default_factory=lambda: deque(maxlen=_EVENTS_KEPT))
    crashes: deque[dict[str, Any]] = field(default_factory=lambda: deque(maxlen=10))
    rates: deque[tuple[float, int, int]] = field(default_factory=deque)  # of the present program
    restart_s: float | None = None
    slabs: Measured = field(default_factory=Measured)
    began_s: float = field(default_factory=time.monotonic)


class Simulation:
    """Runs until the end of its `with` block. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._broker = EmbeddedBroker()
        self._broker.create_topic(TOPIC)
        self._ended = threading.Event()
        self._begin(Settings(), 1)
        self._thread = threading.Thread(target=self._running, name="simulation", daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Ends all processes, and removes the log."""
        self._ended.set()
        self._thread.join()
        with self._lock:
            self._end_children()
            self._broker.close()
            shutil.rmtree(self._round.directory, ignore_errors=True)

    # --- what the page does -------------------------------------------------------------------

    def reset(self, settings: Settings) -> None:
        """Begins anew: another log, no faults, all counts 0."""
        with self._lock:
            self._end_children()
            shutil.rmtree(self._round.directory, ignore_errors=True)
            self._broker.clear_request_errors(_PRODUCE)
            self._broker.set_up()
            self._begin(settings, self._round.run + 1)

    def set(self, **changes: Any) -> None:
        """Changes settings. Raises UsageError for a wrong one, and changes nothing."""
        with self._lock:
            before = self._round.settings
            self._round.settings = settings = changed(before, changes)
            for name, value in changes.items():
                self._say(sentence(name, value))
            if settings.mode != before.mode:
                self._end_children()
                self._start()
                return
            self._apply()

    def press(self, button: str) -> None:
        """One of BUTTONS. Raises UsageError for any other."""
        if button not in BUTTONS:
            raise UsageError(f"there is no button {button!r}")
        with self._lock:
            if button == "error":
                self._broker.push_request_errors(_PRODUCE, [_TIMED_OUT])
                self._say("the broker answers one request with an error")
            elif button == "kill":
                (self._round.bridge or self._round.program).kill()
                self._say(
                    f"kill -9: {'the bridge' if self._round.bridge else 'the program'} is gone"
                )
            else:
                self._round.program.tell(crash=button.removeprefix("crash-"))

    def snapshot(self) -> dict[str, Any]:
        """What the page shows."""
        with self._lock:
            counts, program = self._round.counts, self._round.program.last
            bridge = None if self._round.bridge is None else self._round.bridge.last
            return {
                "time_s": time.monotonic() - self._round.began_s,
                "settings": self._round.settings.model_dump(),
                "written": counts.arrived + counts.pending + counts.lost,
                "refused": program.get("refused", 0),
                "program_error": program.get("error"),
                "bridge": bridge,
                "running": {
                    "program": not self._round.program.is_over,
                    "bridge": self._round.bridge is not None and not self._round.bridge.is_over,
                },
                "arrived": counts.arrived,
                "pending": counts.pending,
                "lost": counts.lost,
                "repeated": counts.repeated,
                "in_per_s": self._rate(0),
                "out_per_s": self._rate(1),
                "in_memory": max(0, program.get("accepted", 0) - program.get("safe", 0)),
                "under_way": 0 if bridge is None else bridge.get("outstanding", 0),
                "oldest_s": counts.oldest_s(time.monotonic()),
                "slabs": self._slabs() if self._round.settings.mode in ON_DISK else [],
                "events": list(self._round.events),
                "crashes": [self._judged(crash) for crash in self._round.crashes],
            }

    # --- beginning and ending -----------------------------------------------------------------

    def _begin(self, settings: Settings, first_run: int) -> None:
        directory = tempfile.mkdtemp(prefix="aolog-simulate-")
        self._round = _Round(settings, directory, first_run, first_run - 1)
        self._start()

    def _start(self) -> None:
        self._start_program()
        self._round.bridge = None
        if self._round.settings.mode == "log":
            self._start_bridge()
        self._apply()

    def _log(self) -> str:
        return str(Path(self._round.directory, self._round.settings.mode))

    def _start_program(self) -> None:
        self._round.run += 1
        self._round.rates.clear()
        given = {
            "mode": self._round.settings.mode, "log": self._log(), "topic": TOPIC,
            "servers": self._broker.bootstrap_servers, "run": self._round.run,
            "rate": self._round.settings.rate,
        }  # fmt: skip  # one value
        self._round.program = Child(
            [sys.executable, "-m", "bridge.simulate.program", json.dumps(given)]
        )

    def _start_bridge(self) -> None:
        # One request at a time: the embedded broker does not judge the order of several.
        self._round.bridge = Child(
            [sys.executable, "-m", "bridge", "run", "--root", self._round.directory, "--topic", TOPIC,
             "--bootstrap-servers", self._broker.bootstrap_servers, "--json", "--prune",
             "--status-seconds", "0.1", "-X", "max.in.flight=1"]
        )  # fmt: skip  # a command line

    def _end_children(self) -> None:
        self._round.program.end()
        if self._round.bridge is not None:
            self._round.bridge.end()

    def _apply(self) -> None:
        """The settings, to the processes and the broker."""
        settings = self._round.settings
        self._round.program.tell(rate=settings.rate, full=settings.full)
        self._broker.set_rtt_ms(settings.delay_ms)
        (self._broker.set_down if settings.down else self._broker.set_up)()
        if not settings.rejecting:
            self._broker.clear_request_errors(_PRODUCE)

    # --- turning ------------------------------------------------------------------------------

    def _running(self) -> None:
        fetcher = Fetcher(self._broker.bootstrap_servers, {"reconnect.backoff.max.ms": "500"})
        fetcher.assign(_FROM_THE_FIRST)
        while not self._ended.is_set():
            found = fetcher.fetch(5_000, TURN_S)
            if found.out_of_range:  # the broker dropped what was not read in time
                fetcher.unassign(found.out_of_range)
                fetcher.assign(_FROM_THE_FIRST)
            with self._lock:
                for message in found.messages:
                    run, number = (int(part) for part in (message.value() or b"").split(b":")[:2])
                    if run >= self._round.first_run:
                        self._round.counts.came(run, number)
                self._turn(time.monotonic())
        fetcher.close()

    def _turn(self, now_s: float) -> None:
        program = self._round.program
        if program.last:
            self._round.counts.promised(program.last["run"], program.last["safe"], now_s)
        if self._round.settings.rejecting:
            self._broker.push_request_errors(_PRODUCE, [_NOT_ENOUGH_REPLICAS] * 5)
        accepted = program.last.get("accepted", 0)
        self._round.rates.append((now_s, accepted, self._round.counts.arrived))
        while now_s - self._round.rates[0][0] > _RATE_S:
            self._round.rates.popleft()
        self._restart(now_s)

    def _restart(self, now_s: float) -> None:
        """A process that ended begins again after a moment, as a service does."""
        bridge_over = self._round.bridge is not None and self._round.bridge.is_over
        if not (self._round.program.is_over or bridge_over):
            self._round.restart_s = None
            return
        if self._round.restart_s is None:
            self._round.restart_s = now_s + RESTART_S
        if now_s < self._round.restart_s:
            return
        self._round.restart_s = None
        if self._round.program.is_over:
            self._take_crash()
            self._round.program.end()
            self._start_program()
            self._say("the program began again")
        if bridge_over:
            assert self._round.bridge is not None
            self._round.bridge.end()
            self._start_bridge()
            self._say("the bridge began again")
        self._apply()

    def _take_crash(self) -> None:
        crash = self._round.program.crashed
        if crash is not None:
            if crash["crashed"] != "append":
                self._round.counts.promised(crash["run"], crash["number"])
            step, number = crash["crashed"], crash["number"]
            self._round.crashes.appendleft({"step": step, "run": crash["run"], "number": number})
            self._say(f"the program crashed after {step} of record {number}")

    # --- showing ------------------------------------------------------------------------------

    def _rate(self, which: int) -> float:
        if len(self._round.rates) < 2:
            return 0.0
        first, last = self._round.rates[0], self._round.rates[-1]
        return (last[1 + which] - first[1 + which]) / max(last[0] - first[0], 1e-3)

    def _slabs(self) -> list[dict[str, Any]]:
        """The log's files, and those that were pruned while it ran."""
        with suppress(AologError, OSError):  # there is no log yet
            self._round.slabs = look_at_slabs(self._log(), Storage(), self._round.slabs)
        files, pruned = self._round.slabs.files, self._round.slabs.pruned[-_PRUNED_SHOWN:]
        return [
            *({"base": base, "state": "pruned"} for base in pruned),
            *({"base": base, "state": "there", "bytes": size} for base, size in files),
        ]

    def _judged(self, crash: dict[str, Any]) -> dict[str, Any]:
        """What became of the record that a crash was about."""
        run, number = crash["run"], crash["number"]
        if self._round.counts.has_arrived(run, number):
            fate = "survived: it arrived once"
        elif self._round.counts.is_settled(run):
            fate = "gone: append promises nothing" if crash["step"] == "append" else "LOST"
        else:
            fate = "not known yet"
        return {**crash, "fate": fate}

    def _say(self, text: str) -> None:
        self._round.events.append({"time_s": time.monotonic() - self._round.began_s, "text": text})
