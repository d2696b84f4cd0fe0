"""Records over HTTP: durable when answered, once with a key, refused early when it is too much."""

from __future__ import annotations

import errno
import http.client
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

import aolog
from aolog.storage.storage import Storage
from aolog.storage.system import System
from bridge.ingest.logs import KEY_HEADER, Logs
from bridge.ingest.routes import serving
from bridge.operate.access import Access
from tests.aolog.conftest import slab_files
from tests.bridge.processes import Start
from tests.waiting import in_thread, wait_until

TOKEN = "0123456789abcdef"
LINES, BINARY = "application/x-ndjson", "application/octet-stream"


class Answer:
    def __init__(self, got: http.client.HTTPResponse) -> None:
        self.status, self.headers, self.body = got.status, got.headers, got.read()

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Client:
    def __init__(self, at: tuple[str, int]) -> None:
        self.at = at

    def send(self, method: str, path: str, body: bytes | None = None, **headers: str) -> Answer:
        connection = http.client.HTTPConnection(*self.at, timeout=20)
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request(method, path, body, named)
        try:
            return Answer(connection.getresponse())
        finally:
            connection.close()

    def post(self, topic: str, body: bytes, kind: str = LINES, **headers: str) -> Answer:
        return self.send("POST", f"/topics/{topic}", body, Content_Type=kind, **headers)


@contextmanager
def ingesting(
    root: Path, token: str | None = None, topics: tuple[str, ...] = (), **given: Any
) -> Iterator[Client]:
    options, where = given.pop("options", {}), given.pop("where", "127.0.0.1:0")
    logs = Logs(str(root), topics, options)
    given.setdefault("body_bytes", 1 << 20)
    try:
        with serving(Access(where, token), logs, **given) as at:
            yield Client(at)
    finally:
        logs.close()


def lines(*objects: Any) -> bytes:
    return b"".join(json.dumps(each).encode() + b"\n" for each in objects)


def test_an_answer_means_that_the_records_are_durable_and_a_get_returns_them(
    tmp_path: Path,
) -> None:
    sent = [
        {"value": "a", "key": "k", "headers": [{"name": "h", "value": "x"}], "timestamp_us": 5},
        {"value": None},
        {"value_base64": "/w==", "key_base64": "/g=="},
    ]
    with ingesting(tmp_path) as client:
        answer = client.post("clicks", lines(*sent))
        assert answer.status == 200, answer.body
        assert (answer.json["records"], answer.json["repeated"]) == (3, False)
        (state,) = client.send("GET", "/topics").json["topics"]
        assert state["durable"] >= answer.json["first"] + 3
        got = client.send("GET", "/topics/clicks")
        found = [json.loads(line) for line in got.body.splitlines()]
        assert found[0] == {"address": answer.json["first"], **sent[0]}
        assert [each.get("value_base64") for each in found] == [None, None, "/w=="]
        after = got.headers["Aolog-Next"]
        assert client.send("GET", f"/topics/clicks?from={after}").body == b""
        second = client.send("GET", f"/topics/clicks?from={found[1]['address']}")
        assert second.body == b"".join(got.body.splitlines(keepends=True)[1:])
    with aolog.Reader(tmp_path / "clicks") as reader:
        assert reader.topic == "clicks"
        assert [r.value for r in reader] == [b"a", None, b"\xff"]


def test_a_binary_batch_is_length_delimited(tmp_path: Path) -> None:
    with ingesting(tmp_path) as client:
        assert client.post("t", b"\x01\0\0\0a\0\0\0\0", BINARY).json["records"] == 2
        for bad in (b"\x01\0\0", b"\x05\0\0\0a"):
            assert client.post("t", bad, BINARY).status == 400
    assert [record.value for record in aolog.Reader(tmp_path / "t")] == [b"a", b""]


def test_a_repeated_key_appends_once_also_after_a_restart(tmp_path: Path) -> None:
    body = lines({"value": "a"}, {"value": "b"})
    with ingesting(tmp_path) as client:
        first = client.post("t", body, Idempotency_Key="one")
        again = client.post("t", body, Idempotency_Key="one")
        client.post("t", lines({"value": "c"}), Idempotency_Key="two")
    with ingesting(tmp_path) as client:
        restarted = client.post("t", body, Idempotency_Key="one")
    assert again.json == restarted.json == {**first.json, "repeated": True}
    records = list(aolog.Reader(tmp_path / "t"))
    assert [record.value for record in records] == [b"a", b"b", b"c"]
    assert records[0].headers == ((KEY_HEADER, b"one"),)


def test_a_repeated_key_appends_once_after_the_machine_was_restarted(tmp_path: Path) -> None:
    """Then a new epoch begins, at an address that may be terabytes above the last record's."""
    body = lines({"value": "a"})
    with ingesting(tmp_path / "logs") as client:
        first = client.post("t", body, Idempotency_Key="one")
        shutil.copytree(tmp_path / "logs", tmp_path / "after")  # as a power cut leaves it
    with ingesting(tmp_path / "after") as client:
        assert client.post("t", body, Idempotency_Key="one").json == {
            **first.json,
            "repeated": True,
        }
        client.post("t", body, Idempotency_Key="two")
    with ingesting(tmp_path / "after") as client:
        for key in ("one", "two"):
            assert client.post("t", body, Idempotency_Key=key).json["repeated"]


