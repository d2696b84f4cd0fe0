"""The demo: the whole path on real input, with everything that it needs in this package.

    lines ► Writer ► log ► (process) bridge run ► embedded broker ► consumer ► comparison
                      └──────────────────────────────────────────────────────────►

Two faults happen while records are appended: the broker goes down and comes back, and the forwarding
process is killed with records under way and starts again. The broker keeps only 5 MiB of each
partition, and the consumer needs what it has not read, the forwarding process what it sent after its
cursor. So the appender is at most a window ahead of both: input of any size works.
"""

from __future__ import annotations

import contextlib
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import click
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from aolog import Reader, Writer, cursors
from aolog.errors import AologError, one_line, to_json
from bridge.cli.console import Console
from bridge.client.received import received
from bridge.kafka.embedded import EmbeddedBroker
from bridge.kafka.fetcher import Fetcher
from bridge.simulate.child import Child
from bridge.simulate.compare import Comparison
from bridge.simulate.sample import Sample, choose

TOPIC = "demo"
PARTITIONS = 4
WINDOW_BYTES = 4 << 20  # less than one partition keeps, if all lines go to one
WINDOW_PART = 0.05  # of the records: so that both faults happen midway
RECORD_OVERHEAD_BYTES = 128  # of a message in addition to its value: key, stamp, framing
OUTAGE_AT, KILL_AT = 0.35, 0.6  # of the records read back
OUTAGE_S = 3.0
_SOON = {"reconnect.backoff.max.ms": "500"}  # after an outage
DOWN_FOR_GOOD_S = 60.0  # the demo gives up after this time without progress
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
    for name, value in rows.items():
        shown.add_row(name, Text(one_line(value)))  # names of files may have brackets
    return shown


