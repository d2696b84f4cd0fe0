"""What a run of the demo found: counts, whether they are good, and the table that it prints."""

from __future__ import annotations

from typing import NamedTuple

from rich.table import Table
from rich.text import Text

from aolog.errors import one_line

_BETWEEN = (0.2, 0.8)  # of the records: where both faults have to happen


class Result(NamedTuple):
    """What the demo's table shows."""

    input: str
    records: int
    bytes: int
    seconds: float
    records_per_s: float
    lost: int
    repeated: int
    disordered: int
    altered: int
    outage_s: float = 0.0
    outage_at: float = 0.0  # fraction acknowledged then
    outage_pending: int = 0
    kill_at: float = 0.0  # as well
    kill_pending: int = 0
    log: str | None = None

    @property
    def ok(self) -> bool:
        """Nothing missing, repeated, out of order or changed, and both faults happened midway."""
        low, high = _BETWEEN
        midway = low <= self.outage_at <= high and low <= self.kill_at <= high
        return midway and not (self.lost or self.repeated or self.disordered or self.altered)

    @property
    def proved(self) -> str:
        """What a good run has shown, as a sentence."""
        return (
            f"proved: of {self.records:,} records, an outage and a kill lost, repeated, moved or "
            "changed none"
        )


def table(result: Result) -> Table:
    """For people."""
    shown = Table(title="bridge demo", show_header=False, title_justify="left")
    rows = {
        "broker": "librdkafka's mock of Kafka, inside this process",
        "input": result.input,
        "records": f"{result.records:,}",
        "bytes": f"{result.bytes:,}",
        "rate": f"{result.records_per_s:,.0f} records/s, "
        f"{result.bytes / result.seconds / 1e6:.1f} MB/s, faults included",
        "outage survived": f"{result.outage_s} s at {result.outage_at:.0%} acknowledged, "
        f"{result.outage_pending:,} records waited",
        "process killed": f"once, at {result.kill_at:.0%} acknowledged, "
        f"{result.kill_pending:,} records under way",
        "lost": str(result.lost),
        "duplicated": str(result.repeated),
        "out of order": str(result.disordered),
        "altered": str(result.altered),
    }
    if result.log:
        rows["log"] = result.log
    for name, value in rows.items():
        shown.add_row(name, Text(one_line(value)))  # names of files may have brackets
    return shown
