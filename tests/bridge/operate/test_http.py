"""The HTTP endpoint as a client meets it: who may ask, what is answered, what a bad client can do."""

from __future__ import annotations

import json
import socket
import time
from contextlib import ExitStack
from functools import partial

import pytest
from starlette.applications import Starlette

from aolog.errors import UsageError
from bridge.operate import server
from bridge.operate.access import Access
from bridge.operate.server import Limits
from tests.bridge.operate.endpoints import TOKEN, Recorded, ask, is_answered, served
from tests.waiting import in_thread, wait_until

# --- who may ask ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost", 200),
        ("127.0.0.1:80", 200),
        ("[::1]:9100", 200),
        ("bridge.example:1", 200),
        ("evil.example", 421),
        ("127.0.0.1.evil.example", 421),
        ("", 421),
    ],
)
def test_a_name_in_the_host_header_is_accepted_only_if_configured(host: str, status: int) -> None:
    with served(hosts=("Bridge.example",)) as at:
        assert ask(at, "/status", Host=host)[0] == status


@pytest.mark.parametrize("where", ["0.0.0.0:0", "[::]:0", "192.0.2.1:0", "host.example:0"])
def test_another_interface_without_a_token_is_refused(where: str) -> None:
    with pytest.raises(UsageError, match="is not a loopback address, and there is no token"):
        Access(where).address()


def test_a_short_token_is_refused() -> None:
    with pytest.raises(UsageError, match="the HTTP token has 5 characters"):
        Access(":0", "abcde").address()


def test_on_another_interface_everything_but_page_and_probes_needs_the_token() -> None:
    with served("0.0.0.0:0", token=TOKEN) as at:
        assert [ask(at, path)[0] for path in ("/", "/healthz", "/readyz")] == [200, 200, 200]
        for path in ("/status", "/metrics", "/events", "/log?log=a"):
            status, headers, _ = ask(at, path)
            assert (status, headers["www-authenticate"]) == (401, "Bearer")
            assert ask(at, path, Authorization="Bearer " + "x" * 16)[0] == 401
        assert ask(at, "/status", Authorization=f"Bearer {TOKEN}")[0] == 200


