"""Heartbeats: a producer says that it lives, and a consumer notices when it is silent.

    {"Type": "Heartbeat", "Time": "2026-01-31T12:00:00.000Z", "Topic": "picks", "ClientId": "edge-7"}

A heartbeat is a message in the topic itself. A message is one if it is a JSON object of exactly these
four strings; a consumer keeps those out of the data. Nothing here knows Kafka.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from typing import Any, NamedTuple

from aolog.errors import AologError

_log = logging.getLogger("bridge.client")
_BYTES_MAX = 2_048  # two names of 249 and 512 bytes, escaped, and the rest; data is often larger
_FIELDS = {"Type", "Time", "Topic", "ClientId"}


class Heartbeat(NamedTuple):
    """A heartbeat as it was received. time: as the sender wrote it, ISO 8601, UTC."""

    time: str
    topic: str
    client_id: str

    def to_json(self) -> bytes:
        """The message."""
        named = {"Type": "Heartbeat", "Time": self.time, "Topic": self.topic,
                 "ClientId": self.client_id}  # fmt: skip  # one value
        return json.dumps(named).encode()


def heartbeat_in(value: bytes | None) -> Heartbeat | None:
    """The heartbeat that a message is; None: it is data."""
    if value is None or len(value) > _BYTES_MAX or b'"Heartbeat"' not in value:
        return None
    try:
        found = json.loads(value)
    except (ValueError, RecursionError):
        return None
    if not isinstance(found, dict) or found.keys() != _FIELDS or found["Type"] != "Heartbeat":
        return None
    if not all(isinstance(text, str) and text for text in found.values()):
        return None
    return Heartbeat(found["Time"], found["Topic"], found["ClientId"])


def make_heartbeat(topic: str, client_id: str) -> Heartbeat:
    """A heartbeat of this moment."""
    now = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return Heartbeat(now, topic, client_id)


class HeartbeatSender:
    """Sends a heartbeat to each topic at an interval, if there is one, in a thread of its own. send: queues a
    message for a topic; an error is logged."""

    def __init__(
        self, client_id: str, interval_s: float | None, send: Callable[[str, bytes], None]
    ) -> None:
        self._client_id = client_id
        self._interval_s = interval_s
        self._send = send
        self._topics: set[str] = set()
        self._stop = threading.Event()
        self.sent = 0
        self._thread = threading.Thread(target=self._run, daemon=True, name="heartbeats")
        if interval_s is not None:
            self._thread.start()

    def add(self, topic: str) -> None:
        """From now on this topic gets heartbeats. From any thread."""
        self._topics.add(topic)

    def _run(self) -> None:
        while not self._stop.wait(self._interval_s):
            for topic in sorted(self._topics):
                try:
                    self._send(topic, make_heartbeat(topic, self._client_id).to_json())
                    self.sent += 1
                except AologError as error:
                    _log.warning("heartbeat: %s", error)
                except Exception:  # noqa: BLE001 -- the next one is sent still: silence means that the sender is dead
                    _log.exception("heartbeat of %s", topic)

    def close(self) -> None:
        """Ends the thread."""
        self._stop.set()
        if self._interval_s is not None:
            self._thread.join()


class Silence(NamedTuple):
    """How long a sender has been silent."""

    topic: str
    client_id: str  # empty where the topic never had one
    age_s: float  # since its last heartbeat, or since the consumer began to wait for one


class HeartbeatWatch:
    """When heartbeats came, by topic and client, and which are overdue. One thread at a time, except
    for `status`.

    An overdue heartbeat is logged and given to on_overdue once, until the next one comes. clock:
    seconds that only grow."""

    def __init__(
        self,
        interval_s: float | None,
        *,
        on_heartbeat: Callable[[Heartbeat], None] | None = None,
        on_overdue: Callable[[Silence], None] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._interval_s = interval_s
        self._on_heartbeat = on_heartbeat
        self._on_overdue = on_overdue
        self._clock = clock
        self._seen_s: dict[tuple[str, str], float] = {}
        self._told: set[tuple[str, str]] = set()
        self.received = 0

    def expect(self, topics: Iterable[str]) -> None:
        """These topics have heartbeats from now on, and no others."""
        wanted = set(topics)
        now_s = self._clock()
        kept = {key: at_s for key, at_s in self._seen_s.items() if key[0] in wanted}
        known = {topic for topic, _ in kept}
        self._seen_s = kept | {(topic, ""): now_s for topic in wanted - known}
        self._told &= self._seen_s.keys()

    def take(self, heartbeat: Heartbeat) -> None:
        """A heartbeat came."""
        self.received += 1
        key = (heartbeat.topic, heartbeat.client_id)
        self._seen_s.pop((heartbeat.topic, ""), None)
        self._seen_s[key] = self._clock()
        if key in self._told:
            self._told.discard(key)
            _log.info("heartbeats of %s in %s are back", heartbeat.client_id, heartbeat.topic)
        if self._on_heartbeat is not None:
            self._on_heartbeat(heartbeat)

    def overdue(self) -> list[Silence]:
        """Which are overdue now. New ones are logged and given to on_overdue."""
        silent = [silence for silence in self._ages() if self._is_overdue(silence)]
        for silence in silent:
            key = (silence.topic, silence.client_id)
            if key not in self._told:
                self._told.add(key)
                _log.error("no heartbeat of %s in topic %s for %.0f s", silence.client_id or "anybody",
                           silence.topic, silence.age_s)  # fmt: skip  # one call
                if self._on_overdue is not None:
                    self._on_overdue(silence)
        return silent

    def status(self) -> list[dict[str, Any]]:
        """A row for each sender: its topic, its client, the age of its last heartbeat. From any thread."""
        return [
            {**silence._asdict(), "overdue": self._is_overdue(silence)}
            for silence in sorted(self._ages())
        ]

    def _ages(self) -> list[Silence]:
        now_s = self._clock()
        seen_s = list(self._seen_s.items())  # a copy: `take` may add one in another thread
        return [Silence(*key, now_s - at_s) for key, at_s in seen_s]

    def _is_overdue(self, silence: Silence) -> bool:
        return self._interval_s is not None and silence.age_s > self._interval_s
