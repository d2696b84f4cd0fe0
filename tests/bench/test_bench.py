"""The bench runs, and every contender does the work that it is timed for. No time is asserted.

About ten seconds, most of them one run of every case at the small size, but for those of the
bridge (test_bridges.py) and of Spark (test_spark_case.py).
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner

from bench import measure, panel, results, target
from bench.__main__ import main
from bench.cases import CASES, CASES_ON_REQUEST, CASES_WITH_TARGETS, append_large, read
from bench.cases.arrow import VALUE_COLUMN
from bench.cases.compression import _CODECS, make_messages, records_of
from bench.cases.durability import SYNC, THREADS, threads_name
from bench.limits import RAW_BLOCKS, READ, READ_AND_HASH
from bench.payloads import make_payloads, prove
from bench.peers import MSGPACK
from bench.sizes import SIZES
from tests.bench.running import (
    CASES_OF_BRIDGE,
    CASES_OF_SPARK,
    ROOT,
    RUN_S,
    results_of,
    run_bench,
    run_small,
)

pytestmark = pytest.mark.timeout(RUN_S + 30)
LIMITS = {RAW_BLOCKS, READ, READ_AND_HASH}  # they move bytes and know no records
CASES_RUN = [
    case for case in CASES if case not in {*CASES_ON_REQUEST, *CASES_OF_BRIDGE, *CASES_OF_SPARK}
]
CASES_OF_PANELS = {"memory", "follow"}
CASES_OF_LARGE = {"append_large", "read_large"}
CASES_OF_RECORDS = [
    case
    for case in CASES_RUN
    if case not in {"opening", "scale", "seek", "compression", *CASES_OF_PANELS}
]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Every case at the small size, through the command line: what it printed, and its JSON."""
    return run_small(CASES_RUN, tmp_path_factory.mktemp("bench"))


def test_a_case_that_goes_wrong_is_named_and_what_others_measured_is_kept(tmp_path, monkeypatch):
    def groups(plan):
        yield from read_groups(plan)
        raise measure.Wrong("it lost a record")

    read_groups = read.groups
    monkeypatch.setattr(read, "groups", groups)
    cases = ("--only", "append", "--only", "read", "--only", "seek")
    kept = tmp_path / "kept.json"
    done = CliRunner().invoke(main, ["--size", "small", *cases, "--json", str(kept)])
    assert done.exit_code == 1
    assert "read went wrong, and counts for nothing: it lost a record" in done.stderr
    found = {group["case"] for group in json.loads(kept.read_text())["groups"]}
    assert found == {"append", "seek"}


def test_all_cases_run_and_the_machine_is_named(run):
    _, document = run
    assert {group["case"] for group in document["groups"]} == set(CASES_RUN) - CASES_OF_PANELS
    assert {panel["case"] for panel in document["panels"]} == CASES_OF_PANELS
    assert document["runs"][0]["machine"]["cpu"]
    assert document["runs"][0]["machine"]["versions"]["aolog"]
    assert " on /" in document["runs"][0]["machine"]["file_system"]


@pytest.mark.parametrize("case", CASES_OF_RECORDS)
def test_every_contender_gives_back_the_records_that_it_was_given(run, case):
    _, document = run
    size = SIZES["small"]
    record_bytes = append_large.RECORD_BYTES if case in CASES_OF_LARGE else 100
    values = make_payloads(size.records_of(record_bytes), record_bytes)
    expected = {len(values): prove(values).digest}
    few = values[: size.records_slow]
    expected[len(few)] = prove(few).digest
    results = results_of(document, case)
    assert any(result["name"].startswith("aolog") for result in results)
    for result in results:
        assert result["expected_digest"] == expected[result["records"]], result["name"]
        if result["name"].partition(",")[0] in LIMITS:  # of whatever size a call is
            assert result["digest"] is None
        else:
            assert result["digest"] == expected[result["records"]], result["name"]


@pytest.mark.parametrize("case", sorted(set(CASES_RUN) - CASES_OF_PANELS))
def test_the_json_has_each_round_its_ratios_and_their_medians(run, case):
    _, document = run
    rounds = SIZES["small"].scale_rounds if case == "scale" else SIZES["small"].rounds
    for group in document["groups"]:
        times_of = {r["name"]: r["wall_ns"] for r in group["results"]}
        for result in group["results"] if group["case"] == case else []:
            times = result["wall_ns"]
            assert len(times) == len(result["cpu_ns"]) == group["rounds"] == rounds
            assert result["median_ns"] == statistics.median(times) > 0
            assert (result["min_ns"], result["max_ns"]) == (min(times), max(times))
            assert set(result["ratios"]) == set(group["baselines"])
            for name, ratio in result["ratios"].items():
                each = [a / b for a, b in zip(times, times_of[name], strict=True)]
                assert result["ratios_of_rounds"][name] == pytest.approx(each, rel=1e-3, abs=1e-4)
                assert ratio == pytest.approx(statistics.median(each), rel=1e-3, abs=1e-4)


