"""The pages: one file each, with the common style, and a policy that allows only what the file holds."""

from __future__ import annotations

import base64
import hashlib
import re
from importlib.resources import files


def load_page(name: str) -> tuple[str, str]:
    """A page with its style and scripts inside, and its Content-Security-Policy: they are named by their
    hashes, everything else is refused."""

    def text_of(name: str) -> str:
        return files("bridge.operate").joinpath(name).read_text(encoding="utf-8")

    page = text_of(name).replace("<style></style>", f"<style>{text_of('style.css')}</style>")
    page = re.sub(
        r'<script src="(\w+\.js)"></script>', lambda m: f"<script>{text_of(m[1])}</script>", page
    )

    def hashes(tag: str) -> str:
        found = re.findall(f"<{tag}>(.*?)</{tag}>", page, re.DOTALL)
        digests = (base64.b64encode(hashlib.sha256(x.encode()).digest()).decode() for x in found)
        return " ".join(f"'sha256-{digest}'" for digest in digests)

    policy = (
        f"default-src 'none'; script-src {hashes('script')}; style-src {hashes('style')}; "
        "connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; "
        "frame-ancestors 'none'"
    )
    return page, policy
