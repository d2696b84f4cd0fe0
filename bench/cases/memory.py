"""memory: what an import costs, and how much a writer and readers of a long log hold.

Each figure is of a fresh process. Resident bytes are the kernel's count: above a bare Python for the
import, above the same process before its first call for the others. The peak is read after a quarter of
the log and at its end: bounded memory does not grow in between.
"""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from bench import child
from bench.panel import Panel, Probe, Unavailable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bench.cases.plan import Plan

__all__ = ["groups"]

CPU_MS, WALL_MS, RSS_MB = "CPU ms", "wall ms", "resident MB"
QUARTER_MB, PEAK_MB = "peak MB at a quarter", "peak MB"
_IMPORT_MS_MAX, _IMPORT_MB_MAX = 40.0, 15.0  # above bare Python, with Reader and Writer
_HELD_MB_MAX = 8.0  # a few batches, some that is read at once, and what the allocator keeps
_VALUE_BYTES = 100

_STATUS = """
def status(name):
    with open("/proc/self/status") as file:
        for line in file:
            if line.startswith(name):
                return int(line.split()[1]) / 1e3  # KiB to MB, near enough
    raise SystemExit("no " + name)
"""
_IMPORT = (
    _STATUS
    + """
import sys
exec(sys.argv[1])
import time
print('{"cpu_ms": %f, "rss_mb": %f}' % (time.process_time() * 1e3, status("VmRSS")))
"""
)
_WORK = (
    _STATUS
    + """
import sys, aolog
what, path, records = sys.argv[1], sys.argv[2], int(sys.argv[3])
value, done, quarter = bytes(100), 0, 0.0

def passed(count):
    global done, quarter
    done += count
    if not quarter and done >= records / 4:
        quarter = status("VmHWM")

def append():
    with aolog.Writer(path) as log:
        for _ in range(records // 1000):
            for _ in range(1000):
                log.append(value)
            passed(1000)

def iterate():
    with aolog.Reader(path, strict=True) as reader:
        for i, record in enumerate(reader):
            if i % 1000 == 999:
                passed(1000)

def batches():
    with aolog.Reader(path, strict=True) as reader:
        while (batch := reader.read_batch()) is not None:
            passed(len(batch))

def verify():
    report = aolog.verify(path)
    assert report.ok
    passed(report.records)

if what == "batches":
    import numpy
aolog.Writer, aolog.Reader, aolog.verify  # imported here, not in what is measured
before = status("VmRSS")
globals()[what]()
assert done == records, (done, records)
print('{"quarter": %f, "peak": %f}' % (quarter - before, status("VmHWM") - before))
"""
)


def groups(plan: Plan) -> Iterator[Panel]:
    with plan.fixture() as directory:
        cache = str(Path(directory, "bytecode"))
        yield Panel(
            "memory",
            "imports",
            "each round a bare process and one that imports, bytecode cached; their difference",
            [_import_probe("import aolog", cache, targets=True),
             _import_probe("from aolog import Reader", cache, targets=True),
             _import_probe("from aolog import Reader, Writer", cache, targets=True),
             _import_probe("import numpy", cache, targets=False)],
            rounds=plan.size.imports,
        )  # fmt: skip  # a table
        records = max(1000, plan.size.memory_bytes // _VALUE_BYTES // 1000 * 1000)
        path = str(Path(directory, "log"))
        probes = [
            Probe("append", partial(_held, "append", str(Path(directory, "new")), records, cache),
                  {PEAK_MB: _HELD_MB_MAX}, "a Writer with its defaults"),
            Probe("iterate", partial(_held, "iterate", path, records, cache),
                  {PEAK_MB: _HELD_MB_MAX}),
            Probe("read_batch", partial(_held, "batches", path, records, cache),
                  {PEAK_MB: _HELD_MB_MAX}, "beside numpy itself"),
            Probe("verify", partial(_held, "verify", path, records, cache),
                  {PEAK_MB: _HELD_MB_MAX}, "numpy included, which it imports"),
        ]  # fmt: skip  # a table
        _held("append", path, records, cache)
        yield Panel(
            "memory",
            f"held above the start, {records * _VALUE_BYTES / 1e6:,.0f} MB of "
            f"{_VALUE_BYTES}-byte records",
            "peak of the resident bytes of a fresh process (VmHWM), less those before",
            probes,
            rounds=plan.size.memory_rounds,
        )


def _import_probe(statement: str, cache: str, *, targets: bool) -> Probe:
    most = {CPU_MS: _IMPORT_MS_MAX, WALL_MS: _IMPORT_MS_MAX, RSS_MB: _IMPORT_MB_MAX}
    note = "" if targets else "for comparison"
    return Probe(statement, partial(_import, statement, cache), most if targets else {}, note)


def _import(statement: str, cache: str) -> dict[str, float]:
    figures = [_started("", cache), _started(statement, cache)]
    return {figure: figures[1][figure] - figures[0][figure] for figure in figures[0]}


def _started(statement: str, cache: str) -> dict[str, float]:
    _require_proc()
    began = time.perf_counter()
    told = child.run(_IMPORT, statement, cache=cache)
    wall_ms = (time.perf_counter() - began) * 1e3
    return {CPU_MS: told["cpu_ms"], WALL_MS: wall_ms, RSS_MB: told["rss_mb"]}


def _held(what: str, path: str, records: int, cache: str) -> dict[str, float]:
    _require_proc()
    told = child.run(_WORK, what, path, str(records), cache=cache)
    if what == "append" and path.endswith("new"):
        for file in Path(path).iterdir():
            file.unlink()
        Path(path).rmdir()
    figures = {PEAK_MB: told["peak"]}
    return figures if what == "verify" else {QUARTER_MB: told["quarter"], **figures}


def _require_proc() -> None:
    if not Path("/proc/self/status").exists():
        raise Unavailable("no /proc here to read resident bytes from")
