"""Published figures as Markdown: RESULTS.md, and the table in the README between two markers. Only
`write_page` and `write_readme` touch files.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.plot import axes_of, file_name
from bench.quick import ROWS

if TYPE_CHECKING:
    from collections.abc import Collection

    from bench.results import Document

__all__ = ["BEGIN", "END", "between", "page", "readme", "write_page", "write_readme"]

BEGIN = "<!-- figures begin: made by python -m bench, from bench/results -->"
END = "<!-- figures end -->"
_COLUMNS = {"append": "append", "append_many": "`append_many` of 1000", "read": "iterate"}
_TO = "msgpack"
_BUSY = (
    " **The machine was busy with other work**: times are too long, ratios rough; only memory and "
    "instructions are to be believed."
)
_RECORD_BYTES = 100

_PAGE = """\
# Results

Made by `python -m bench --publish`, from `bench/results/`. How it is measured, and how to measure it
again: [the README](../README.md#performance). Compare within a column only.
"""


def page(found: Document) -> str:
    """RESULTS.md."""
    parts = [
        _PAGE.strip(), heading(found), _contenders(found), _deliveries(found), _targets(found),
        _panels(found), _plots(found),
    ]  # fmt: skip  # in this order
    return "\n\n".join(part for part in parts if part) + "\n"


def readme(found: Document) -> str:
    """What the README has between the markers: few rows, and where they were measured."""
    machines = [run["machine"] for run in found["runs"] if set(run["cases"]) & set(_COLUMNS)]
    where = dict.fromkeys(
        f"{one['date'][:10]}, {one['cpu']}, {one['cores']} cores, {one['python']}"
        for one in machines
    )
    busy = _BUSY if any(map(_is_busy, machines)) else ""
    return f"{_contenders(found, ROWS)}\n\nMeasured {'; '.join(where)}.{busy}"


def write_page(path: str, found: Document) -> None:
    Path(path).write_text(page(found), encoding="utf-8")


def between(text: str) -> str:
    """What a file has between the markers."""
    _, _, rest = text.partition(BEGIN)
    inside, end, _ = rest.partition(END)
    if not end:
        raise ValueError(f"no {BEGIN} and {END} in order")
    return inside.strip()


def write_readme(path: str, found: Document) -> None:
    """Puts the figures between the file's markers."""
    text = Path(path).read_text(encoding="utf-8")
    between(text)
    before, _, rest = text.partition(BEGIN)
    after = rest.partition(END)[2]
    Path(path).write_text(f"{before}{BEGIN}\n{readme(found)}\n{END}{after}", encoding="utf-8")


def heading(found: Document) -> str:
    """The machine of each run, with its cases if there are several runs."""
    runs = found["runs"]
    return "\n\n".join(_run(run, named=len(runs) > 1) for run in runs)


def _run(run: dict[str, Any], *, named: bool) -> str:
    machine = run["machine"]
    versions = machine["versions"]
    peers = ", ".join(
        f"{name} {version}" for name, version in versions.items() if name not in {"aolog", "numpy"}
    )
    what = ", ".join(f"`{case}`" for case in run["cases"]) + ": measured" if named else "Measured"
    return (
        f"{what} {machine['date'][:10]} on {machine['cpu']}, {machine['cores']} cores, "
        f"{machine['memory_gb']:.0f} GB, {machine['system']}, {machine['file_system']}; "
        f"{machine['python']}, aolog {versions['aolog']} ({machine['backend']}); {peers}. "
        f"Load average at the start: {machine['load']}." + (_BUSY if _is_busy(machine) else "")
    )


def _is_busy(machine: dict[str, Any]) -> bool:
    return bool(machine["load"] > (machine["cores"] or 1) / 2)


def _contenders(found: Document, names: Collection[str] | None = None) -> str:
    """A row for each contender, or for these, with its figure in each case."""
    groups = {
        group["case"]: group
        for group in reversed(found["groups"])
        if group["case"] in _COLUMNS and group["record_bytes"] == _RECORD_BYTES
    }
    cases = [case for case in _COLUMNS if case in groups]
    if not cases:
        return ""
    rows: dict[str, dict[str, dict[str, Any]]] = {}
    for case in cases:
        for result in groups[case]["results"]:
            if names is None or result["name"] in names:
                rows.setdefault(result["name"], {})[case] = result
    lines = [
        "| | " + " | ".join(_COLUMNS[case] for case in cases) + " | survives | checksum |",
        "|---" * (len(cases) + 3) + "|",
    ]
    order = sorted(rows, key=lambda name: (not name.startswith("aolog"), _least(rows[name])))
    for name in order:
        row = rows[name]
        cells = [_cell(row.get(case)) for case in cases]
        # a reader promises nothing: what survives is said of who appends
        one = row.get("append") or row.get("append_many") or next(iter(row.values()))
        shown = f"**{name}**" if name == "aolog" else name
        lines.append(f"| {shown} | {' | '.join(cells)} | {one['survives']} | {one['checksum']} |")
    skipped = groups[cases[0]]["skipped"]
    lines += [
        f"| {name} |{' - |' * len(cases)} {why} | |"
        for name, why in skipped.items()
        if names is None or name in names
    ]
    rounds = groups[cases[0]]["rounds"]
    return (
        f"Nanoseconds for a {_RECORD_BYTES}-byte record, medians of {rounds} rounds. In brackets: the ratio "
        f"to a {_TO} stream, median of the rounds. *Survives*: what the records are safe from when the "
        "timed part ends; OS: a crash of the process."
        + ("" if names else " Records are values only, except in the rows of *full records*.")
        + "\n\n"
        + "\n".join(lines)
    )


def _least(row: dict[str, dict[str, Any]]) -> float:
    return min(float(result["median_ns"]) for result in row.values())


def _cell(result: dict[str, Any] | None) -> str:
    if result is None:
        return "-"
    ratio = result["ratios"].get(_TO)
    return f"{result['median_ns']:,.0f}" + (f" ({_ratio(ratio)})" if ratio is not None else "")


def _ratio(value: float) -> str:
    return f"{value:.2f}" if value < 10 else f"{value:,.0f}"


def _deliveries(found: Document) -> str:
    """A row for each way to send records to Kafka, a column for each cluster."""
    groups = [group for group in found["groups"] if group["case"] == "delivery"]
    if not groups:
        return ""
    names = list(dict.fromkeys(one["name"] for group in groups for one in group["results"]))
    lines = [
        f"| | {' | '.join(group['title'] for group in groups)} |",
        "|---" * (len(groups) + 1) + "|",
    ]
    for name in names:
        cells = [_rate(group, name) for group in groups]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return (
        f"Records a second until the cluster has acknowledged the last, medians of "
        f"{groups[0]['rounds']} rounds; in brackets the share of what {groups[0]['baselines'][0]} "
        "reaches. The asynchronous ways lose what waits in memory if the program dies; the log and "
        "Buffer's `always` keep what was flushed.\n\n" + "\n".join(lines)
    )


def _rate(group: dict[str, Any], name: str) -> str:
    for one in group["results"]:
        if one["name"] == name:
            (ratio,) = one["ratios"].values()
            return f"{1e9 / one['median_ns']:,.0f} ({1 / ratio:.{2 if ratio < 20 else 3}f})"
    return "-"


def _targets(found: Document) -> str:
    told = [one for one in found["targets"] if one["case"] != "scale"]
    if not told:
        return ""
    lines = ["| as a multiple | measured | at most |", "|---|---|---|"]
    for one in told:
        ratio = f"{one['ratio']:.2f}"
        shown = ratio if one["holds"] else f"**{ratio}, missed**"
        lines.append(f"| {one['group']}: {one['what']} | {shown} | {one['ratio_max']:.3g} |")
    return "\n".join(lines)


def _panels(found: Document) -> str:
    """A table for each panel, with a row for each probe and a column for each figure."""
    return "\n\n".join(_panel(panel) for panel in found["panels"])


def _panel(panel: dict[str, Any]) -> str:
    names = list(dict.fromkeys(name for probe in panel["probes"] for name in probe["figures"]))
    lines = [f"| {panel['title']} | {' | '.join(names)} |", "|---" * (len(names) + 1) + "|"]
    for probe in panel["probes"]:
        cells = [_bounded(probe["figures"].get(name)) for name in names]
        lines.append(f"| {probe['name']} | {' | '.join(cells)} |")
    lines += [f"| {name} | {why}{' |' * len(names)}" for name, why in panel["skipped"].items()]
    return "\n".join(lines)


def _bounded(figure: dict[str, Any] | None) -> str:
    """A figure and its bound."""
    if figure is None:
        return ""
    median, bound = figure["median"], figure["at_most"]
    value = f"{median:,.{0 if median >= 100 else 1}f}"
    if bound is None:
        return value
    return f"{value if median <= bound else f'**{value}, missed**'} (at most {bound:g})"


def _plots(found: Document) -> str:
    axes = axes_of(found)
    if not axes:
        return ""
    scale = [one for one in found["targets"] if one["case"] == "scale"]
    bad = [one for one in scale if not one["holds"]]
    told = f"Of {len(scale)} bounds on growth {len(scale) - len(bad)} hold." if scale else ""
    lines = [f"The same work as a log grows; dashed is flat. {told}".strip()]
    lines += [
        f"- missed: {one['group']}: {one['what']}: {one['ratio']:.2f}, at most {one['ratio_max']:g}"
        for one in bad
    ]
    images = "\n".join(f"![Cost by {axis}](plots/{file_name(axis)})" for axis in axes)
    return "\n".join(lines) + "\n\n" + images