def test_a_sample_that_fails_is_logged_and_the_next_is_taken(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The page and the metrics stayed as they were from then on."""
    monkeypatch.setattr(server, "SAMPLE_S", 0.01)
    taken: list[int] = []

    def sample() -> None:
        taken.append(len(taken))
        if len(taken) == 1:
            raise ValueError("an odd status")

    with server.served(Starlette(), Access("127.0.0.1:0"), "default-src 'none'", sample=sample):
        wait_until(lambda: len(taken) > 2)
    assert "an odd status" in caplog.text


# --- what is answered -----------------------------------------------------------------------


def test_every_answer_has_the_security_headers() -> None:
    with served() as at:
        for path in ("/", "/status", "/nothing"):
            headers = ask(at, path)[1]
            policy = headers["content-security-policy"]
            assert policy.startswith("default-src 'none'; script-src 'sha256-")
            assert "unsafe" not in policy
            assert headers["x-content-type-options"] == "nosniff"
            assert headers["cache-control"] == "no-store"


def test_a_log_is_shown_in_detail_and_an_unknown_one_is_404() -> None:
    with served() as at:
        found = json.loads(ask(at, "/log?log=a&cluster=main")[2])
        assert (found["log"], found["slabs"], found["disk"]) == ("a", [], None)
        assert ask(at, "/log?log=b")[0] == 404
        assert ask(at, "/nothing")[0] == 404


def test_the_stream_sends_status_and_its_counts_add_up() -> None:
    with served() as at, socket.create_connection(("127.0.0.1", at[1]), timeout=10) as client:
        client.sendall(b"GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n")
        text = b""
        while b"event: status\ndata: " not in text or not text.endswith(b"\n\n\r\n"):
            text += client.recv(1 << 16)
        data = text.partition(b"event: status\ndata: ")[2].partition(b"\n")[0]
        shown = json.loads(data)
        whole, summary = shown["overview"], shown["summary"]
        parts = ("acknowledged", "skipped", "dead_lettered", "dropped", "filtered", "lost_records")
        assert summary["seen"] == sum(whole[name] for name in parts) + summary["pending"] == 41


# --- actions --------------------------------------------------------------------------------


def test_nothing_changes_anything_without_the_token() -> None:
    controls = Recorded()
    body = json.dumps({"action": "pause", "log": "a", "cluster": "main"})
    with served(controls=controls) as at:  # no token is configured
        assert ask(at, "/action", "POST", body, Authorization="Bearer ")[0] == 401
    with served(controls=controls, token=TOKEN) as at:
        assert ask(at, "/action", "POST", body)[0] == 401
        assert ask(at, "/action", "POST", body, Authorization="Bearer wrong")[0] == 401
        assert ask(at, "/action", Authorization=f"Bearer {TOKEN}")[0] == 405  # GET
        assert controls.calls == []
        assert ask(at, "/action", "POST", body, Authorization=f"Bearer {TOKEN}")[0] == 200
        assert controls.calls == [("pause", "a", "main")]


@pytest.mark.parametrize(
    ("body", "status", "said"),
    [
        ("no json", 400, "one JSON object"),
        ("[]", 400, "one JSON object"),
        ("[" * 4_000, 400, "one JSON object"),
        ('{"action": "stop", "log": "a", "cluster": "main"}', 400, "missing or unknown"),
        ('{"action": "pause", "log": "b", "cluster": "main"}', 409, "there is no log 'b'"),
        ("x" * 5000, 413, "too large"),
    ],
)
def test_a_wrong_action_says_why_and_changes_nothing(body: str, status: int, said: str) -> None:
    controls = Recorded()
    with served(controls=controls, token=TOKEN) as at:
        found = ask(at, "/action", "POST", body, Authorization=f"Bearer {TOKEN}")
    assert (found[0], controls.calls) == (status, [])
    assert said in found[2].decode()


# --- bad clients, and the end ---------------------------------------------------------------


@pytest.mark.parametrize(("end", "status"), [(b"\r\n", 200), (b"XX", 400)], ids=["right", "wrong"])
def test_a_chunk_without_its_end_is_refused(end: bytes, status: int) -> None:
    """A proxy that looks for the end would see another request than the bridge."""
    controls = Recorded()
    body = json.dumps({"action": "pause", "log": "a", "cluster": "main"}).encode()
    head = (
        "POST /action HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n"
        f"Authorization: Bearer {TOKEN}\r\nConnection: close\r\n\r\n{len(body):x}\r\n"
    )
    with (
        served(controls=controls, token=TOKEN) as at,
        socket.create_connection(("127.0.0.1", at[1]), timeout=10) as client,
    ):
        client.sendall(head.encode() + body + end + b"0\r\n\r\n")
        answer = client.recv(1 << 16)
    assert answer.startswith(b"HTTP/1.1 %d " % status)
    assert len(controls.calls) == (status == 200)


def closes(client: socket.socket, within_s: float) -> bool:
    client.settimeout(within_s)
    try:
        return client.recv(1) == b""
    except TimeoutError:
        return False
    except ConnectionResetError:
        return True


def test_a_client_that_sends_its_request_byte_by_byte_is_disconnected() -> None:
    with (
        served(limits=Limits(connection_s=0.5)) as at,
        socket.create_connection(("127.0.0.1", at[1])) as client,
    ):
        client.sendall(b"GET /status HTTP/1.1\r\nHost: localhost\r\nX: ")

        def trickle() -> None:
            while True:
                client.sendall(b"x")
                time.sleep(0.05)

        in_thread(trickle)
        assert closes(client, 10)


def test_connections_beyond_the_bound_are_closed_at_once_and_the_others_are_answered() -> None:
    with served(limits=Limits(connections=4, connection_s=60)) as at, ExitStack() as stack:
        connect = partial(socket.create_connection, ("127.0.0.1", at[1]), timeout=10)
        clients = [stack.enter_context(connect()) for _ in range(6)]
        assert [closes(client, 10) for client in clients[4:]] == [True, True]
        clients[0].sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert clients[0].recv(1 << 16).startswith(b"HTTP/1.1 200")
        assert not is_answered(at)
        clients[1].close()
        wait_until(lambda: is_answered(at))


def test_pages_beyond_the_bound_are_told_so() -> None:
    with (
        served(limits=Limits(streams=1)) as at,
        socket.create_connection(("127.0.0.1", at[1])) as client,
    ):
        client.sendall(b"GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n")
        client.recv(1 << 16)
        status, _, body = ask(at, "/events")
        assert (status, json.loads(body)["hint"]) == (503, "close one")


def test_the_end_does_not_wait_for_an_open_page() -> None:
    with served() as at, socket.create_connection(("127.0.0.1", at[1])) as client:
        client.sendall(b"GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n")
        client.recv(1 << 16)
        begun_s = time.monotonic()
    assert time.monotonic() - begun_s < 5
    with pytest.raises(OSError, match="refused"):
        socket.create_connection(("127.0.0.1", at[1]))


def test_a_port_in_use_is_an_error_that_names_it() -> None:
    with (
        served() as at,
        pytest.raises(UsageError, match=r"cannot listen on .*: Address already in use"),
        served(f"127.0.0.1:{at[1]}"),
    ):
        pass
