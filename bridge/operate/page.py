"""The page's content security policy: only the script and the style that the file itself holds."""

from __future__ import annotations

import base64
import hashlib
import re
from importlib.resources import files

__all__ = ["CONTENT_SECURITY_POLICY", "policy_of"]


def policy_of(page: str) -> str:
    """Names the page's own script and style by their hashes; everything else is refused."""

    def hashes(tag: str) -> str:
        found = re.findall(f"<{tag}>(.*?)</{tag}>", page, re.DOTALL)
        digests = (base64.b64encode(hashlib.sha256(x.encode()).digest()).decode() for x in found)
        return " ".join(f"'sha256-{digest}'" for digest in digests)

    return (
        f"default-src 'none'; script-src {hashes('script')}; style-src {hashes('style')}; "
        "connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; "
        "frame-ancestors 'none'"
    )


CONTENT_SECURITY_POLICY = policy_of(
    files("bridge.operate").joinpath("page.html").read_text(encoding="utf-8")
)
