"""Runs a piece of code in a fresh process that has nothing in it but Python.

It starts without `site`: otherwise the modules that an editable install or a .pth file loads at each start
would count as bare Python. Bytecode is cached, as for an installed package, in a directory of our own:
the first round writes it, the others find it.
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
    """The environment of a process that finds the project and installed packages. cache: of bytecode."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    paths = [str(ROOT), sysconfig.get_path("purelib"), sysconfig.get_path("platlib")]
    return kept | {
        "PYTHONPATH": os.pathsep.join(dict.fromkeys(paths)),
        "PYTHONPYCACHEPREFIX": cache,
        "PYTHONHASHSEED": "0",
    }


def command(code: str, *arguments: str) -> list[str]:
    """The command of a bare process that runs the code."""
    return [sys.executable, "-S", "-c", code, *arguments]


def run(code: str, *arguments: str, cache: str) -> dict[str, Any]:
    """Runs the code. Returns its last line, which is JSON. Raises CalledProcessError."""
    done = subprocess.run(
        command(code, *arguments), env=environment(cache), stdout=subprocess.PIPE, text=True,
        check=True, timeout=_TIMEOUT_S,
    )  # fmt: skip  # one thing, a line or two
    found = json.loads(done.stdout.splitlines()[-1])
    assert isinstance(found, dict)
    return found
