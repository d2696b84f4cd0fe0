"""The demo's input: every line of the files, in order, enough of it, and nothing unreadable."""

from __future__ import annotations

from pathlib import Path

import pytest

from aolog.errors import UsageError
from bridge.simulate import sample as sample_module
from bridge.simulate.sample import LINE_BYTES_MAX, choose


def write(path: Path, data: bytes) -> str:
    path.write_bytes(data)
    return str(path)


def test_lines_come_in_order_with_their_files_name_as_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sample_module, "RECORDS_MIN", 1)
    a = write(tmp_path / "a", b"one\n\n two \r\nlast without end")
    b = write(tmp_path / "b", b"\xff\0\n")
    chosen = choose([a, b])
    assert list(chosen.lines()) == [
        *((a.encode(), v) for v in (b"one", b"", b" two \r", b"last without end")),
        (b.encode(), b"\xff\0"),
    ]
    assert (chosen.records, chosen.times) == (5, 1)
    assert chosen.what == "2 files"


def test_a_line_too_long_for_a_broker_is_cut_and_none_of_it_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sample_module, "RECORDS_MIN", 1)
    data = b"a" * (LINE_BYTES_MAX + 10) + b"\nend\n"
    lines = [value for _, value in choose([write(tmp_path / "a", data)]).lines()]
    assert [len(line) for line in lines] == [LINE_BYTES_MAX, 10, 3]
    assert b"".join(lines) == data.replace(b"\n", b"")


def test_files_without_a_line_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="there is no line in it") as caught:
        choose([write(tmp_path / "empty", b"")])
    assert caught.value.exit_status == 2