def test_a_header_of_a_record_is_not_taken_for_the_key_of_a_request(tmp_path: Path) -> None:
    own = lines({"value": "a", "headers": [{"name": "idempotency-key", "value": "one"}]})
    with ingesting(tmp_path) as client:
        client.post("t", own)
    with ingesting(tmp_path) as client:
        answer = client.post("t", lines({"value": "b"}), Idempotency_Key="one")
    assert answer.json["repeated"] is False
    assert [record.value for record in aolog.Reader(tmp_path / "t")] == [b"a", b"b"]


def test_requests_at_once_with_one_key_append_once(tmp_path: Path) -> None:
    with ingesting(tmp_path) as client:
        body = lines({"value": "a"})
        calls = [in_thread(lambda: client.post("t", body, Idempotency_Key="k")) for _ in range(8)]
        answers = [call.result() for call in calls]
    assert {answer.status for answer in answers} == {200}
    assert sum(not answer.json["repeated"] for answer in answers) == 1
    assert len(list(aolog.Reader(tmp_path / "t"))) == 1


@pytest.mark.parametrize(
    ("path", "body", "kind", "status"),
    [
        ("t", b"not json\n", LINES, 400),
        ("t", b'{"key": "no value"}', LINES, 400),
        ("t", b'{"value": 5}', LINES, 400),
        ("t", b'{"value": "a", "colour": 1}', LINES, 400),
        ("t", b'{"value": "a", "headers": [["n", "v"]]}', LINES, 400),
        ("t", b'{"value": "a", "timestamp_us": "now"}', LINES, 400),
        ("t", b'{"value": "a", "timestamp_us": true}', LINES, 400),
        ("t", b'{"value": "a", "value": "b"}', LINES, 400),
        ("t", b'{"value": "a", "headers": [{"name": "n", "name": "m", "value": "v"}]}', LINES, 400),
        ("t", b'{"value": "a", "value_base64": "Yg=="}', LINES, 400),
        ("t", b'{"value": "a", "key": null, "key_base64": "Yg=="}', LINES, 400),
        ("__consumer_offsets", b'{"value": "a"}', LINES, 404),
        ("t", b"", LINES, 400),
        ("t", b"a", "text/plain", 415),
        ("t", bytes(2_000_000), BINARY, 413),
        ("..", b'{"value": "a"}', LINES, 404),
        (".hidden", b'{"value": "a"}', LINES, 404),
        ("a%2Fb", b'{"value": "a"}', LINES, 404),
    ],
    ids=lambda part: part if isinstance(part, str) else "",
)
def test_a_bad_request_is_refused_and_appends_nothing(
    tmp_path: Path, path: str, body: bytes, kind: str, status: int
) -> None:
    with ingesting(tmp_path) as client:
        answer = client.post(path, body, kind)
        assert answer.status == status, answer.body
        assert b'"hint":""' not in answer.body
    assert [name for name in os.listdir(tmp_path) if list(aolog.Reader(tmp_path / name))] == []


def test_a_refusal_names_the_line_and_what_is_wrong_in_it(tmp_path: Path) -> None:
    with ingesting(tmp_path) as client:
        answer = client.post("t", lines({"value": "a"}, {"value": 5}))
        assert (answer.status, answer.json["error"]) == (400, "line 2: value is not a string")


def test_with_a_token_every_request_needs_it_except_the_probe(tmp_path: Path) -> None:
    with ingesting(tmp_path, TOKEN) as client:
        assert client.post("t", lines({"value": "a"})).status == 401
        assert client.send("GET", "/topics").status == 401
        assert client.send("GET", "/topics/t", Authorization="Bearer wrong").status == 401
        assert client.send("GET", "/healthz").status == 200
        bearer = f"Bearer {TOKEN}"
        assert client.post("t", lines({"value": "a"}), Authorization=bearer).status == 200
        assert client.send("GET", "/topics/t", Authorization=bearer).status == 200


@pytest.mark.parametrize("where", ["127.0.0.1:0", "0.0.0.0:0"])
def test_the_metrics_count_what_was_answered(tmp_path: Path, where: str) -> None:
    body = lines({"value": "a"}, {"value": "b"})
    with ingesting(tmp_path, TOKEN, where=where) as client:
        bearer = f"Bearer {TOKEN}"
        for _ in range(2):
            client.post("t", body, Idempotency_Key="one", Authorization=bearer)
        client.post("t", b"no json", Authorization=bearer)
        client.post("t", body)
        assert client.send("GET", "/metrics").status == 401
        text = client.send("GET", "/metrics", Authorization=bearer).body.decode()
    values = {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }
    assert values["aolog_ingest_requests_total", "200"] == 2
    assert values["aolog_ingest_requests_total", "400"] == 1
    assert values["aolog_ingest_requests_total", "401"] == 1
    assert values["aolog_ingest_records_total", "t"] == 2
    assert values["aolog_ingest_body_bytes_total", "t"] == len(body)
    assert values["aolog_ingest_repeated_requests_total", "t"] == 1
    assert values["aolog_ingest_append_seconds_count",] == 4
    assert values["aolog_ingest_open_logs",] == 1
    assert values["aolog_ingest_waiting_requests",] == 0


