"""A real process that publishes is killed before each of its calls. About 3 s."""

from __future__ import annotations

import subprocess
import sys

from tests.aolog.conftest import ROOT


def test_a_publication_that_is_killed_anywhere_is_whole_or_was_not(tmp_path, said):
    ended = subprocess.run(
        [sys.executable, "-m", "tests.publish.killed", str(tmp_path)],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip  # as it is typed
    assert ended.returncode == 0, ended.stderr
    steps, whole = map(int, ended.stdout.split())
    said(f"publishers: {steps} killed, {whole} of them behind the commit")
    assert steps > 30
    assert 5 < whole < steps
