"""The bench runs, and every contender does the work that it is timed for. No time is asserted.

Most of the time is one run of every case at the small size, but for those of the
bridge (test_bridges.py) and of Spark (test_spark_case.py).
"""

import json
from contextlib import contextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner

from bench import measure, quick, results, target
from bench.__main__ import main
from bench.cases import CASES, CASES_ON_REQUEST, append_large, read
from bench.cases.arrow import VALUE_COLUMN
from bench.cases.compression import _CODECS, make_messages, records_of
from bench.limits import RAW_BLOCKS, READ, READ_AND_HASH
from bench.payloads import make_payloads, prove
from bench.peers.programs import GO_READ
from bench.sizes import SIZES
from tests.bench.running import (
    CASES_OF_BRIDGE,
    CASES_OF_SPARK,
    CASES_OF_STORES,
    results_of,
    run_small,
)

# They move bytes and know no records; Go's reader gives nothing back.
LIMITS = {RAW_BLOCKS, READ, READ_AND_HASH, GO_READ}
CASES_RUN = [
    case
    for case in CASES
    if case not in {*CASES_ON_REQUEST, *CASES_OF_BRIDGE, *CASES_OF_SPARK, *CASES_OF_STORES}
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


def test_quick_draws_the_rows_of_the_readme_as_bars():
    done = CliRunner().invoke(main, ["--quick", "--size", "small", "--repeat", "1"])
    assert done.exit_code == 0, done.output
    _, *parts = done.stdout.split("\n\n")
    assert len(parts) == len(quick.CASES)
    for part in parts:
        title, *rows = part.strip().splitlines()
        assert "ns a record" in title
        assert {row[2:14].strip() for row in rows} == set(quick.ROWS)
        assert rows[-1].count("█") == 40, "the slowest"
    refused = CliRunner().invoke(main, ["--quick", "--only", "seek"])
    assert (refused.exit_code, "--quick has cases of its own" in refused.stderr) == (2, True)


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
        name = result["name"]
        if name in LIMITS or name.partition(",")[0] in LIMITS:  # of whatever size a call is
            assert result["digest"] is None
        else:
            assert result["digest"] == expected[result["records"]], result["name"]


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


def test_codecs_give_back_the_messages_that_they_were_given(run):
    pytest.importorskip("lz4.block", reason="the compression extra is not installed")
    _, document = run
    messages = make_messages(records_of(SIZES["small"]))
    results = results_of(document, "compression")
    assert {result["name"] for result in results} == {codec.name for codec in _CODECS}
    assert {result["digest"] for result in results} == {prove(messages).digest}
    stored = {r["name"]: r["stored_bytes"] for r in results if r["stored_bytes"]}
    assert stored["zstd"] < stored["lz4"] < stored["aolog"] / 2
