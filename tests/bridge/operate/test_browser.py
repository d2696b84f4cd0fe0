"""The page in a real browser."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from bridge.deliver.status import WaitingLane
from bridge.kafka.stalls import Stall
from bridge.operate.access import Access
from bridge.operate.endpoint import serving
from bridge.supervise.turns import Phase
from tests.bridge.operate.browsing import violations
from tests.bridge.operate.endpoints import LOG, STATUS, TOKEN, Recorded
from tests.bridge.operate.shown import BRIDGES, HOSTILE, MISSING, WELL, Shown

sync_api = pytest.importorskip("playwright.sync_api")
expect = sync_api.expect
pytestmark = [pytest.mark.xdist_group("browser"), pytest.mark.browser]


@contextmanager
def controlled(page: sync_api.Page, shown: Shown) -> Iterator[Recorded]:
    """The page of a bridge with a token, at the details of its log; and what is asked of it."""
    controls = Recorded()
    with serving(Access("127.0.0.1:0", TOKEN), shown.monitor, controls=controls) as at:
        page.goto(f"http://127.0.0.1:{at[1]}/")
        page.get_by_role("button", name="a", exact=True).click()
        expect(page.locator("#detail-name")).to_be_focused()
        yield controls


def give(page: sync_api.Page, label: str, text: str) -> None:
    page.get_by_label(label).fill(text)
    page.keyboard.press("Enter")


def test_a_hostile_name_is_text_and_its_details_name_the_lane(page: sync_api.Page) -> None:
    shown = Shown()
    stall = Stall(topic=HOSTILE, partition=3, leader="b1:9092", seconds=12.0)
    waiting: WaitingLane = {
        "topic": "own", "partition": -1, "state": "blocked", "reason": HOSTILE,
        "cause": HOSTILE, "code": "",
    }  # fmt: skip  # one value
    lanes = STATUS._replace(stalled=(stall,), waiting_lanes=(waiting,))
    hostile = LOG._replace(log=HOSTILE, status=lanes, error=HOSTILE)
    shown.logs = [hostile, LOG]
    with serving(Access("127.0.0.1:0"), shown.monitor) as at:
        page.goto(f"http://127.0.0.1:{at[1]}/")
        expect(page.locator("#rows tr")).to_have_count(2)
        page.get_by_role("button", name=HOSTILE).click()
        expect(page.locator("#detail-name")).to_have_text(HOSTILE)
        expect(page.locator("#detail-name")).to_be_focused()
        rows = page.locator("#lanes tbody tr")
        expect(page.locator("#problem-1")).to_contain_text(HOSTILE)
        lane = ["own", "all", "blocked", "problem 1", "\u2013"]
        expect(rows.nth(0).locator("td")).to_have_text(lane)
        leader = "its leader, b1:9092, acknowledges nothing"
        expect(rows.nth(1).locator("td")).to_have_text([HOSTILE, "3", "stalled", leader, "12 s"])
        expect(page.locator("img")).to_have_count(0)
        page.get_by_label("Show logs whose name contains").fill("img src")
        expect(page.locator("#rows tr")).to_have_count(1)


def test_with_the_token_a_log_is_paused_resumed_and_retried(page: sync_api.Page) -> None:
    shown = Shown()
    buttons = {"Pause": "pause", "Resume": "resume", "Retry blocked records": "retry"}
    with controlled(page, shown) as controls:
        expect(page.get_by_role("button", name="Pause")).to_be_hidden()
        give(page, "Token", TOKEN)
        for log, name in (
            (LOG, "Pause"),
            (LOG._replace(phase=Phase.PAUSED, state="blocked"), "Resume"),
            (LOG._replace(phase=Phase.STANDING, state="blocked"), "Retry blocked records"),
        ):
            shown.logs = [log]
            page.get_by_role("button", name=name).click()
            expect(page.locator("#action-text")).to_have_text(f"{buttons[name]}: done")
            assert page.get_by_role("button", name="Resume").is_visible() == (name == "Resume")
    assert [call[0] for call in controls.calls] == ["pause", "resume", "try_again"]


def test_a_wrong_token_is_refused_where_it_is_entered_until_the_right_one_comes(
    page: sync_api.Page,
) -> None:
    with controlled(page, Shown()) as controls:
        give(page, "Token", "not " + TOKEN)
        expect(page.locator("#token-text")).to_contain_text("the token is missing or wrong")
        expect(page.get_by_label("Token")).to_be_focused()
        expect(page.get_by_role("button", name="Pause")).to_be_hidden()
        give(page, "Token", TOKEN)
        expect(page.locator("#token-form")).to_be_hidden()
        expect(page.locator("#token-text")).to_have_text("")
        expect(page.get_by_role("button", name="Pause")).to_be_visible()
        assert controls.calls == []


def test_a_problem_of_many_logs_is_said_once_with_what_to_do_and_whether_it_needs_somebody(
    page: sync_api.Page,
) -> None:
    shown = Shown()
    shown.logs = [MISSING._replace(log=f"app/{i}") for i in range(12)]
    with shown.served() as address:
        page.goto(address)
        expect(page.locator("#troubles > li")).to_have_count(1)
        trouble = page.locator("#problem-1")
        expect(trouble).to_contain_text("there is no topic 'orders'")
        expect(trouble).to_contain_text("What to do: create it")
        expect(trouble).to_contain_text("12 logs: app/0, app/1, app/2")
        expect(trouble).to_contain_text("needs somebody; then goes on by itself")
        page.get_by_role("button", name="app/3", exact=True).click()
        expect(page.locator("#lanes")).to_contain_text("problem 1, from address 9")
        assert page.locator("body").inner_text().count("there is no topic") == 1
        page.locator("#rows tr").nth(0).get_by_role("link").click()
        assert page.url.endswith("#problem-1")


def test_nothing_is_green_under_a_cluster_that_does_not_answer(page: sync_api.Page) -> None:
    shown = Shown()
    idle = WELL._replace(log="idle", phase=Phase.PARKED, state="live")
    away = WELL._replace(state="connecting", status=STATUS._replace(reachable=False))
    shown.logs = [away, idle]
    with shown.served() as address:
        page.goto(address)
        expect(page.locator("#clusters li")).to_contain_text("Cluster main does not answer, since")
        expect(page.locator("#rows td:nth-child(2)")).to_have_text(["connecting", "connecting"])
        green = page.evaluate(
            "getComputedStyle(document.documentElement).getPropertyValue('--good')"
        )
        colours = "[...document.querySelectorAll('*')].map(e => getComputedStyle(e).color)"
        assert page.evaluate(f"{colours}.includes(getComputedStyle(document.body).color)")
        probe = f"(() => {{ const p = document.createElement('i'); document.documentElement.append(p); p.style.color = '{green.strip()}'; const c = getComputedStyle(p).color; p.remove(); return c; }})()"
        assert not page.evaluate(f"{colours}.includes({probe})")


def test_a_chart_has_units_and_times_and_its_values_are_read_with_the_arrow_keys(
    page: sync_api.Page,
) -> None:
    shown = Shown()
    shown.past(60, [100, 200, 400])
    with shown.served() as address:
        page.goto(address)
        chart = page.get_by_role("slider", name="Records per second over time")
        expect(chart).to_have_attribute(
            "aria-valuetext", re.compile("^Now: in [0-9,]+, out [0-9,]+")
        )
        times = [t for t in chart.locator("text").all_text_contents() if ":" in t]
        assert len(times) >= 2
        now = chart.get_attribute("aria-valuetext")
        chart.focus()
        page.keyboard.press("ArrowLeft")
        page.keyboard.press("ArrowLeft")
        assert chart.get_attribute("aria-valuetext") != now
        last = int(chart.get_attribute("aria-valuemax") or 0)
        assert chart.get_attribute("aria-valuenow") == str(last - 1)
        page.keyboard.press("Home")
        expect(page.locator("#rates-text")).to_contain_text("in not known, out not known")
        chart.hover()
        expect(page.locator("#rates-text")).to_contain_text(re.compile("in [0-9]+, out [0-9]+"))


@pytest.mark.parametrize("bridge", BRIDGES)
def test_no_state_of_the_page_scrolls_sideways_on_a_narrow_screen(
    page: sync_api.Page, bridge: str
) -> None:
    page.set_viewport_size({"width": 390, "height": 844})
    shown = BRIDGES[bridge]()
    with shown.served(token=TOKEN, controls=Recorded()) as address:
        page.goto(address)
        expect(page.locator("#rows tr").nth(0)).to_be_visible()
        give(page, "Token", TOKEN)
        page.locator("#rows button").nth(0).click()
        expect(page.locator("#detail")).to_be_visible()
        width = "[document.documentElement.scrollWidth, document.body.scrollWidth]"
        assert page.evaluate(width) == [390, 390]
        assert violations(page) == []


def test_a_paused_log_is_moved_after_its_dry_run_was_shown(page: sync_api.Page) -> None:
    shown = Shown()
    with controlled(page, shown) as controls:
        give(page, "Token", TOKEN)
        expect(page.get_by_role("button", name="Pause")).to_be_visible()
        expect(page.locator("#seek-form")).to_be_hidden()
        shown.logs = [LOG._replace(phase=Phase.PAUSED, state="blocked")]
        give(page, "Continue at", "nowhere")
        expect(page.locator("#action-text")).to_contain_text("is not a valid position")
        expect(page.locator("#seek-do")).to_be_hidden()
        give(page, "Continue at", "earliest")
        said = "from address 100 to 40; 6 records would be sent again"
        expect(page.locator("#action-text")).to_contain_text(said)
        page.get_by_role("button", name="Do it").click()
        expect(page.locator("#action-text")).to_contain_text("6 records are sent again")
    assert [call[0] for call in controls.calls] == ["seek to earliest, dry", "seek to earliest"]


def test_a_page_whose_bridge_ended_says_so_and_comes_back(page: sync_api.Page) -> None:
    shown = Shown()
    with serving(Access("127.0.0.1:0"), shown.monitor) as at:
        page.goto(f"http://127.0.0.1:{at[1]}/")
        expect(page.locator("#state")).to_have_text("draining")
    expect(page.locator("#state")).to_have_text("offline")
    with serving(Access(f"127.0.0.1:{at[1]}"), shown.monitor):
        expect(page.locator("#state")).to_have_text("draining")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_has_no_accessibility_violation(page: sync_api.Page, scheme: str) -> None:
    shown = Shown()
    shown.logs = [
        LOG,
        LOG._replace(log="b", state="blocked", error="no"),
        LOG._replace(log="c", state="live"),
    ]
    with serving(Access("127.0.0.1:0", TOKEN), shown.monitor, controls=Recorded()) as at:
        page.emulate_media(color_scheme=scheme)
        page.goto(f"http://127.0.0.1:{at[1]}/")
        page.get_by_role("button", name="b", exact=True).click()
        expect(page.locator("#detail")).to_be_visible()
        assert violations(page) == []
