"""Runs a piece of code in a fresh process that has nothing in it but Python.

Without `site`: what an editable install or a .pth file loads at each start would count as bare
Python and hide what is measured. Bytecode is cached, as it is where a package is installed, in a
directory of ours, so that the first round writes it and the others find it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

__all__ = ["ROOT", "command", "environment", "run"]

ROOT = Path(__file__).resolve().parents[1]
_TIMEOUT_S = 1800


def environment(cache: str) -> dict[str, str]:
    """For a process that finds the project and what is installed. cache: of its bytecode."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    paths = [str(ROOT), sysconfig.get_path("purelib"), sysconfig.get_path("platlib")]
    return kept | {
        "PYTHONPATH": os.pathsep.join(dict.fromkeys(paths)),
        "PYTHONPYCACHEPREFIX": cache,
        "PYTHONHASHSEED": "0",
    }


def command(code: str, *arguments: str) -> list[str]:
    """Of a bare process that runs the code."""
    return [sys.executable, "-S", "-c", code, *arguments]


def run(code: str, *arguments: str, cache: str) -> dict[str, Any]:
    """What the code prints last, which is JSON. Raises CalledProcessError."""
    done = subprocess.run(
        command(code, *arguments), env=environment(cache), stdout=subprocess.PIPE, text=True,
        check=True, timeout=_TIMEOUT_S,
    )  # fmt: skip  # one thing, a line or two
    found = json.loads(done.stdout.splitlines()[-1])
    assert isinstance(found, dict)
    return found
