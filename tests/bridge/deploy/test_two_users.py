"""An application and a bridge of another user, as deploy.md shows them: one directory of a shared group."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from shutil import rmtree

import pytest

import aolog
from bridge.kafka.embedded import EmbeddedBroker

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root may run as two users")

ROOT = Path(__file__).parents[3]
APP, BRIDGE = 64001, 64002  # no account has these ids; the group has the bridge's


def run_as(user: int, arguments: list[str], interpreter: str) -> subprocess.CompletedProcess[str]:
    """Runs a module of this checkout. The application is in the bridge's group, as with `usermod -aG`."""
    libraries = [path for path in sys.path if path.endswith("site-packages")]
    return subprocess.run(
        [interpreter, *arguments],
        user=user, group=user, extra_groups=[BRIDGE], umask=0o027, cwd="/",
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": ":".join([str(ROOT), *libraries])},
        capture_output=True, text=True, timeout=60, check=False, input='{"id": 7}\n',
    )  # fmt: skip  # one call


@pytest.fixture(scope="module")
def interpreter() -> str:
    """A Python that both users may run; this one may be in root's home."""
    major, minor = sys.version_info[:2]
    for found in (sys.executable, f"/usr/bin/python{major}.{minor}"):
        try:
            if run_as(APP, ["-c", "import aolog.cli, bridge.cli"], found).returncode == 0:
                return found
        except OSError:
            continue
    pytest.skip("another user may not run this Python")


@pytest.fixture
def state() -> Iterator[Path]:
    """As systemd makes /var/lib/aolog for the unit."""
    above = Path(tempfile.mkdtemp(prefix="aolog-two-users-"))
    above.chmod(0o755)
    state = above / "state"
    state.mkdir(0o750)
    os.chown(state, BRIDGE, BRIDGE)
    try:
        yield state
    finally:
        rmtree(above)


@pytest.fixture
def mine(state: Path) -> Path:
    """The application's own directory there."""
    mine = state / "app"
    subprocess.run(
        ["install", "-d", "-o", str(APP), "-g", str(BRIDGE), "-m", "2770", str(mine)], check=True
    )
    return mine


def append(log: Path, interpreter: str, *options: str) -> None:
    done = run_as(
        APP, ["-m", "aolog", "append", str(log), "--topic", "events", *options], interpreter
    )
    assert done.returncode == 0, done.stderr


def drain(state: Path, interpreter: str) -> subprocess.CompletedProcess[str]:
    with EmbeddedBroker() as broker:
        command = ["-m", "bridge", "run", "--root", str(state), "--drain", "--prune"]
        return run_as(
            BRIDGE, [*command, "--bootstrap-servers", broker.bootstrap_servers], interpreter
        )


def test_a_bridge_of_another_user_drains_and_prunes_and_the_application_goes_on(
    state: Path, mine: Path, interpreter: str
) -> None:
    log = mine / "orders"
    bound = ("--mode", "770", "--slab-bytes", "64k", "--retention-max-bytes", "1M")
    append(log, interpreter, *bound, "--when-full", "error")
    append(log, interpreter, *bound, "--when-full", "error")
    done = drain(state, interpreter)
    assert done.returncode == 0, done.stderr
    assert "pruned 1 slab" in done.stderr
    append(log, interpreter, *bound, "--when-full", "error")  # reads the bridge's cursor
    (cursor,) = aolog.cursors(log)
    assert (cursor.name, cursor.lag.records) == ("bridge", 1)
    assert (log / "cursors").stat().st_uid == BRIDGE


def test_a_directory_that_the_group_may_only_read_is_refused_by_name(
    state: Path, mine: Path, interpreter: str
) -> None:
    append(mine / "orders", interpreter, "--mode", "750")
    done = drain(state, interpreter)
    assert done.returncode != 0
    assert "permission_denied" in done.stderr
    assert "cursors: create directory" in done.stderr