def test_every_row_says_what_survives_and_what_is_checked(run):
    stdout, document = run
    for group in document["groups"]:
        assert f"\n{group['title']}: " in stdout
        for result in group["results"]:
            assert result["survives"]
            assert result["checksum"]
    for result in results_of(document, "append"):
        assert result["survives"].startswith("OS")
        assert result["stored_bytes"] > 100 * result["records"]


def test_all_installed_peers_take_part(run):
    _, document = run
    peers = {"msgpack": MSGPACK, "pyarrow": "arrow IPC", "lmdb": "lmdb",
             "sqlite3": "sqlite WAL", "rocksdict": "rocksdict"}  # fmt: skip
    for module, name in peers.items():
        pytest.importorskip(module)
        assert name in {result["name"] for result in results_of(document, "append")}


def test_a_follower_is_timed_and_its_idleness_measured(run):
    stdout, document = run
    latency, idle = (one for one in document["panels"] if one["case"] == "follow")
    figures = {probe["name"]: probe["figures"] for probe in latency["probes"]}
    assert figures.keys() == {"aolog, follow", "a pipe"}
    for figure in figures.values():
        assert 0 < figure["p50 us"]["median"] <= figure["p99 us"]["median"]
    (waits,) = idle["probes"]
    assert 0 <= waits["figures"]["CPU %"]["median"] < 100
    assert "p99 us" in stdout


