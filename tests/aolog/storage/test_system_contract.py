"""The real system and the simulated one pass the public contract; one that breaks it does not."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from aolog.storage.system import System
from aolog.testing import SimulatedSystem, SystemTests


class TestRealSystem(SystemTests):
    @pytest.fixture
    def system(self) -> System:
        return System()

    @pytest.fixture
    def directory(self, tmp_path: Path) -> str:
        return str(tmp_path)


class TestSimulatedSystem(SystemTests):
    @pytest.fixture
    def system(self) -> System:
        return SimulatedSystem()

    @pytest.fixture
    def directory(self, system: System) -> str:
        system.mkdir("/empty", 0o700)
        return "/empty"


BROKEN = """
import pytest
from aolog.storage.system import System
from aolog.testing import SystemTests
from bridge import MemoryProvider
from bridge.testing import ProviderTests

class Short(System):
    def listdir(self, path, /):
        return []

class TestShort(SystemTests):
    @pytest.fixture
    def system(self):
        return Short()

    @pytest.fixture
    def directory(self, tmp_path):
        return str(tmp_path)

class TestForgetful(ProviderTests):
    @pytest.fixture
    def provider(self):
        return MemoryProvider()

    def arrived(self, provider):
        return provider.messages[:-1]
"""


def test_a_contract_that_is_broken_says_what_was_found_and_what_was_expected(
    tmp_path: Path,
) -> None:
    """pytest shows values only where it rewrites `assert`, which it does for test files and what is
    registered."""
    (tmp_path / "test_mine.py").write_text(BROKEN)
    command = ["-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", "listed or in_order_and_once"]
    run = subprocess.run(
        [sys.executable, *command, str(tmp_path)],
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip  # one call
    assert "2 failed" in run.stdout, run.stdout + run.stderr
    assert "assert [] == ['below', 'file']" in run.stdout
    assert "Right contains one more item: b'999'" in run.stdout
