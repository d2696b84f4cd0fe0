"""`spark.read.format("aolog")`."""

from __future__ import annotations

import aolog


def test_a_row_is_what_a_record_is(tmp_path, load):
    path = tmp_path / "events"
    with aolog.Writer(path, topic="quakes") as log:
        first = log.append(
            b"one", key=b"k", headers=[("a", b"1"), ("b", None)], timestamp=1_700_000_000_000_001
        )
        second = log.append(None, topic="other", timestamp=1_700_000_000_000_002)
        log.append_many([b"x", b""])
    with aolog.Reader(path) as reader:
        records = list(reader)
    rows = load(path, includeHeaders="true").collect()
    assert [row.offset for row in rows] == [record.address for record in records]
    assert [row.value for row in rows] == [b"one", None, b"x", b""]
    assert [row.key for row in rows] == [b"k", None, None, None]
    assert [row.topic for row in rows] == ["quakes", "other", "quakes", "quakes"]
    assert {row.log for row in rows} == {"events"}
