"""A Spark cluster of its own: a standalone master and workers, each a JVM, on loopback.

Each worker has an address of its own, as a host has: Spark speculates on another host only. Their
Python, and the driver's, finds what aolog/docs/how-to/spark-cluster.md says that executors need, and
neither this tree nor where the package is installed from: what is shipped is what runs. Only processes
started here are signalled, by process id.
"""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
import time
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Self

import pyspark

import aolog.spark
from bridge.testing.apache_kafka.ports import free_ports

__all__ = ["START_SECONDS_MAX", "Cluster", "bare_python"]

# A JVM and its first words: 3 s on idle cores.
START_SECONDS_MAX = 120
STOP_SECONDS_MAX = 30
_SPARK = Path(pyspark.__file__).parent
_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
_NEEDED = ("xxhash", "numpy", "pyarrow", "pandas", "pyspark")  # of executors
_PYTHON = """#!/bin/sh
PYTHONPATH="${{PYTHONPATH:+$PYTHONPATH:}}{packages}" exec {python} -S "$@"
"""


def _parent(pid: int) -> int:
    """Of a process; 0 if it has ended."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return int(text.rpartition(")")[2].split()[1])


def bare_python(directory: Path) -> Path:
    """A Python with nothing but what executors need."""
    packages, todo = directory / "packages", list(_NEEDED)
    packages.mkdir(parents=True)
    known = set()
    while todo:
        name = todo.pop()
        try:
            found = distribution(name)
        except PackageNotFoundError:  # of another system
            continue
        wanted = [text for text in found.requires or () if "extra ==" not in text]
        todo += {re.match(r"[\w.-]+", text)[0] for text in wanted} - known
        known |= {name, *todo}
        for top in {file.parts[0] for file in found.files} - {".."}:
            (packages / top).symlink_to(found.locate_file(top))
    python = directory / "python"
    python.write_text(
        _PYTHON.format(packages=packages, python=shlex.quote(sys.executable)), encoding="utf-8"
    )
    python.chmod(0o700)
    return python


class Cluster:
    """A master and two workers of one core each; ready on return. A context manager that ends them
    and their executors."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"} | {
            "SPARK_HOME": str(_SPARK),
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": f"{_JAVA} -Dspark.master.rest.enabled=false",
            "PYSPARK_PYTHON": str(bare_python(directory / "python")),
        }
        aolog.spark.ensure_java()
        if "JAVA_HOME" in os.environ:
            self._environment["JAVA_HOME"] = os.environ["JAVA_HOME"]
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._master_port, web = free_ports(2)
        self._begin(
            "master", "127.0.0.1", "org.apache.spark.deploy.master.Master",
            "--port", str(self._master_port), "--webui-port", str(web),
        )  # fmt: skip  # a command line
        try:
            self._await("master", "New state: ALIVE")
            self.mend()
        except BaseException:
            self.close()
            raise

    @property
    def url(self) -> str:
        """For `--master`."""
        return f"spark://127.0.0.1:{self._master_port}"

    def mend(self) -> None:
        """Workers that were killed are there again."""
        for number in (1, 2):
            name = f"worker{number}"
            if name not in self._processes:
                port, web = free_ports(2)
                self._begin(
                    name, f"127.0.0.{number}", "org.apache.spark.deploy.worker.Worker",
                    "--port", str(port), "--webui-port", str(web), "--cores", "1",
                    "--memory", "1g", "--work-dir", str(self._directory / "work"), self.url,
                )  # fmt: skip  # a command line
        for name in [name for name in self._processes if name != "master"]:
            self._await(name, "Successfully registered with master")

    def _begin(self, name: str, host: str, *command: str) -> None:
        at = self._directory / name
        at.mkdir(parents=True, exist_ok=True)
        with (at / "log").open("wb") as log:
            self._processes[name] = subprocess.Popen(
                [str(_SPARK / "bin" / "spark-class"), command[0], "--host", host, *command[1:]],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=at,
                env=self._environment | {"SPARK_LOCAL_IP": host},
            )  # fmt: skip  # one call

    def _await(self, name: str, words: str) -> None:
        until_s = time.monotonic() + START_SECONDS_MAX
        while True:
            said = (self._directory / name / "log").read_text(errors="replace")
            if words in said:
                return
            ended = self._processes[name].poll()
            assert ended is None, f"{name} ended with {ended}:\n{said[-3000:]}"
            assert time.monotonic() < until_s, f"{name} is not ready:\n{said[-3000:]}"
            time.sleep(0.1)

    def kill_worker_of(self, executor: int) -> None:
        """SIGKILL for an executor's worker, which could start another, and then for itself."""
        (name,) = (n for n, each in self._processes.items() if each.pid == _parent(executor))
        worker = self._processes.pop(name)
        worker.kill()
        os.kill(executor, signal.SIGKILL)
        worker.wait()

    def submit(self, script: Path, *arguments: str, shipped: Path, **conf: str) -> subprocess.Popen:
        """A driver, on this host and in a directory of its own; its words are in `said`. conf:
        Spark's, with _ for each dot."""
        at = self._directory / "driver"
        at.mkdir(exist_ok=True)
        settings = {
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.memory": "512m",
            "spark.executor.memory": "512m",
            "spark.ui.enabled": "false",
            "spark.driver.extraJavaOptions": _JAVA,
            "spark.executor.extraJavaOptions": _JAVA,
        } | {f"spark.{name.replace('_', '.')}": value for name, value in conf.items()}
        command = [str(_SPARK / "bin" / "spark-submit"), "--master", self.url]
        for name, value in settings.items():
            command += ["--conf", f"{name}={value}"]
        command += ["--py-files", str(shipped), str(script), *arguments]
        with self.said.open("wb") as said:
            return subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=said, stderr=said, cwd=at,
                env=self._environment | {"SPARK_LOCAL_IP": "127.0.0.1"},
            )  # fmt: skip  # one call

    @property
    def said(self) -> Path:
        """What the last driver said: spark-submit puts both of its streams on one."""
        return self._directory / "driver.log"

    def close(self) -> None:
        """Ends all; workers end their executors."""
        while self._processes:
            _, process = self._processes.popitem()  # the master last
            process.terminate()
            with suppress(subprocess.TimeoutExpired):
                process.wait(STOP_SECONDS_MAX)
            process.kill()
            process.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
