"""The page in a real browser."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from aolog.storage.storage import Storage
from bridge.deliver.status import WaitingLane
from bridge.kafka.stalls import Stall
from bridge.operate.access import Access
from bridge.operate.endpoint import serving
from bridge.operate.monitor import Monitor
from bridge.supervise.status import LogStatus
from bridge.supervise.turns import Phase
from tests.bridge.operate.conftest import violations
from tests.bridge.operate.test_http import LOG, STATUS, TOKEN, Recorded

sync_api = pytest.importorskip("playwright.sync_api")
expect = sync_api.expect
pytestmark = [pytest.mark.xdist_group("browser"), pytest.mark.browser]
HOSTILE = 'x"><img src=/ onerror=alert(1)><script>alert(1)</script>'


class Shown:
    """A bridge whose statuses the test sets."""

    def __init__(self) -> None:
        self.logs: list[LogStatus] = [LOG]
        self.monitor = Monitor(lambda: self.logs, Storage())


@contextmanager
def controlled(page: sync_api.Page, shown: Shown) -> Iterator[Recorded]:
    """The page of a bridge with a token, at the details of its log; and what is asked of it."""
    controls = Recorded()
    with serving(Access("127.0.0.1:0", TOKEN), shown.monitor, controls=controls) as at:
        page.goto(f"http://127.0.0.1:{at[1]}/")
        page.get_by_role("button", name="a → main").click()
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
        expect(rows.nth(0).locator("td")).to_have_text(["own", "all", "blocked", HOSTILE, "\u2013"])
        leader = "its leader, b1:9092, acknowledges nothing"
        expect(rows.nth(1).locator("td")).to_have_text([HOSTILE, "3", "stalled", leader, "12 s"])
        expect(page.locator("img")).to_have_count(0)
        page.get_by_label("Show logs whose name contains").fill("img src")
        expect(page.locator("#rows tr")).to_have_count(1)


def test_with_the_token_a_log_is_paused_resumed_and_retried(page: sync_api.Page) -> None:
    with controlled(page, Shown()) as controls:
        expect(page.get_by_role("button", name="Pause")).to_be_hidden()
        give(page, "Token", TOKEN)
        for name, action in (
            ("Pause", "pause"),
            ("Resume", "resume"),
            ("Retry blocked records", "retry"),
        ):
            page.get_by_role("button", name=name).click()
            expect(page.locator("#action-text")).to_have_text(f"{action}: done")
    assert [call[0] for call in controls.calls] == ["pause", "resume", "try_again"]


def test_a_wrong_token_changes_nothing_says_so_and_is_asked_for_again(page: sync_api.Page) -> None:
    with controlled(page, Shown()) as controls:
        give(page, "Token", "not " + TOKEN)
        expect(page.locator("#token-form")).to_be_hidden()
        page.get_by_role("button", name="Pause").click()
        expect(page.locator("#action-text")).to_contain_text("the token is missing or wrong")
        expect(page.locator("#token-form")).to_be_visible()
        assert controls.calls == []


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
        page.get_by_role("button", name="b → main").click()
        expect(page.locator("#detail")).to_be_visible()
        assert violations(page) == []
