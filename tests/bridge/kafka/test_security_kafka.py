"""SASL and TLS against Apache Kafka itself: accepted with the right secret; a wrong one is a clear error that
does not contain it. 60 s: a server of its own."""

from __future__ import annotations

import os
import re
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeAlias

import pytest
from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from bridge.kafka.embedded import EmbeddedBroker
from bridge.testing.apache_kafka.access import make_certificate
from bridge.testing.apache_kafka.server import KafkaServer
from tests.bridge.brokers import TOPIC, assert_arrived, consume
from tests.bridge.logs import fill, records_of
from tests.bridge.processes import Process, Start
from tests.bridge.pull.pulling import expected, origins, produce
from tests.kafka.plugin import started
from tests.waiting import wait_until

Secured: TypeAlias = tuple[KafkaServer, Path]
Forward: TypeAlias = Callable[..., tuple[Process, str]]

PASSWORD = "hunter2-right"
STORE_PASSWORD = "of-the-keystore"

pytestmark = [pytest.mark.kafka, pytest.mark.xdist_group("secured kafka")]  # one server


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    """A server that asks for SASL and speaks TLS, and the directory of certificates."""
    directory = tmp_path_factory.mktemp("secured")
    with started(lambda: secured_server(directory)) as server:
        set_password(server, "bob", PASSWORD)
        yield server, directory


def secured_server(directory: Path) -> KafkaServer:
    store, _ = make_certificate(directory, "server", STORE_PASSWORD)
    make_certificate(directory, "stranger", STORE_PASSWORD)
    make_certificate(directory, "renewed", STORE_PASSWORD, of="server")
    module = "org.apache.kafka.common.security"
    scram = f"{module}.scram.ScramLoginModule required;"
    tls = {"type": "PKCS12", "location": store, "password": STORE_PASSWORD}
    listeners = {
        "sasl.sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
        "sasl.plain.sasl.jaas.config": (
            f'{module}.plain.PlainLoginModule required user_alice="{PASSWORD}";'
        ),
        "sasl.scram-sha-256.sasl.jaas.config": scram,
        "both.sasl.enabled.mechanisms": "SCRAM-SHA-256",
        "both.scram-sha-256.sasl.jaas.config": scram,
        **{
            f"{of}.ssl.keystore.{key}": value
            for of in ("tls", "both")
            for key, value in tls.items()
        },
        "oauth.sasl.enabled.mechanisms": "OAUTHBEARER",
        "oauth.oauthbearer.connections.max.reauth.ms": 60_000,
        "oauth.oauthbearer.sasl.jaas.config": (
            f"{module}.oauthbearer.OAuthBearerLoginModule required "
            'unsecuredLoginStringClaim_sub="broker";'
        ),
    }
    return KafkaServer(
        directory / "kafka",
        {f"listener.name.{name}": value for name, value in listeners.items()},
        {"SASL": "SASL_PLAINTEXT", "TLS": "SSL", "BOTH": "SASL_SSL", "OAUTH": "SASL_PLAINTEXT"},
    )


def set_password(server: KafkaServer, user: str, password: str) -> None:
    admin = AdminClient({"bootstrap.servers": server.bootstrap_servers, "log_level": 0})
    information = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096)
    change = UserScramCredentialUpsertion(user, information, password.encode())
    for future in admin.alter_user_scram_credentials([change]).values():
        future.result(timeout=30)
    client = AdminClient(
        {"bootstrap.servers": server.bootstrap_of("SASL"), "security.protocol": "SASL_PLAINTEXT",
         "sasl.mechanism": "SCRAM-SHA-256", "sasl.username": user, "sasl.password": password,
         "reconnect.backoff.max.ms": 100, "log_level": 0}
    )  # fmt: skip  # settings
    client.list_topics(timeout=30)  # connects until the server knows the password


SASL = """
"security.protocol" = "SASL_PLAINTEXT"
"sasl.mechanism" = "{mechanism}"
"sasl.username" = "{user}"
"sasl.password" = {password}
"""
TLS = '"security.protocol" = "SSL"\n"ssl.ca.location" = "{ca}"\n'


@pytest.fixture
def forward(bridge: Start, secured: Secured, tmp_path: Path) -> Forward:
    """Forwards a log of 100 records by a configuration with these settings; process and topic."""

    def forward(
        listener: str, settings: str, *options: str, log: str = "log"
    ) -> tuple[Process, str]:
        server, _ = secured
        topic = f"{TOPIC}-{tmp_path.name}-{log}"
        if not (tmp_path / log).exists():
            server.create_topic(topic)
        fill(tmp_path / log, 100)
        (tmp_path / "password").write_text(PASSWORD + "\n")
        (tmp_path / "wrong").write_text("hunter2-wrong\n")
        config = tmp_path / f"{log}.toml"
        config.write_text(
            f'logs = ["{log}"]\ntopic = "{topic}"\n[clusters.main]\nbootstrap_servers = '
            f'"{server.bootstrap_of(listener)}"\n[clusters.main.settings]\n{settings}'
        )
        return bridge(
            "run", "--config", config, "--json", "--status-seconds", "0.1", "--verbose", *options
        ), topic

    return forward


