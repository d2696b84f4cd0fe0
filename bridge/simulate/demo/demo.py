"""The demo: the whole path on real input, with everything that it needs in this package.

    lines ► Writer ► log ► (process) bridge run ► embedded broker ► consumer ► comparison
                      └──────────────────────────────────────────────────────────►

Two faults happen while records are appended: the broker goes down and comes back, and the forwarding
process is killed with records under way and starts again. The broker keeps only 5 MiB of each
partition. So the consumer reads all the time, and the appender is at most a window ahead of it: input
of any size works.
"""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.text import Text

from aolog import Reader, Writer
from aolog.errors import AologError, UsageError, one_line, to_json
from bridge.cli.console import Console
from bridge.client.received import received
from bridge.kafka.embedded import EmbeddedBroker
from bridge.kafka.fetcher import Fetcher
from bridge.simulate.demo.compare import Comparison
from bridge.simulate.demo.result import Result, table
from bridge.simulate.demo.sample import Sample, choose

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

TOPIC = "demo"
PARTITIONS = 4
WINDOW_BYTES = 4 << 20  # less than one partition keeps, if all lines go to one
WINDOW_PART = 0.05  # of the records: so that both faults happen midway
RECORD_OVERHEAD_BYTES = 128  # of a message in addition to its value: key, stamp, framing
OUTAGE_AT, KILL_AT = 0.35, 0.6  # of the records read back
OUTAGE_S = 3.0
_SOON = {"reconnect.backoff.max.ms": "500"}  # after an outage
DOWN_FOR_GOOD_S = 60.0  # the demo gives up after this time without progress


class _Stalled(AologError):
    """The demo made no progress for a minute."""

    code = "stalled"


class _Forwarding:
    """The forwarding process."""

    def __init__(self, log: str, bootstrap_servers: str) -> None:
        self._command = [
            sys.executable, "-m", "bridge", "run", "--log", log, "--topic", TOPIC,
            "--bootstrap-servers", bootstrap_servers,
        ]  # fmt: skip  # a command line
        self._process: subprocess.Popen[bytes] | None = None
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115 -- closed in `end`

    def start(self) -> None:
        self._process = subprocess.Popen(self._command, stderr=self._errors)

    def check(self) -> None:
        """Raises if the process ended by itself."""
        if self._process is not None and self._process.poll() is not None:
            self._errors.seek(0)
            lines = self._errors.read().strip().splitlines()
            raise AologError(
                f"the forwarding process ended with {self._process.returncode}: "
                f"{lines[-1] if lines else 'it printed no error'}"
            )

    def kill(self) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def end(self) -> None:
        """Stops it, with SIGTERM first."""
        if self._process is not None:
            self._process.terminate()
            try:
                self._process.wait(10)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        self._errors.close()


class _Appender(threading.Thread):
    """Appends the sample, at most a window ahead of what was read back."""

    def __init__(self, writer: Writer, sample: Sample) -> None:
        super().__init__(name="demo-appender", daemon=True)
        self._writer = writer
        self._sample = sample
        self.records = 0
        self.bytes = 0
        self.read_back_bytes = 0
        self.read_back_records = 0
        self.paused = threading.Event()
        self.stopped = False
        self.done = False
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            for key, value in self._sample.lines():
                while self.paused.is_set() or self._is_ahead():
                    self._writer.flush()
                    time.sleep(0.002)
                    if self.stopped:
                        return
                self._writer.append(value, key=key)
                self.records += 1
                self.bytes += len(value)
            self._writer.sync()
        except BaseException as error:  # noqa: BLE001 -- the demo's own thread raises it
            self.error = error
        finally:
            self.done = True

    def _is_ahead(self) -> bool:
        records = self.records - self.read_back_records
        size = self.bytes - self.read_back_bytes + records * RECORD_OVERHEAD_BYTES
        return size > WINDOW_BYTES or records > self._sample.records * WINDOW_PART


