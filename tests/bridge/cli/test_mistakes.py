"""Mistakes of a first week, each with the sentence that answers it: the cause, and what to do. About 20 s.

A line is typed in a directory that has a log `good` and files with mistakes in them.
"""

from __future__ import annotations

import logging
import runpy
import shlex
import subprocess
import sys
import sysconfig
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

import aolog
from aolog import AologError, Writer
from aolog.cli import main as aolog_main
from bridge import Buffer, MemoryProvider
from bridge.cli import main as bridge_main
from bridge.client import Consumer, Producer
from tests.bridge.brokers import NOWHERE

ROOT = Path(__file__).parents[3]
RUN = f"aolog-bridge run --log good --topic t --bootstrap-servers {NOWHERE}"
FILES = {
    "unknown.toml": '[clusters.main]\nbootstrap_server = "k:9092"\n',
    "empty.toml": 'root = "logs"\n',
    "flat.toml": 'bootstrap_servers = "k:9092"\nroot = "logs"\n',
    "broken.toml": "[clusters.main\n",
}
LINES = [
    # The log.
    ("aolog rread good", "Did you mean "),
    ("aolog read ''", 'the path is empty; name a directory; "." is the working directory'),
    ("aolog read missing", "missing: no such directory; name the directory of a log"),
    ("aolog read unknown.toml", "is a file, or a part of its path is one; name the directory of a log"),
    ("aolog info /etc", "the directory holds no slab; name the directory of a log; the first append creates one"),
    ("aolog verify .", "it is a directory of logs: name one of them, as ./good"),
    ("aolog read good --from tomorow", "use earliest, latest, an address, ordinal:N, a time such as"),
    ("aolog append good --topic 'bad topic/ü'", "Kafka has no such names: use up to 249 of letters"),
    ("aolog append good --sync sometimes", "is not one of 'interval', 'never', 'flush'"),
    ("aolog append good --retention-max-bytes 10XB", "is not a size: use bytes, or 10k, 64M, 1GiB"),
    ("aolog append good --flush-seconds soon", "is not a duration: use 500ms, 90s, 15m, 2h, 7d"),
    ("aolog append good --key-from csv:1", "use field:N[:SEP], json:PATH or regex:PATTERN"),
    ("aolog append good --mode 999", "is not a mode; use octal digits, as chmod does: 750"),
    ("aolog append good --compression-level 3", "--compression-level needs --compression"),
    ("aolog append good nofile", "File 'nofile' does not exist"),
    ("aolog cursor delete good nobody", "no cursor 'nobody'; `aolog cursor list` lists the cursors"),
    ("aolog cursor set good c 99999999", 'is past the end, 8888; read from "latest", or wait'),
    ("aolog repair good", "Missing option '--into'; see aolog repair --help"),
    ("aolog backup good good", "exists already; name a directory that does not exist"),
    ("aolog prune good", "give at least one of --max-bytes, --max-age, --max-slabs"),
    ("aolog archive good s3", "is not the URL of a store; s3://BUCKET/PREFIX"),
    ("aolog archive good file:///none", "file:///none: what is below file:// can be read only"),
    # The bridge.
    ("aolog-bridge rnu", "Did you mean 'run'?"),
    ("aolog-bridge run --log good --topic t", "name the cluster: --bootstrap-servers"),
    ("aolog-bridge run --log missing --topic t --bootstrap-servers k:1", "no such directory; name the directory of a log"),
    (f"{RUN} --root .", "name a --log or a --root, not both"),
    (f"{RUN} --log good", "--log is given more than once: it takes one value"),
    (f"aolog-bridge run --log good --topic 'bad topic' --bootstrap-servers {NOWHERE}", "is not a valid topic name; use up to 249 of letters, digits"),
    ("aolog-bridge run --log good --bootstrap-servers k:99999", "is not HOST:PORT; write brokers as kafka:9092"),
    ("aolog-bridge run --log good --bootstrap-servers http://k:9092", "is not HOST:PORT; write brokers as kafka:9092"),
    (f"{RUN} -X compressionn.type=lz4", "did you mean 'compression.type'?"),
    (f"{RUN} -X linger.ms=abc", "linger.ms: the Kafka client refuses a setting: Invalid value"),
    (f"{RUN} -X enable.idempotence=false", "is set by the bridge, its guarantees rest on it; leave it out"),
    (f"{RUN} -X ssl.ca.location=/nope.pem", "names /nope.pem, which cannot be read: No such file"),
    (f"{RUN} -X nonsense", "a setting is not KEY=VALUE"),
    (f"{RUN} --poison ignore", "is not one of 'stop', 'drop', 'dead-letter'"),
    (f"{RUN} --http 9100", "is not HOST:PORT; such as 127.0.0.1:9100, or :9100"),
    (f"{RUN} --http 0.0.0.0:9100", "there is no token; listen on 127.0.0.1, or give a token with --http-token-file"),
    ("aolog-bridge check-config missing.toml", "No such file or directory"),
    ("aolog-bridge check-config unknown.toml", "unknown key; did you mean 'bootstrap_servers'?"),
    ("aolog-bridge check-config empty.toml", "clusters: is missing"),
    ("aolog-bridge check-config flat.toml", "bootstrap_servers: is a key of a cluster: write [clusters.main], and below it"),
    ("aolog-bridge check-config broken.toml", "Expected ']' at the end of a table declaration (at line 1"),
    ("aolog-bridge status", "name one of --http, --config, --log and --root"),
    (f"aolog-bridge status --http {NOWHERE}", "Connection refused; is it running, with --http?"),
    (f"aolog-bridge top --http {NOWHERE}", "Connection refused; is it running, with --http?"),
    ("aolog-bridge seek good --to nowhere", "is not a valid position; use earliest, latest, an address"),
    (f"aolog-bridge replay good --topic t --bootstrap-servers {NOWHERE} --from earliest", "give --from and --to, or --dead-letter"),
    ("aolog-bridge pull --log pulled --bootstrap-servers k:1", "name a --topic or a --topics-file"),
    ("aolog-bridge consume t --bootstrap-servers nosuch.invalid:9092", "no broker answers: nosuch.invalid:9092: "),
    (f"aolog-bridge topics --bootstrap-servers {NOWHERE}", "connection refused; check the address; and security.protocol"),
]  # fmt: skip  # a table