class _Demo:
    """One run."""

    def __init__(self, sample: Sample, log: str, console: Console) -> None:
        self.sample = sample
        self.log = log
        self.console = console
        self.comparison = Comparison()
        self.lines = sample.lines()
        self.records = self.bytes = 0  # appended
        self.passed = 0, 0  # by the forwarding process' cursor: address, records
        self.done = self.paused = False
        self.faults: dict[str, Any] = {}  # fields of Result

    def run(self) -> Result:
        sample, compared = self.sample, self.comparison
        begun_s = time.monotonic()
        with ExitStack() as stack:
            broker = stack.enter_context(EmbeddedBroker())
            self.console.print(
                f"embedded broker at {broker.bootstrap_servers}, in this process: no Kafka is needed",
                highlight=False,
                soft_wrap=True,
            )
            broker.create_topic(TOPIC, PARTITIONS)
            self.writer = stack.enter_context(Writer(self.log, flush_seconds=0.05))
            self.reader = stack.enter_context(Reader(self.log))
            self.consumer = Fetcher(broker.bootstrap_servers, _SOON)
            stack.callback(self.consumer.close)
            self.consumer.assign({(TOPIC, partition): 0 for partition in range(PARTITIONS)})
            self.progress = stack.enter_context(self._progress())
            self.bars = [
                self.progress.add_task(name, total=sample.records, words="")
                for name in ("appended", "acknowledged, read back and compared")
            ]
            self.forwarding = self._forwarding(broker)
            stack.callback(lambda: self.forwarding.end())  # noqa: PLW0108 -- the present one
            with contextlib.suppress(TimeoutError):  # the table shows what is missing
                self._until(lambda: self._fraction() >= OUTAGE_AT)
                self._outage(broker)
                self._until(lambda: self._fraction() >= KILL_AT)
                self._kill(broker)
                self._until(lambda: self.done and self._settled())
            self._show()
        seconds = time.monotonic() - begun_s
        return Result(
            input=f"{sample.what}, {sample.times} times" if sample.times > 1 else sample.what,
            records=self.records,
            bytes=self.bytes,
            seconds=round(seconds, 1),
            records_per_s=round(self.records / seconds),
            lost=compared.missing,
            repeated=compared.repeated,
            disordered=compared.disordered + compared.strangers,
            altered=compared.altered,
            **self.faults,
        )

    def _forwarding(self, broker: EmbeddedBroker) -> Child:
        return Child(
            [sys.executable, "-m", "bridge", "run", "--log", self.log, "--topic", TOPIC,
             "--bootstrap-servers", broker.bootstrap_servers, "--commit-seconds", "0.1", "--json"]
        )  # fmt: skip  # a command line

    # --- the two faults -----------------------------------------------------------------------

    def _outage(self, broker: EmbeddedBroker) -> None:
        # Unlike Kafka, the embedded broker does not recognise a request that is sent again after its
        # answer was lost. So it goes down between requests.
        self.paused = True
        self._until(self._settled)
        at, down_s = self._fraction(), time.monotonic()
        broker.set_down()
        self.paused = False
        self._say(f"broker down at {at:.0%} acknowledged: records wait in the log")
        self._until(lambda: time.monotonic() - down_s >= OUTAGE_S)
        waiting = self._pending()
        broker.set_up()
        self._until_more()
        lasted_s = round(time.monotonic() - down_s, 1)
        self.faults |= {"outage_at": round(at, 3), "outage_s": lasted_s, "outage_pending": waiting}
        self._say(
            f"broker back: {waiting:,} records had waited, delivery goes on {lasted_s} s after it went down"
        )

    def _kill(self, broker: EmbeddedBroker) -> None:
        at = self._fraction()
        self.faults |= {"kill_at": round(at, 3), "kill_pending": self._pending()}
        self.forwarding.end()
        self._say(f"forwarding process killed (SIGKILL) at {at:.0%} acknowledged")
        self.forwarding = self._forwarding(broker)
        self._until_more()
        self._say("and started again: it reads back what arrived, and sends the rest")

    # --- going on -----------------------------------------------------------------------------

    def _fraction(self) -> float:
        return self.comparison.matched / self.sample.records

    def _pending(self) -> int:
        return self.records - self.comparison.matched

    def _settled(self) -> bool:
        return self._pending() <= 0

    def _until_more(self) -> None:
        """Until something more has arrived."""
        before = self.comparison.matched
        self._until(lambda: self.comparison.matched > before)

    def _until(self, reached: Callable[[], bool]) -> None:
        """Appends, consumes and compares until `reached`. Raises TimeoutError if nothing moves for a minute."""
        last_s, last = time.monotonic(), -1
        while not reached():
            self._step()
            now = self.comparison.matched + self.records
            if now != last:
                last_s, last = time.monotonic(), now
            elif time.monotonic() - last_s > DOWN_FOR_GOOD_S:
                raise TimeoutError

    def _step(self) -> None:
        if not (self.done or self.paused):
            self._append()
        messages = self.consumer.fetch(5_000, 0.02).messages
        while (batch := self.reader.read_batch(1 << 20)) is not None:
            self.comparison.appended(batch)
        self.comparison.arrived(map(received, messages))  # what arrived was in the log before
        if self.forwarding.is_over:
            why = self.forwarding.last.get("error") or "it reported no error"
            raise AologError(f"the forwarding process ended: {why}")
        self._show()

    def _append(self) -> None:
        """The next lines of the sample, at most a window ahead of what was read back, and of the cursor."""
        for cursor in cursors(self.log) if self.records else ():
            self.passed = cursor.address, cursor.ordinal or 0
        while not self._is_ahead():
            line = next(self.lines, None)
            if line is None:
                self.done = True
                break
            key, value = line
            self.writer.append(value, key=key)
            self.records += 1
            self.bytes += len(value)
        self.writer.flush()

    def _is_ahead(self) -> bool:
        records = self._pending()
        size = self.bytes - self.comparison.bytes + records * RECORD_OVERHEAD_BYTES
        address, ordinal = self.passed
        kept = self.writer.end - address + (self.records - ordinal) * RECORD_OVERHEAD_BYTES
        return max(size, kept) > WINDOW_BYTES or records > self.sample.records * WINDOW_PART

    # --- showing ------------------------------------------------------------------------------

    def _progress(self) -> Progress:
        return Progress(
            TextColumn("{task.description:>36}"),
            BarColumn(),
            TextColumn("{task.completed:>11,.0f} {task.fields[words]}"),
            TimeElapsedColumn(),
            console=self.console,
            disable=not self.console.is_terminal,
        )

    def _show(self) -> None:
        appended, compared = self.bars
        self.progress.update(appended, completed=self.records, words=f"{self._pending():,} pending")
        self.progress.update(compared, completed=self.comparison.matched)

    def _say(self, words: str) -> None:
        self.progress.console.print(
            f"[dim]{self._fraction():>4.0%}[/] {words}", highlight=False, soft_wrap=True
        )


def run_demo(files: Sequence[str], *, as_json: bool = False) -> int:
    """Runs the demo and prints a table or JSON. Returns the exit status."""
    console = Console(stderr=as_json)
    sample = choose(files)
    if sample.times > 1:
        small = f"{sample.what} is too small: it is appended {sample.times} times"
        console.print(Text(one_line(small)), soft_wrap=True)
    with tempfile.TemporaryDirectory(prefix="aolog-demo-", ignore_cleanup_errors=True) as directory:
        result = _Demo(sample, str(Path(directory, "log")), console).run()
    if as_json:
        click.echo(to_json({**result._asdict(), "ok": result.ok}))
    else:
        console.print(table(result))
        console.print(
            f"[bold]{result.proved}[/]" if result.ok else "[bold red]failed: see the table[/]",
            highlight=False,
            soft_wrap=True,
        )
    return 0 if result.ok else 1