class _Demo:
    """One run."""

    def __init__(self, sample: Sample, log: str, console: Console) -> None:
        self.sample = sample
        self.log = log
        self.console = console
        self.outage_at = self.kill_at = 0.0
        self.outage_s = 0.0
        self.outage_pending = self.kill_pending = 0

    def run(self) -> Result:
        sample = self.sample
        begun_s = time.monotonic()
        with ExitStack() as stack:
            broker = stack.enter_context(EmbeddedBroker())
            self.console.print(
                f"embedded broker at {broker.bootstrap_servers}, in this process: no Kafka is needed",
                highlight=False,
                soft_wrap=True,
            )
            broker.create_topic(TOPIC, PARTITIONS)
            writer = stack.enter_context(Writer(self.log, flush_seconds=0.05))
            self.reader = stack.enter_context(Reader(self.log))
            self.consumer = Fetcher(broker.bootstrap_servers, _SOON)
            stack.callback(self.consumer.close)
            self.consumer.assign({(TOPIC, partition): 0 for partition in range(PARTITIONS)})
            self.forwarding = _Forwarding(self.log, broker.bootstrap_servers)
            stack.callback(self.forwarding.end)
            self.comparison = Comparison()
            self.appender = _Appender(writer, sample)
            self.progress = stack.enter_context(self._progress())
            self.bars = [
                self.progress.add_task(name, total=sample.records, words="")
                for name in ("appended", "acknowledged, read back and compared")
            ]
            self.forwarding.start()
            self.appender.start()
            stack.callback(self._stop_appender)
            with contextlib.suppress(_Stalled):  # the table shows what is missing
                self._until(lambda: self._fraction() >= OUTAGE_AT)
                self._outage(broker)
                self._until(lambda: self._fraction() >= KILL_AT)
                self._kill()
                self._until(lambda: self.appender.done and self._settled())
            self._show()
        compared = self.comparison
        seconds = time.monotonic() - begun_s
        return Result(
            input=f"{sample.what}, {sample.times} times" if sample.times > 1 else sample.what,
            records=self.appender.records,
            bytes=self.appender.bytes,
            seconds=round(seconds, 1),
            records_per_s=round(self.appender.records / seconds),
            outage_s=round(self.outage_s, 1),
            outage_at=round(self.outage_at, 3),
            outage_pending=self.outage_pending,
            kill_at=round(self.kill_at, 3),
            kill_pending=self.kill_pending,
            lost=compared.missing,
            repeated=compared.repeated,
            disordered=compared.disordered + compared.strangers,
            altered=compared.altered,
            log=None,
        )

    # --- the two faults -----------------------------------------------------------------------

    def _outage(self, broker: EmbeddedBroker) -> None:
        # Unlike Kafka, the embedded broker does not recognise a request that is sent again after its
        # answer was lost. So it goes down between requests.
        self.appender.paused.set()
        self._until(self._settled)
        self.outage_at = self._fraction()
        broker.set_down()
        down_s = time.monotonic()
        self.appender.paused.clear()
        self._say(f"broker down at {self.outage_at:.0%} acknowledged: records wait in the log")
        self._until(lambda: time.monotonic() - down_s >= OUTAGE_S, progress=False)
        self.outage_pending = self.appender.records - self.comparison.matched
        broker.set_up()
        before = self.comparison.matched
        self._until(lambda: self.comparison.matched > before)
        self.outage_s = time.monotonic() - down_s
        self._say(
            f"broker back: {self.outage_pending:,} records had waited, delivery goes on "
            f"{self.outage_s:.1f} s after it went down"
        )

    def _kill(self) -> None:
        self.kill_at = self._fraction()
        self.kill_pending = self.appender.records - self.comparison.matched
        self.forwarding.kill()
        self._say(f"forwarding process killed (SIGKILL) at {self.kill_at:.0%} acknowledged")
        self.forwarding.start()
        before = self.comparison.matched
        self._until(lambda: self.comparison.matched > before)
        self._say("and started again: it reads back what arrived, and sends the rest")

    # --- going on -----------------------------------------------------------------------------

    def _fraction(self) -> float:
        return self.comparison.matched / self.sample.records

    def _settled(self) -> bool:
        return self.comparison.matched >= self.appender.records

    def _until(self, reached: Callable[[], bool], *, progress: bool = True) -> None:
        """Consumes and compares until `reached`. Raises if nothing moves for a minute."""
        last_s, last = time.monotonic(), -1
        while not reached():
            self._step()
            now = self.comparison.matched + self.appender.records
            if now != last:
                last_s, last = time.monotonic(), now
            elif progress and time.monotonic() - last_s > DOWN_FOR_GOOD_S:
                raise _Stalled(f"nothing moved for {DOWN_FOR_GOOD_S:.0f} s")

    def _step(self) -> None:
        compared, appender = self.comparison, self.appender
        messages = self.consumer.fetch(5_000, 0.02).messages
        while (batch := self.reader.read_batch(1 << 20)) is not None:
            compared.appended(batch)
        compared.arrived(map(received, messages))  # what arrived was in the log before
        appender.read_back_bytes = compared.bytes
        appender.read_back_records = compared.matched
        self.forwarding.check()
        if appender.error is not None:
            raise appender.error
        self._show()

    def _stop_appender(self) -> None:
        self.appender.stopped = True
        self.appender.join(10)

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
        waiting = self.appender.records - self.comparison.matched
        appended, compared = self.bars
        self.progress.update(
            appended, completed=self.appender.records, words=f"{waiting:,} pending"
        )
        self.progress.update(compared, completed=self.comparison.matched)

    def _say(self, words: str) -> None:
        self.progress.console.print(
            f"[dim]{self._fraction():>4.0%}[/] {words}", highlight=False, soft_wrap=True
        )


def run_demo(files: Sequence[str], *, as_json: bool = False, keep: str | None = None) -> int:
    """Runs the demo and prints a table or JSON. Returns the exit status."""
    console = Console(stderr=as_json)
    sample = choose(files)
    if sample.times > 1:
        small = f"{sample.what} is too small: it is appended {sample.times} times"
        console.print(Text(one_line(small)), soft_wrap=True)
    if keep is not None and Path(keep).exists() and any(Path(keep).iterdir()):
        raise UsageError(f"{keep} is not empty", hint="name a new directory for --keep")
    directory = keep or tempfile.mkdtemp(prefix="aolog-demo-")
    log = str(Path(directory) / "log")
    try:
        result = _Demo(sample, log, console).run()
    finally:
        if keep is None:
            shutil.rmtree(directory, ignore_errors=True)
    result = result._replace(log=log if keep else None)
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
