"""Figures within sentences of the pages, made of the published results:

    reading takes <!-- figure: times / read / aolog, frame a record / aolog -->27<!-- end --> times as long

    times / CASE / A / B              the time of A as a multiple of B's
    percent / CASE / A / B            the same in percent
    ratio / CASE / TARGET             of a target
    longer / CASE / TARGET            by how many percent that exceeds 1
    median / CASE / PROBE / FIGURE    of a panel

A case with several groups or panels gives the least and the greatest: "1.4 to 1.8". A comment must not begin
a line, where Markdown would end the paragraph. Only `write` touches files.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from bench.results import Document

__all__ = ["filled", "pages", "write"]

_FIGURE = re.compile(r"(?<!\n)<!-- figure: (.+?) -->(.*?)<!-- end -->", re.DOTALL)


def pages(root: Path) -> list[Path]:
    """The pages that have such figures."""
    all_pages = [root / "README.md", *sorted(root.glob("aolog/docs/**/*.md"))]
    return [page for page in all_pages if "<!-- figure: " in page.read_text(encoding="utf-8")]


def write(root: Path, found: Document) -> list[Path]:
    """Puts the figures into the pages, which it returns."""
    at = pages(root)
    for page in at:
        page.write_text(filled(page.read_text(encoding="utf-8"), found), encoding="utf-8")
    return at


def filled(text: str, found: Document) -> str:
    """The text with its figures. Raises ValueError for one that the results lack."""

    def figure(match: re.Match[str]) -> str:
        kind, *of = match[1].split(" / ")
        values = _KINDS[kind](found, *of)
        if not values:
            raise ValueError(f"the results have no {match[1]!r}")
        low, high = (_shown(value, kind) for value in (min(values), max(values)))
        text = low if low == high else f"{low} to {high}"
        return f"<!-- figure: {match[1]} -->{text}<!-- end -->"

    return _FIGURE.sub(figure, text)


def _shown(value: float, kind: str) -> str:
    whole = value >= 10 or kind in {"percent", "longer"}
    return f"{value:.0f}" if whole else f"{value:.1f}".removesuffix(".0")


def _times(found: Document, case: str, slow: str, fast: str) -> list[float]:
    ratios = []
    for group in found["groups"]:
        times = {one["name"]: one["median_ns"] for one in group["results"]}
        if group["case"] == case and {slow, fast} <= times.keys():
            ratios.append(times[slow] / times[fast])
    return ratios


def _percent(found: Document, case: str, one: str, other: str) -> list[float]:
    return [100 * ratio for ratio in _times(found, case, one, other)]


def _ratio(found: Document, case: str, target: str) -> list[float]:
    return [
        one["ratio"] for one in found["targets"] if one["case"] == case and one["what"] == target
    ]


def _longer(found: Document, case: str, target: str) -> list[float]:
    return [100 * (ratio - 1) for ratio in _ratio(found, case, target)]


def _median(found: Document, case: str, probe: str, figure: str) -> list[float]:
    return [
        one["figures"][figure]["median"]
        for panel in found["panels"]
        for one in panel["probes"]
        if panel["case"] == case and one["name"] == probe
    ]


_KINDS: dict[str, Callable[..., list[float]]] = {
    "times": _times,
    "percent": _percent,
    "ratio": _ratio,
    "longer": _longer,
    "median": _median,
}
