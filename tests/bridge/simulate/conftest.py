"""The browser of the bridge's page."""

from tests.bridge.operate.conftest import browser, page

__all__ = ["browser", "page"]