def test_the_half_in_python_has_rows_of_its_own(tmp_path):
    path = tmp_path / "out.json"
    only = [word for case in ("append", "append_many", "read") for word in ("--only", case)]
    done = run_bench(
        "--size", "small", *only, "--json", str(path), env={"AOLOG_BACKEND": "python"}
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    document = json.loads(path.read_text(encoding="utf-8"))
    assert "aolog.backend python" in done.stdout
    for case in ("append", "append_many", "read"):
        assert "aolog" in {result["name"] for result in results_of(document, case)}


def test_no_target_is_judged_at_the_small_size(run):
    stdout, document = run
    assert document["targets"] == document["bounds"] == []
    assert "target" not in stdout


def test_a_check_that_could_not_fail_is_refused():
    for arguments in (["--size", "small"], ["--only", "compression"]):
        done = run_bench("--check", *arguments)
        assert done.returncode == 2
        assert "--check needs" in done.stderr


def test_a_peer_that_is_not_installed_is_named_and_left_out(tmp_path):
    """A module in front of the real one says what a missing one says."""
    (tmp_path / "lmdb.py").write_text(
        "raise ModuleNotFoundError(\"No module named 'lmdb'\", name='lmdb')\n", encoding="utf-8"
    )
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    done = run_bench("--size", "small", "--only", "append_many", env={"PYTHONPATH": path})
    assert done.returncode == 0, done.stderr
    assert "    lmdb: not installed" in done.stdout.splitlines()
    assert not any(line.startswith("lmdb ") for line in done.stdout.splitlines())


def test_the_command_line_imports_no_peer_until_it_runs_one():
    code = (
        "import sys, bench.__main__\n"
        "print([m for m in ('numpy', 'pyarrow', 'msgpack', 'lmdb', 'aolog') if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


# --- measuring ------------------------------------------------------------------------------


def contender(name, log, *, did=3, proof=None):
    @contextmanager
    def session(directory):
        assert list(Path(directory).iterdir()) == []
        log.append(f"open {name}")

        def work():
            log.append(f"work {name}")
            Path(directory, "file").write_bytes(b"12345")
            return did

        yield work
        log.append(f"close {name}")

    return measure.Contender(
        name, measure.Promise("OS", "none"), 3, session, proof, prove([b"a", b"b", b"c"])
    )


def group(*contenders, targets=()):
    return measure.Group(
        "case", "title", "all of it", 1, list(contenders), (contenders[0].name,), targets=targets
    )


def test_contenders_take_turns_and_the_warm_up_does_not_count(tmp_path):
    log = []
    found = measure.measure(
        group(contender("a", log), contender("b", log)),
        rounds=2, directory=str(tmp_path), progress=lambda _: None,
    )  # fmt: skip
    assert [entry for entry in log if entry.startswith("work")] == ["work a", "work b"] * 3
    assert [len(one.wall_ns) for one in found] == [2, 2]
    assert [one.stored_bytes for one in found] == [5, 5]
    assert list(tmp_path.iterdir()) == []


def test_a_contender_that_did_other_work_is_no_result(tmp_path):
    wrong = [
        contender("short", [], did=2),
        contender("altered", [], proof=lambda _: prove([b"a", b"b", b"x"])),
        contender("split elsewhere", [], proof=lambda _: prove([b"ab", b"", b"c"])),
    ]
    for one in wrong:
        with pytest.raises(measure.Wrong, match=one.name):
            measure.measure(group(one), rounds=1, directory=str(tmp_path), progress=lambda _: None)


@pytest.mark.parametrize(("value_ns", "holds"), [(29.0, True), (30.0, True), (31.0, False)])
def test_a_target_is_about_the_median_of_the_rounds_ratios(value_ns, holds):
    timed = [
        measure.Measured(contender(READ_AND_HASH, []), [10.0, 9.0, 11.0], [1.0] * 3),
        measure.Measured(contender(VALUE_COLUMN, []), [value_ns, 500.0, 1.0], [1.0] * 3),
    ]
    bound = measure.Target("the value column", VALUE_COLUMN, (READ_AND_HASH,), 3)
    judged = group(*(one.contender for one in timed), targets=(bound,))
    (figure,) = target.figures([(judged, timed)])
    assert figure.ratio == value_ns / 10
    assert figure.holds is holds
    (line,) = results.verdicts(results.document({}, "normal", 1, [(judged, timed)], []))
    assert f"{value_ns / 10:.2f} (at most 3)" in line
    assert ("holds" in line) is holds
    assert target.figures([(group(*judged.contenders), timed)]) == []
    assert target.figures([(judged, timed[:1])]) == []  # its contender could not run


def test_a_target_may_compare_with_a_sum():
    timed = [measure.Measured(contender(name, []), [ns]) for name, ns in
               (("open 9", 33.0), ("list 9", 10.0), ("open 1", 20.0))]  # fmt: skip
    growth = measure.Target("opening 9", "open 9", ("list 9", "open 1"), 1.5)
    judged = group(*(one.contender for one in timed), targets=(growth,))
    (figure,) = target.figures([(judged, timed)])
    assert figure.ratio == pytest.approx(1.1)
    assert figure.holds


def test_cases_with_targets_are_those_whose_groups_have_some(tmp_path):
    from bench.cases import groups_of_case
    from bench.cases.plan import Plan

    plan = Plan(str(tmp_path), SIZES["small"], (100,))
    having = {
        case for case in CASES if case not in CASES_OF_SPARK for one in groups_of_case(case, plan)
        if (any(probe.at_most for probe in one.probes) if isinstance(one, panel.Panel)
            else one.targets)
    }  # fmt: skip
    assert having == set(CASES_WITH_TARGETS) - set(CASES_OF_SPARK)


def test_a_record_synced_alone_costs_one_fdatasync_and_threads_share_them(run):
    stdout, document = run
    assert "fdatasyncs" in stdout
    syncs = {r["name"]: r["fdatasyncs"] for r in results_of(document, "durability")}
    assert set(syncs[SYNC]) == set(syncs[threads_name(1)]) == {1.0}
    assert all(each <= 1.0 for n in THREADS for each in syncs[threads_name(n)])
    assert max(syncs[threads_name(16)]) < 0.9
    assert syncs["sqlite WAL, FULL"] == []


def test_openings_are_counted_and_not_records(run):
    stdout, document = run
    assert "ns/opening" in stdout
    groups = [one for one in document["groups"] if one["case"] == "opening"]
    assert len(groups) == 2
    names = {result["name"] for result in groups[0]["results"]}
    assert {"listing, 1 slab", "append, 10 slabs", "read, 10 slabs"} <= names
    assert all(result["median_ns"] > 0 for one in groups for result in one["results"])


def test_codecs_give_back_the_messages_that_they_were_given(run):
    pytest.importorskip("lz4.block", reason="the compression extra is not installed")
    _, document = run
    messages = make_messages(records_of(SIZES["small"]))
    results = results_of(document, "compression")
    assert {result["name"] for result in results} == {codec.name for codec in _CODECS}
    assert {result["digest"] for result in results} == {prove(messages).digest}
    stored = {r["name"]: r["stored_bytes"] for r in results if r["stored_bytes"]}
    assert stored["zstd"] < stored["lz4"] < stored["aolog"] / 2


def test_messages_are_the_same_in_every_run_and_as_long_as_they_say():
    messages = make_messages(1000)
    assert make_messages(10) == messages[:10]
    assert 200 < sum(map(len, messages)) / 1000 < 300
    assert all(json.loads(message)["agent"] for message in messages)


def test_payloads_are_the_same_in_every_run():
    assert make_payloads(3, 20) == make_payloads(5, 20)[:3]
    assert {len(value) for value in make_payloads(100, 1024)} == {1024}
    assert len(set(make_payloads(1000, 20))) == 1000
