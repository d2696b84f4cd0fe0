"""File clients without Kafka: which files are taken, when they are done, and what a crash leaves."""

import json
import os
import time

import pytest
from click.testing import CliRunner

from aolog import Reader, Writer
from aolog.errors import LogLocked
from bridge.cli import main
from bridge.client.errors import BrokenJSON, MissingTopic, NoDirectory, UnknownKey, WrongType
from bridge.client.files import file_system as files
from bridge.client.files.file_clients import bridge_config
from bridge.client.files.file_config import load_file_client
from bridge.client.files.intake import Intake
from tests.bridge.client.files.file_configurations import (
    ARCHIVE,
    CONSUMER,
    PRODUCER,
    Crash,
    nth,
    visible,
    written,
)


@pytest.fixture
def inbox(tmp_path):
    for name in ("in", "arch", "out"):
        (tmp_path / name).mkdir()
    return tmp_path / "in"


# --- configuration --------------------------------------------------------------------------


def test_hazdev_brokers_own_files_are_taken_unchanged(tmp_path, inbox):
    producer = load_file_client(written(tmp_path, PRODUCER))
    assert (producer.directory, producer.archive) == (inbox, tmp_path / "arch")
    config = bridge_config(producer, producer.table)
    assert config.topic == "test"
    assert config.clusters["main"].bootstrap_servers == "localhost:9092"
    assert "retries" not in config.clusters["main"].settings
    assert any("Log4JConfigFile" in notice for notice in producer.options.notices)
    consumer = load_file_client(written(tmp_path, CONSUMER))
    assert (consumer.table.messages_per_file, consumer.table.time_per_file) == (10, 15)
    archive = load_file_client(written(tmp_path, ARCHIVE))
    assert archive.directory == tmp_path / "files"
    assert not archive.directory.exists(), "nothing is made before it runs"


@pytest.mark.parametrize(
    ("changed", "kind"),
    [
        ({"InputDirectory": "nowhere"}, NoDirectory), ({"InputDirectory": "client.config"}, NoDirectory),
        ({"ArchiveDirectory": "nowhere"}, NoDirectory), ({"Topic": "a b"}, MissingTopic),
        ({"TimePerFile": "1"}, WrongType), ({"Type": "Client"}, WrongType),
        ({"FileExtention": "x"}, UnknownKey), ({"HazdevBrokerConfig": []}, WrongType),
        ({"FileExtension": "../x"}, WrongType),
    ],
    ids=range(9),
)  # fmt: skip  # a table
def test_each_mistake_has_a_class_and_nothing_is_made(tmp_path, inbox, changed, kind):
    with pytest.raises(kind) as caught:
        load_file_client(written(tmp_path, PRODUCER, **changed))
    assert type(caught.value) is kind
    assert os.listdir(inbox) == []


def test_a_missing_topic_and_broken_json_are_told(tmp_path, inbox):
    text = PRODUCER.replace('"Topic":"test",', "")
    with pytest.raises(MissingTopic, match="Topic: is missing"):
        load_file_client(written(tmp_path, text))
    with pytest.raises(BrokenJSON):
        load_file_client(written(tmp_path, PRODUCER[:-1]))
    with pytest.raises(MissingTopic):
        load_file_client(written(tmp_path, CONSUMER, TopicList=[]))


def test_the_command_says_what_is_wrong_and_starts_nothing(tmp_path, inbox):
    for text, code in (
        (PRODUCER[:-1], "broken_json"),
        (PRODUCER.replace("./in", "./nowhere"), "no_directory"),
        (CONSUMER.replace("MessagesPerFile", "MessagePerFile"), "unknown_key"),
    ):
        done = CliRunner().invoke(main, ["files", written(tmp_path, text)])
        assert done.exit_code == 2
        assert done.stderr.startswith(f"aolog-bridge: {code}: ")
    assert os.listdir(inbox) == []


@pytest.mark.parametrize(
    ("written_as", "seconds"), [(30, 30), (0.5, 0.5), (0, 1), (-1, None), (-30, None)]
)
def test_a_heartbeat_interval_of_minus_1_disables_heartbeats_and_of_0_sends_them_always(
    tmp_path, inbox, written_as, seconds
):
    for text in (PRODUCER, CONSUMER):
        file = written(tmp_path, text, HeartbeatInterval=written_as)
        assert load_file_client(file).table.heartbeat_interval == seconds


def test_a_last_line_may_be_commented_out(tmp_path, inbox):
    text = PRODUCER.replace('"Log4J', '# "Log4J').replace('"retries"', ', # "retries"')
    client = load_file_client(written(tmp_path, text))
    assert client.table.topic == "test"
    assert client.table.log4j_config_file is None


