"""Peers in other languages: small programs of our own, built here. Each is a contender whose work runs in a
process of its own, which starts before the timed part and waits for a line.

framed.go does for each record what queuefka does, which it is not; its checksum is the goldens' program's.
synced.c writes and syncs blocks: the time of the kernel and the device alone.
"""

from __future__ import annotations

import shutil
import subprocess
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import xxhash

from bench.measure import Contender, Promise, Skipped, Wrong
from bench.payloads import prove

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from contextlib import AbstractContextManager

    from bench.payloads import Proof

__all__ = ["GO", "GO_FLUSH", "GO_LARGE", "GO_READ", "SYNCED", "framed", "framed_reader", "synced"]

GO, GO_LARGE, GO_FLUSH = "Go, as queuefka", "Go, a larger buffer", "Go, flush each"
GO_READ = "Go, as queuefka reads"
SYNCED = "C, write + fdatasync"
_GO_BESIDE_PATH = "/usr/local/go/bin/go"  # where Go's own archive is unpacked
_HERE = Path(__file__).parent
_XXH32 = _HERE.parents[1] / "tests/golden/queuefka/gotool/xxh32.go"
_NOTE = "a process of its own, whose CPU time is not counted"
_OUT = "out"  # the file that a program writes
_PREFIX_BYTES = 8  # of a frame: length and xxh32


def framed(directory: str, values: Sequence[bytes], expected: Proof) -> list[Contender | Skipped]:
    """Go's three contenders, the last of which flushes after each record. directory: for the program and its
    input."""
    names = {
        GO: ["4096", "write"],
        GO_LARGE: ["262144", "write"],  # the fastest of 4 KiB to 1 MiB
        GO_FLUSH: ["4096", "flush"],
    }
    program = _built_go(directory)
    if isinstance(program, str):
        return [Skipped(name, program) for name in names]
    given = _input(directory, values)

    def proof(written: str) -> Proof:
        data, step = Path(written, _OUT).read_bytes(), _PREFIX_BYTES + len(values[0])
        payloads = []
        for at in range(0, len(data), step):
            payload = data[at + _PREFIX_BYTES : at + step]
            if data[at + 4 : at + _PREFIX_BYTES] != xxhash.xxh32_digest(payload)[::-1]:
                raise Wrong(f"{GO}: at {at} is no frame of format 1")
            payloads.append(payload)
        return prove(payloads)

    promise = Promise("OS", "xxh32 a record")
    return [
        Contender(
            name,
            promise,
            len(values),
            partial(_waiting, [str(program), *given], options),
            proof,
            expected,
            _NOTE,
        )
        for name, options in names.items()
    ]


def framed_reader(directory: str, slabs: Sequence[Path], expected: Proof) -> Contender | Skipped:
    """Go's contender that reads slabs of format 1. directory: for the program."""
    program = _built_go(directory)
    if isinstance(program, str):
        return Skipped(GO_READ, program)
    words = [str(program), "read", "4096", *map(str, slabs)]
    promise = Promise("-", "xxh32 a record")
    return Contender(
        GO_READ, promise, expected.records, lambda _: _run(words), None, expected, _NOTE
    )


def synced(
    directory: str, blocks: Sequence[bytes], proof: Callable[[str], Proof], expected: Proof
) -> Contender | Skipped:
    """C's contender for blocks of one length, which it writes into the file `out`."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    command = [compiler or "", "-O2", "-o"]
    if compiler is None or (program := _built(directory, command, _HERE / "synced.c")) is None:
        return Skipped(SYNCED, "no compiler" if compiler is None else "does not build here")
    session = partial(_waiting, [str(program), *_input(directory, blocks)], [])
    return Contender(
        SYNCED, Promise("device", "none"), len(blocks), session, proof, expected, _NOTE
    )


def _built_go(directory: str) -> Path | str:
    """Go's program; why there is none."""
    go = shutil.which("go") or shutil.which(_GO_BESIDE_PATH)
    if go is None:
        return "not installed"
    command = [go, "build", "-o"]
    return _built(directory, command, _HERE / "framed.go", _XXH32) or "does not build here"


def _built(directory: str, command: Sequence[str], *sources: Path) -> Path | None:
    """The program, None if it cannot be built: without network, or with another version of the language."""
    made = Path(directory, sources[0].stem)
    # Go takes files of one directory.
    copies = [shutil.copy(source, directory) for source in sources]
    built = subprocess.run(
        [*command, str(made), *copies], cwd=directory, capture_output=True, check=False
    )
    return made if built.returncode == 0 else None


def _input(directory: str, values: Sequence[bytes]) -> list[str]:
    """A program's arguments: a file of the values, their number and their length."""
    path = Path(directory, "input")
    path.write_bytes(b"".join(values))
    return [str(path), str(len(values)), str(len(values[0]))]


def _waiting(
    command: Sequence[str], options: Sequence[str], directory: str
) -> AbstractContextManager[Callable[[], int]]:
    return _run([*command, str(Path(directory, _OUT)), *options])


@contextmanager
def _run(words: Sequence[str]) -> Iterator[Callable[[], int]]:
    """Starts a program that waits for a line. Its work: everything until it prints the number of its records."""
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        begin, lines = process.stdin, process.stdout
        lines.readline()  # ready

        def work() -> int:
            begin.write(b"\n")
            begin.flush()
            return int(lines.readline())

        yield work
