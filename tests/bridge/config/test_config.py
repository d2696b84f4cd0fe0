"""The configuration: what is wrong is refused whole, in words, with its path; secrets stay so."""

from __future__ import annotations

import inspect
import json
import os
import re
import threading
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from bridge.cli import main
from bridge.config.load import load, load_text
from bridge.config.models import Cluster, Config
from bridge.config.routing import Rule
from bridge.config.settings import settings_of_options
from bridge.deliver.forwarder_options import OPTIONS, ForwarderOptions
from bridge.errors import WrongConfiguration, WrongSetting
from bridge.kafka.client import FIXED
from bridge.kafka.settings import TRIED, check
from tests.bridge.logs import fill
from tests.texts import UNICODE

LEAST = 'root = "logs"\n[clusters.main]\nbootstrap_servers = "kafka:9092"\n'
WHOLE = """
root = "logs"
cluster = "main"
include = ["app/*"]
exclude = ["*/tmp"]
topic = "rest"
prune = true
park_seconds = 5
http = "127.0.0.1:9100"

[clusters.main]
bootstrap_servers = ["a:9092", "b:9092"]
settings."compression.type" = "zstd"
settings."linger.ms" = 20
settings.socket.keepalive.enable = true

[clusters.safe]
bootstrap_servers = "c:9093"
settings = {"security.protocol" = "SASL_PLAINTEXT", "sasl.mechanism" = "PLAIN", "sasl.username" = "me", "sasl.password" = {env = "PASSWORD"}}

[[routes]]
record_topic = "pay.*"
cluster = "safe"
partition = "round-robin"

[[routes]]
log = "app/*"
topic = "apps"
partition = 3
"""


def problems_of(text: str, **over: Any) -> list[str]:
    with pytest.raises(WrongConfiguration) as caught:
        load_text(text, over)
    assert caught.value.exit_status == 2
    return caught.value.problems


def with_settings(text: str) -> str:
    return LEAST + f"[clusters.main.settings]\n{text}\n"


def test_every_key_is_read(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PASSWORD", "hunter2")
    file = tmp_path / "bridge.toml"
    file.write_text(WHOLE)
    config = load(file)
    assert config.root == str(tmp_path / "logs")
    assert config.clusters["main"].bootstrap_servers == "a:9092,b:9092"
    assert config.clusters["main"].client_settings() == {
        "compression.type": "zstd", "linger.ms": "20", "socket.keepalive.enable": "true",
    }  # fmt: skip
    assert config.clusters["safe"].client_settings()["sasl.password"] == "hunter2"
    assert config.rules == [
        Rule(record_topic="pay.*", cluster="safe", partition="round-robin"),
        Rule(log="app/*", topic="apps", partition=3),
    ]
    assert (config.cursor_of("main"), config.cursor_of("safe")) == ("bridge", "bridge.safe")
    assert config.prune


@pytest.mark.parametrize("text", [r'logs = ["a\u0000b"]', r'root = "a\u0000b"'])
def test_a_path_that_no_system_takes_is_refused(text: str) -> None:
    (said,) = problems_of(LEAST.replace('root = "logs"', text))
    assert "string should match pattern" in said


def test_json_says_the_same_as_toml() -> None:
    table = {"root": "logs", "clusters": {"main": {"bootstrap_servers": "kafka:9092"}}}
    assert load_text(json.dumps(table)) == load_text(LEAST)
    assert not load_text(LEAST).prune


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('rot = "x"', "rot: unknown key; did you mean 'root'?"),
        ("xyzzy = 1", "xyzzy: unknown key; known are clusters, cluster, root"),
        ("commit_second = 1", "commit_second: unknown key; did you mean 'commit_seconds'?"),
        ('commit_seconds = "1"', "commit_seconds: input should be a valid number, not str"),
        ("commit_seconds = nan", "commit_seconds: input should be a finite number"),
        ("topic = 3", "topic: input should be a valid string, not int"),
        ('topic = "a b"', "topic: string should match pattern"),
        ('delivery = "twice"', "delivery: input should be 'at_least_once' or 'exactly_once'"),
        ('cursor = "../x"', "cursor: '../x' is not a valid name for a cursor"),
        ('cursor = "replay"', "cursor: the cursor 'replay' is reserved for replays; use another"),
        ('http = "x"', "http: 'x' is not HOST:PORT; such as 127.0.0.1:9100"),
        ('prune = "yes"', "prune: input should be a valid boolean, not str"),
        ('cluster = "mian"', "cluster: there is no cluster 'mian'; did you mean 'main'?"),
        ('logs = ["x"]', "logs: cannot be used with root"),
        ("routes = [{topics = 'x'}]", "routes[0].topics: unknown key; did you mean 'topic'?"),
        ("routes = [{}, {cluster = 'x'}]", "routes[1].cluster: there is no cluster 'x'"),
        ("routes = [{partition = 'k'}]", "routes[0].partition: input should be 'key' or"),
    ],
)  # fmt: skip  # a table
def test_a_problem_is_reported_with_its_path(text: str, problem: str) -> None:
    (said,) = problems_of(f"{text}\n{LEAST}")
    assert said.startswith(problem)


