"""The demo shows what it says: real records through a real outage and a real kill, compared; and
it fails if anything is missing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from bridge.cli.demo import demo as demo_module
from bridge.cli.demo.demo import run_demo
from bridge.cli.demo.result import Result
from bridge.cli.demo.spark import SparkStage
from bridge.kafka.partition import partition_of_key
from tests.bridge.conftest import Process, records_of

GOOD = Result(
    input="x", records=10, bytes=100, seconds=1.0, records_per_s=10, outage_s=3.0, outage_at=0.35,
    outage_pending=5, kill_at=0.6, kill_pending=5, lost=0, repeated=0, disordered=0, altered=0,
    log=None,
)  # fmt: skip  # one value


def write_lines(path: Path, count: int) -> Path:
    path.write_bytes(b"".join(b"line %d of some text\n" % i for i in range(count)))
    return path


@pytest.mark.timeout(180)
def test_a_small_file_goes_through_outage_and_kill_whole(
    bridge: Callable[..., Process], tmp_path: Path
) -> None:
    text = write_lines(tmp_path / "text", 700)
    kept = tmp_path / "kept"
    process = bridge("demo", str(text), "--json", "--keep", str(kept))
    assert process.end(120) == 0, process.stderr
    (line,) = process.lines
    result = json.loads(line)
    assert result["ok"] is True
    assert "embedded broker at 127.0.0.1:" in " ".join(process.stderr.splitlines()[:2])
    assert result["records"] >= 50_000
    assert result["records"] % 700 == 0
    for moment in ("outage_at", "kill_at"):
        assert 0.2 <= result[moment] <= 0.8
    assert result["outage_at"] < result["kill_at"]
    assert result["outage_s"] >= 3.0
    assert result["outage_pending"] > 0
    assert {result[kind] for kind in ("lost", "repeated", "disordered", "altered")} == {0}
    assert result["seconds"] < 60
    values = [r.value for r in records_of(Path(result["log"]))]
    assert len(values) == result["records"]
    assert values[:700] == text.read_bytes().splitlines()
    assert values[-700:] == values[:700]


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_without_files_it_shows_the_standard_library_and_ends_with_a_table() -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "bridge", "demo"],
        capture_output=True, text=True, timeout=500, check=False,
    )  # fmt: skip  # one call
    assert ended.returncode == 0, ended.stderr
    for word in (
        "embedded broker",
        "proved: ",
        "outage survived",
        "process killed",
        "lost",
        "duplicated",
        "out of order",
    ):
        assert word in ended.stdout


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_rows_of_a_dataframe_go_the_same_way(tmp_path: Path) -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "bridge", "demo", str(write_lines(tmp_path / "text", 700)),
         "--spark", "--json"],
        capture_output=True, text=True, timeout=500, check=False,
    )  # fmt: skip  # one call
    assert ended.returncode == 0, ended.stderr
    result = json.loads(ended.stdout)
    assert result["ok"] is True
    assert result["spark"] | {"seconds": 0} == SparkStage(20_000, 0, 0, 0, 0, 0)._asdict()


@pytest.mark.parametrize("fault", ["lost", "repeated", "disordered", "altered"])
def test_a_stage_with_any_fault_is_not_ok(fault: str) -> None:
    stage = SparkStage(20_000, 1.0, 0, 0, 0, 0)
    assert stage.ok
    assert not stage._replace(rows=19_999).ok
    assert not stage._replace(**{fault: 1}).ok


@pytest.mark.parametrize("options", [[], ["--json"]])
def test_without_a_standard_output_nothing_is_started(tmp_path: Path, options: list[str]) -> None:
    kept = tmp_path / "kept"
    command = [sys.executable, "-m", "bridge", "demo", "--keep", str(kept), *options]
    shell = ["bash", "-c", 'exec "$@" >&-', "bash", *command]
    ended = subprocess.run(shell, stderr=subprocess.PIPE, text=True, timeout=60, check=False)
    said = "aolog-bridge: output_failed: standard output is closed; redirect it to a file"
    if options:
        assert json.loads(ended.stderr)["error"]["code"] == "output_failed"
    else:
        assert ended.stderr == f"{said}\n"
    assert ended.returncode == 4
    assert not kept.exists()


def test_output_that_is_closed_early_ends_it_as_any_command(tmp_path: Path) -> None:
    text = write_lines(tmp_path / "text", 700)
    reading, writing = os.pipe()
    os.close(reading)
    try:
        ended = subprocess.run(
            [sys.executable, "-m", "bridge", "demo", str(text)],
            stdout=writing, stderr=subprocess.PIPE, timeout=60, check=False,
        )  # fmt: skip  # one process
    finally:
        os.close(writing)
    assert (ended.returncode, ended.stderr) == (141, b"")


@pytest.mark.parametrize("what", ["missing", "directory", "empty"])
def test_input_that_cannot_be_read_is_refused_before_anything_starts(
    bridge: Callable[..., Process], tmp_path: Path, what: str
) -> None:
    path = tmp_path / what
    if what == "directory":
        path.mkdir()
    elif what == "empty":
        path.touch()
    kept = tmp_path / "kept"
    process = bridge("demo", path, "--keep", kept)
    assert process.end(30) == 2
    assert process.lines == []
    assert process.stderr.startswith("aolog-bridge: usage: ")
    assert str(path) in process.stderr
    assert not kept.exists()


def test_a_directory_that_is_in_use_is_not_written_into(
    bridge: Callable[..., Process], tmp_path: Path
) -> None:
    text = write_lines(tmp_path / "text", 5)
    kept = tmp_path / "kept"
    kept.mkdir()
    (kept / "mine").write_bytes(b"precious")
    process = bridge("demo", text, "--keep", kept)
    assert process.end(30) == 2
    assert [p.name for p in kept.iterdir()] == ["mine"]


# --- when it fails ----------------------------------------------------------------------------


def test_a_good_result_is_ok() -> None:
    assert GOOD.ok


@pytest.mark.parametrize("fault", ["lost", "repeated", "disordered", "altered"])
def test_a_result_with_any_fault_is_not_ok(fault: str) -> None:
    assert not GOOD._replace(**{fault: 1}).ok


@pytest.mark.parametrize("moment", ["outage_at", "kill_at"])
@pytest.mark.parametrize("fraction", [0.0, 0.19, 0.81, 1.0])
def test_a_fault_that_fell_outside_the_middle_is_not_ok(moment: str, fraction: float) -> None:
    assert not GOOD._replace(**{moment: fraction}).ok


def results(monkeypatch: pytest.MonkeyPatch, *found: Result) -> list[int]:
    """Runs of the demo end with these, one after the other; how many records each was given."""
    given: list[int] = []
    queue = list(found)

    def run(self: demo_module._Demo) -> Result:
        Path(self.log).mkdir(parents=True)
        given.append(self.sample.records)
        return queue.pop(0)

    monkeypatch.setattr(demo_module._Demo, "run", run)
    return given


@pytest.mark.parametrize("fault", ["lost", "repeated", "disordered", "altered"])
def test_its_exit_status_is_1_if_anything_is_amiss(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    fault: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    text = write_lines(tmp_path / "text", 5)
    results(monkeypatch, GOOD._replace(**{fault: 1}))
    assert run_demo([str(text)], as_json=True) == 1
    assert json.loads(capsys.readouterr().out)["ok"] is False


def test_its_exit_status_is_0_and_it_says_so_if_all_is_well(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = write_lines(tmp_path / "text", 5)
    results(monkeypatch, GOOD)
    assert run_demo([str(text)]) == 0
    shown = capsys.readouterr().out
    assert GOOD.proved in shown
    for row in ("records", "outage survived", "process killed", "lost", "duplicated"):
        assert row in shown


def test_where_it_was_too_quick_it_says_so_and_takes_more(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = write_lines(tmp_path / "text", 5)
    given = results(monkeypatch, GOOD._replace(kill_at=0.95), GOOD)
    assert run_demo([str(text)], as_json=True) == 0
    assert given == [50_000, 200_000]
    assert "before the faults could happen" in capsys.readouterr().err


def test_too_quick_with_a_fault_is_not_tried_again_until_it_looks_good(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    text = write_lines(tmp_path / "text", 5)
    given = results(monkeypatch, GOOD._replace(kill_at=0.95, lost=1), GOOD)
    assert run_demo([str(text)], as_json=True) == 1
    assert len(given) == 1


def run_python(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code, *arguments],
        capture_output=True, text=True, timeout=100, check=False,
    )  # fmt: skip  # one call


HIDING = """
import sys
from bridge.cli.demo.compare import Comparison
from bridge.cli.demo.demo import run_demo