@pytest.mark.parametrize(
    ("mechanism", "user", "delivery"),
    [("PLAIN", "alice", "at_least_once"), ("SCRAM-SHA-256", "bob", "exactly_once")],
)
def test_a_wrong_password_is_an_outage_that_is_logged_once_and_ends_with_a_reload(
    forward: Forward, tmp_path: Path, mechanism: str, user: str, delivery: str
) -> None:
    """With at least once it is the read-back of what was delivered earlier that is refused."""
    settings = SASL.format(mechanism=mechanism, user=user, password='{file = "wrong"}')
    if delivery == "at_least_once":
        right = settings.replace('"wrong"', '"password"')
        assert forward("SASL", right, "--drain")[0].end() == 0
    process, _ = forward("SASL", settings, "--delivery", delivery)
    status = process.until(lambda s: s["error"] and "check the user" in s["error"])
    assert "AUTHENTICATION" in status["error"]
    shown = (status["state"], status["standing_lanes"], status["acknowledged"])
    assert shown == ("connecting", 0, 0)
    time.sleep(4.0)  # it tries again some three times
    assert process.stderr.count("AUTHENTICATION") == process.stderr.count("connecting anew") == 1
    (tmp_path / "wrong").write_text(PASSWORD)
    process.popen.send_signal(signal.SIGHUP)
    process.until(lambda s: s["acknowledged"] == 100 and s["error"] is None)
    assert process.terminate() == 0
    assert "hunter2" not in process.stderr + "".join(process.lines)


def test_a_stranger_s_certificate_one_of_another_host_and_a_client_without_tls_are_named(
    forward: Forward, secured: Secured, monkeypatch: pytest.MonkeyPatch
) -> None:
    server, directory = secured
    exactly = ("--delivery", "exactly_once")
    stranger, topic = forward("TLS", TLS.format(ca=directory / "stranger.pem"), log="stranger")
    plain, _ = forward("TLS", "", *exactly, log="plain")
    without, _ = forward("SASL", "", log="without")  # neither TLS nor a password
    port = server.bootstrap_of("TLS").rpartition(":")[2]
    monkeypatch.setattr(server, "bootstrap_of", lambda _: f"localhost:{port}")
    elsewhere, _ = forward(
        "TLS", TLS.format(ca=directory / "server.pem"), *exactly, log="elsewhere"
    )
    for process, why in (
        (stranger, "_SSL.*certificate verify failed"),
        (plain, "security.protocol, which is PLAINTEXT"),
        (without, "security.protocol, which is PLAINTEXT"),
        (elsewhere, "_SSL.*that the broker's certificate names the host"),
    ):
        process.until(lambda s, why=why: s["error"] and re.search(why, s["error"]))
        process.popen.send_signal(signal.SIGTERM)
    assert [process.end() for process in (stranger, plain, without, elsewhere)] == [0] * 4
    assert "check security.protocol" in plain.stderr
    assert "that the broker's certificate names the host" in elsewhere.stderr
    assert consume(server.bootstrap_servers, topic, 1) == []


def replace(path: Path, text: str) -> None:
    """As rotation does: at once, and the process gets no signal."""
    new = path.with_suffix(".new")
    new.write_text(text)
    new.replace(path)


@pytest.mark.parametrize("delivery", ["at_least_once", "exactly_once"])
def test_a_certificate_and_a_password_that_are_replaced_are_used_without_a_restart(
    forward: Forward, secured: Secured, tmp_path: Path, delivery: str
) -> None:
    server, directory = secured
    keystore = "listener.name.both.ssl.keystore.location"
    user, ca = f"carol-{delivery}", tmp_path / "ca.pem"
    set_password(server, user, PASSWORD)
    shutil.copy(directory / "server.pem", ca)
    settings = SASL.format(mechanism="SCRAM-SHA-256", user=user, password='{file = "password"}')
    settings = settings.replace("SASL_PLAINTEXT", "SASL_SSL") + f'"ssl.ca.location" = "{ca}"\n'
    process, topic = forward("BOTH", settings, "--delivery", delivery)
    process.until(lambda s: s["acknowledged"] == 100)
    try:
        server.configure("BROKER", "1", keystore, str(directory / "renewed.p12"))
        set_password(server, user, "hunter2-newer")
        replace(ca, (directory / "renewed.pem").read_text())
        replace(tmp_path / "password", "hunter2-newer\n")
        process.until(lambda _: "password has changed" in process.stderr)
        fill(tmp_path / "log", 50)
        process.until(lambda s: s["acknowledged"] == 150)
    finally:
        server.configure("BROKER", "1", keystore, None)
    assert process.terminate() == 0
    assert "AUTHENTICATION" not in process.stderr
    assert "hunter2" not in process.stderr + "".join(process.lines)
    if delivery == "at_least_once":  # otherwise markers of transactions are among the offsets
        found = consume(server.bootstrap_servers, topic, 1)
        assert_arrived(records_of(tmp_path / "log"), found, topic=topic)


