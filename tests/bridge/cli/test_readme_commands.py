"""The README's way from a shell to Kafka works as it is shown there: its own lines, with an address of
the embedded broker."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from aolog import Writer
from bridge.testing.apache_kafka import free_ports

pytestmark = pytest.mark.timeout(120)

README = Path(__file__).parents[3] / "README.md"
SOON_S = 40


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Callable[[str], Path]]:
    """Starts a line in the background; the file of its output. What goes on is ended at the end."""
    started: list[subprocess.Popen[bytes]] = []
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
    }

    def start(line: str) -> Path:
        output = tmp_path / f"output-{len(started)}"
        with output.open("wb") as file:
            started.append(subprocess.Popen(
                ["bash", "-c", line], cwd=tmp_path, env=environment, stdin=subprocess.DEVNULL,
                stdout=file, stderr=subprocess.STDOUT, start_new_session=True,
            ))  # fmt: skip  # one call
        return output

    yield start
    for process in started:
        if process.poll() is None:  # the group is ours: its leader has not been waited for
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def until(output: Path, text: str) -> str:
    """What was printed, once this is part of it."""
    until_s = time.monotonic() + SOON_S
    while text not in (printed := output.read_text(errors="replace")):
        assert time.monotonic() < until_s, printed
        time.sleep(0.05)
    return printed


def test_the_lines_from_the_shell_to_kafka_work(shell: Callable[[str], Path], tmp_path: Path):
    text = README.read_text(encoding="utf-8").split("\n## From the shell to Kafka\n")[1]
    shown = re.findall(r"^```sh\n(.*?)^```", text, re.MULTILINE | re.DOTALL)[0]
    append, tail, info, one, root, status = [line for line in shown.splitlines() if line]
    (broker,) = re.findall(r"`(aolog-bridge broker [^`]*)`", text)

    arriving = shell(broker)
    (address,) = re.findall(r"^(127\.0\.0\.1:\d+)\n", until(arriving, "127.0.0.1:"), re.MULTILINE)
    port = str(free_ports(1)[0])

    def here(line: str) -> str:
        return line.replace("kafka:9092", address).replace("9100", port)

    (tmp_path / "app.log").write_text("hello from the shell\n")
    shell(append)
    until_s = time.monotonic() + SOON_S
    while not list(tmp_path.glob("LOG/*.slab")):
        assert time.monotonic() < until_s
        time.sleep(0.05)
    until(shell(tail), "hello from the shell")
    until(shell(info), "records")
    shell(here(one))
    until(arriving, "hello from the shell")

    with Writer(tmp_path / "LOGS" / "orders", topic="events") as log:
        log.append(b"one of many logs")
    shell(here(root))
    until(arriving, "one of many logs")
    assert "orders" in until(shell(here(status)), "live")