@pytest.mark.parametrize("value", ["'all'", "'-1'", "-1"])
def test_a_setting_that_the_bridge_has_anyway_is_accepted(value: str) -> None:
    load_text(with_settings(f"acks = {value}"))


@pytest.mark.parametrize(
    ("setting", "problem"),
    [
        ('"lingerms" = 1', '.lingerms: the Kafka client refuses a setting: No such configuration property: "lingerms"'),
        ('"linger.ms" = "abc"', ".linger.ms: the Kafka client refuses a setting: Invalid value"),
        ('"batch.size" = 1e6', ".batch.size: batch.size is '1000000.0', which is not a plain number"),
        ('"retry.backoff.ms" = "010"', ".retry.backoff.ms: retry.backoff.ms is '010', which is no"),
        ("acks = 1", ".acks: acks is set by the bridge, its guarantees rest on it; leave it out"),
        ('"linger.ms" = [1]', ".linger.ms: should be a string, a number, true or false, not a list"),
        ('sasl.password = {env = "NO_SUCH"}', ".sasl.password: the environment has no variable NO_SUCH"),
        ("sasl.password = {env = 3}", ".sasl.password: env should be a non-empty string, not a number"),
        ('sasl.password = {file = "/no/such"}', ".sasl.password: /no/such: No such file or directory; the file holds the value and nothing else"),
        ('linger.ms = 1\n"linger.ms" = 2', ".linger.ms: appears twice"),
        ('"receive.message.max.bytes" = 1000', ".receive.message.max.bytes: the Kafka client refuses a setting: Failed to create consumer"),
        ('security.protocol = "SASL_SSL"\nsasl.username = "me"', ": the Kafka client refuses a setting: Failed to create"),
    ],
)  # fmt: skip  # a table
def test_a_problem_of_a_setting_is_reported_with_its_key(setting: str, problem: str) -> None:
    (said,) = problems_of(with_settings(setting))
    assert said.startswith(f"clusters.main.settings{problem}")


