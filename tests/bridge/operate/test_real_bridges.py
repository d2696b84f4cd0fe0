"""The page of real bridges in a real browser: one that runs, one cut off from its broker, one
with hostile names and a damaged log. About 40 s."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from aolog import Writer
from bridge.kafka.embedded import EmbeddedBroker
from tests.bridge.damage import damage
from tests.bridge.logs import append, fill
from tests.bridge.operate.browsing import violations
from tests.bridge.operate.listening import where
from tests.bridge.operate.shown import HOSTILE
from tests.bridge.processes import Start

sync_api = pytest.importorskip("playwright.sync_api")
expect = sync_api.expect
pytestmark = [pytest.mark.xdist_group("browser"), pytest.mark.browser]
Serve = Callable[..., str]


@pytest.fixture
def served(bridge: Start, broker: EmbeddedBroker) -> Serve:
    """Starts `run --http` on a tree of logs; the address of its page."""

    def start(root: Path, *arguments: str, servers: str | None = None) -> str:
        process = bridge(
            "run", "--root", root, "--topic", "t", "--http", ":0", *arguments,
            "--bootstrap-servers", servers or broker.bootstrap_servers,
        )  # fmt: skip  # a command line
        host, port = where(process)
        return f"http://{host}:{port}/"

    return start


def details(page: sync_api.Page, log: str) -> None:
    page.get_by_role("button", name=log).click()
    expect(page.locator("#detail-name")).to_have_text(log)


def test_a_bridge_that_runs_shows_numbers_that_add_up_and_follow_the_log(
    page: sync_api.Page, served: Serve, tmp_path: Path
) -> None:
    fill(tmp_path / "root/app", 300, slab_bytes=4096, batch_bytes=500)
    page.goto(served(tmp_path / "root"))
    expect(page.locator("#state")).to_have_text("live")
    for name, count in (("seen", 300), ("acknowledged", 300), ("pending", 0), ("lost", 0)):
        expect(page.locator(f"#n-{name}")).to_have_text(str(count))
    expect(page.locator("#oldest")).to_have_text("none")
    expect(page.locator("#about")).to_contain_text("0 abnormal restarts")
    details(page, "app")
    expect(page.locator("#strip .sent").first).to_be_visible()
    expect(page.locator("#strip .pending")).to_have_count(0)
    fill(tmp_path / "root/app", range(300, 350))
    expect(page.locator("#n-acknowledged")).to_have_text("350")
    expect(page.locator("#n-seen")).to_have_text("350")
    assert violations(page) == []


def test_a_bridge_that_is_cut_off_from_its_broker_shows_what_waits_and_why(
    page: sync_api.Page, served: Serve, broker: EmbeddedBroker, tmp_path: Path
) -> None:
    log = tmp_path / "root/app"
    fill(log, 100)
    page.goto(served(tmp_path / "root", "-X", "reconnect.backoff.max.ms=500"))
    expect(page.locator("#n-acknowledged")).to_have_text("100")
    broker.set_down()
    with Writer(log) as writer:
        append(writer, range(100, 150))
        writer.flush()
        expect(page.locator("#state")).to_have_text("connecting")
        expect(page.locator("#n-pending")).to_have_text("50")
        expect(page.locator("#oldest")).not_to_have_text("none")
        expect(page.locator("#problem-1")).to_contain_text(
            re.compile("brokers are down|connection refused")
        )
        expect(page.locator("#clusters")).to_contain_text("does not answer")
        assert violations(page) == []
    broker.set_up()
    expect(page.locator("#n-acknowledged")).to_have_text("150")
    expect(page.locator("#n-lost")).to_have_text("0")


def test_hostile_names_are_text_and_a_damaged_slab_is_shown(
    page: sync_api.Page, served: Serve, tmp_path: Path
) -> None:
    name = HOSTILE.replace("/", "\u2215")
    log = tmp_path / "root" / name
    with Writer(log, slab_bytes=32 << 10, batch_bytes=1000) as writer:
        append(writer, range(3000))
        writer.append(b"stray", topic=HOSTILE)  # no topic can have this name
        append(writer, range(3000, 3020))
    damage(log)
    page.goto(served(tmp_path / "root"))
    expect(page.locator("#state")).to_have_text("blocked")
    expect(page.locator("#n-lost")).not_to_have_text("0")
    details(page, name)
    expect(page.locator("#lanes")).to_contain_text("alert(1)")
    expect(page.locator("#strip .damaged")).to_have_count(1)
    expect(page.locator("#strip")).to_have_attribute("aria-label", re.compile(", 1 damaged$"))
    expect(page.locator("#problems")).to_contain_text("gap in the log")
    expect(page.locator("img")).to_have_count(0)
    assert violations(page) == []
