"""`python -m bench` as a user runs it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
CASES_OF_BRIDGE = (
    "throughput",
    "latency",
    "delivery",
    "backlog",
    "bridge_memory",
    "poison",
    "client",
    "pull",
)  # run by tests of their own
CASES_OF_SPARK = ("spark",)  # likewise
CASES_OF_STORES = ("store",)  # likewise


def quiet(_: str) -> None:
    """Shows no progress."""


def run_small(cases: Iterable[str], directory: Path) -> tuple[str, dict[str, Any]]:
    """At the small size: what it printed, and its JSON."""
    path, work = directory / "out.json", directory / "work"
    work.mkdir()
    only = [word for case in cases for word in ("--only", case)]
    options = ["--size", "small", "--dir", str(work), "--json", str(path), *only]
    done = subprocess.run(
        [sys.executable, "-W", "error", "-m", "bench", *options],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip  # one process
    assert done.returncode == 0, done.stderr
    assert list(work.iterdir()) == []  # nothing is left behind
    return done.stdout, json.loads(path.read_text(encoding="utf-8"))


def results_of(document: dict[str, Any], case: str) -> list[dict[str, Any]]:
    return [r for g in document["groups"] if g["case"] == case for r in g["results"]]
