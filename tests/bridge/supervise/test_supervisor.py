"""Many logs in one process: they come, grow, fall asleep, wake and go, and what happens to one is
no other's business. 25 s: clients connect and leave."""

from __future__ import annotations

import errno
import logging
import os
import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from aolog import Reader, Writer
from bridge.config.load import load, load_text
from bridge.config.models import Config
from bridge.deliver.forwarder import Forwarder
from bridge.deliver.forwarder_options import ForwarderOptions
from bridge.errors import WrongConfiguration
from bridge.kafka.embedded import EmbeddedBroker
from bridge.operate.health import log_row
from bridge.supervise.status import LogStatus, Overview
from bridge.supervise.supervisor import Supervisor
from bridge.supervise.turns import Timing
from tests.aolog.conftest import commit, overwrite
from tests.bridge.brokers import NOWHERE, TOPIC, assert_arrived, consume
from tests.bridge.forwarders import WAITS
from tests.bridge.logs import append, bounded, cursor_of, fill, gone, records_of
from tests.still import PUT_BACK_NS, hold
from tests.waiting import SOON_S, Call, in_thread, wait_until


class Running(Call):
    """A supervisor in a thread of its own; its result is the exit status."""

    def __init__(self, supervisor: Supervisor) -> None:
        self.supervisor = supervisor
        self.overviews: list[Overview] = []
        self.most_running = 0
        super().__init__(lambda: supervisor.run(self._note, every_s=0.02))

    def _note(self, shown: Overview) -> None:
        self.overviews.append(shown)
        self.most_running = max(self.most_running, shown.running)

    def __getitem__(self, name: str) -> LogStatus:
        (found,) = [log for log in self.supervisor.statuses() if log.log == name]
        return found

    def until(self, reached: Callable[..., object]) -> None:
        wait_until(lambda: reached({log.log: log for log in self.supervisor.statuses()}))

    def stop(self, within_s: float = SOON_S) -> int:
        self.supervisor.stop()
        return self.result(within_s)


Supervise = Callable[..., Running]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "root"


@pytest.fixture
def supervise(broker: EmbeddedBroker, root: Path) -> Iterator[Supervise]:
    """Starts a supervisor of the root and the broker."""
    running: list[Running] = []

    def start(
        *, drain: bool = False, read: Callable[[], Config] | None = None, **over: Any
    ) -> Running:
        options = {
            "root": str(root),
            "topic": TOPIC,
            "clusters.bootstrap_servers": broker.bootstrap_servers,
            "commit_seconds": 0.05,
            "status_seconds": 0.05,
            "rescan_seconds": 0.2,
            **over,
        }
        timing = Timing(look_s=0.02, retry_s=0.1, locked_s=0.1)
        found = Running(
            Supervisor(load(None, options), drain=drain, read=read, timing=timing, waits=WAITS)
        )
        running.append(found)
        return found

    yield start
    for each in running:
        each.stop()
    for thread in threading.enumerate():  # what did not stop in time ends before the next test
        if thread.name.endswith(" to main"):
            thread.join(SOON_S)
            assert not thread.is_alive()


def assert_all_arrived(broker: EmbeddedBroker, *logs: Path) -> None:
    messages = consume(broker.bootstrap_servers)
    records = {Reader(log).topic_uuid: records_of(log) for log in logs}
    assert len(messages) == sum(map(len, records.values()))
    for uuid, found in records.items():
        assert_arrived(found, [m for m in messages if m.uuid == uuid])


def is_asleep(logs: dict[str, LogStatus]) -> bool:
    return bool(logs) and all(log.phase == "parked" for log in logs.values())


# --- draining -------------------------------------------------------------------------------


