"""The simulator: what it counts, what its buttons do, its page in a real browser. About 60 s."""

from __future__ import annotations

import json
import signal
import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest

from aolog.errors import UsageError
from bridge.operate.access import Access
from bridge.simulate.counts import Counts
from bridge.simulate.routes import serving
from bridge.simulate.settings import Settings, changed
from bridge.simulate.simulation import BUTTONS, Simulation
from tests.bridge.operate.browsing import violations
from tests.bridge.operate.endpoints import ask
from tests.bridge.processes import Start
from tests.waiting import wait_until

sync_api = pytest.importorskip("playwright.sync_api")
expect = sync_api.expect
pytestmark = pytest.mark.xdist_group("browser")

# --- counting -------------------------------------------------------------------------------


def arrive(counts: Counts, run: int, *numbers: int) -> Counts:
    for number in numbers:
        counts.came(run, number)
    return counts


@pytest.mark.parametrize(
    ("arrived", "promised", "counted"),
    [
        ((1, 2, 3), 5, (3, 2, 0, 0)),
        ((1, 4), 0, (2, 0, 0, 0)),  # passed over, and not promised
        ((1, 4), 2, (2, 0, 1, 0)),
        ((1, 4), 4, (2, 0, 2, 0)),
        ((1, 4, 4, 1, 3), 0, (3, 0, 0, 2)),  # a late one is not repeated
    ],
)
def test_promised_records_are_lost_if_they_were_passed_over(
    arrived: tuple[int, ...], promised: int, counted: tuple[int, ...]
) -> None:
    counts = arrive(Counts(), 1, *arrived)
    counts.promised(1, promised)
    assert (counts.arrived, counts.pending, counts.lost, counts.repeated) == counted


def test_the_promised_end_of_a_run_is_lost_when_a_later_run_arrives() -> None:
    counts = arrive(Counts(), 1, 1, 2)
    counts.promised(1, 3)
    assert (counts.lost, counts.pending, counts.is_settled(1)) == (0, 1, False)
    arrive(counts, 2, 1)
    assert (counts.lost, counts.pending, counts.is_settled(1)) == (1, 0, True)
    assert not counts.has_arrived(1, 3)


def test_a_run_that_was_killed_before_it_promised_anything_is_settled_by_a_later_one() -> None:
    counts = Counts()
    counts.promised(2, 1)
    assert not counts.is_settled(1)
    arrive(counts, 2, 1)
    assert (counts.is_settled(1), counts.is_settled(2), counts.lost) == (True, False, 0)


# --- the simulation -------------------------------------------------------------------------


@pytest.fixture(scope="module")
def simulation() -> Iterator[Simulation]:
    with Simulation() as simulation:
        yield simulation


def begin(simulation: Simulation, **settings: object) -> None:
    simulation.reset(changed(Settings(rate=300), settings))
    wait_until(lambda: simulation.snapshot()["arrived"] > 100, 30)


def settled(simulation: Simulation, step: str) -> str:
    """What became of the record that a crash was about."""
    fates: list[str] = []

    def known() -> bool:
        found = [c["fate"] for c in simulation.snapshot()["crashes"] if c["step"] == step]
        fates[:] = found[:1]
        return bool(found) and found[0] != "not known yet"

    wait_until(known, 40)
    return fates[0]


def suffers(simulation: Simulation) -> bool:
    found = simulation.snapshot()
    return found["pending"] > 50 or bool(found["program_error"])


def has_come(simulation: Simulation, count: int) -> bool:
    return simulation.snapshot()["arrived"] > count


