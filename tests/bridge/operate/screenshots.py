"""Makes the pictures of the README: the page of a bridge that runs, and the simulator.

    python -m tests.bridge.operate.screenshots       writes aolog/docs/images/{page,simulator}.png

Everything in them is real: logs, a bridge, the embedded broker, kills.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from playwright.sync_api import Page, expect, sync_playwright

from aolog import Writer
from bridge.kafka.embedded import EmbeddedBroker
from bridge.operate.access import Access
from bridge.operate.simulator.routes import serving
from bridge.operate.simulator.simulation import Settings, Simulation
from tests.bridge.operate.conftest import CHROMIUM, OPTIONS

IMAGES = Path(__file__).parents[3] / "aolog/docs/images"
SIZE = {"width": 1100, "height": 900}
LOGS = {"orders/checkout": 400, "orders/returns": 40, "sensors/roof": 150}


def main() -> None:
    """Writes both."""
    IMAGES.mkdir(exist_ok=True)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=OPTIONS)
        with tempfile.TemporaryDirectory() as root:
            of_page(browser.new_page(viewport=SIZE, color_scheme="light"), root)
        of_simulator(browser.new_page(viewport=SIZE, color_scheme="light"))
        browser.close()


def of_page(page: Page, root: str) -> None:
    """Three logs; the broker is away for a while, and an old file of one log is damaged."""
    over = threading.Event()
    writers = [
        threading.Thread(target=write, args=(f"{root}/{name}", rate, over))
        for name, rate in LOGS.items()
    ]
    for writer in writers:
        writer.start()
    with EmbeddedBroker() as broker:
        process = subprocess.Popen(
            [sys.executable, "-m", "bridge", "run", "--root", root, "--topic", "events",
             "--bootstrap-servers", broker.bootstrap_servers, "--http", ":9198", "--prune"],
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
            page.screenshot(path=IMAGES / "page.png", full_page=True)
        finally:
            process.terminate()
            process.wait()
            over.set()
            for writer in writers:
                writer.join()


def write(path: str, rate: int, over: threading.Event) -> None:
    """Records at a rate that swings, until it is over."""
    begun = time.monotonic()
    with Writer(path, slab_bytes=256 << 10, flush_seconds=0.2) as log:
        while not over.wait(0.1):
            swing = 1 + 0.5 * ((time.monotonic() - begun) % 20 < 10)
            for _ in range(int(rate * swing / 10)):
                log.append(bytes(200), key=b"key")


def of_simulator(page: Page) -> None:
    """After a few kills."""
    with Simulation() as simulation, serving(Access("127.0.0.1:0"), simulation) as at:
        simulation.reset(Settings(rate=1000))
        page.goto(f"http://127.0.0.1:{at[1]}/")
        expect(page.locator("#state")).to_have_text("running")
        for step in ("append", "flush", "produce"):
            page.get_by_label(f"Crash after {step}").click()
            page.wait_for_timeout(5000)
        page.get_by_role("button", name="Broker down").click()
        page.wait_for_timeout(4000)
        page.mouse.wheel(0, -5000)
        page.wait_for_timeout(500)
        page.screenshot(path=IMAGES / "simulator.png")


if __name__ == "__main__":
    main()