def test_a_tree_is_drained_a_few_logs_at_a_time(
    supervise: Supervise, broker: EmbeddedBroker, root: Path
) -> None:
    logs = [root / f"{i % 3}/log-{i}" for i in range(9)]
    for log in logs:
        fill(log, 200)
    run = supervise(drain=True, active_max=3)
    assert run.result() == 0
    assert run.most_running <= 3
    last = run.overviews[-1]
    assert (last.state, last.acknowledged, last.lag_records) == ("stopped", 1_800, 0)
    assert_all_arrived(broker, *logs)


def test_a_drain_ends_with_the_worst_of_what_failed_and_drains_the_rest(
    supervise: Supervise, broker: EmbeddedBroker, root: Path
) -> None:
    fill(root / "good", 100)
    fill(root / "damaged", 10)
    commit(root / "damaged", 0, "bridge")
    (root / "damaged/cursors/bridge.cursor").write_bytes(b"\xff" * 8192)
    run = supervise(drain=True)
    assert run.result() == 3
    assert (run["damaged"].phase, run["damaged"].code) == ("standing", "cursor_corrupt")
    assert_all_arrived(broker, root / "good")


def test_a_drain_fails_for_a_configured_log_that_is_missing(
    supervise: Supervise, root: Path
) -> None:
    run = supervise(drain=True, root=None, logs=[str(root / "x")])
    assert run.result() == 2
    assert run[str(root / "x")].code == "not_a_log"


@pytest.mark.parametrize(("exclude", "status"), [([], 4), (["hid*"], 0)])
def test_a_drain_says_that_a_directory_could_not_be_listed(
    supervise: Supervise,
    broker: EmbeddedBroker,
    root: Path,
    unlisted: dict[str, int],
    exclude: list[str],
    status: int,
) -> None:
    """What it holds was not forwarded, and the end was 0: all that was there is acknowledged."""
    fill(root / "a", 10)
    fill(root / "hidden/b", 10)
    unlisted[str(root / "hidden")] = errno.EACCES
    run = supervise(drain=True, exclude=exclude)
    assert run.result() == status
    assert_all_arrived(broker, root / "a")


