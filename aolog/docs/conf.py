"""How Sphinx makes the site: `sphinx-build -W aolog/docs DIR`, then open DIR/index.html.

The pages are Markdown and read well as files. Some pages show files from elsewhere in the
repository; the Python reference is autodoc's. Nothing that a page loads comes from another host.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import aolog
from aolog.docs.generated import expanded
from aolog.errors import AologError

if TYPE_CHECKING:
    from sphinx.application import Sphinx

DOCS = Path(__file__).parent
ROOT = DOCS.parent.parent

project = "aolog and bridge"
version = release = aolog.__version__
author = "the authors of aolog"
extensions = ["myst_parser", "sphinx.ext.autodoc"]
myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 4  # as GitHub makes them
default_role = "code"  # docstrings are Markdown in this
autodoc_default_options = {
    "members": True,
    "inherited-members": "BaseException,Filterer,Handler,object,tuple",  # all but what these define
}
autodoc_member_order = "bysource"
autodoc_preserve_defaults = True
autodoc_typehints_format = "short"
python_maximum_signature_line_length = 88
toc_object_entries_show_parents = "hide"
suppress_warnings = ["ref.python"]  # two classes are called Writer
html_theme = "furo"
html_title = f"aolog {release}"
html_static_path = ["site.css"]
html_css_files = ["site.css"]
html_show_copyright = False  # the licence is in LICENSE
html_copy_source = False
html_show_sourcelink = False

# Page: the file in the repository that is its text.
FILES = {
    "reference/format": ROOT / "aolog/FORMAT.md",
    "explanation/figures": ROOT / "bench/RESULTS.md",
    "project/changelog": ROOT / "CHANGELOG.md",
    "project/contributing": ROOT / ".github/CONTRIBUTING.md",
    "project/report": ROOT / ".github/SECURITY.md",
}
_PAGE_OF = {file: DOCS / f"{page}.md" for page, file in FILES.items()}
_PAGE_OF[ROOT / "README.md"] = DOCS / "index.md"


def _text(_app: Sphinx, page: str, source: list[str]) -> None:
    """Replaces the text of a page in FILES by its file, links to such files by links to their pages, and
    generated blocks by their text."""
    here = (DOCS / page).parent
    file = FILES.get(page)
    if file is not None:
        source[0] = file.read_text(encoding="utf-8")
    base = here if file is None else file.parent

    def link(match: re.Match[str]) -> str:
        name, sharp, anchor = match[1].partition("#")
        if not name or "://" in name:
            return match[0]
        target = (base / name).resolve()
        if target == ROOT / "README.md":
            sharp = anchor = ""  # its headings are not the index's
        target = _PAGE_OF.get(target, target)
        return f"]({os.path.relpath(target, here)}{sharp}{anchor})"

    source[0] = expanded(re.sub(r"\]\(([^)\s]+)\)", link, source[0]))
    if page == "index":
        source[0] = _with_contents(source[0])


def _with_contents(index: str) -> str:
    """The index with its lists of pages as the tables of contents that the theme's sidebar shows: one for each
    section, under its heading."""

    def section(match: re.Match[str]) -> str:
        pages = re.findall(r"^- \[[^\]]+\]\((\w[\w/-]+)\.md\)", match[0], re.MULTILINE)
        if not pages:
            return match[0]
        head = f":caption: {match[1]}\n:maxdepth: 1\n:hidden:"
        return "\n".join([match[0].rstrip(), "", "```{toctree}", head, "", *pages, "```", "", ""])

    return re.sub(r"^## (.+)\n(?:(?!## ).*\n)*", section, index, flags=re.MULTILINE)


def _docstring(
    _app: Sphinx, what: str, _name: str, value: Any, _options: object, lines: list[str]
) -> None:
    """Drops the docstrings of modules, which the pages replace; begins an error's docstring with its code."""
    if what == "module":
        lines.clear()
    elif what == "exception" and issubclass(value, AologError):
        base = value.__bases__[0].__name__
        code = f"Code `{value.code}`, exit status {value.exit_status}."
        lines[:0] = [f"A subclass of `{base}`. {code}", ""]


def _skip(
    _app: Sphinx, _what: str, _name: str, value: object, _default: object, _options: object
) -> bool | None:
    """Skips the fields of a NamedTuple: its signature shows them."""
    return True if type(value).__name__ == "_tuplegetter" else None


def setup(app: Sphinx) -> None:
    """Sphinx calls this."""
    app.connect("source-read", _text)
    app.connect("autodoc-process-docstring", _docstring)
    app.connect("autodoc-skip-member", _skip)