def test_nothing_is_lost_or_repeated_whatever_is_pressed(simulation: Simulation) -> None:
    begin(simulation)
    for step in ("append", "flush", "sync"):
        simulation.press(f"crash-{step}")
        fate = settled(simulation, step)
        assert fate == (
            "gone: append promises nothing" if step == "append" else "survived: it arrived once"
        )
        wait_until(lambda: all(simulation.snapshot()["running"].values()), 20)
    simulation.press("kill")
    for fault in ("down", "rejecting", "full"):
        simulation.set(**{fault: True})
        wait_until(partial(suffers, simulation), 30)
        before = simulation.snapshot()["arrived"]
        simulation.set(**{fault: False})
        wait_until(partial(has_come, simulation, before + 200), 40)
    simulation.set(rate=0)
    wait_until(lambda: simulation.snapshot()["pending"] == 0, 30)
    found = simulation.snapshot()
    assert (found["lost"], found["repeated"]) == (0, 0)
    assert found["written"] == found["arrived"] > 500


@pytest.mark.parametrize("mode", ["error", "buffer"])  # without a log and with one
def test_a_mode_of_buffer_delivers_and_loses_nothing_that_it_promised(
    simulation: Simulation, mode: str
) -> None:
    begin(simulation, mode=mode)
    simulation.press("kill")
    before = simulation.snapshot()["arrived"]
    wait_until(lambda: simulation.snapshot()["arrived"] > before + 200, 30)
    assert simulation.snapshot()["lost"] == 0


@pytest.mark.parametrize(
    "wrong",
    [
        {"rate": -1}, {"rate": 10**9}, {"delay_ms": 10**6}, {"mode": "x"}, {"speed": 1},
        {"delay_ms": 2.5}, {"rate": True}, {"rate": float("nan")}, {"down": "x"}, {"mode": ["log"]},
    ],
)  # fmt: skip  # a list
def test_a_setting_out_of_range_is_refused_and_changes_nothing(
    simulation: Simulation, wrong: dict[str, object]
) -> None:
    before = simulation.snapshot()["settings"]
    with pytest.raises(UsageError):
        simulation.set(**wrong)
    assert simulation.snapshot()["settings"] == before


