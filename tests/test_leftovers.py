"""A run of the tests leaves nothing in the temporary directory."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
KILLED = """
import os, subprocess, sys, tempfile
from pathlib import Path

def test_one(tmp_path):
    (tmp_path / "file").write_text("x")
    code = "import tempfile, os; tempfile.mkdtemp(); os.kill(os.getpid(), 9)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == -9
    assert {fails} == False
"""


@pytest.mark.parametrize("workers", [[], ["-n", "1"]])
@pytest.mark.parametrize("fails", [False, True])
def test_a_run_leaves_nothing_unless_a_test_failed(tmp_path, workers, fails):
    place = tmp_path / "temporary"
    place.mkdir()
    (tmp_path / "test_killed.py").write_text(KILLED.replace("{fails}", str(fails)))
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "tests.conftest", *workers,
         "-c", ROOT / "pyproject.toml", f"--rootdir={tmp_path}", tmp_path / "test_killed.py"],
        cwd=ROOT, env={**os.environ, "TMPDIR": str(place)}, capture_output=True, text=True, check=False,
    )  # fmt: skip  # one call
    assert done.returncode == int(fails), done.stdout + done.stderr
    left = list(place.iterdir())
    assert [f"temporary files: {each}" in done.stdout for each in left] == [True] * fails
