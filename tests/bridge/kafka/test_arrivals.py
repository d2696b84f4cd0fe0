"""Messages that a consumer takes as columns: the same as the client's objects of them say."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
import time
from array import array
from collections import Counter
from importlib.util import find_spec
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer, cimpl

import aolog
from aolog.format.slab import NO_TIMESTAMP
from bridge.kafka import runs as runs_module
from bridge.kafka.consumed import LeftOut
from bridge.kafka.fetcher import Fetched, Fetcher
from bridge.kafka.plugin import Plugin, plugin
from bridge.kafka.runs import Run, numbered, runs_of

if TYPE_CHECKING:
    from pathlib import Path

    from bridge.kafka.catalog import Place
    from bridge.kafka.embedded import EmbeddedBroker

IS_COMPILED = aolog.backend == "compiled" and find_spec("bridge.kafka._produce") is not None
compiled_only = pytest.mark.skipif(not IS_COMPILED, reason="the compiled half was not built")
SOON_S, RUN_RECORDS = 10.0, 3


def produce(broker: EmbeddedBroker, rows: list[dict[str, Any]]) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "log_level": 0})
    for topic in {row["topic"] for row in rows}:
        broker.create_topic(topic, 2)
    for row in rows:
        producer.produce(**row)
    producer.flush()


def taken(
    fetcher: Fetcher, count: int, size: int = 15, run_records: int | None = RUN_RECORDS
) -> list[Run]:
    """The runs of so many messages, in steps of this size."""
    runs: list[Run] = []
    until_s = time.monotonic() + SOON_S
    while sum(len(run.offsets) for run in runs) < count:
        assert time.monotonic() < until_s
        found = fetcher.fetch(size, 0.2, run_records)
        assert found.away is None
        assert not (found.messages and found.runs)
        runs += found.runs or runs_of(found.messages, RUN_RECORDS)
    return runs


def rows_of(runs: list[Run]) -> dict[Place, list[tuple[Any, ...]]]:
    """The messages of each partition, in order."""
    rows: dict[Place, list[tuple[Any, ...]]] = {}
    for run in runs:
        assert len(run.offsets) <= RUN_RECORDS
        rows.setdefault(run.place, []).extend(run.rows())
    return rows


PLACES = [("t", 0), ("t", 1), ("u", 1)]


def row(i: int, **more: Any) -> dict[str, Any]:
    topic, partition = PLACES[i % 3]
    return {"topic": topic, "partition": partition, "value": b"%d" % i, "timestamp": 7 + i, **more}


@compiled_only
@pytest.mark.parametrize("size", [1, 15])
@pytest.mark.parametrize(
    "more",
    [
        {}, {"key": b"k"}, {"key": b""}, {"value": None}, {"value": b""},
        {"headers": [("h", b"1"), ("i", None), ("ä", b"")]}, {"headers": []}, {"timestamp": 2**62},
    ],
)  # fmt: skip  # a list
def test_columns_are_what_the_client_s_messages_say(
    embedded_broker: EmbeddedBroker, more: dict[str, Any], size: int
) -> None:
    produce(embedded_broker, [row(i, **(more if i > 20 else {})) for i in range(39)])
    found: list[dict[Place, list[tuple[Any, ...]]]] = []
    for records in (None, RUN_RECORDS):
        fetcher = Fetcher(embedded_broker.bootstrap_servers, {})
        fetcher.assign(dict.fromkeys(PLACES, 0))
        found.append(rows_of(taken(fetcher, 39, size, records)))
        fetcher.close()
    assert found[0] == found[1]
    assert Counter(map(len, found[0].values())) == {13: 3}


def test_a_run_is_of_one_partition_even_where_offsets_rise(embedded_broker: EmbeddedBroker) -> None:
    begins = dict(zip(PLACES, (0, 10, 20), strict=True))
    wanted = {place: [b"%s %d" % (place[0].encode(), place[1])] * 10 for place in PLACES}
    rows = [{**row(i), "value": wanted[place][0]} for i, place in enumerate(PLACES)]
    produce(
        embedded_broker,
        [each for each, n in zip(rows, (10, 20, 30), strict=True) for _ in range(n)],
    )
    fetcher = Fetcher(embedded_broker.bootstrap_servers, {})
    fetcher.assign(begins)
    found: dict[Place, list[bytes | None]] = {}
    for run in taken(fetcher, 30, 30, 1_000):  # perhaps several of a partition
        found.setdefault(run.place, []).extend(value for _, _, _, value, *_ in run.rows())
    assert found == wanted
    fetcher.close()


@compiled_only
def test_a_time_that_cannot_be_kept_is_left_out(embedded_broker: EmbeddedBroker) -> None:
    produce(embedded_broker, [row(0), row(0, timestamp=2**62)])
    fetcher = Fetcher(embedded_broker.bootstrap_servers, {})
    fetcher.assign({("t", 0): 0})
    (run,) = taken(fetcher, 2)
    assert [time_us for _, time_us, *_ in run.rows()] == [7_000, NO_TIMESTAMP]
    assert run.left_out == [None, LeftOut(0, 2**62)]
    fetcher.close()


def by_columns(broker: EmbeddedBroker, rows: int) -> Fetcher:
    """A fetcher of a partition with so many messages."""
    produce(broker, [row(0, value=b"%d" % i) for i in range(rows)])
    return Fetcher(broker.bootstrap_servers, {})


@pytest.mark.parametrize("how", ["compiled", "python"])
@pytest.mark.parametrize("times", [1, 3])
def test_a_partition_that_is_removed_and_added_again_goes_on_where_it_is_to(
    how: str, times: int, embedded_broker: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client stops it in the background. What it fetched before is not given any more."""
    if how == "python":
        monkeypatch.setattr(runs_module, "plugin", lambda: None)
    fetcher = by_columns(embedded_broker, 1_000)
    fetcher.assign({("t", 0): 0})
    assert rows_of(taken(fetcher, 10, 10))["t", 0][0][0] == 0
    for begin in range(500, 500 + 100 * times, 100):
        fetcher.unassign([("t", 0)])
        fetcher.assign({("t", 0): begin})
    offsets = [offset for offset, *_ in rows_of(taken(fetcher, 200))["t", 0]]
    assert offsets == list(range(begin, begin + len(offsets)))
    fetcher.close()


