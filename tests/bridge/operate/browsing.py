"""A real browser: Chromium from the distribution's packages."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
EXPECT_MS = 50_000  # generous: a page shows it within a second, except on a busy machine
# As root there is no sandbox; the rest keeps it from calling its maker.
OPTIONS = [
    "--no-sandbox", "--disable-background-networking", "--disable-component-update",
    "--disable-sync", "--no-first-run", "--disable-quic",
]  # fmt: skip  # a list


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    sync_api = pytest.importorskip("playwright.sync_api")
    if CHROMIUM is None:
        if os.environ.get("CI"):
            pytest.fail("there is no chromium; .ci/run installs it")
        pytest.skip("there is no chromium")
    sync_api.expect.set_options(timeout=EXPECT_MS)
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=OPTIONS)
        yield browser
        browser.close()


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    page = browser.new_page()
    wrong: list[str] = []
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("dialog", lambda dialog: wrong.append(dialog.message))
    page.on(
        "console",
        lambda line: wrong.append(line.text) if "Content Security" in line.text else None,
    )
    yield page
    page.close()
    assert wrong == []


def violations(page: Page) -> list[object]:
    """Of the rules of accessibility."""
    axe = pytest.importorskip("axe_core_python.sync_playwright").Axe()
    return [(v["id"], [n["html"] for n in v["nodes"]]) for v in axe.run(page)["violations"]]