# The cluster waits so long for a member that cannot leave because its password is refused.
_SHORT_SESSION = ("-X", "session.timeout.ms=6000")


def test_pulls_and_a_mirror_use_a_password_that_is_replaced_without_a_restart(
    secured: Secured, bridge: Start, broker: EmbeddedBroker, tmp_path: Path
) -> None:
    """After a file that is no password, which changes nothing."""
    server, _ = secured
    user, topic, password = "dave", "pulled", tmp_path / "password"
    set_password(server, user, PASSWORD)
    password.write_text(PASSWORD)
    server.create_topic(topic)
    broker.create_topic(topic, 1)
    produce(server, topic, range(20))
    logs = {name: tmp_path / name / "log" for name in ("alone", "group", "units", "mirror")}
    for log in logs.values():
        log.parent.mkdir()
    sasl = ("security.protocol=SASL_PLAINTEXT", "sasl.mechanism=SCRAM-SHA-256",
            f"sasl.username={user}", f"sasl.password={{file={password}}}")  # fmt: skip  # settings
    more = {
        "alone": (),
        "group": ("--group", topic, "--root", logs["group"].parent, *_SHORT_SESSION),
        "units": ("--units", "10", "--root", logs["units"].parent),
    }
    source = server.bootstrap_of("SASL")
    pulls = [
        bridge("pull", "--topic", topic, "--log", logs[name], "--bootstrap-servers", source, "--json",
               *(word for each in sasl for word in ("-X", each)), *options)
        for name, options in more.items()
    ]  # fmt: skip  # a command line
    pulls.append(bridge(
        "mirror", "--topic", topic, "--log", logs["mirror"], "--from-servers", source, "--json",
        *(word for each in sasl for word in ("--from-set", each)),
        "--to-servers", broker.bootstrap_servers,
    ))  # fmt: skip  # a command line
    for pull in pulls:
        pull.until(lambda s: s["pulled"] == 20)
    replace(password, "a\0b")
    wait_until(lambda: all("a new file is wrong" in pull.stderr for pull in pulls))
    set_password(server, user, "hunter2-newer")
    server.stop()  # a server asks for a password only when a client connects
    server.start()
    for pull in pulls:
        pull.until(lambda s: s["state"] == "away")
    replace(password, "hunter2-newer\n")
    produce(server, topic, range(20, 40))
    for pull in pulls:
        pull.until(lambda s: s["pulled"] == 40)
        assert pull.terminate() == 0
        assert "hunter2" not in pull.stderr + "".join(pull.lines)
    for log in logs.values():
        assert origins(log) == expected(topic, 40, 1)


TOKENS = '''
import base64, json, pathlib, time

asked = pathlib.Path(__file__).with_name("asked")


def token(config):
    """An unsecured JSON web token, which lives for some seconds."""
    with asked.open("a") as file:
        file.write(config + "\\n")
    end_s = time.time() + 6
    claims = {"sub": config, "iat": time.time(), "exp": end_s}
    parts = [base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=").decode()
             for part in ({"alg": "none"}, claims)]
    return ".".join([*parts, ""]), end_s
'''


def test_tokens_of_a_function_are_accepted_and_fetched_anew_before_they_end(
    forward: Forward, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With exactly once, whose client also has to begin transactions."""
    (tmp_path / "signer.py").write_text(TOKENS)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    settings = (
        '"security.protocol" = "SASL_PLAINTEXT"\n"sasl.mechanism" = "OAUTHBEARER"\n'
        '"sasl.oauthbearer.config" = "alice"\n"oauth_cb" = "signer:token"\n'
    )
    process, _ = forward("OAUTH", settings, "--delivery", "exactly_once")
    process.until(lambda s: s["acknowledged"] == 100)
    first = (tmp_path / "asked").read_text().count("alice")
    process.until(lambda _: (tmp_path / "asked").read_text().count("alice") > first)
    fill(tmp_path / "log", 50)
    process.until(lambda s: s["acknowledged"] == 150)
    assert process.terminate() == 0