def test_a_drain_waits_out_a_lack_of_descriptors(
    supervise: Supervise, broker: EmbeddedBroker, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(root / "a", 100)
    listdir, refused = os.listdir, []

    def listing(path: str | int) -> list[str]:
        if threading.current_thread().name.endswith(" to main") and len(refused) < 3:
            refused.append(path)
            raise OSError(errno.EMFILE, "no")
        return listdir(path)

    monkeypatch.setattr(os, "listdir", listing)
    run = supervise(drain=True)
    assert run.result() == 0
    assert len(refused) == 3
    assert_all_arrived(broker, root / "a")


def test_turns_that_are_shorter_than_connecting_takes_get_something_done(
    supervise: Supervise, broker: EmbeddedBroker, root: Path
) -> None:
    """Each log was stopped before it was connected, and a drain had no end."""
    logs = [root / name for name in ("a", "b")]
    for log in logs:
        fill(log, 200)
    broker.set_rtt_ms(50)  # of several questions
    run = supervise(drain=True, active_max=1, slice_seconds=0.1)
    assert run.result() == 0
    assert run.most_running == 1
    assert_all_arrived(broker, *logs)


def test_gaps_are_a_drains_failure_at_its_end_and_not_at_a_turns(
    supervise: Supervise, root: Path
) -> None:
    for name in ("a", "b"):
        fill(root / name, 4_000, batch_bytes=2_000)
    overwrite(root / "a/00000000000000000000.slab", 20_000, b"\xff" * 500)
    intact = len(records_of(root / "a"))
    assert 0 < intact < 4_000
    run = supervise(drain=True, active_max=1, slice_seconds=1.0, records_per_second=1_500)
    assert run.result() == 3
    assert (run["a"].phase, run["a"].code) == ("standing", "gap")
    assert run["a"].error is not None
    assert run["a"].error.startswith(f"{root / 'a'}: 1 gap met")  # in its first turn of some
    assert (run["a"].acknowledged, run["a"].lag_records) == (intact, 0)
    assert (run["b"].acknowledged, run["b"].phase) == (4_000, "done")


# --- records that retention removes -------------------------------------------------------------


def test_a_parked_log_that_loses_records_says_so(
    supervise: Supervise, broker: EmbeddedBroker, root: Path
) -> None:
    with bounded(root / "a") as writer:
        append(writer, range(100))
        writer.flush()
        run = supervise(park_seconds=0.1)
        run.until(lambda logs: "a" in logs and logs["a"].phase == "parked")
        broker.set_down()
        append(writer, range(100, 9_000))
        writer.flush()
        lost = gone(root / "a", 9_000, 100)
        wait_until(lambda: run["a"].lost_records == lost, 20.0)


# --- logs come, grow and go -----------------------------------------------------------------


@pytest.mark.parametrize("notify", [True, False], ids=["inotify", "rescan"])
def test_an_idle_log_costs_no_thread_and_wakes_when_it_grows(
    supervise: Supervise,
    broker: EmbeddedBroker,
    root: Path,
    monkeypatch: pytest.MonkeyPatch,
    notify: bool,
) -> None:
    if not notify:
        monkeypatch.setattr("bridge.supervise.discovery._inotify", lambda: None)
    for name in ("a", "b"):
        fill(root / name, 50)
    before = set(threading.enumerate())
    run = supervise(park_seconds=0.05)
    run.until(is_asleep)
    new = set(threading.enumerate()) - before
    assert not [thread for thread in new if thread.name.endswith(" to main")]
    assert run["a"].state == "live"
    assert cursor_of(root / "a") == Reader(root / "a").end()
    for number in range(3):  # each append is to be noticed, the last before it sleeps again too
        fill(root / "a", 7)
        due = 50 + 7 * (number + 1)
        run.until(lambda logs, due=due: logs["a"].acknowledged == due)
        assert run["b"].phase == "parked"
        run.until(is_asleep)
    assert run.stop() == 0
    assert_all_arrived(broker, root / "a", root / "b")


def test_a_log_with_nothing_to_do_is_parked_from_the_start_and_connects_to_no_cluster(
    supervise: Supervise, broker: EmbeddedBroker, root: Path
) -> None:
    for name in ("a", "b"):
        fill(root / name, 50, slab_bytes=8192)
    assert supervise(drain=True).result() == 0
    fill(root / "b", 5)
    away = supervise(prune=True, **{"clusters.bootstrap_servers": NOWHERE})
    away.until(lambda logs: len(logs) == 2 and logs["a"].phase == "parked")
    assert away["b"].state == "connecting"
    assert (away["a"].lag_records, away["a"].state) == (0, "connecting")
    assert len(list((root / "a").glob("*.slab"))) == 1  # what is passed goes all the same
    assert away.stop() == 0
    again = supervise()
    again.until(lambda logs: len(logs) == 2 and logs["b"].acknowledged == 5)
    fill(root / "a", 5)
    again.until(lambda logs: logs["a"].acknowledged == 5)
    assert again.stop() == 0
    drained = supervise(drain=True)
    assert drained.result() == 0
    assert drained.overviews[-1].acknowledged == 0
    assert len(consume(broker.bootstrap_servers)) == 110


def test_a_drain_in_turns_ends_beside_writers_that_go_on(supervise: Supervise, root: Path) -> None:
    """What is drained is what was there when its first turn began."""
    over = threading.Event()

    def write(name: str) -> None:
        with Writer(root / name) as writer:
            while not over.is_set():
                append(writer, range(100))
                writer.flush()
                over.wait(0.03)

    for name in ("a", "b"):
        fill(root / name, 2_000)
    writers = [in_thread(lambda name=name: write(name)) for name in ("a", "b")]
    try:
        run = supervise(drain=True, active_max=1, slice_seconds=0.2, total_records_per_second=1_000)
        assert run.result() == 0
    finally:
        over.set()
        for writer in writers:
            writer.result()
    assert run.supervisor.overview().acknowledged >= 4_000


def test_records_appended_while_a_log_is_being_parked_are_forwarded(
    supervise: Supervise, broker: EmbeddedBroker, root: Path
) -> None:
    with Writer(root / "a", flush_seconds=None) as writer:
        writer.append(b"0")
        writer.flush()
        run = supervise(park_seconds=0, rescan_seconds=3600)  # one scan
        for number in range(1, 40):
            run.until(lambda logs, n=number: "a" in logs and logs["a"].acknowledged == n)
            writer.append(b"%d" % number)
            writer.flush()
        run.until(lambda logs: logs["a"].acknowledged == 40)
    assert run.stop() == 0
    assert_all_arrived(broker, root / "a")


def test_the_newest_slab_is_forwarded_where_the_time_of_a_directory_stands_still(
    supervise: Supervise, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hold(PUT_BACK_NS, monkeypatch.setattr)
    fill(root / "a", 50)
    run = supervise()  # not parked: its reader stays open
    run.until(lambda logs: "a" in logs and logs["a"].acknowledged == 50)
    for due in (57, 64):
        fill(root / "a", 7)
        run.until(lambda logs, due=due: logs["a"].acknowledged == due)
        run.until(lambda logs: logs["a"].lag_records == 0)
    assert run["a"].restarts == 0
    assert run.stop() == 0


def test_a_log_that_another_one_replaces_is_forwarded_without_a_restart_of_the_process(
    supervise: Supervise, root: Path, tmp_path: Path
) -> None:
    fill(root / "a", 50)
    fill(tmp_path / "another", 8)
    run = supervise(rescan_seconds=3600)  # it sees the two only while it is open
    run.until(lambda logs: "a" in logs and logs["a"].acknowledged == 50)
    (root / "a").rename(tmp_path / "moved")
    (tmp_path / "another").rename(root / "a")
    run.until(lambda logs: logs["a"].acknowledged == 58)
    assert run.stop() == 0


def test_a_removed_log_is_released_and_not_created_again(
    supervise: Supervise, root: Path, tmp_path: Path
) -> None:
    fill(root / "a", 50)
    fill(root / "b", 50)
    run = supervise()
    run.until(lambda logs: len(logs) == 2 and all(s.acknowledged == 50 for s in logs.values()))
    (root / "a").rename(tmp_path / "gone")  # at once; its files go while they are in use
    shutil.rmtree(tmp_path / "gone", ignore_errors=True)
    run.until(lambda logs: list(logs) == ["b", "(removed logs)"])
    assert run.supervisor.overview().acknowledged == 100, "totals do not fall"
    assert run.supervisor.overview().logs == 1
    fill(root / "b", 1)
    run.until(lambda logs: logs["b"].acknowledged == 51)
    assert not (root / "a").exists()
    assert run.stop() == 0


# --- fairness -------------------------------------------------------------------------------


def test_a_log_without_end_leaves_the_others_their_turn(
    supervise: Supervise, broker: EmbeddedBroker, root: Path
) -> None:
    logs = [root / name for name in ("a", "b", "c")]
    for log in logs:
        fill(log, 50)
    done = threading.Event()

    def go_on() -> None:
        with Writer(logs[0], flush_seconds=0.005) as writer:
            number = 50
            while not done.wait(0.002):
                append(writer, [number])
                number += 1

    busy = in_thread(go_on)
    try:
        run = supervise(active_max=1, slice_seconds=0.3)
        run.until(lambda logs: len(logs) == 3 and all(s.acknowledged for s in logs.values()))
        assert run.most_running == 1
    finally:
        done.set()
        busy.result()
    end = len(records_of(logs[0]))
    run.until(lambda logs: [logs[name].acknowledged for name in "abc"] == [end, 50, 50])
    assert run.stop() == 0
    assert_all_arrived(broker, *logs)


# --- failures -------------------------------------------------------------------------------


def test_a_cursor_in_use_is_waited_for_and_logged_once(
    supervise: Supervise, broker: EmbeddedBroker, root: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    fill(root / "a", 10)
    with Reader(root / "a", cursor="bridge") as other:
        other.commit()
        run = supervise()
        run.until(lambda logs: "a" in logs and logs["a"].restarts >= 3)
        run.until(lambda logs: logs["a"].code == "cursor_locked")
        seen = len(run.overviews)
        run.until(lambda logs: logs["a"].restarts >= 6)
        assert {shown.state for shown in run.overviews[seen:]} == {"blocked"}  # it does not flap
        assert consume(broker.bootstrap_servers) == []
        fill(root / "a", 7)
        run.until(lambda logs: logs["a"].lag_records == 17)
        assert run.supervisor.overview().lag_records == 17
        assert log_row(run["a"])["lag_seconds"] > 0
    run.until(lambda logs: logs["a"].acknowledged == 17)
    assert sum("cursor_locked" in r.message for r in caplog.records) == 1
    assert run.stop() == 0


def test_an_unreachable_cluster_delays_no_other_cluster(
    supervise: Supervise, broker: EmbeddedBroker, root: Path
) -> None:
    fill(root / "a", 20)
    with Writer(root / "b") as writer:
        for number in range(20):
            writer.append(b"%d" % number, topic="away" if number % 2 else None)
    config = load_text(
        f"""
        root = {str(root)!r}
        topic = {TOPIC!r}
        cluster = "main"
        commit_seconds = 0.05
        status_seconds = 0.05
        stop_seconds = 3
        [clusters]
        main = {{bootstrap_servers = {broker.bootstrap_servers!r}}}
        far = {{bootstrap_servers = {NOWHERE!r}}}
        [[routes]]
        record_topic = "away"
        cluster = "far"
    """.replace("'", '"')
    )
    run = Running(Supervisor(config))

    def of(log: str, cluster: str) -> LogStatus | None:
        found = [s for s in run.supervisor.statuses() if (s.log, s.cluster) == (log, cluster)]
        return found[0] if found else None

    wait_until(lambda: (s := of("a", "main")) is not None and s.acknowledged == 20)
    wait_until(lambda: (s := of("b", "main")) is not None and s.acknowledged == 10)
    far = of("b", "far")
    assert far is not None
    assert (far.state, far.acknowledged) == ("connecting", 0)
    assert run.overviews[-1].state == "connecting"
    assert run.stop(8) == 0
    assert cursor_of(root / "b") == Reader(root / "b").end()
    assert cursor_of(root / "b", "bridge.far") < Reader(root / "b").end()


def test_a_log_that_cannot_be_listed_is_kept_and_the_reason_is_logged_once(
    supervise: Supervise,
    root: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    fill(root / "a", 1)
    run = supervise(rescan_seconds=0.1)
    run.until(lambda logs: "a" in logs and logs["a"].phase == "running")
    scandir, out, refused = os.scandir, threading.Event(), []

    def listing(path: str) -> object:
        if str(path) == str(root / "a") and not out.is_set():
            refused.append(path)
            raise OSError(errno.EMFILE, "no")
        return scandir(path)

    monkeypatch.setattr(os, "scandir", listing)
    wait_until(lambda: len(refused) > 10)  # several scans
    assert run["a"].phase == "running"
    assert caplog.text.count("a cannot be listed: Too many open files") == 1
    out.set()
    shutil.rmtree(root / "a")
    run.until(lambda logs: "a" not in logs)


def test_logs_with_nothing_to_send_show_whether_their_cluster_answers(
    supervise: Supervise, broker: EmbeddedBroker, root: Path
) -> None:
    """Nothing of theirs is connected, and their state was "live" while the cluster was down."""
    for name in ("a", "b"):
        fill(root / name, 10)
    run = supervise(park_seconds=0.05)
    run.until(is_asleep)
    run.until(lambda logs: all(log.state == "live" and log.ready for log in logs.values()))
    for _ in range(2):
        broker.set_down()
        run.until(lambda logs: all(log.state == "connecting" for log in logs.values()))
        run.until(
            lambda logs: all(broker.bootstrap_servers in str(log.error) for log in logs.values())
        )
        assert is_asleep({name: run[name] for name in ("a", "b")})
        assert not run["a"].ready
        shown = run.supervisor.overview()
        assert (shown.state, shown.reachable) == ("connecting", False)
        broker.set_up()
        run.until(lambda logs: all(log.state == "live" and log.ready for log in logs.values()))
        assert run["a"].error is None
        assert run.supervisor.overview().reachable
    assert run.stop() == 0


def test_a_cluster_that_was_never_reached_is_no_parked_logs_live_state(
    supervise: Supervise, root: Path
) -> None:
    fill(root / "a", 10)
    assert supervise(drain=True).result() == 0
    run = supervise(**{"clusters.bootstrap_servers": NOWHERE})
    run.until(is_asleep)
    assert {run["a"].state, run.supervisor.overview().state} == {"connecting"}
    run.until(lambda logs: NOWHERE in str(logs["a"].error))
    assert run.stop() == 0
    assert {shown.state for shown in run.overviews} <= {"connecting", "stopped"}


def test_parked_logs_share_one_connection(
    supervise: Supervise, broker: EmbeddedBroker, root: Path
) -> None:
    """A client has three threads and more, and is in none of Python's lists."""
    names = [f"log-{number}" for number in range(8)]
    for name in names:
        fill(root / name, 1)
    assert supervise(drain=True).result() == 0
    before = len(os.listdir("/proc/self/task"))
    run = supervise()
    run.until(lambda logs: len(logs) == len(names) and is_asleep(logs))
    run.until(lambda logs: all(log.state == "live" for log in logs.values()))
    assert len(os.listdir("/proc/self/task")) - before <= 6
    assert run.stop() == 0


# --- which cluster it is --------------------------------------------------------------------


def test_a_parked_log_is_refused_by_another_cluster_with_its_first_record(
    supervise: Supervise, other: EmbeddedBroker, root: Path
) -> None:
    """Until then it needs no connection."""
    for name in "abc":
        fill(root / name, 10)
    assert supervise(drain=True).result() == 0
    elsewhere = {"clusters.bootstrap_servers": other.bootstrap_servers}
    assert supervise(drain=True, **elsewhere).result() == 0
    run = supervise(**elsewhere)
    run.until(is_asleep)
    fill(root / "a", 1)
    run.until(lambda logs: logs["a"].code == "other_cluster")
    run.until(lambda logs: logs["b"].state == "live")
    assert run.stop() != 0
    assert consume(other.bootstrap_servers) == []


# --- another configuration ------------------------------------------------------------------


def test_a_new_configuration_takes_effect_and_values_that_cannot_change_are_named(
    supervise: Supervise, broker: EmbeddedBroker, root: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    broker.create_topic("second", 2)
    fill(root / "a", 10)
    fill(root / "b", 10)
    over: dict[str, Any] = {
        "root": str(root), "topic": TOPIC, "status_seconds": 0.05, "rescan_seconds": 0.2,
        "clusters.bootstrap_servers": broker.bootstrap_servers,
    }  # fmt: skip
    wrong: list[str] = []

    def read() -> Config:
        if wrong:
            raise WrongConfiguration(wrong)
        return load(None, over)

    run = supervise(read=read)
    run.until(lambda logs: len(logs) == 2 and all(s.acknowledged == 10 for s in logs.values()))

    wrong.append("routes[0].topics: unknown key")
    run.supervisor.reload()
    wait_until(lambda: "not changed" in caplog.text)
    assert "the new configuration is wrong: routes[0].topics: unknown key" in caplog.text
    wrong.clear()

    over.update(
        routes=[{"log": "a", "topic": "second"}], exclude=["b"], root="/elsewhere", cursor="x"
    )
    run.supervisor.reload()
    # Begun anew, and nothing to do: what the old one was about to read went the old way.
    run.until(lambda logs: "b" not in logs and logs["a"].phase == "parked")
    assert "root cannot change while it runs; it stays" in caplog.text
    assert "cursor cannot change while it runs; it stays" in caplog.text
    fill(root / "a", 5)
    fill(root / "b", 5)
    run.until(lambda logs: logs["a"].acknowledged == 15)
    assert len(consume(broker.bootstrap_servers, "second", 2)) == 5
    assert len(consume(broker.bootstrap_servers)) == 20
    assert run.stop() == 0


def test_a_reload_retries_blocked_logs_also_without_a_file(
    supervise: Supervise, broker: EmbeddedBroker, root: Path
) -> None:
    fill(root / "a", 30, keys=1)
    broker.push_request_errors(0, [10])  # PRODUCE, MSG_SIZE_TOO_LARGE
    run = supervise(**{"clusters.settings": {"batch.num.messages": 1}})
    run.until(lambda logs: "a" in logs and "a reload (SIGHUP)" in (logs["a"].error or ""))
    assert run["a"].state == "blocked"
    run.supervisor.reload()
    run.until(lambda logs: logs["a"].acknowledged == 30)
    assert run["a"].restarts == 0
    assert run.stop() == 0
    assert_all_arrived(broker, root / "a")


@pytest.mark.parametrize(
    ("logs", "active_max", "settings", "mebibytes", "queue"),
    [(1, 64, {}, 32, 32 << 10), (4, 64, {}, 10, 10 << 10), (4, 2, {}, 20, 20 << 10),
     (20, 64, {}, 2, 2 << 10), (4, 64, {"message.max.bytes": 10_000_000}, 10, 19_532),
     (4, 64, {"queue.buffering.max.kbytes": 77}, 10, 77)],
)  # fmt: skip  # a table
def test_each_connected_log_has_an_equal_part_of_the_bytes_in_flight(
    supervise: Supervise, root: Path, monkeypatch: pytest.MonkeyPatch,
    logs: int, active_max: int, settings: dict[str, Any], mebibytes: int, queue: int,
) -> None:  # fmt: skip  # a table's columns
    """40 MiB are given; the default gave twice its bound to 64 logs."""
    found: list[ForwarderOptions] = []

    def note(path: str, options: ForwarderOptions, **more: Any) -> Forwarder:
        found.append(options)
        return Forwarder(path, options, **more)

    monkeypatch.setattr("bridge.supervise.cluster_options.Forwarder", note)
    for number in range(logs):
        fill(root / f"log-{number}", 1)
    options = {"active_max": active_max, "max_in_flight_bytes": 40 << 20}
    assert supervise(drain=True, **options, **{"clusters.settings": settings}).result() == 0
    assert {each.max_in_flight_bytes >> 20 for each in found} == {mebibytes}
    assert {int(each.client_settings()["queue.buffering.max.kbytes"]) for each in found} == {queue}


def test_rates_of_each_log_and_of_all_can_change_while_it_runs(
    supervise: Supervise, broker: EmbeddedBroker, root: Path
) -> None:
    logs = [root / name for name in ("a", "b")]
    for log in logs:
        fill(log, 100)
    options = {
        "root": str(root),
        "topic": TOPIC,
        "clusters.bootstrap_servers": broker.bootstrap_servers,
    }
    slow = {"bytes_per_second": 1e-3, "total_bytes_per_second": 1e-3}
    run = supervise(read=lambda: load(None, options), **slow)
    run.until(lambda logs: sum(log.acknowledged for log in logs.values()))  # a full bucket's
    seen = len(run.overviews)
    wait_until(lambda: len(run.overviews) > seen + 20)
    assert run.overviews[-1].acknowledged < 200
    run.supervisor.reload()
    run.until(lambda logs: sum(log.acknowledged for log in logs.values()) == 200)
    assert run.stop() == 0
    assert_all_arrived(broker, *logs)