arrived, hidden = Comparison.arrived, []

def hiding(self, messages):
    kept = list(messages)
    if not hidden and self.matched > 30_000 and len(kept) > 10:
        hidden.append(kept.pop(5))
    arrived(self, kept)

Comparison.arrived = hiding
sys.exit(run_demo(sys.argv[1:], as_json=True))
"""


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_a_single_record_that_does_not_come_out_is_found_missing(tmp_path: Path) -> None:
    """A canary: one message is hidden from the comparison, and the demo must not pass."""
    texts: dict[int, Path] = {}  # one for each partition, so that all of them move on
    for number in range(100):
        path = tmp_path / f"text-{number}"
        partition = partition_of_key(os.fsencode(path)[-120:], demo_module.PARTITIONS)
        texts.setdefault(partition, path)
    for path in texts.values():
        write_lines(path, 50)
    ended = run_python(HIDING, *map(str, texts.values()))
    assert ended.returncode == 1, ended.stderr
    result = json.loads(ended.stdout)
    assert (result["ok"], result["lost"], result["repeated"]) == (False, 1, 0)


DYING = """
import sys
from bridge.cli.demo import demo

begin = demo._Forwarding.__init__

def dying(self, log, bootstrap_servers):
    begin(self, log, bootstrap_servers)
    words = "import sys; print('last words', file=sys.stderr); sys.exit(7)"
    self._command = [sys.executable, "-c", words]

demo._Forwarding.__init__ = dying
try:
    demo.run_demo(sys.argv[1:])
except demo.AologError as error:
    print(error)
"""


def test_a_forwarding_process_that_ends_by_itself_is_an_error_with_its_last_words(
    tmp_path: Path,
) -> None:
    ended = run_python(DYING, str(write_lines(tmp_path / "text", 700)))
    assert "the forwarding process ended with 7: last words" in ended.stdout
