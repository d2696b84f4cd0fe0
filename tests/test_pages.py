"""Every block of code that the README and the pages show is run, page by page.

A page's blocks run in one shell and one directory, in their order, as a reader would type them:
`sh` as it is, `python` with this Python. A block `text` right after one of them is what it prints,
where … matches anything. `toml` is a configuration of the bridge and is checked as one; `json` and
`yaml` are parsed. Names are replaced by what the test has: `kafka:9092` by a cluster with a topic
`events` (the embedded broker, or Apache Kafka for the pages that need more), `:9100` by a port,
/var/lib/app by a directory, LOG and LOGS by logs, app.log by a file that grows. Tutorials and the
README begin with the last of these only.

Comments before a block:  <!-- file: NAME -->        the block is the file NAME, and is not run by itself
                          <!-- not run: REASON -->
Python of the pages about Spark is run by tests/spark/test_page.py.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest
import yaml
from confluent_kafka import Producer

import aolog
from bridge.kafka.embedded import EmbeddedBroker
from bridge.testing.apache_kafka.ports import free_ports
from bridge.testing.apache_kafka.server import KafkaServer

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "aolog/docs"
README = ROOT / "README.md"
PAGES = [README, ROOT / "aolog/FORMAT.md", *sorted(DOCS.rglob("*.md"))]
RUN, PARSED, SHOWN = {"sh", "python"}, {"toml", "json", "yaml"}, {"", "text"}
# Commands that go on until they are stopped; they run in the background of what follows.
_ENDLESS = re.compile(
    r"\btail -\w*[fF]\b"
    r"|(?:aolog-bridge|python -m bridge) (?:run|top|simulate|ingest|mirror|broker|cluster|pull|files|consume)\b"
)
_ENDS = re.compile(r"--drain\b|--help\b|&\s*$")
PAGE_S = 110


class Block(NamedTuple):
    page: Path
    line: int
    language: str
    text: str
    note: str  # the comment before it


def blocks(page: Path) -> list[Block]:
    found: list[Block] = []
    note, begun, lines = "", None, []
    for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), 1):
        if begun is None and line.startswith("```"):
            begun, lines = (number, line[3:]), []
        elif begun is not None and line.startswith("```"):
            found.append(Block(page, *begun, "".join(f"{each}\n" for each in lines), note))
            note, begun = "", None
        elif begun is not None:
            lines.append(line)
        elif line.strip():
            comment = re.fullmatch(r"<!-- ((?:file|not run): .+) -->", line)
            note = comment[1] if comment else ""
    return [block for block in found if not block.language.startswith("{")]


def is_run(block: Block) -> bool:
    of_spark = block.language == "python" and block.page.name == "spark.md"
    return block.language in RUN and not block.note and not of_spark


WITH_CODE = [page for page in PAGES if any(is_run(block) for block in blocks(page))]
ON_KAFKA = [page for page in WITH_CODE if page.name in {"mirror.md", "pull.md", "exactly-once.md"}]


def _name(page: Path) -> str:
    return str(page.relative_to(DOCS if DOCS in page.parents else ROOT))


class Desk:
    """A directory and a shell for one page, with a cluster."""

    def __init__(
        self,
        place: Path,
        page: Path,
        broker: EmbeddedBroker | KafkaServer,
        other: str | None = None,
    ) -> None:
        """other: servers of the cluster that pages call `b:9092`, where it is another one."""
        self.place, self._servers = place, broker.bootstrap_servers
        self._other = other or self._servers
        self._ports: dict[str, str] = {}
        (place / "password").write_text("secret")
        (place / "app.log").write_text('{"id": "7", "said": "hello"}\n{"id": "8"}\n')
        if page != README and page.parent.name != "tutorials":
            for path in ("LOG", "LOGS/orders"):
                with aolog.Writer(place / path, topic="events") as log:
                    log.append_many([b'{"id": "1"}', b"hello"])
            producer = Producer({"bootstrap.servers": self._servers})
            producer.produce("events", b"hello", b"key")
            producer.flush(10)

    def here(self, text: str) -> str:
        """The text with addresses and paths of this test."""
        text = re.sub(r"\bb:9092\b", self._other, text)
        text = re.sub(r"\b[a-z]\w*:9092\b", self._servers, text)
        text = text.replace("/var/lib/app", str(self.place / "app"))
        return re.sub(r"(?<!\d)(:)(9\d\d\d)\b", lambda match: ":" + self._port(match[2]), text)

    def _port(self, shown: str) -> str:
        return self._ports.setdefault(shown, str(free_ports(1)[0]))

    def script(self, page: Path) -> str:
        """All blocks of the page, each with its output in a file."""
        parts = ["set -e -o pipefail"]
        for block in blocks(page):
            if block.note.startswith("file: "):
                (self.place / block.note[6:]).write_text(self.here(block.text))
            elif is_run(block):
                code = self.place / f"block-{block.line}.{block.language}"
                code.write_text(self.here(block.text))
                run = f"python {code.name}\n" if block.language == "python" else self.shell(block)
                parts.append(f"echo {block.line} > running\n{{\n{run}}} > {block.line}.out 2>&1")
        return "\n".join([*parts, "echo done > running\n"])

    def shell(self, block: Block) -> str:
        return "".join(map(self._line, re.split(r"(?<!\\)\n(?=.)", self.here(block.text))))

    def _line(self, line: str) -> str:
        if not _ENDLESS.search(line) or _ENDS.search(line):
            return line.rstrip("\n") + "\n"
        ready = "sleep 2"  # nothing below depends on it
        if port := re.search(r"(?: run | ingest | simulate ).*--http \S*:(\d+)", line):
            ready = _until(f"(: < /dev/tcp/127.0.0.1/{port[1]})")
        elif log := re.search(r"\| aolog append (\w+)| mirror .*--log (\w+)", line):
            ready = _until(f"ls {log[1] or log[2]}/*.slab")
        return f"{{ {line}\n}} & last=$!; {ready}; kill -0 $last 2>/dev/null || wait $last\n"

    def run(self, script: str) -> None:
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        shell = subprocess.Popen(
            ["bash", "-c", script], cwd=self.place, stdin=subprocess.DEVNULL,
            env={**os.environ, "PATH": path, "PYTHONPATH": f"{self.place}:{ROOT}"},
            start_new_session=True,
        )  # fmt: skip  # one call
        try:
            status = shell.wait(PAGE_S)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(shell.pid, signal.SIGKILL)  # its group: what goes on in the background
            shell.wait()
        last = (self.place / "running").read_text().strip()
        assert (status, last) == (0, "done"), f"line {last}: {self.output(last)}"

    def output(self, line: object) -> str:
        return (self.place / f"{line}.out").read_text(errors="replace")


def _until(condition: str) -> str:
    """Shell that waits for it, half a minute at most."""
    return f"for _ in $(seq 300); do {condition} &> /dev/null && break; sleep 0.1; done"


def _as_shown(text: str) -> re.Pattern[str]:
    parts = re.split(r"\s*…\s*", text.strip())
    return re.compile(r".*".join(map(re.escape, parts)), re.DOTALL)


def run_page(page: Path, desk: Desk) -> None:
    desk.run(desk.script(page))
    shown = blocks(page)
    for block, after in zip(shown, [*shown[1:], None], strict=True):
        if not is_run(block):
            continue
        printed = desk.output(block.line)
        if block.language == "python" and re.search(r"^\s*print\(", block.text, re.MULTILINE):
            assert printed, f"line {block.line} prints nothing"
        if after is not None and after.language == "text":
            assert _as_shown(desk.here(after.text)).search(printed.strip()), printed


@pytest.mark.parametrize("page", [page for page in WITH_CODE if page not in ON_KAFKA], ids=_name)
def test_the_blocks_of_a_page_run_and_print_what_it_shows(page, tmp_path):
    with EmbeddedBroker() as broker, EmbeddedBroker() as other:
        run_page(page, Desk(tmp_path, page, broker, other.bootstrap_servers))


@pytest.mark.kafka
@pytest.mark.parametrize("page", ON_KAFKA, ids=_name)
def test_the_blocks_of_a_page_run_on_kafka_and_print_what_it_shows(page, tmp_path, kafka):
    with EmbeddedBroker() as other:
        run_page(page, Desk(tmp_path, page, kafka, other.bootstrap_servers))


def test_the_lines_of_the_readme_bring_what_is_appended_to_kafka(tmp_path):
    with EmbeddedBroker() as broker:
        desk = Desk(tmp_path, README, broker)
        _, shell = (block for block in blocks(README) if is_run(block))
        (command,) = re.findall(r"`(aolog-bridge broker [^`]*)`", README.read_text("utf-8"))
        ready = _until("grep ^127 arrived")
        read = _until("""aolog cursor show LOG bridge --json | grep '"records": 0'""")
        desk.run(
            f"{command} > arrived 2>&1 & {ready}\n{desk.shell(shell)}{read}\necho done > running"
        )
        (cursor,) = aolog.cursors(tmp_path / "LOG")
        assert (cursor.name, cursor.lag.records) == ("bridge", 0), "all was acknowledged"
        assert re.search(r"127\.0\.0\.1:\d+", (tmp_path / "arrived").read_text())


CHECKED = [block for page in PAGES for block in blocks(page) if block.language in PARSED]


@pytest.mark.parametrize("block", CHECKED, ids=lambda block: f"{_name(block.page)}:{block.line}")
def test_configurations_and_data_of_the_pages_are_valid(block, tmp_path):
    if block.language == "json":
        assert json.loads(block.text)
    elif block.language == "yaml":
        assert list(yaml.safe_load_all(block.text))
    else:
        text = block.text
        if "bootstrap_servers" not in text:
            text += '\n[clusters.main]\nbootstrap_servers = "kafka:9092"\n'
        if not re.search(r"^(?:root|logs) = ", text, re.MULTILINE):
            text = f'root = "{tmp_path}"\n{text}'
        for other in blocks(block.page):
            if other.note.startswith("file: "):
                (tmp_path / other.note[6:]).write_text(other.text)
        (tmp_path / "password").write_text("secret")
        (tmp_path / "checked.toml").write_text(text)
        done = subprocess.run(
            [sys.executable, "-m", "bridge", "check-config", "checked.toml"],
            cwd=tmp_path, env={**os.environ, "PYTHONPATH": f"{tmp_path}:{ROOT}"},
            capture_output=True, text=True, check=False,
        )  # fmt: skip  # one call
        assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("page", PAGES, ids=_name)
def test_each_block_has_a_language_that_is_run_checked_or_only_shown(page):
    wrong = [block for block in blocks(page) if block.language not in RUN | PARSED | SHOWN]
    assert [(block.line, block.language) for block in wrong] == []
