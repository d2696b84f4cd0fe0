"""The results of a run, as a table for people and as JSON for programs. Pure."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bench.measure import Group, Measured

__all__ = ["as_json", "head", "machine_lines", "table"]

_LEGEND = """\
Medians of wall-clock times. MB: 10^6 bytes of values. x: median of the rounds' ratios to the row
with a star; below 1 is faster. stored: bytes on disk for each record. fdatasyncs: for each record.
on return: "OS": in the page cache, where a crash of the process leaves it. A contender with fewer
records is compared by the record."""
_TEXT = {"", "on return", "checksum"}  # columns of words; all others are figures


def head(machine: dict[str, object]) -> str:
    """The machine, in lines, and the legend of the tables."""
    return f"{machine_lines(machine)}\n{_LEGEND}"


def machine_lines(machine: dict[str, object]) -> str:
    """The machine and what is installed."""
    versions = machine["versions"]
    assert isinstance(versions, dict)
    packages = ", ".join(f"{name} {version}" for name, version in versions.items())
    return (
        f"{machine['date']}, {machine['cpu']}, {machine['cores']} cores, load {machine['load']}, "
        f"{machine['memory_gb']} GB, {machine['system']}\n"
        f"{machine['python']}, aolog.backend {machine['backend']}, {packages}\n"
        f"{machine['directory']}: {machine['file_system']}"
    )


def table(group: Group, measured: Sequence[Measured], rounds: int) -> str:
    """A group as an aligned table with starred baselines; below it skipped contenders and notes."""
    skipped = [f"    {one.name}: {one.reason}" for one in group.skipped]
    if not measured:
        return "\n".join([f"{group.title}: not measured", *skipped])
    by_name = {one.contender.name: one for one in measured}
    baselines = [by_name[name] for name in group.baselines if name in by_name]
    heads = ["", f"ns/{group.unit}", "MB/s", *[f"x {one.contender.name}" for one in baselines]]
    heads += ["min - max", "cpu ns", "fdatasyncs", "stored", "on return", "checksum"]
    rows = [heads, *[_row(group, one, baselines) for one in measured]]
    columns = [column for column in zip(*rows, strict=True) if set(column[1:]) != {"-"}]
    rows = [list(row) for row in zip(*columns, strict=True)]
    widths = [max(map(len, column)) for column in columns]
    records = max(one.contender.records for one in measured)
    rounds = group.rounds or rounds
    lines = [f"{group.title}: {records:,} {group.unit}s, {rounds} rounds", f"timed: {group.timed}"]
    for row in rows:
        cells = [
            cell.ljust(width) if head in _TEXT else cell.rjust(width)
            for head, cell, width in zip(rows[0], row, widths, strict=True)
        ]
        lines.append("  ".join(cells).rstrip())
    lines += skipped
    lines += [
        f"    {one.contender.name}: {one.contender.note}" for one in measured if one.contender.note
    ]
    return "\n".join(lines)


def _row(group: Group, one: Measured, baselines: Sequence[Measured]) -> list[str]:
    contender = one.contender
    star = " *" if any(one is baseline for baseline in baselines) else ""
    return [
        contender.name + star,
        _figure(one.median_ns),
        _figure(_mb_per_s(group, one)) if group.record_bytes else "-",
        *[_figure(one.ratio_to(baseline), places=2) for baseline in baselines],
        f"{_figure(min(one.wall_ns))} - {_figure(max(one.wall_ns))}",
        _figure(one.median_cpu_ns),
        f"{statistics.median(one.fdatasyncs):.2f}" if one.fdatasyncs else "-",
        f"{one.stored_bytes / contender.records:.1f}" if one.stored_bytes else "-",
        contender.promise.survives,
        contender.promise.checksum,
    ]


def _figure(value: float, places: int = 1) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:.{places}f}"


def _mb_per_s(group: Group, one: Measured) -> float:
    return group.record_bytes / one.median_ns * 1e3


def as_json(group: Group, measured: Sequence[Measured], rounds: int) -> dict[str, object]:
    """A group with every time that was taken."""
    by_name = {one.contender.name: one for one in measured}
    baselines = [name for name in group.baselines if name in by_name]
    return {
        "case": group.case,
        "title": group.title,
        "timed": group.timed,
        "record_bytes": group.record_bytes,
        "batch_bytes": group.batch_bytes,
        "rounds": group.rounds or rounds,
        "unit": group.unit,
        "axis": group.axis,
        "baselines": baselines,
        "skipped": {skipped.name: skipped.reason for skipped in group.skipped},
        "results": [
            {
                "name": one.contender.name,
                "survives": one.contender.promise.survives,
                "checksum": one.contender.promise.checksum,
                "note": one.contender.note,
                "records": one.contender.records,
                "digest": one.digest,
                "expected_digest": one.contender.expected.digest,
                "stored_bytes": one.stored_bytes,
                "fdatasyncs": one.fdatasyncs,
                "median_ns": one.median_ns,
                "min_ns": min(one.wall_ns),
                "max_ns": max(one.wall_ns),
                "median_cpu_ns": one.median_cpu_ns,
                "mb_per_s": round(_mb_per_s(group, one), 2),
                "series": one.contender.series,
                "at": one.contender.at,
                "ratios": {name: round(one.ratio_to(by_name[name]), 4) for name in baselines},
                "ratios_of_rounds": {
                    name: [round(ratio, 4) for ratio in one.ratios_to(by_name[name])]
                    for name in baselines
                },
                "wall_ns": one.wall_ns,
                "cpu_ns": one.cpu_ns,
            }
            for one in measured
        ],
    }
