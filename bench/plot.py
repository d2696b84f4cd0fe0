"""Curves of a results document, as SVG: a file an axis, a panel an operation.

Both axes are logarithmic, so a cost that grows with the size rises by the same angle everywhere, however
small it is. The dashed line through each curve's first point is flat. Bars reach from the least to the
greatest round.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bench.results import Document

__all__ = ["axes_of", "draw", "file_name"]

_COLUMNS = 3
_PANEL_INCHES = (3.6, 2.7)
_DECADES_MIN = 2.5  # of cost, that a panel shows: noise of a tenth is not to look like a trend
_COLOURS = ("#0b6fa4", "#c2571a", "#5b7f2b")


def axes_of(found: Document) -> list[str]:
    """The axes that there are curves for, in order."""
    return list(dict.fromkeys(group["axis"] for group in found["groups"] if group["axis"]))


def file_name(axis: str) -> str:
    return f"by-{axis}.svg"


def draw(found: Document, directory: str) -> list[Path]:
    """A file for each axis. Raises ModuleNotFoundError without matplotlib."""
    import matplotlib as mpl

    mpl.use("svg")
    from matplotlib import pyplot as plt

    Path(directory).mkdir(parents=True, exist_ok=True)
    written = []
    # the same results give the same file
    with mpl.rc_context({"svg.hashsalt": "aolog", "svg.fonttype": "none", "font.size": 8}):
        for axis in axes_of(found):
            groups = [group for group in found["groups"] if group["axis"] == axis]
            rows = math.ceil(len(groups) / _COLUMNS)
            figure, places = plt.subplots(
                rows, _COLUMNS, squeeze=False, layout="constrained",
                figsize=(_COLUMNS * _PANEL_INCHES[0], rows * _PANEL_INCHES[1]),
            )  # fmt: skip  # one thing, a line or two
            for place in places.flat[len(groups) :]:
                place.remove()
            for place, group in zip(places.flat, groups, strict=False):
                _panel(place, group)
            path = Path(directory, file_name(axis))
            figure.savefig(path, metadata={"Date": None})
            plt.close(figure)
            written.append(path)
    return written


def _panel(place: Any, group: dict[str, Any]) -> None:
    from matplotlib.ticker import EngFormatter, NullLocator

    curves: dict[str, list[dict[str, Any]]] = {}
    for result in group["results"]:
        curves.setdefault(result["series"], []).append(result)
    for colour, (series, points) in zip(_COLOURS, curves.items(), strict=False):
        sizes = [point["at"] for point in points]
        costs = [point["median_ns"] * 1e-9 for point in points]
        below = [(p["median_ns"] - p["min_ns"]) * 1e-9 for p in points]
        above = [(p["max_ns"] - p["median_ns"]) * 1e-9 for p in points]
        place.errorbar(
            sizes, costs, yerr=[below, above], color=colour, marker="o", markersize=3,
            linewidth=1, capsize=2, label=series,
        )  # fmt: skip  # one thing, a line or two
        place.plot([sizes[0], sizes[-1]], [costs[0]] * 2, color=colour, linestyle="--",
                   linewidth=0.6)  # fmt: skip  # one thing, a line or two
    place.set_xscale("log")
    place.set_yscale("log")
    low, high = place.get_ylim()
    spare = max(0.0, _DECADES_MIN - math.log10(high / low)) / 2
    place.set_ylim(low / 10**spare, high * 10**spare)
    place.yaxis.set_major_formatter(EngFormatter(unit="s", sep=""))
    for axis in (place.xaxis, place.yaxis):
        axis.set_minor_locator(NullLocator())
    place.set_title(group["title"])
    place.set_xlabel(group["axis"])
    place.set_ylabel(f"time per {group['unit']}")
    place.grid(visible=True, which="major", linewidth=0.3)
    place.legend(fontsize=7, frameon=False)