@pytest.mark.parametrize("how", ["compiled", "python"])
def test_the_end_and_an_offset_that_is_gone_are_reported(
    how: str, embedded_broker: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    if how == "python":
        monkeypatch.setattr(runs_module, "plugin", lambda: None)
    fetcher = by_columns(embedded_broker, 5)
    fetcher.assign({("t", 0): 0, ("t", 1): 7})
    until_s = time.monotonic() + SOON_S
    ends: dict[Place, int] = {}
    gone: list[Place] = []
    while not (ends and gone):
        assert time.monotonic() < until_s
        found = fetcher.fetch(100, 0.2, RUN_RECORDS)
        ends |= found.ends
        gone += found.out_of_range
    assert (ends, gone) == ({("t", 0): 5}, [("t", 1)])
    fetcher.close()


@pytest.mark.parametrize("how", ["compiled", "python"])
def test_a_run_of_large_messages_has_fewer(
    how: str, embedded_broker: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It becomes a frame, which is written and read as a whole."""
    if how == "python":
        monkeypatch.setattr(runs_module, "plugin", lambda: None)
    kilobytes = [200, 200, 200, 900, 1, 511, 1, 0]
    produce(embedded_broker, [row(0, value=bytes(1024 * size)) for size in kilobytes])
    fetcher = Fetcher(embedded_broker.bootstrap_servers, {})
    fetcher.assign({("t", 0): 0})
    found = fetcher.fetch(len(kilobytes), SOON_S, 100)
    assert [list(run.offsets) for run in found.runs] == [[0, 1, 2], [3], [4, 5], [6, 7]]
    fetcher.close()


@pytest.mark.parametrize("how", ["compiled", "python"])
def test_offsets_rise_within_a_run_also_if_the_client_fetches_again(
    how: str, embedded_broker: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As it does in a rebalance: it pauses all partitions, and takes back what the present call would return. A pull
    doubled a record."""
    if how == "python":
        monkeypatch.setattr(runs_module, "plugin", lambda: None)
    produce(embedded_broker, [row(0) for _ in range(100)])
    calls = 0

    def again(_: str) -> None:
        nonlocal calls
        calls += 1
        if calls in {2, 4}:
            fetcher.pause()
            fetcher.resume()

    settings: Any = {"statistics.interval.ms": 50, "stats_cb": again}
    fetcher = Fetcher(embedded_broker.bootstrap_servers, settings)
    fetcher.assign({("t", 0): 0})
    offsets: list[list[int]] = []
    until_s = time.monotonic() + SOON_S
    while calls <= 4 or set().union(*offsets) != set(range(100)):
        assert time.monotonic() < until_s
        found = fetcher.fetch(1_000, 1.0, 1_000)
        offsets += [list(run.offsets) for run in found.runs]
    assert all(each == sorted(set(each)) for each in offsets)
    fetcher.close()


@compiled_only
def test_a_lack_of_memory_is_reported_as_such(
    embedded_broker: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whichever allocation fails: a function that gets other arguments, or an exception beside them, may crash."""
    memory, compiled = pytest.importorskip("_testcapi"), plugin()
    assert compiled is not None

    def columns(*given: Any) -> Any:
        memory.set_nomemory(failed, failed + 1)
        try:
            return compiled.half.columns(*given)
        finally:
            memory.remove_mem_hooks()

    half = SimpleNamespace(**{**vars(compiled.half), "columns": columns})
    monkeypatch.setattr(runs_module, "plugin", lambda: Plugin(half, compiled.path))
    more = {"key": b"k", "headers": [("h", b"1" * 500)], "timestamp": 2**62}
    produce(embedded_broker, [row(0, **more) for _ in range(100)])
    fetcher = Fetcher(embedded_broker.bootstrap_servers, {})
    fetcher.assign({("t", 0): 0})
    found = Fetched([], {}, [], None)
    failed = 0
    while not found.runs:
        try:
            found = fetcher.fetch(1, SOON_S, RUN_RECORDS)
        except MemoryError:
            failed += 1
    assert failed > 10
    assert found.runs[0].left_out == [LeftOut(0, 2**62)]
    fetcher.close()


OTHER_PLUGIN = """
#include <stdint.h>
struct message { int error; void *topic; int32_t partition; void *of[4]; int64_t offset; };
int (*add_on_new)(void *, const char *, void *, void *), (*add_on_consume)(void *, const char *, void *, void *);
int64_t seen[100], count;
static int on_consume(void *rk, struct message *message, void *opaque) { return seen[count++] = message->offset, 0; }
static int on_new(void *rk) { return add_on_consume(rk, "other", on_consume, 0); }
int conf_init(void *conf) { return add_on_new(conf, "other", on_new, 0); }
"""


@pytest.mark.skipif(shutil.which("gcc") is None, reason="no compiler")
def test_another_plugin_hears_of_messages_in_order(
    embedded_broker: EmbeddedBroker, tmp_path: Path
) -> None:
    path = tmp_path / "other.so"
    build = ["gcc", "-xc", "-shared", "-fPIC", "-w", "-o", path, "-"]
    subprocess.run(build, input=OTHER_PLUGIN, text=True, check=True)
    client, other = ctypes.CDLL(cimpl.__file__), ctypes.CDLL(str(path))
    for variable, name in (
        ("add_on_new", "rd_kafka_conf_interceptor_add_on_new"),
        ("add_on_consume", "rd_kafka_interceptor_add_on_consume"),
    ):
        address = ctypes.cast(client[name], ctypes.c_void_p)
        ctypes.c_void_p.in_dll(other, variable).value = address.value
    produce(embedded_broker, [row(0) for _ in range(100)])
    fetcher = Fetcher(embedded_broker.bootstrap_servers, {"plugin.library.paths": str(path)})
    fetcher.assign({("t", 0): 0})
    taken(fetcher, 100)
    assert list((ctypes.c_int64 * 100).in_dll(other, "seen")) == list(range(100))
    fetcher.close()


@pytest.mark.parametrize("is_closed", [False, True])
def test_a_consumer_goes_while_messages_wait(
    embedded_broker: EmbeddedBroker, *, is_closed: bool
) -> None:
    fetcher = by_columns(embedded_broker, 1_000)
    fetcher.assign({("t", 0): 0})
    taken(fetcher, 10, 10)
    if is_closed:
        fetcher.close()
    del fetcher


@pytest.mark.parametrize("how", ["compiled", "python"])
@pytest.mark.parametrize("prefix", [b"", b"100%/", b"p" * 300])
def test_a_column_is_numbered(how: str, prefix: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    if how == "python":
        monkeypatch.setattr(runs_module, "plugin", lambda: None)
    numbers = [0, 7, 10, 2**63 - 1]
    found = numbered(prefix, array("q", numbers))
    assert found.to_list() == [prefix + b"%d" % number for number in numbers]