def test_a_client_that_lacks_what_the_guarantees_rest_on_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As a later librdkafka may, which calls its gapless producer experimental."""
    monkeypatch.setitem(FIXED, "enable.gapless.guarantee.of.today", True)
    with pytest.raises(WrongSetting, match="refuses a setting: No such configuration pro") as said:
        check({})
    assert said.value.hint == f"the bridge needs it: install confluent-kafka {TRIED}"


def test_a_setting_of_a_model_that_is_built_in_python_is_checked_too() -> None:
    with pytest.raises(ValueError, match="lingerms: the Kafka client refuses a setting: No such"):
        Cluster(bootstrap_servers="k:1", settings={"lingerms": 1})


def test_all_problems_are_reported_at_once() -> None:
    shown = problems_of(
        'rot = 1\ntopic = 3\ncluster = "b"\n[clusters.main]\nbootstrap_server = "x"\n'
        'settings = {acks = 1, lingerms = 2}\n[[routes]]\ncluster = "c"\n'
    )
    assert sorted(problem.split(":")[0] for problem in shown) == [
        "cluster", "clusters.main.bootstrap_server", "clusters.main.bootstrap_servers",
        "clusters.main.settings.acks", "clusters.main.settings.lingerms", "root", "rot",
        "routes[0].cluster", "topic",
    ]  # fmt: skip  # a list


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("root = ", "Invalid value"),
        ('{"root": "a", "root": "b"}', "the key 'root' appears twice"),
        ('{"commit_seconds": NaN}', "NaN is not a number"),
        ("{", "Expecting property name"),
        ('root = "a"\nroot = "b"', "Cannot overwrite a value"),
    ],
)
def test_a_file_that_is_neither_toml_nor_json_is_refused(text: str, said: str) -> None:
    assert said in problems_of(text)[0]


def test_several_clusters_need_a_default_and_cursors_of_their_own() -> None:
    two = LEAST + '[clusters.b]\nbootstrap_servers = "b:9092"\n'
    assert problems_of(two) == ["cluster: is missing; say which of main, b is the default"]
    same = 'cluster = "main"\n' + two + 'cursor = "bridge"\n'
    assert problems_of(same) == [
        "clusters.b.cursor: cluster 'main' has this cursor; each needs its own"
    ]


@pytest.mark.parametrize(
    ("base", "own", "problem"),
    [
        ("bridge", "../../bad name", "'../../bad name' is not a valid name for a cursor"),
        ("bridge", "", "'' is not a valid name for a cursor"),
        ("bridge", "replay", "the cursor 'replay' is reserved for replays"),
        ("a" * 121, None, f"{'a' * 121 + '.archive'!r} is not a valid name for a cursor"),
    ],
)
def test_a_clusters_cursor_is_a_name(base: str, own: str | None, problem: str) -> None:
    clusters = {"main": {"bootstrap_servers": "k:1"}, "archive": {"bootstrap_servers": "k:1"}}
    if own is not None:
        clusters["archive"]["cursor"] = own
    text = json.dumps({"root": "r", "cursor": base, "cluster": "main", "clusters": clusters})
    (said,) = problems_of(text)
    assert said.startswith(f"clusters.archive.cursor: {problem}")
    text = text.replace(base, "b" * 120)
    assert own is not None or load_text(text).cursor_of("archive") == "b" * 120 + ".archive"


def test_options_have_the_forwarders_defaults() -> None:
    known = inspect.signature(ForwarderOptions).parameters
    config = load_text(LEAST)
    assert {name: getattr(config, name) for name in OPTIONS} == {
        name: known[name].default for name in OPTIONS
    }


# --- options over the file ------------------------------------------------------------------


def test_options_go_over_the_file() -> None:
    config = load_text(
        with_settings('linger.ms = 3\n"client.id" = "x"'),
        {
            "topic": "t",
            "logs": ["/l"],
            "clusters.bootstrap_servers": "other:1",
            "clusters.settings": {"linger.ms": "7"},
        },
    )
    assert (config.topic, config.root, config.logs) == ("t", None, ["/l"])
    assert config.clusters["main"].bootstrap_servers == "other:1"
    assert config.clusters["main"].client_settings() == {"linger.ms": "7", "client.id": "x"}


def test_without_a_file_options_are_the_whole() -> None:
    config = load(None, {"root": "/r", "clusters.bootstrap_servers": "k:1"})
    assert (config.root, list(config.clusters), config.default_cluster) == ("/r", ["main"], "main")
    with pytest.raises(WrongConfiguration, match=r"clusters: is missing; root: is missing"):
        load(None)


# --- secrets --------------------------------------------------------------------------------


@pytest.mark.timeout(60)
def test_a_secret_may_come_through_a_pipe_if_that_is_written_and_closed(
    tmp_path: Path,
) -> None:
    os.mkfifo(tmp_path / "secret")
    file = tmp_path / "c.toml"
    file.write_text(with_settings('"sasl.password" = {file = "secret"}'))
    with pytest.raises(WrongConfiguration, match="is a pipe, and nothing wrote into it"):
        load(file)
    keeps = os.open(tmp_path / "secret", os.O_RDWR)
    os.write(keeps, b"hunter")
    with pytest.raises(WrongConfiguration, match="is a pipe, and its writer did not close it"):
        load(file)
    os.close(keeps)
    writer = threading.Thread(target=(tmp_path / "secret").write_text, args=("hunter2\n",))
    writer.start()
    assert load(file).clusters["main"].client_settings()["sasl.password"] == "hunter2"
    writer.join()


def test_a_secret_is_never_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KEY", "hunter2-env")
    (tmp_path / "secret").write_text("hunter2-file\n")
    file = tmp_path / "c.toml"
    file.write_text(
        with_settings(
            '"sasl.password" = {file = "secret"}\nssl.key.password = "hunter2-plain"\n'
            'client.id = {env = "KEY"}'
        )
    )
    config = load(file)
    found = config.clusters["main"].client_settings()
    assert found["sasl.password"] == "hunter2-file"  # without the line's end
    assert found["client.id"] == "hunter2-env"
    shown = json.dumps(config.shown())
    for text in (repr(config), str(config), shown, f"{config.clusters}", config.model_dump_json()):
        assert "hunter2" not in text
    assert f"(from file {tmp_path / 'secret'})" in shown
    assert "(from environment KEY)" in shown


def test_check_config_warns_of_a_secret_that_every_user_can_read(tmp_path: Path) -> None:
    secret, file = tmp_path / "secret", tmp_path / "c.toml"
    secret.write_text("hunter2\n")
    file.write_text(with_settings('"sasl.password" = {file = "secret"}'))
    said = f"clusters.main.settings.sasl.password: every user of this machine can read {secret}"
    for mode, expected in ((0o644, 1), (0o640, 0)):
        secret.chmod(mode)
        assert len(load(file).exposures()) == expected
        result = CliRunner().invoke(main, ["check-config", str(file)])
        assert result.output.count(f"warning: {said}; chmod o= it") == expected


def test_a_refusal_never_quotes_a_secret(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("hunter2")
    for setting in (
        '"linger.ms" = {file = "secret"}',  # the client quotes the value that it refuses
        '"sasl.password" = "hunter2"\n"nonsense" = 1',
        '"sasl.password" = ["hunter2"]',
        'security.protocol = "SSL"\n"ssl.key.pem" = "hunter2"',
    ):
        with pytest.raises(WrongConfiguration) as caught:
            load_text(with_settings(setting), base=tmp_path)
        assert "hunter2" not in repr(caught.value) + str(caught.value.__context__)
        assert caught.value.problems


def test_a_file_that_is_replaced_is_read_again_unless_the_client_refuses_it(tmp_path: Path) -> None:
    file = tmp_path / "linger"
    file.write_text("1")
    text = with_settings('"linger.ms" = {file = "linger"}')
    cluster = load_text(text, base=tmp_path).clusters["main"]
    file.write_text("soon")
    with pytest.raises(ValueError, match=r"linger\.ms"):
        cluster.read_again()
    file.write_text("2")
    assert cluster.read_again().client_settings() == {"linger.ms": "2"}
    file.unlink()
    with pytest.raises(ValueError, match="No such file"):
        cluster.read_again()


def test_a_path_in_a_setting_begins_at_the_configurations_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "keys").mkdir()
    (tmp_path / "keys" / "ca").write_text("a certificate")
    monkeypatch.setenv("CA", "keys/ca")
    absolute = str(tmp_path / "keys" / "ca")
    for written in ('"keys/ca"', '{env = "CA"}', f'"{absolute}"'):
        text = with_settings(f'"ssl.ca.location" = {written}\n"ssl.key.location" = "keys/ca"')
        found = load_text(text, base=tmp_path).clusters["main"].client_settings()
        assert found == {"ssl.ca.location": absolute, "ssl.key.location": absolute}
    probed = load_text(with_settings('"ssl.ca.location" = "probe"'), base=tmp_path)
    assert probed.clusters["main"].client_settings() == {"ssl.ca.location": "probe"}


def test_a_path_in_an_option_begins_at_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "ca").write_text("a certificate")
    monkeypatch.chdir(tmp_path / "here")
    over = {"clusters.settings": settings_of_options(["ssl.ca.location=ca"])}
    found = load_text(LEAST, over, base=tmp_path).clusters["main"].client_settings()
    assert found == {"ssl.ca.location": "ca"}


@pytest.mark.parametrize(
    ("key", "file", "reason"),
    [
        ("ssl.ca.location", "none", "No such file or directory"),
        ("ssl.certificate.location", "directory", "Is a directory"),
        ("sasl.kerberos.keytab", "file/none", "Not a directory"),
        (
            "sasl.oauthbearer.assertion.private.key.file",
            "loop",
            "Too many levels of symbolic links",
        ),
    ],
)
def test_a_file_that_a_setting_names_and_nobody_can_read_is_named_with_the_reason(
    tmp_path: Path, key: str, file: str, reason: str
) -> None:
    (tmp_path / "directory").mkdir()
    (tmp_path / "file").touch()
    (tmp_path / "loop").symlink_to("loop")
    problem = f"{key} names {tmp_path / file}, which cannot be read: {reason}"
    with pytest.raises(WrongConfiguration) as caught:
        load_text(with_settings(f'"{key}" = "{file}"\n"security.protocol" = "SSL"'), base=tmp_path)
    assert caught.value.problems == [f"clusters.main.settings.{key}: {problem}"]


def test_a_path_that_a_file_holds_begins_at_the_configuration_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also after the file has changed, and in the environment."""
    for name in ("ca.pem", "other.pem"):
        (tmp_path / name).touch()
    (tmp_path / "where").write_text("ca.pem\n")
    (tmp_path / "bridge.toml").write_text(
        with_settings('"ssl.ca.location" = {file = "where"}\n"ssl.key.location" = {env = "KEY"}')
    )
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    monkeypatch.setenv("KEY", "other.pem")
    config = load(str(tmp_path / "bridge.toml"), {})
    found = config.clusters["main"].client_settings()
    assert found["ssl.ca.location"] == str(tmp_path / "ca.pem")
    assert found["ssl.key.location"] == str(tmp_path / "other.pem")
    (tmp_path / "where").write_text("other.pem")
    found = config.read_again().clusters["main"].client_settings()
    assert found["ssl.ca.location"] == str(tmp_path / "other.pem")