# --- directory to log -----------------------------------------------------------------------


@pytest.fixture
def make(tmp_path, inbox):
    made = []

    def intake(settle_s=0, clock=time.monotonic, **changed):
        changed = {"TimePerFile": 0, "HeartbeatInterval": None, **changed}
        client = load_file_client(written(tmp_path, PRODUCER, **changed))
        found = Intake(client, client.table, settle_s=settle_s, clock=clock)
        made.append(found)
        return found

    yield intake
    for each in made:
        each.close()


def log_values(inbox):
    with Reader(inbox / ".aolog") as reader:
        return [record.value for record in reader]


def acknowledge_all(inbox):
    """As the bridge does."""
    with Reader(inbox / ".aolog", cursor="bridge") as reader:
        for _ in reader:
            pass
        reader.commit()


def test_a_file_is_archived_when_all_of_it_is_acknowledged_and_not_before(tmp_path, inbox, make):
    (inbox / "a.default").write_bytes(b"1\r\n2\n\n3")
    (inbox / "b.other").write_bytes(b"no")
    intake = make()
    intake.step()
    intake.step()
    assert log_values(inbox) == [b"1", b"2", b"3"]
    assert visible(inbox) == ["b.other"]
    assert visible(tmp_path / "arch") == []
    acknowledge_all(inbox)
    intake.step()
    assert (tmp_path / "arch" / "a.default").read_bytes() == b"1\r\n2\n\n3"
    assert not os.listdir(inbox / ".taken")


def test_blank_lines_are_no_messages(tmp_path, inbox, make):
    (inbox / "a.default").write_bytes(b"\n\r\n1\n \n\n2\n\n")
    (inbox / "b.default").write_bytes(b"\n\n")
    intake = make()
    intake.step()
    intake.step()
    assert log_values(inbox) == [b"1", b" ", b"2"]
    acknowledge_all(inbox)
    intake.step()
    assert visible(tmp_path / "arch") == ["a.default", "b.default"]
    assert (tmp_path / "arch" / "b.default").read_bytes() == b"\n\n"


def test_without_an_archive_an_acknowledged_file_is_deleted(inbox, make):
    (inbox / "a.default").write_bytes(b"1\n")
    intake = make(ArchiveDirectory=None)
    intake.step()
    assert os.listdir(inbox / ".taken") != []
    acknowledge_all(inbox)
    intake.step()
    assert os.listdir(inbox / ".taken") == []
    assert visible(inbox) == []


def test_after_a_restart_a_file_beside_an_empty_one_waits_for_its_acknowledgement(
    tmp_path, inbox, make
):
    (inbox / "a.default").write_bytes(b"")
    (inbox / "b.default").write_bytes(b"1\n2\n")
    os.utime(inbox / "a.default", (1, 1))
    first = make()
    first.step()
    first.step()
    first.close()
    assert len(os.listdir(inbox / ".taken")) == 2
    with Reader(inbox / ".aolog", cursor="bridge") as reader:
        reader.commit()
    second = make()
    second.step()
    assert "b.default" not in visible(tmp_path / "arch")
    acknowledge_all(inbox)
    second.step()
    assert visible(tmp_path / "arch") == ["a.default", "b.default"]


def test_a_file_that_somebody_put_beside_the_taken_ones_is_left_alone(inbox, make):
    (inbox / ".taken").mkdir()
    (inbox / ".taken" / "notes").write_bytes(b"")
    (inbox / ".taken" / "7-a.default").write_bytes(b"")
    make().step()
    assert sorted(os.listdir(inbox / ".taken")) == ["7-a.default", "notes"]


def test_a_file_that_a_process_has_open_for_writing_is_not_taken(inbox, make):
    intake = make()
    with (inbox / "a.default").open("wb") as writing:
        writing.write(b"1\n")
        writing.flush()
        intake.step()
        assert log_values(inbox) == []
    intake.step()
    assert log_values(inbox) == [b"1"]


def test_a_file_is_taken_only_when_nothing_has_changed_it_for_a_while(inbox, make):
    now = [0.0]
    intake = make(settle_s=5, clock=lambda: now[0])
    file = inbox / "a.default"
    file.write_bytes(b"1\n")
    intake.step()
    now[0] = 4
    file.write_bytes(b"1\n2\n")
    intake.step()
    now[0] = 8
    intake.step()
    assert log_values(inbox) == []
    now[0] = 9.5
    intake.step()
    assert log_values(inbox) == [b"1", b"2"]