def test_only_named_topics_are_accepted_if_some_are_named(tmp_path: Path) -> None:
    with ingesting(tmp_path, topics=("a",)) as client:
        assert client.post("a", lines({"value": "x"})).status == 200
        assert client.post("b", lines({"value": "x"})).status == 404
        assert client.send("GET", "/topics/b").status == 404
    assert os.listdir(tmp_path) == ["a"]


def test_a_full_log_answers_503_with_retry_after_until_it_is_drained(tmp_path: Path) -> None:
    retention = aolog.Retention(max_bytes=256 << 10, when_full="error")
    with ingesting(tmp_path, options={"retention": retention}) as client:
        batch = (30_000).to_bytes(4, "little") + bytes(30_000)
        client.post("t", batch, BINARY)
        with aolog.Reader(tmp_path / "t", cursor="bridge") as bridge:
            bridge.commit()
            statuses = [client.post("t", batch, BINARY) for _ in range(12)]
            full = statuses[-1]
            assert full.status == 503
            assert full.headers["Retry-After"] == "1"
            accepted = 1 + sum(answer.status == 200 for answer in statuses)
            assert len(list(bridge)) == accepted
            bridge.commit()
            assert client.post("t", batch, BINARY).status == 200


class FailingSyncs(System):
    """Once `error` is set, the next sync of a file raises it."""

    error: BaseException | None = None

    def fdatasync(self, fd: int, /) -> None:  # type: ignore[override]  # a method for a function
        if self.error is not None:
            error, self.error = self.error, None
            raise error
        os.fdatasync(fd)


def test_a_failed_sync_fails_its_request_and_the_next_one_opens_the_log_again(
    tmp_path: Path,
) -> None:
    system = FailingSyncs()
    with ingesting(tmp_path, options={"storage": Storage(system)}) as client:
        first = client.post("t", lines({"value": "a"}), Idempotency_Key="one")
        assert first.status == 200
        for number, (error, status) in enumerate(
            [(OSError(errno.EIO, "broken"), 500), (MemoryError(), 500)]
        ):
            body, key = lines({"value": f"b{number}"}), f"two {number}"
            system.error = error
            assert client.post("t", body, Idempotency_Key=key).status == status
            assert client.post("t", body, Idempotency_Key=key).status == 200
        again = client.post("t", lines({"value": "a"}), Idempotency_Key="one")
        assert again.json == {**first.json, "repeated": True}
    assert [record.value for record in aolog.Reader(tmp_path / "t")] == [b"a", b"b0", b"b1"]


def test_a_batch_that_another_program_removed_is_appended_when_it_is_sent_again(
    tmp_path: Path,
) -> None:
    body = lines({"value": "a"})
    with ingesting(tmp_path) as client:
        assert client.post("t", body, Idempotency_Key="one").status == 200
        (slab,) = slab_files(tmp_path / "t")
        slab.unlink()
        answers = [client.post("t", body, Idempotency_Key="one") for _ in range(3)]
    assert [answer.status for answer in answers] == [500, 200, 200]
    assert [answer.json.get("repeated") for answer in answers] == [None, False, True]
    assert [record.value for record in aolog.Reader(tmp_path / "t")] == [b"a"]


def test_too_many_requests_at_once_get_503(tmp_path: Path) -> None:
    with ingesting(tmp_path, waiting_max=0) as client:
        answer = client.post("t", lines({"value": "a"}))
    assert answer.status == 503
    assert answer.headers["Retry-After"] == "1"


def test_an_answered_record_survives_a_kill_of_the_server(tmp_path: Path, bridge: Start) -> None:
    root = tmp_path / "root"
    server = bridge("ingest", "--root", root, "--http", ":0")
    wait_until(lambda: server.lines)
    host, _, port = server.lines[0].strip().removeprefix("http://").rstrip("/").partition(":")
    answer = Client((host, int(port))).post("t", lines({"value": "safe"}))
    server.kill()
    assert answer.status == 200
    assert [record.value for record in aolog.Reader(root / "t")] == [b"safe"]


def test_another_server_on_the_same_logs_is_refused_and_can_take_over(tmp_path: Path) -> None:
    with ingesting(tmp_path) as first:
        assert first.post("t", lines({"value": "a"})).status == 200
        with ingesting(tmp_path) as second:
            refused = second.post("t", lines({"value": "b"}))
            assert refused.status == 500
            assert "another writer" in refused.json["error"]
    with ingesting(tmp_path) as second:
        assert second.post("t", lines({"value": "b"})).status == 200
