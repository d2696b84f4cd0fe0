"""Makes pictures of the pages.

    python -m tests.bridge.operate.screenshots        writes aolog/docs/images/{page,simulator}.png
    python -m tests.bridge.operate.screenshots DIR    writes DIR/{healthy,trouble,simulator}-WIDTH-{light,dark}.png

Everything in them is real: logs, a bridge, the embedded broker, kills. Takes two to four minutes.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Page, expect, sync_playwright

from aolog import Writer
from bridge.kafka.embedded import EmbeddedBroker
from bridge.operate.access import Access
from bridge.simulate.routes import serving
from bridge.simulate.settings import Settings
from bridge.simulate.simulation import Simulation
from tests.bridge.operate.browsing import CHROMIUM, OPTIONS

IMAGES = Path(__file__).parents[3] / "aolog/docs/images"
SIZE = {"width": 1100, "height": 900}
WIDTHS = (390, 768, 1280)
LOGS = {"orders/checkout": 400, "orders/returns": 40, "sensors/roof": 150}
MISSING = {"audit/logins": 5, "audit/orders": 2}  # their topic does not exist

Take = Callable[[str], None]


def main() -> None:
    """Writes those of the README, or all into the directory that is named."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=OPTIONS)
        page = browser.new_page(viewport=SIZE, color_scheme="light")
        if sys.argv[1:]:
            folder = Path(sys.argv[1])
            folder.mkdir(parents=True, exist_ok=True)
            of_bridge(page, lambda name: in_all_sizes(page, folder, name))
            of_simulator(page, lambda name: in_all_sizes(page, folder, name))
        else:
            of_bridge(page, lambda name: in_one_size(page, "page" if name == "healthy" else ""))
            of_simulator(page, lambda name: in_one_size(page, name))
        browser.close()


def in_one_size(page: Page, name: str) -> None:
    """For the README and the docs."""
    if name:
        page.screenshot(path=IMAGES / f"{name}.png", full_page=name == "page")


def in_all_sizes(page: Page, folder: Path, name: str) -> None:
    """At three widths, light and dark."""
    for width in WIDTHS:
        page.set_viewport_size({"width": width, "height": 900})
        for scheme in ("light", "dark"):
            page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]  # one of two words
            page.wait_for_timeout(1200)
            page.screenshot(path=folder / f"{name}-{width}-{scheme}.png", full_page=True)


@contextmanager
def writing(root: str, logs: dict[str, int], topic: str | None = None) -> Iterator[None]:
    """Programs that write these logs, each at its rate."""
    over = threading.Event()
    writers = [
        threading.Thread(target=write, args=(f"{root}/{name}", rate, over, topic))
        for name, rate in logs.items()
    ]
    for writer in writers:
        writer.start()
    try:
        yield
    finally:
        over.set()
        for writer in writers:
            writer.join()


def of_bridge(page: Page, take: Take) -> None:
    """Three logs; the broker is away for a while. Then a missing topic, and the broker away again."""
    with tempfile.TemporaryDirectory() as root, EmbeddedBroker() as broker, writing(root, LOGS):
        broker.create_topic("events", 4)
        process = subprocess.Popen(
            [sys.executable, "-m", "bridge", "run", "--root", root, "--topic", "events", "--prune",
             "--bootstrap-servers", broker.bootstrap_servers, "--http", ":9198",
             "--create-topics", "never"],
            stderr=subprocess.DEVNULL,
        )  # fmt: skip  # a command line
        try:
            for step in (lambda: None, broker.set_down, broker.set_up):
                step()
                time.sleep(40)
            page.goto("http://127.0.0.1:9198/")
            page.get_by_role("button", name="orders/checkout").click()
            expect(page.locator("#detail")).to_be_visible()
            page.wait_for_timeout(1500)
            page.mouse.click(1, 1)
            take("healthy")
            page.get_by_role("button", name="Close").click()
            with writing(root, MISSING, "audit"):
                page.wait_for_timeout(15_000)
                take("trouble")
                broker.set_down()
                page.wait_for_timeout(15_000)
                take("cut-off")
        finally:
            process.terminate()
            process.wait()


def write(path: str, rate: int, over: threading.Event, topic: str | None) -> None:
    """Records at a rate that swings, until it is over."""
    begun = time.monotonic()
    with Writer(path, slab_bytes=256 << 10, flush_seconds=0.2) as log:
        owed = 0.0
        while not over.wait(0.1):
            owed += rate / 10 * (1 + 0.5 * ((time.monotonic() - begun) % 20 < 10))
            while owed >= 1:
                owed -= 1
                log.append(bytes(200), key=b"key", topic=topic)


def of_simulator(page: Page, take: Take) -> None:
    """After a few kills."""
    with Simulation() as simulation, serving(Access("127.0.0.1:0"), simulation) as at:
        simulation.reset(Settings(rate=1000))
        page.goto(f"http://127.0.0.1:{at[1]}/")
        expect(page.locator("#state")).to_have_text("running")
        for step in ("append", "flush", "sync"):
            page.get_by_label(f"Crash after {step}").click()
            page.wait_for_timeout(5000)
        page.get_by_role("button", name="Broker down").click()
        page.wait_for_timeout(4000)
        page.mouse.wheel(0, -5000)
        page.wait_for_timeout(500)
        take("simulator")


if __name__ == "__main__":
    main()