@pytest.fixture
def good(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    for name, text in FILES.items():
        Path(name).write_text(text)
    with Writer("good") as log:
        log.append(b"a")
    return "good"


@pytest.mark.parametrize(("line", "sentence"), LINES, ids=[line for line, _ in LINES])
def test_a_line_with_a_mistake_is_answered_before_any_effect(
    good: str, line: str, sentence: str
) -> None:
    before = sorted(path.name for path in Path.cwd().rglob("*"))
    program, *words = shlex.split(line)
    done = CliRunner().invoke({"aolog": aolog_main}.get(program, bridge_main), words, input="x\n")
    assert isinstance(done.exception, SystemExit), done.exception
    assert done.exit_code in {2, 6}, done.output
    assert sentence in done.stderr
    assert "Traceback" not in done.stderr
    assert sorted(path.name for path in Path.cwd().rglob("*")) == before


def second_writer(log: str) -> object:
    with Writer(log):
        return Writer(log)


def client(**properties: str) -> dict[str, object]:
    return {"Type": "ConsumerConfig", "Properties": {"bootstrap.servers": NOWHERE, **properties}}


def unanswered(_: str) -> object:
    settings = {"bootstrap.servers": NOWHERE, "delivery.timeout.ms": "1500"}
    with Producer({"Type": "ProducerConfig", "Properties": settings}) as producer:
        return producer.send("t", b"x")


CALLS: list[tuple[Callable[[str], object], str]] = [
    (lambda _: aolog.Reader("missing"), "missing: no such directory; name the directory of a log"),
    (
        lambda log: aolog.Reader(log, start="tomorow"),
        'start=\'tomorow\'; use "earliest", "latest", an address or',
    ),
    (lambda log: Writer(log).append("text"), "encode text first, for instance with .encode()"),  # type: ignore[arg-type]  # the mistake
    (lambda log: Writer(log).append({"a": 1}), "for instance with json.dumps(...).encode()"),  # type: ignore[arg-type]  # the mistake
    (lambda log: Writer(log).append(b"a", headers={"a": b"1"}), "of a dict, its items()"),  # type: ignore[arg-type]  # the mistake
    (lambda _: Buffer("k:9092", "b"), 'make one first, such as KafkaProvider("kafka:9092")'),  # type: ignore[arg-type]  # the mistake
    (lambda log: Writer(log, sync="sometimes"), "sync='sometimes'"),  # type: ignore[arg-type]  # the mistake
    (second_writer, "a log has one writer: close it, or write to another log"),
    (lambda _: Writer("kafka://k/t"), "URL"),
    (lambda _: Buffer(MemoryProvider(), "b", mode="buffering"), "mode='buffering'"),  # type: ignore[arg-type]  # the mistake
    (lambda _: Consumer(client(**{"group.idd": "g"})), "no such key; did you mean 'group.id'?"),
    (
        lambda _: Consumer({**client(), "Propertiess": {}}),
        "unknown key; did you mean 'Properties'?",
    ),
    (lambda _: Consumer("missing.json"), "missing.json: cannot be read: No such file or directory"),
    (unanswered, "connection refused); check that the brokers can be reached"),
]


@pytest.mark.parametrize(("call", "sentence"), CALLS, ids=[sentence for _, sentence in CALLS])
def test_a_call_with_a_mistake_raises_what_is_wrong_and_what_to_do(
    good: str, call: Callable[[str], object], sentence: str
) -> None:
    with pytest.raises(AologError) as raised:
        call(good)
    assert sentence in str(raised.value)


def test_a_consumer_whose_broker_is_away_says_so_once_and_goes_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with Consumer(client(**{"group.id": "g"})) as consumer:
        consumer.subscribe("t")
        with caplog.at_level(logging.WARNING, "bridge.client"):
            for _ in range(6):
                assert consumer.poll(300) == []
    said = [line.getMessage() for line in caplog.records if "waiting" in line.getMessage()]
    assert said == [f"waiting: {NOWHERE}: connection refused"]


@pytest.mark.parametrize(
    "name", ["from bridge import KafkaProvider", "from bridge.client import Producer"]
)
def test_an_import_without_its_extra_names_the_command_that_installs_it(name: str) -> None:
    code = f"import sys; sys.modules['confluent_kafka'] = None; {name}"
    run = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert run.stderr.splitlines()[-1] == (
        "ModuleNotFoundError: the Python package 'confluent_kafka' is not installed;"
        " pip install 'aolog-bridge[bridge]'"
    )


def test_an_older_python_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "version_info", (3, 10, 13))
    with pytest.raises(SystemExit, match=r"needs Python 3\.11 or later, and this is Python 3\.10"):
        runpy.run_path(str(ROOT / ".ci/build_backend.py"))


def test_a_free_threaded_python_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "version_info", (3, 13, 5))
    monkeypatch.setattr(sysconfig, "get_config_var", {"Py_GIL_DISABLED": 1}.get)
    with pytest.raises(
        SystemExit, match=r"a free-threaded CPython: use python 3\.13 instead of 3\.13t"
    ):
        runpy.run_path(str(ROOT / ".ci/build_backend.py"))


def test_there_are_more_than_forty_five() -> None:
    assert len(LINES) + len(CALLS) + 3 >= 45
