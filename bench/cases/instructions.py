"""instructions: the processor's instructions for each record, counted by callgrind.

On a shared machine, times cannot show a difference of ten percent between two contenders. Executed
instructions can be counted exactly. They are no time: the kernel's work and the cost of memory are not in
them. Each subject runs with n and with 2n records; the difference has no start-up.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from bench import child
from bench.measure import Wrong
from bench.panel import Panel, Probe, Unavailable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bench.cases.plan import Plan

__all__ = ["groups"]

A_RECORD = "instructions a record"
_VALUES = "values = [bytes([i % 256]) * 100 for i in range(1000)]\n"
_READ = "read = sum(len(value) for value in found)\nassert read == 100_000 * n, read\n"
_APPEND_AOLOG = (
    "import sys, aolog\nn, path = int(sys.argv[1]), sys.argv[2]\n"
    + _VALUES
    + "log = aolog.Writer(path, sync='never')\nappend = log.append\n"
    "for _ in range(n):\n    for value in values:\n        append(value)\n"
    "log.close()\n"
)
_APPEND_MSGPACK = (
    "import sys, msgpack\nn, path = int(sys.argv[1]), sys.argv[2]\n"
    + _VALUES
    + "file = open(path, 'wb', buffering=65536)\nwrite, pack = file.write, msgpack.Packer().pack\n"
    "for _ in range(n):\n    for value in values:\n        write(pack(value))\n"
    "file.close()\n"
)
_READ_AOLOG = (
    "import sys, aolog\nn, path = int(sys.argv[1]), sys.argv[2]\n"
    "reader = aolog.Reader(path, strict=True)\n"
    "found = (record.value for record in reader)\n" + _READ
)
_READ_MSGPACK = (
    "import sys, msgpack\nn, path = int(sys.argv[1]), sys.argv[2]\n"
    "file = open(path, 'rb', buffering=0)\n"
    "found = msgpack.Unpacker(file, read_size=1 << 20)\n" + _READ
)
# name, what writes the file that is read (None: it writes itself), what is counted, library
SUBJECTS = (
    ("append, aolog", None, _APPEND_AOLOG, "aolog"),
    ("append, msgpack", None, _APPEND_MSGPACK, "msgpack"),
    ("iterate, aolog", _APPEND_AOLOG, _READ_AOLOG, "aolog"),
    ("iterate, msgpack", _APPEND_MSGPACK, _READ_MSGPACK, "msgpack"),
)


def groups(plan: Plan) -> Iterator[Panel]:
    with plan.fixture() as directory:
        yield Panel(
            "instructions",
            "instructions a 100-byte record",
            f"callgrind, {plan.size.instructions * 1000:,} records and twice as many; "
            "aolog checksummed, msgpack not",
            [
                Probe(
                    name, partial(count_instructions, plan.size.instructions, directory, *subject)
                )
                for name, *subject in SUBJECTS
            ],
            rounds=1,
        )


def count_instructions(
    thousands: int, parent: str, writes: str | None, code: str, library: str
) -> dict[str, float]:
    valgrind = shutil.which("valgrind")
    if valgrind is None:
        raise Unavailable("valgrind is not installed")
    if find_spec(library) is None:
        raise Unavailable(f"{library} is not installed")
    cache = str(Path(parent, "bytecode"))
    counts = []
    for n in (thousands, 2 * thousands):
        path = Path(parent, "subject")
        if writes is not None:
            _run([*child.command(writes, str(n), str(path))], cache)
        # What is compiled for it is cached by a run that does not count.
        _run([*child.command(code, str(n), str(path))], cache)
        if writes is None:
            _remove(path)
        told = _run(
            [valgrind, "--tool=callgrind", "--callgrind-out-file=/dev/null",
             *child.command(code, str(n), str(path))], cache,
        )  # fmt: skip  # one thing, a line or two
        _remove(path)
        found = re.search(r"Collected\s*:\s*(\d+)", told)
        if found is None:
            raise Unavailable(f"valgrind counted nothing: {told[-200:]}")
        counts.append(int(found[1]))
    if counts[1] <= counts[0]:
        raise Wrong(f"twice the records took {counts[1]:,} instructions, once {counts[0]:,}")
    return {A_RECORD: (counts[1] - counts[0]) / (1000 * thousands)}


def _run(command: list[str], cache: str) -> str:
    done = subprocess.run(
        command, env=child.environment(cache), capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise Unavailable(f"exit status {done.returncode}: {done.stderr[-200:]}")
    return done.stderr


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
