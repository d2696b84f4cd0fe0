"""Runs the tests of the compiled code with AddressSanitizer and UndefinedBehaviorSanitizer.

    python -m tests.sanitize [--long] [TEST...]

The extensions are built with both from the sources that pyproject.toml names, in a copy of the
checkout, and the tests run there in one process. It ends at the first error, with the sanitizer's
report. Leaks are not looked for: CPython leaves memory to the system at its end. Needs gcc.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.compiling import ROOT, build, extensions

COPIED = ("aolog", "bridge", "bench", "fuzz", "tests")
# Calls the C functions, and what a hostile or unlucky caller may pass: 15 s of one core.
TESTS = [
    "tests/aolog/format/test_inlet.py",
    "tests/aolog/format/test_door.py",
    "tests/aolog/format/test_inlet_flush.py",
    "tests/aolog/queuefka/test_growing_slab.py",
    "tests/aolog/format/test_speed.py",
    "tests/aolog/format/test_async_rows.py",
    "tests/aolog/format/test_stretch.py",
    "tests/bridge/kafka/test_producing.py",
    "tests/bridge/kafka/test_arrivals.py",
    "tests/bridge/kafka/test_messages.py",
    "tests/bridge/client/buffer/test_memory_queue.py",
]
# What uses them, under fault injection and with random input: two minutes.
LONG_TESTS = [
    "tests/aolog/read/test_arrow.py",
    "tests/aolog/format/test_columns.py",
    "tests/aolog/write/test_concurrency.py",
    "tests/aolog/read/test_reader.py",
    "tests/aolog/write/test_writer.py",
    "tests/bridge/client/test_clients.py",
    "tests/bridge/deliver/at_least_once/test_batch_planner.py",
]
# They begin processes without the environment that loads the sanitizers, or without the compiled half.
SKIPPED = [
    "test_what_the_compiled_half_does_is_tested_in_python_too",
    "test_without_the_compiled_half_a_delivery_is_the_same",
]
FLAGS = [
    "-g", "-O1", "-fno-omit-frame-pointer",
    "-fsanitize=address,undefined", "-fno-sanitize-recover=all",
]  # fmt: skip  # a list
ENVIRONMENT = {
    "ASAN_OPTIONS": "detect_leaks=0:allocator_may_return_null=1",  # tests ask for too much memory
    "UBSAN_OPTIONS": "print_stacktrace=1",
    "PYTHONMALLOC": "malloc",  # Python's own allocator hides what is used after it was freed
}
IS_SANITIZED = """
import sys, aolog, aolog.format.native._speed, bridge.client._report, bridge.kafka._produce
modules = aolog.format.native._speed, bridge.client._report, bridge.kafka._produce
files = [module.__file__ for module in modules]
assert aolog.backend == "compiled" and all(f.startswith(sys.argv[1]) for f in files), files
assert "libasan" in open("/proc/self/maps").read()
"""


def build_all(tree: Path) -> None:
    """The extensions, beside their sources."""
    for name in extensions():
        build(name, into=(tree / name.replace(".", "/")).parent, flags=FLAGS, tree=tree)


def environment() -> dict[str, str]:
    """In which Python can load them: a sanitizer's library comes before all others."""
    names = ("libasan.so", "libstdc++.so.6")  # with the second, exceptions of C++ libraries work
    found = [
        subprocess.run(
            ["gcc", f"-print-file-name={name}"], capture_output=True, text=True, check=True
        ).stdout.strip()
        for name in names
    ]
    return {**os.environ, **ENVIRONMENT, "LD_PRELOAD": " ".join(found)}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.sanitize")
    parser.add_argument("--long", action="store_true", help="also tests of what uses the code")
    parser.add_argument("tests", nargs="*", help="instead of those of the compiled code")
    args = parser.parse_args()
    tests = args.tests or (TESTS + LONG_TESTS if args.long else TESTS)
    with tempfile.TemporaryDirectory(prefix="aolog-sanitize-") as name:
        tree = Path(name).resolve()
        ignored = shutil.ignore_patterns("*.so", "__pycache__")
        for folder in COPIED:
            shutil.copytree(ROOT / folder, tree / folder, ignore=ignored)
        for file in ("pyproject.toml", "README.md"):
            shutil.copy2(ROOT / file, tree / file)
        build_all(tree)
        sanitized = environment()

        def python(*arguments: str) -> int:
            command = [sys.executable, *arguments]
            return subprocess.run(command, cwd=tree, env=sanitized, check=False).returncode

        # A report must come through: not swallowed with what a test writes to descriptor 2, nor
        # preceded by faulthandler's.
        options = ["-q", "-x", "--capture=sys", "-p", "no:faulthandler", "-p", "no:cacheprovider"]
        options += ["-o", "timeout=600", f"--basetemp={tree}/tmp"]
        options += ["-k", " and ".join(f"not {test}" for test in SKIPPED)]
        return python("-c", IS_SANITIZED, str(tree)) or python("-m", "pytest", *options, *tests)


if __name__ == "__main__":
    sys.exit(main())