def test_a_fifo_and_a_directory_of_certificates_are_no_reason_to_wait_or_to_refuse(
    tmp_path: Path,
) -> None:
    os.mkfifo(tmp_path / "fifo")
    text = with_settings('"ssl.key.location" = "fifo"\n"ssl.ca.location" = "."')
    assert load_text(text, base=tmp_path).clusters["main"].client_settings()


def test_a_key_of_the_client_that_ends_in_file_is_no_reference() -> None:
    text = 'sasl.oauthbearer.assertion.file = "/dev/null"\nacks = 1'
    problems = problems_of(with_settings(text))
    assert problems[0].startswith("clusters.main.settings.acks")


# --- whatever is given ----------------------------------------------------------------------

_KEYS = st.sampled_from([*Config.model_fields, "main", "settings", "bootstrap_servers", "x", ""])
_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(UNICODE, max_size=5) | _KEYS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_KEYS, inner, max_size=4),
    max_leaves=12,
)


@settings(max_examples=60)
@given(st.dictionaries(_KEYS, _VALUES, max_size=5))
def test_nonsense_is_refused_and_never_crashes(table: dict[str, Any]) -> None:
    problems: list[str] = []
    config = None
    try:
        config = load_text(json.dumps(table), {"clusters.bootstrap_servers": "k:1", "root": "/r"})
    except WrongConfiguration as error:
        problems = error.problems
    assert (config is not None and config.root == "/r") != any(problems)


