"""A Buffer's dead letters, logs that are not its own, and disks that are full. 3 s."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any, get_args

import pytest

from aolog import Reader, Writer
from aolog.errors import StorageFull, UsageError
from aolog.storage.storage import Storage
from aolog.testing import SimulatedSystem
from bridge.client.buffer.buffer import Buffer
from bridge.client.buffer.provider import Message
from bridge.client.buffer.settings import Mode, Settings
from bridge.client.buffer.store_forward import StoreForward
from bridge.deliver import replay
from bridge.deliver.dead_letter import read_dead_letter
from bridge.deliver.forwarder_options import ForwarderOptions
from bridge.errors import Rejected
from bridge.kafka.embedded import EmbeddedBroker
from tests.aolog.conftest import unchanged, values
from tests.bridge.brokers import TOPIC, consume_any
from tests.bridge.client.buffer.test_buffer import QUICK, Destination, destination, numbered, send
from tests.waiting import wait_until

__all__ = ["destination"]


# --- dead letters -----------------------------------------------------------------------------


@pytest.mark.parametrize("mode", get_args(Mode))
def test_a_rejected_message_becomes_a_dead_letter_and_is_not_raised(
    destination: Destination, tmp_path: Path, mode: Mode
) -> None:
    destination.reject = lambda message: message.value in {b"2", b"3"}
    dead = tmp_path / "dead"
    with Buffer(destination, tmp_path / "log", mode=mode, dead_letters=dead, **QUICK) as buffer:
        send(buffer, range(5))
        assert buffer.flush(20)
        wait_until(lambda: buffer.status().rejected == 2)
        assert buffer.status().error is None
        assert values(str(dead)) == [b"2", b"3"]
    assert destination.values == numbered([0, 1, 4])
    with Reader(dead) as reader:
        letters = [read_dead_letter(record) for record in reader]
    assert {(x.reason, x.code, x.topic, x.partition) for x in letters if x} == {
        ("by the plan of faults", "REJECTED", "t", -1)
    }


def test_dead_letters_of_a_buffer_are_sent_again_as_the_bridges_are(
    destination: Destination, tmp_path: Path, broker: EmbeddedBroker
) -> None:
    destination.reject = lambda message: message.topic == TOPIC
    dead = tmp_path / "dead"
    with Buffer(destination, mode="block", dead_letters=dead, **QUICK) as buffer:
        for number in range(20):
            buffer.send(TOPIC, b"%d" % number, b"k%d" % (number % 3), [("h", b"v")])
        assert buffer.flush(20)
    options = ForwarderOptions(bootstrap_servers=broker.bootstrap_servers)
    for expected in (20, 0):  # once
        forwarder = replay.replay_dead_letters(str(dead), options)
        assert forwarder.run().acknowledged == expected
    found = consume_any(broker.bootstrap_servers)
    assert sorted(int(m.value()) for m in found) == list(range(20))
    assert {m.headers()[0] for m in found} == {("h", b"v")}
    with pytest.raises(UsageError, match="no dead letters"):
        replay.replay_dead_letters(str(tmp_path / "none"), options)


def test_an_error_text_that_is_not_utf_8_delays_nothing(tmp_path: Path) -> None:
    """A file's name as os.fsdecode gives it, in the error of a program's own provider."""

    class Refusing(Destination):
        def send(self, message: Message) -> None:
            if message.value == b"1":
                raise Rejected("REFUSED: \udcff")
            super().send(message)

    destination = Refusing()
    dead = tmp_path / "dead"
    with Buffer(destination, mode="block", dead_letters=dead, **QUICK) as buffer:
        send(buffer, range(3))
        assert buffer.flush(20)
    assert destination.values == numbered([0, 2])
    with Reader(dead) as reader:
        letters = [read_dead_letter(record) for record in reader]
    assert [(x.reason, x.code) for x in letters if x] == [("REFUSED: \\xff", "REFUSED")]


# --- logs of others ---------------------------------------------------------------------------


@pytest.mark.parametrize("format_", ["aolog", "queuefka"])
def test_another_programs_log_is_refused_and_not_changed(
    destination: Destination, tmp_path: Path, format_: Any
) -> None:
    path = tmp_path / "log"
    with Writer(path, format=format_) as writer:
        writer.append(b"not yours")
    for options in ({"path": path}, {"path": tmp_path / "own", "dead_letters": path}):
        refused = pytest.raises(UsageError, match=r"another program's log|a log of something else")
        with unchanged(tmp_path), refused:
            Buffer(destination, mode="buffer", **options, **QUICK)  # type: ignore[arg-type]


# --- pauses, full disks -----------------------------------------------------------------------


@pytest.mark.parametrize(("wait_s", "max_s"), [(0.0, 30.0), (-1.0, 30.0), (0.0, 0.0), (1.0, 0.0)])
def test_a_provider_without_a_pause_is_tried_again_after_the_shortest_pause(
    destination: Destination, wait_s: float, max_s: float
) -> None:
    destination.retry_wait_s, destination.down = wait_s, True
    now_s = 0.0
    core = StoreForward(
        destination, None, Settings("block", retry_max_s=max_s), lambda *_: None,
        clock=lambda: now_s, entropy=random.Random(1),
    )  # fmt: skip  # one call
    assert core.offer(Message("t", b"v"))
    for _ in range(3):
        core.turn()
        pause_s = core.turn()
        assert 0.005 <= pause_s < 0.1
        now_s += pause_s


def test_a_flush_on_a_full_disk_ends_in_time_the_status_says_why_and_room_mends_it(
    destination: Destination,
) -> None:
    """The destination fails, and the log takes nothing: all waits in memory."""
    system = SimulatedSystem()
    with Buffer(destination, "/log", mode="buffer", storage=Storage(system), **QUICK) as buffer:
        send(buffer, range(3))
        assert buffer.flush(20)
        system.capacity = system.used()
        destination.down = True
        large = [b"%d" % number + b"x" * (1100 << 10) for number in range(4)]
        buffer.send("t", large[0], b"k")
        wait_until(lambda: "space" in (buffer.status().error or ""))
        assert not buffer.flush(0.3)
        assert "space" in (buffer.status().error or "")
        with pytest.raises(StorageFull):  # where it may wait for ever
            buffer.flush()
        with pytest.raises(StorageFull):  # not accepted
            buffer.send("t", large[1], b"k")
        system.capacity = None
        assert buffer.flush(20)
        for value in large[1:]:
            buffer.send("t", value, b"k")
        destination.down = False
        wait_until(lambda: len(destination.values) == 7)
        assert buffer.status().error is None
    assert destination.values == numbered(range(3)) + large
