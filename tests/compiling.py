"""Builds the C extensions that pyproject.toml names, as a test wants them. Needs gcc."""

from __future__ import annotations

import subprocess
import sysconfig
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["ROOT", "build", "extensions"]

ROOT = Path(__file__).parents[1]


def extensions() -> dict[str, list[str]]:
    """The sources of each extension, by its module's name."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    listed = project["tool"]["setuptools"]["ext-modules"]
    return {one["name"]: one["sources"] for one in listed}


def build(name: str, *, into: Path, flags: Sequence[str], tree: Path = ROOT) -> Path:
    """Compiles an extension from the sources in a tree. Returns the file, which is named as Python expects.
    Raises CalledProcessError."""
    made = into / f"{name.rpartition('.')[2]}.abi3.so"
    include = f"-I{sysconfig.get_paths()['include']}"
    command = ["gcc", "-shared", "-fPIC", *flags, include, *extensions()[name], "-o", str(made)]
    subprocess.run(command, cwd=tree, check=True)
    return made
