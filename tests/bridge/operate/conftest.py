"""The browser of the bridge's page."""

from tests.bridge.operate.browsing import browser, page

__all__ = ["browser", "page"]