def test_files_are_taken_in_the_order_of_their_times_and_at_the_pace_that_is_configured(
    inbox, make
):
    now = [0.0]
    for i, name in enumerate("cab"):
        (inbox / f"{name}.default").write_bytes(name.encode())
        os.utime(inbox / f"{name}.default", (1000 + i, 1000 + i))
    intake = make(clock=lambda: now[0], TimePerFile=10)
    for moment, values in ((0, [b"c"]), (9, [b"c"]), (10, [b"c", b"a"]), (20, [b"c", b"a", b"b"])):
        now[0] = moment
        intake.step()
        assert log_values(inbox) == values


def test_what_cannot_be_sent_is_set_aside_and_does_not_stop_the_others(inbox, make, caplog):
    (inbox / "big.default").write_bytes(b"x" * 2_000_000)
    (inbox / "link.default").symlink_to("/etc/passwd")
    (inbox / "directory.default").mkdir()
    os.mkfifo(inbox / "pipe.default")
    (inbox / f"{'n' * 240}.default").write_bytes(b"y")
    (inbox / "good.default").write_bytes(b"good")
    intake = make()
    for _ in range(6):
        intake.step()
    assert log_values(inbox) == [b"good"]
    assert sorted(os.listdir(inbox / ".poison")) == ["big.default", "link.default", "n" * 240 + ".default",
                                                     "pipe.default"]  # fmt: skip
    assert visible(inbox) == ["directory.default"]
    assert "a line has 2000000 bytes" in caplog.text


def test_an_archive_never_overwrites(tmp_path, inbox, make):
    (tmp_path / "arch" / "a.default").write_bytes(b"older")
    (inbox / "a.default").write_bytes(b"newer")
    intake = make()
    intake.step()
    acknowledge_all(inbox)
    intake.step()
    assert (tmp_path / "arch" / "a.default").read_bytes() == b"older"
    assert (tmp_path / "arch" / "a.default.1").read_bytes() == b"newer"


def test_heartbeats_go_the_way_of_the_data(inbox, make):
    intake = make(HeartbeatInterval=1000)
    intake.step()
    intake.close()
    (beat,) = log_values(inbox)
    assert json.loads(beat)["ClientId"] == "producer.example"


def test_heartbeats_that_are_always_sent_are_sent_once_a_second(inbox, make):
    now = [5.0]
    intake = make(HeartbeatInterval=0, clock=lambda: now[0])
    for now[0] in (5, 5.9, 6, 6.5, 7):
        intake.step()
    intake.close()
    assert len(log_values(inbox)) == 3


def test_heartbeats_that_are_disabled_are_not_sent(inbox, make):
    (inbox / "a.default").write_bytes(b"1\n")
    intake = make(HeartbeatInterval=-1)
    intake.step()
    intake.close()
    assert log_values(inbox) == [b"1"]


def test_two_intakes_of_one_directory_exclude_one_another(inbox, make):
    make()
    with pytest.raises(LogLocked):
        make()


@pytest.mark.parametrize("place", ["claimed", "appended", "synced", "acknowledged", "archived"])
def test_a_crash_anywhere_sends_each_file_once(tmp_path, inbox, make, monkeypatch, place):
    (inbox / "a.default").write_bytes(b"1\n2\n")
    (inbox / "b.default").write_bytes(b"3\n")
    first = make()

    def crash(*_):
        raise Crash

    with monkeypatch.context() as patched, pytest.raises(Crash):
        if place == "claimed":
            patched.setattr(files, "read", crash)
        elif place == "appended":
            patched.setattr(Writer, "sync", nth(Writer.sync, 2, crash))
        elif place == "synced":
            patched.setattr(Writer, "sync", nth(Writer.sync, 2, crash, after=True))
        elif place == "acknowledged":
            patched.setattr(files, "move", _to(tmp_path / "arch", files.move, crash))
        else:
            patched.setattr(files, "move", _to(tmp_path / "arch", files.move, crash, after=True))
        first.step()
        acknowledge_all(inbox)
        first.step()
        raise AssertionError("no crash")
    first.close()
    again = make()
    for _ in range(4):
        again.step()
        acknowledge_all(inbox)
    assert sorted(log_values(inbox)) == [b"1", b"2", b"3"]
    assert visible(tmp_path / "arch") == ["a.default", "b.default"]
    assert visible(inbox) == []


def _to(directory, call, crash, *, after=False):
    def wrapped(path, target, name):
        if target != directory:
            return call(path, target, name)
        if after:
            call(path, target, name)
        return crash()

    return wrapped
