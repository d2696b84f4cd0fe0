"""The examples run as their docstrings say."""

from __future__ import annotations

import http.client
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

import aolog
from aolog.examples import dataframes, retention_by_age
from tests.aolog.conftest import ROOT, slab_files, values, wait_until


def run(module: str, *arguments: object, given: bytes = b"") -> bytes:
    command = [sys.executable, "-m", module, *map(str, arguments)]
    done = subprocess.run(command, cwd=ROOT, input=given, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_channel_each_receiver_gets_every_line_and_goes_on_where_it_committed(
    tmp_path: Path,
) -> None:
    path = tmp_path / "channel"
    run("aolog.examples.channel", "send", path, given=b"one\ntwo\n")
    assert run("aolog.examples.channel", "receive", path, "a") == b"one\ntwo\n"
    run("aolog.examples.channel", "send", path, given=b"three\n")
    assert run("aolog.examples.channel", "receive", path, "a") == b"three\n"
    assert run("aolog.examples.channel", "receive", path, "b") == b"one\ntwo\nthree\n"


def test_channel_a_killed_receiver_loses_no_line(tmp_path: Path) -> None:
    path = str(tmp_path / "channel")
    run("aolog.examples.channel", "send", path, given=b"".join(b"%d\n" % i for i in range(20_000)))
    command = [sys.executable, "-m", "aolog.examples.channel", "receive", path, "a"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE) as receiver:
        assert receiver.stdout is not None
        first = receiver.stdout.readline()
        receiver.send_signal(signal.SIGKILL)
        got = first + receiver.stdout.read()
    rest = run("aolog.examples.channel", "receive", path, "a")
    lines = {*got.splitlines(), *rest.splitlines()}
    assert lines >= {b"%d" % i for i in range(20_000)}


def test_retention_by_age_deletes_old_slabs_and_keeps_young_ones(log_path: str) -> None:
    with retention_by_age.open_log(log_path, age_s=0.5, slab_s=0.1) as log:
        log.append(b"old")
        log.flush()
        first = slab_files(log_path)[0]
        wait_until(lambda: (log.append(b"new"), log.flush(), not first.exists())[-1])
    assert b"old" not in values(log_path)
    assert values(log_path)[-1:] == [b"new"]


def test_dataframes_every_library_counts_the_same(log_path: str) -> None:
    with aolog.Writer(log_path) as log:
        for i in range(3_000):
            log.append(b"%d" % i, key=b"%d" % (i % 3))
    expected = {"0": 1_000, "1": 1_000, "2": 1_000}
    assert dataframes.ten_of(expected) == "'0': 1,000, '1': 1,000, '2': 1,000"
    many = {f"{i}": i for i in range(500)}
    assert dataframes.ten_of(many).startswith("'499': 499, ")
    assert dataframes.ten_of(many).endswith("'490': 490, and 490 more keys")
    assert dataframes.by_pyarrow(log_path) == expected
    for module, count in (
        ("pandas", dataframes.by_pandas),
        ("polars", dataframes.by_polars),
        ("duckdb", dataframes.by_duckdb),
    ):
        pytest.importorskip(module)
        assert count(log_path) == expected


@contextmanager
def serving(command: list[str], root: Path) -> Iterator[int]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", *(word.replace("PORT", str(port)) for word in command)]
    environment = {**os.environ, "ORDERS": str(root)}
    with subprocess.Popen(command, cwd=ROOT, env=environment, stderr=subprocess.DEVNULL) as server:
        try:
            for _ in range(300):
                try:
                    socket.create_connection(("127.0.0.1", port), 1).close()
                    break
                except OSError:
                    time.sleep(0.1)
            yield port
        finally:
            server.send_signal(signal.SIGTERM)
            server.wait(20)


@pytest.mark.parametrize(
    ("needs", "command"),
    [
        (
            ("flask", "gunicorn"),
            ["gunicorn", "--workers", "2", "--threads", "8", "--bind", "127.0.0.1:PORT", "aolog.examples.flask_service:app"],
        ),
        (
            ("fastapi",),
            ["uvicorn", "--workers", "2", "--port", "PORT", "aolog.examples.fastapi_service:app"],
        ),
    ],
    ids=["flask under gunicorn", "fastapi under uvicorn"],
)  # fmt: skip  # a table
def test_service_with_workers_each_has_a_log_and_no_order_is_lost(
    tmp_path: Path, needs: tuple[str, ...], command: list[str]
) -> None:
    for module in needs:
        pytest.importorskip(module)
    sent = [b"order %d" % i for i in range(40)]
    with serving(command, tmp_path) as port:

        def order(body: bytes) -> int:
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
            connection.request("POST", "/orders", body, {"Customer": "me"})
            status = connection.getresponse().status
            connection.close()
            return status

        with ThreadPoolExecutor(8) as pool:  # the first requests come at once
            assert set(pool.map(order, sent)) == {204}
        found = []
        for log in tmp_path.iterdir():
            with suppress(aolog.errors.NotALog):  # another worker has just begun to make it
                found += values(str(log))
        assert sorted(found, key=str) == sorted(sent, key=str)  # durable while the workers run
    for log in tmp_path.iterdir():
        aolog.Writer(log).close()  # the workers have ended
