"""Damage is found in the background: at a bounded rate, beside a writer, in metrics, status and log."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from aolog.storage.storage import Storage
from bridge.kafka.embedded import EmbeddedBroker
from bridge.operate import scrub
from bridge.operate.scrub import Scrub, Scrubber
from bridge.supervise.status import LogStatus
from bridge.supervise.turns import Phase
from tests.aolog.conftest import overwrite, slab_files
from tests.bridge.logs import fill
from tests.bridge.operate.endpoints import LOG
from tests.bridge.operate.listening import get, where
from tests.bridge.processes import Start, printed
from tests.waiting import wait_until


def flip_a_byte(log: Path) -> None:
    """In a record of the first slab, which is sealed."""
    slab = slab_files(str(log))[0]
    overwrite(slab, slab.read_bytes().index(b"....", 9_000), b"!")


def scrubber_of(log: Path, **given: float) -> Scrubber:
    options = {"every_s": 0.05, "bytes_per_s": 1e9, **given}
    return Scrubber(lambda: [LOG._replace(path=str(log))], Storage(), **options)


def first_pass(scrubber: Scrubber, log: Path) -> Scrub:
    wait_until(lambda: scrubber.of(str(log)) is not None)
    found = scrubber.of(str(log))
    assert found is not None
    return found


def test_a_pass_that_fails_in_an_unknown_way_is_logged_and_the_next_one_begins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    fill(tmp_path / "log", 10)
    with monkeypatch.context() as patched:

        def failing(*_: object, **__: object) -> None:
            raise ValueError("an odd log")

        patched.setattr(scrub, "verify", failing)
        with scrubber_of(tmp_path / "log") as scrubber:
            wait_until(lambda: "not verified: an odd log" in caplog.text)
            patched.undo()
            assert first_pass(scrubber, tmp_path / "log").records == 10


def test_a_turn_that_fails_in_an_unknown_way_is_logged_and_the_next_one_begins(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    log, turns = tmp_path / "log", iter(range(10**9))

    def look() -> list[LogStatus]:
        if not next(turns):
            raise ValueError("an odd root")
        return [LOG._replace(path=str(log))]

    fill(log, 10)
    with Scrubber(look, Storage(), every_s=0.05, bytes_per_s=1e9) as scrubber:
        assert first_pass(scrubber, log).records == 10
    assert "an odd root" in caplog.text


def test_a_flipped_byte_of_a_sealed_slab_appears_in_the_metrics_the_status_and_the_log(
    bridge: Start, broker: EmbeddedBroker, tmp_path: Path
) -> None:
    log = tmp_path / "root/a"
    fill(log, 2_000, slab_bytes=16 << 10, batch_bytes=1_000)
    process = bridge(
        "run", "--root", tmp_path / "root", "--topic", "t", "--http", ":0", "--json",
        "--bootstrap-servers", broker.bootstrap_servers, "--scrub-seconds", "0.2",
    )  # fmt: skip  # a command line
    at = where(process)

    def damage() -> bytes:
        lines = get(at, "/metrics")[1].splitlines()
        return next((line for line in lines if line.startswith(b"aolog_bridge_scrub_damage{")), b"")

    wait_until(lambda: damage().endswith(b" 0.0"))
    assert b"aolog_bridge_scrub_timestamp_seconds{" in get(at, "/metrics")[1]
    flip_a_byte(log)
    wait_until(lambda: damage() and not damage().endswith(b" 0.0"))
    shown = printed(bridge("status", "--http", f"{at[0]}:{at[1]}"))
    assert "a: 1 damaged place found; see `aolog verify" in shown
    time.sleep(1.0)  # some further checks
    assert process.terminate() == 0
    assert process.stderr.count("1 damaged place found: gap ") == 1


def test_a_check_reads_no_faster_than_its_rate(tmp_path: Path) -> None:
    fill(tmp_path, 2_000, batch_bytes=1_000)
    size = sum(slab.stat().st_size for slab in slab_files(str(tmp_path)))
    begun_s = time.monotonic()
    with scrubber_of(tmp_path, bytes_per_s=size / 1.5) as scrubber:
        found = first_pass(scrubber, tmp_path)
    assert time.monotonic() - begun_s > 1.4
    assert (found.damage, found.records) == (0, 2_000)


def test_a_check_that_would_take_years_ends_with_the_bridge(tmp_path: Path) -> None:
    fill(tmp_path, 2_000)
    with scrubber_of(tmp_path, bytes_per_s=1e-6) as scrubber:
        time.sleep(1.5)
        begun_s = time.monotonic()
    assert time.monotonic() - begun_s < 30.0
    assert scrubber.of(str(tmp_path)) is None


def test_a_log_that_cannot_be_read_delays_no_other_and_one_that_is_gone_is_forgotten(
    tmp_path: Path,
) -> None:
    fill(tmp_path / "b", 10)
    logs = [LOG._replace(path=str(tmp_path / name)) for name in ("a", "b")]
    with Scrubber(lambda: logs, Storage(), every_s=0.05, bytes_per_s=1e9) as scrubber:
        assert first_pass(scrubber, tmp_path / "b").damage == 0
        assert scrubber.of(str(tmp_path / "a")) is None
        logs[:] = [LOG._replace(path="", phase=Phase.REMOVED)]
        wait_until(lambda: scrubber.of(str(tmp_path / "b")) is None)
