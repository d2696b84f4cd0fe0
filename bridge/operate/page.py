"""The pages: one file each, with the common style, and a policy that allows only what the file holds."""

from __future__ import annotations

import base64
import hashlib
import re
from importlib.resources import files


def load_page(package: str, name: str) -> tuple[str, str]:
    """A page of a package with its style and scripts inside, and its Content-Security-Policy: they are named
    by their hashes, everything else is refused. Pages share what is in this package."""

    def text_of(name: str) -> str:
        own = files(package).joinpath(name)
        found = own if own.is_file() else files("bridge.operate").joinpath(name)
        return found.read_text(encoding="utf-8")

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