# --- check-config ---------------------------------------------------------------------------


def test_check_config_shows_what_would_run_with_secrets_masked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PASSWORD", "hunter2")
    file = tmp_path / "bridge.toml"
    file.write_text(WHOLE)
    for name in ("app/a", "app/b", "other", "app/x/tmp"):
        fill(tmp_path / "logs" / name, 1)
    shown = json.loads(CliRunner().invoke(main, ["check-config", str(file), "--json"]).stdout)
    assert shown["ok"] is True
    assert shown["logs"] == {"app/a": ["main", "safe"], "app/b": ["main", "safe"]}
    assert "hunter2" not in json.dumps(shown)
    assert shown["configuration"]["clusters"]["safe"]["cursor"] == "bridge.safe"
    text = CliRunner().invoke(main, ["check-config", str(file)]).stdout
    assert '"sasl.password" = "********** (from environment PASSWORD)"' in text
    assert "#     app/a -> main, safe\n" in text
    again = load_text(text).shown()  # TOML that can be used as a file
    assert {**again, "clusters": None} == {**shown["configuration"], "clusters": None}


def test_a_configuration_of_the_greatest_size_is_read(tmp_path: Path) -> None:
    file = tmp_path / "bridge.toml"
    file.write_text(LEAST + "#" * ((1 << 20) - len(LEAST)))
    assert load(file).root == str(tmp_path / "logs")
    with file.open("a") as more:
        more.write("#")
    with pytest.raises(WrongConfiguration, match="is larger than 1048576 bytes"):
        load(file)


def test_the_schema_names_every_key() -> None:
    schema = json.loads(CliRunner().invoke(main, ["check-config", "--schema"]).stdout)
    assert schema["properties"].keys() == Config.model_fields.keys()
    assert schema["additionalProperties"] is False


def test_the_configuration_that_the_page_shows_is_right(tmp_path: Path) -> None:
    page = Path(__file__).parents[3] / "aolog/docs/how-to/bridge.md"
    parts = re.findall(r"^```toml\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)
    text = "\n".join(parts)
    (tmp_path / "password").write_text("hunter2")
    config = load_text(text, base=tmp_path)
    assert list(config.clusters) == ["main", "archive"]
    assert config.cursor_of("archive") == "bridge.archive"
