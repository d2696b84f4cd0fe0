"""Records with headers and timestamps that a log cannot hold: each is kept, and what is left out is told."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from aolog import Reader
from bridge.cli import main
from bridge.pull.origin import HEADER_NAME
from tests.bridge.foreign import Foreign, produce_foreign
from tests.bridge.pull.pulling import pull

pytestmark = [pytest.mark.kafka, pytest.mark.xdist_group("kafka 1")]

ANY_TIME = {"message.timestamp.after.max.ms": str(2**63 - 1)}
RECORDS = [
    Foreign(b"0", [(b"a", b"1")], 1_700_000_000_000),
    Foreign(b"1", [(b"\xff\xfe", b"2"), (b"a", b"1"), (b"\xc3\x28", b"3"), (b"b", None)], -1),
    Foreign(b"2", timestamp_ms=1_700_000_000_000_000_000),  # nanoseconds
    Foreign(b"3", timestamp_ms=-9 * 10**18),
    Foreign(b"4", timestamp_ms=1_700_000_000_000_000),  # microseconds: the year 55840
    Foreign(b"5", [(b"\xff", b"")], 1_700_000_000_001),
]


@pytest.mark.parametrize("units", [False, True], ids=["whole", "in units"])
def test_a_pull_keeps_records_without_what_cannot_be_kept_and_says_of_which(
    kafka, topic, tmp_path, caplog, units
):
    name, log = topic(config=ANY_TIME), tmp_path / "root" / "log"
    produce_foreign(kafka.bootstrap_servers, name, RECORDS)
    more = ("--units", "100", "--root", str(log.parent)) if units else ()
    result = pull(kafka, log, name, more=(*more, "--json"))
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout.splitlines()[-1])["left_out"] == 5
    with Reader(log) as reader:
        found = [
            (r.value, r.timestamp, [each for each in r.headers if each[0] != HEADER_NAME])
            for r in reader
        ]
    assert found == [
        (b"0", 1_700_000_000_000_000, [("a", b"1")]),
        (b"1", None, [("a", b"1"), ("b", None)]),
        (b"2", None, []),
        (b"3", None, []),
        (b"4", 1_700_000_000_000_000_000, []),
        (b"5", 1_700_000_000_001_000, []),
    ]
    (line,) = [text for text in caplog.messages if "left out" in text]
    assert line == f"{name}/0@1: left out: 2 headers whose name is not UTF-8"


def test_consume_prints_records_with_the_headers_that_have_a_name(kafka, topic):
    name = topic(config=ANY_TIME)
    produce_foreign(kafka.bootstrap_servers, name, RECORDS)
    servers = ("--bootstrap-servers", kafka.bootstrap_servers)
    for style, shown in (("--json", '"value":'), ("--format=line", f"{name}/0@")):
        asked = ["consume", name, *servers, "--from", "earliest", "--drain", style]
        result = CliRunner().invoke(main, asked)
        assert result.exit_code == 0, result.output
        assert result.stdout.count(shown) == len(RECORDS)
        if style == "--json":
            found = [json.loads(line) for line in result.stdout.splitlines()]
            assert [each["timestamp"] for each in found][1:4] == [None, 17 * 10**17, -9 * 10**18]
            assert found[1]["headers"] == [["a", "1"], ["b", None]]
