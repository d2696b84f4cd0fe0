"""What builds and publishes the distribution. The job `package` of .ci/run builds and tries a wheel."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
from fnmatch import fnmatch
from pathlib import Path

import pytest

from tests import sanitize

ROOT = Path(__file__).parent.parent
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))


def test_actionlint_finds_nothing_in_the_workflows():
    places = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    actionlint = shutil.which("actionlint", path=places)
    if actionlint is None and "CI" not in os.environ:
        pytest.skip("actionlint is not installed")
    assert actionlint is not None, "actionlint is not installed"
    assert len(WORKFLOWS) == 3
    done = subprocess.run(
        [actionlint, "-no-color", *map(str, WORKFLOWS)],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip  # one call
    assert done.returncode == 0, done.stdout + done.stderr


def test_wheels_are_tried_on_each_python_that_the_metadata_names_and_on_no_other():
    named = set(re.findall(r"Python :: 3\.(\d+)", "\n".join(PYPROJECT["project"]["classifiers"])))
    pattern = PYPROJECT["tool"]["cibuildwheel"]["build"]
    minors = [str(minor) for minor in range(8, 30)]
    tried = {minor for minor in minors if fnmatch(f"cp3{minor}-manylinux_x86_64", pattern)}
    assert tried == named
    lowest = min(named, key=int)
    assert PYPROJECT["project"]["requires-python"] == f">=3.{lowest}"
    assert PYPROJECT["tool"]["distutils"]["bdist_wheel"]["py_limited_api"] == f"cp3{lowest}"


@pytest.mark.parametrize("name", ["CONTRIBUTING.md", "SECURITY.md"])
def test_links_of_the_pages_for_contributors_lead_to_files(name: str):
    page = ROOT / ".github" / name
    targets = re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8"))
    assert targets
    for target in targets:
        assert (page.parent / target).is_file(), target


def test_what_the_sanitizers_run_and_skip_exists():
    """`--long` named a file that had moved, so it ended before the first test."""
    run = "".join((ROOT / name).read_text("utf-8") for name in sanitize.TESTS + sanitize.LONG_TESTS)
    assert [name for name in sanitize.SKIPPED if f"def {name}(" not in run] == []