def test_a_program_that_ends_while_its_reports_are_read_raises_in_no_thread(
    simulation: Simulation, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin(simulation)
    raised: list[object] = []
    reading = threading.Event()

    def slowly(line: str) -> object:
        reading.set()
        time.sleep(0.5)
        return json.loads(line)

    monkeypatch.setattr(threading, "excepthook", raised.append)
    slow_json = SimpleNamespace(loads=slowly, dumps=json.dumps)
    monkeypatch.setattr("bridge.simulate.child.json", slow_json)
    readers = [thread for thread in threading.enumerate() if thread.name == "reports"]
    assert readers
    reading.clear()
    assert reading.wait(20)
    simulation.reset(Settings(rate=0))
    wait_until(lambda: not any(reader.is_alive() for reader in readers), 20)
    assert not raised


def runs(pid: str) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_its_end_leaves_no_process(
    bridge: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: signal.Signals
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    process = bridge("simulate", "--http", "127.0.0.1:0")
    children = Path(f"/proc/{process.popen.pid}/task/{process.popen.pid}/children")
    wait_until(lambda: process.lines and len(children.read_text().split()) == 2)
    assert process.lines[0].startswith("http://127.0.0.1:")
    pids = children.read_text().split()
    process.popen.send_signal(number)
    assert process.end(20) == (0 if number == signal.SIGTERM else -number)
    wait_until(lambda: not any(map(runs, pids)), 20 if number == signal.SIGKILL else 0)


# --- the page -------------------------------------------------------------------------------


def test_every_control_of_the_page_does_what_it_says(
    page: sync_api.Page, simulation: Simulation
) -> None:
    begin(simulation)
    with serving(Access("127.0.0.1:0"), simulation) as at:
        page.goto(f"http://127.0.0.1:{at[1]}/")
        expect(page.locator("#state")).to_have_text("running")
        assert violations(page) == []
        for name in ("lost", "repeated"):
            expect(page.locator(f"#{name}")).to_have_text("0")
        for name, label in (
            ("down", "Broker down"),
            ("rejecting", "Broker rejects"),
            ("full", "Disk full"),
        ):
            button = page.get_by_role("button", name=label)
            button.click()
            expect(button).to_have_attribute("aria-pressed", "true")
            assert simulation.snapshot()["settings"][name]
            button.click()
            expect(button).to_have_attribute("aria-pressed", "false")
        page.locator("#rate").fill("500")
        expect(page.locator("#rate-text")).to_have_text("500")
        page.locator("#delay_ms").fill("100")
        expect(page.locator("#broker-state")).to_have_text("answers after 100 ms")
        page.get_by_role("button", name="One error").click()
        page.get_by_role("button", name="kill -9").click()
        expect(page.locator("#events")).to_contain_text("kill -9: the bridge is gone")
        page.get_by_label("Buffer on disk").click()
        expect(page.locator("#mode")).to_have_value("block")
        expect(page.get_by_text("Disk full")).to_be_disabled()
        expect(page.locator("#strip")).to_be_hidden()
        page.locator("#mode").select_option("log")
        expect(page.get_by_label("Buffer on disk")).to_be_checked()
        page.get_by_role("button", name="Begin anew").click()
        expect(page.locator("#events")).not_to_contain_text("kill -9")
        page.get_by_label("Crash after append").click()
        expect(page.locator("#events")).to_contain_text("crashed after append")
        assert "crash-append" in page.url  # a run can be shared
        page.get_by_role("button", name="Repeat the run in the address").click()
        expect(page.locator("#fate-append")).to_have_text("")
        expect(page.locator("#events")).to_contain_text("crashed after append")
    assert set(BUTTONS) >= {"error", "kill", "crash-append"}


def test_the_page_says_where_records_are_why_they_wait_and_never_scrolls_sideways(
    page: sync_api.Page, simulation: Simulation
) -> None:
    begin(simulation, rate=3000)
    width = "document.documentElement.scrollWidth"
    with serving(Access("127.0.0.1:0"), simulation) as at:
        page.set_viewport_size({"width": 390, "height": 844})
        page.goto(f"http://127.0.0.1:{at[1]}/")
        expect(page.locator("#pipe-out")).to_have_class("pipe moves")
        page.get_by_role("button", name="Broker rejects").click()
        expect(page.locator("#state")).to_have_text("broker rejects")
        expect(page.locator("#events")).to_contain_text("the broker rejects everything")
        expect(page.locator("#bridge-state")).to_contain_text(
            "waits: the broker rejects what it sends"
        )
        expect(page.locator("#oldest")).to_contain_text(" s")
        expect(page.locator("#pipe-out")).to_have_class("pipe waits")
        wait_until(lambda: len(simulation.snapshot()["slabs"]) > 40, 40)
        assert page.evaluate(width) == 390
        page.get_by_role("button", name="Broker rejects").click()
        page.locator("#rate").fill("0")
        expect(page.locator("#program-state")).to_contain_text("pauses")
        expect(page.locator("#events")).to_contain_text("the program pauses")
        expect(page.locator("#oldest")).to_have_text("none")
        for mode in ("block", "error", "buffer", "always"):
            page.locator("#mode").select_option(mode)
            expect(page.locator("#mode-text")).to_contain_text(
                "Nothing is kept on disk" if mode in {"block", "error"} else "At least once"
            )
            assert page.evaluate(width) == 390
            assert violations(page) == []


def test_a_wrong_request_says_why(simulation: Simulation) -> None:
    with serving(Access("127.0.0.1:0"), simulation) as at:
        as_json = {"Content_Type": "application/json"}
        for path, body, status in (
            ("/set", '{"speed": 1}', 409), ("/set", "[]", 400), ("/press", "{}", 400),
            ("/press", '{"button": "x"}', 409), ("/reset", '{"rate": "x"}', 409),
            ("/reset", '{"delay_ms": 2.5}', 409),
            ("/set", '"' + "x" * 5000 + '"', 413),
        ):  # fmt: skip  # a table
            found = ask(at, path, "POST", body, **as_json)
            assert (found[0], "error" in json.loads(found[2])) == (status, True), (path, body)
        assert ask(at, "/set", "POST", "{}")[0] == 415  # a form of another page
        assert ask(at, "/events", Host="evil.example")[0] == 421
