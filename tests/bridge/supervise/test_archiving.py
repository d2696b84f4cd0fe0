"""Logs are archived while a bridge runs: protected from the start, through outages and kills. 20 s: a store is
started, and commands."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import aolog
from aolog.errors import StorageFailed
from aolog.log.retention import prune
from aolog.maintenance.archive.protection import CURSOR, protect
from aolog.storage.storage import Storage
from bridge.config.load import load_text
from bridge.deliver.log_source import LAST_SLAB
from bridge.kafka.embedded import EmbeddedBroker
from bridge.supervise import archiving
from bridge.supervise.archiving import ArchiveStatus, Archiving
from tests.aolog.conftest import slab_files
from tests.aolog.maintenance.archive.stores import BUCKET, Proxy, environment, make_bucket, moto
from tests.bridge.logs import fill
from tests.bridge.operate.endpoints import LOG
from tests.bridge.operate.listening import get, where
from tests.bridge.processes import Start, printed
from tests.waiting import wait_until

pytest.importorskip("obstore")

from aolog.storage.objects import system as object_system

pytestmark = pytest.mark.xdist_group("object stores")
_numbers = iter(range(1000))


@pytest.fixture(scope="module")
def proxy() -> Iterator[Proxy]:
    with moto() as endpoint:
        make_bucket(endpoint)
        proxy = Proxy(endpoint)
        yield proxy
        proxy.close()


@pytest.fixture
def url(proxy: Proxy, monkeypatch: pytest.MonkeyPatch) -> str:
    """Where the archives are."""
    for name, value in environment(proxy.endpoint).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(object_system, "REFRESH_S", 0.0)
    monkeypatch.setattr(archiving, "_RETRY_S", 0.05)
    object_system.object_system.cache_clear()
    proxy.rule, proxy.seen = lambda *_: None, []
    return f"s3://{BUCKET}/{next(_numbers)}"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "root"


@pytest.fixture
def archive(root: Path, url: str) -> Iterator[Callable[..., Archiving]]:
    """Starts to archive the logs below the root that have these names."""
    running: list[Archiving] = []

    def start(*names: str, more: str = "", prunes: bool = False) -> Archiving:
        config = load_text(
            f'root = "{root}"\nprune = {str(prunes).lower()}\n'
            f'[clusters.c]\nbootstrap_servers = "x:1"\n[archive]\nurl = "{url}"\n{more}'
        )
        logs = [LOG._replace(log=name, path=str(root / name)) for name in names]
        found = Archiving(lambda: logs, config, Storage())
        running.append(found)
        return found.__enter__()

    yield start
    for each in running:
        each.__exit__()


def until(
    archiving: Archiving, log: Path, reached: Callable[[ArchiveStatus], object]
) -> ArchiveStatus:
    def found() -> bool:
        status = archiving.of(str(log))
        return status is not None and bool(reached(status))

    wait_until(found)
    status = archiving.of(str(log))
    assert status is not None
    return status


def values(reader: aolog.Reader) -> list[bytes | None]:
    with reader:
        found = [record.value for record in reader]
        assert reader.gaps == []
    return found


def test_each_log_is_archived_below_the_url_by_its_name(root, url, archive):
    names = "a", "b/c", "odd name, 100%ü"
    for name in names:
        fill(root / name, 1000, slab_bytes=16 << 10)
    running = archive(*names)
    for name in names:
        log = root / name
        status = until(running, log, lambda s: s.behind_bytes == 0)
        assert (status.begin, status.error, status.waiting_seconds) == (0, None, 0.0)
        assert status.uploaded == status.slabs == len(slab_files(str(log)))
        assert status.requests > status.uploaded
        assert status.sent_bytes > sum(slab.stat().st_size for slab in slab_files(str(log)))
        assert values(aolog.Reader(f"{url}/{name}")) == values(aolog.Reader(log))


def test_what_is_appended_follows_when_its_slab_is_full_or_after_its_time(root, archive):
    fill(root / "a", 1000, slab_bytes=16 << 10)
    running = archive("a", more="ship_seconds = 1")
    until(running, root / "a", lambda s: s.behind_bytes == 0)
    with aolog.Writer(root / "a", sync="flush") as writer:
        end = writer.append(b"more")
        writer.flush()
        assert until(running, root / "a", lambda s: s.end > end).error is None


def test_a_log_is_protected_before_the_store_answers(root, url, proxy, archive, caplog):
    fill(root / "a", 1000, slab_bytes=16 << 10)
    everything = values(aolog.Reader(root / "a"))
    with aolog.Reader(root / "a", "latest", cursor="bridge") as reader:
        reader.commit()
    proxy.rule = lambda *_: 503
    with caplog.at_level(logging.WARNING):
        running = archive("a", prunes=True)
        wait_until(lambda: CURSOR in [found.name for found in aolog.cursors(root / "a")])
        prune(str(root / "a"), Storage(), LAST_SLAB)
        assert values(aolog.Reader(root / "a")) == everything
        assert until(running, root / "a", lambda s: True).end is None
        proxy.rule = lambda *_: None
        until(running, root / "a", lambda s: s.behind_bytes == 0)
    wait_until(lambda: len(slab_files(str(root / "a"))) == 1)
    assert values(aolog.Reader(root / "a", archive=f"{url}/a")) == everything


def test_a_log_of_format_1_is_not_protected_and_the_others_go_on(root, archive):
    fill(root / "a", 100)
    with aolog.Writer(root / "old", format="queuefka") as writer:
        writer.append(b"x")
    running = archive("a", "old")
    assert "format 1" in until(running, root / "old", lambda s: s.error).error
    assert until(running, root / "a", lambda s: s.end is not None).error is None
    protect(str(root / "old"), Storage())
    assert aolog.cursors(root / "old") == []


def test_the_archive_of_another_log_is_an_error_that_is_logged_once(root, url, archive, caplog):
    fill(root / "a", 100)
    first = archive("a")
    until(first, root / "a", lambda s: s.behind_bytes == 0)
    first.__exit__()
    (root / "a").rename(root / "b")
    fill(root / "a", 100)
    with caplog.at_level(logging.WARNING):
        running = archive("a")
        status = until(running, root / "a", lambda s: s.error)
        assert status.code == "corrupt"
        assert "it is the archive of the log" in str(status.error)
        wait_until(lambda: running.of(str(root / "a")).requests > status.requests + 3)
    assert len([r for r in caplog.records if "not archived" in r.message]) == 1


def test_many_logs_are_archived_though_few_archivers_stay_open(root, archive, monkeypatch):
    monkeypatch.setattr(archiving, "_OPEN_MAX", 1)
    names = [f"log{number}" for number in range(12)]
    for name in names:
        fill(root / name, 300, slab_bytes=16 << 10)
    running = archive(*names, more="ship_seconds = 1")
    for name in names:
        until(running, root / name, lambda s: s.behind_bytes == 0)
    before = {name: running.of(str(root / name)) for name in names}
    fill(root / "log3", range(300, 600), slab_bytes=16 << 10)
    end = aolog.Reader(root / "log3").end()
    until(running, root / "log3", lambda s: s.end >= end)
    quiet = [running.of(str(root / name)).requests - before[name].requests for name in names[4:]]
    assert quiet == [0] * len(quiet), "a log that did not change takes no request"


def test_a_log_that_cannot_be_pruned_is_archived_still(root, archive, monkeypatch, caplog):
    """The error ended the thread, and with it the archiving of its share of the logs."""

    def failing(*_: object) -> None:
        raise StorageFailed("the device fails")

    fill(root / "log", 300, slab_bytes=16 << 10)
    monkeypatch.setattr(archiving, "prune", failing)
    running = archive("log", prunes=True, more="ship_seconds = 1")
    wait_until(lambda: "log: not pruned: the device fails" in caplog.text)
    fill(root / "log", range(300, 600), slab_bytes=16 << 10)
    end = aolog.Reader(root / "log").end()
    until(running, root / "log", lambda s: s.end >= end and s.error is None)


def test_a_turn_that_fails_in_an_unknown_way_is_logged_and_the_next_one_begins(
    root, archive, monkeypatch, caplog
):
    def failing(*_: object, **__: object) -> None:
        raise ValueError("an odd root")

    fill(root / "log", 10)
    with monkeypatch.context() as patched:
        patched.setattr(archiving, "quote", failing)
        running = archive("log", more="ship_seconds = 1")
        wait_until(lambda: "an odd root" in caplog.text)
    until(running, root / "log", lambda s: s.behind_bytes == 0)


def test_a_bridge_archives_shows_it_and_uploads_nothing_twice_after_a_kill(
    bridge: Start, broker: EmbeddedBroker, root: Path, url: str, proxy: Proxy, tmp_path: Path
) -> None:
    fill(root / "a", 2_000, slab_bytes=16 << 10)
    file = tmp_path / "bridge.toml"
    file.write_text(
        f'root = "{root}"\ntopic = "t"\nhttp = ":0"\nprune = true\n[clusters.c]\n'
        f'bootstrap_servers = "{broker.bootstrap_servers}"\n[archive]\nurl = "{url}"\n'
    )
    everything = values(aolog.Reader(root / "a"))
    process = bridge("run", "--config", file, "--json")
    where(process)
    wait_until(lambda: sum(method == "PUT" for method, _ in proxy.seen) > 6)
    process.kill()
    process = bridge("run", "--config", file, "--json")
    at = where(process)

    def shown() -> dict[str, Any]:
        logs = json.loads(get(at, "/status")[1])["logs"]  # none before the first scan
        found: dict[str, Any] = (logs and logs[0]["archive"]) or {}
        return found

    wait_until(lambda: shown().get("behind_bytes") == 0)
    assert shown()["error"] is None
    metrics = get(at, "/metrics")[1]
    assert b'aolog_bridge_archive_behind_bytes{cluster="c",log="a"} 0.0' in metrics
    assert b'aolog_bridge_archive_failed{cluster="c",log="a"} 0.0' in metrics
    assert "a: archived up to address" in printed(bridge("status", "--http", f"{at[0]}:{at[1]}"))
    assert "a: archived up to address" in printed(bridge("status", "--root", root))
    wait_until(lambda: len(slab_files(str(root / "a"))) == 1)
    assert process.terminate() == 0
    stored = [path for method, path in proxy.seen if method == "PUT" and "/slabs/" in path]
    assert len(stored) - len(set(stored)) <= 1, "at most the one that was under way"
    assert values(aolog.Reader(root / "a", archive=f"{url}/a")) == everything


@pytest.mark.parametrize(("text", "says"), [
    ('url = "/var/archive"', "archive.url: /var/archive: is not the URL of a store"),
    ('url = "s3://b/x?key=1"', "archive.url"),
    ('url = "s3://b"\nship_second = 5', "archive.ship_second: unknown key; did you mean 'ship_seconds'"),
    ("ship_seconds = 5", "archive.url: is missing"),
])  # fmt: skip  # a table
def test_a_wrong_table_is_refused(text: str, says: str) -> None:
    given = f'root = "x"\n[clusters.c]\nbootstrap_servers = "x:1"\n[archive]\n{text}'
    with pytest.raises(aolog.AologError) as raised:
        load_text(given)
    assert says in str(raised.value)


def test_a_bridge_that_lacks_the_library_says_so_at_the_start(
    bridge: Start, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(root / "a", 10)
    (tmp_path / "lacking").mkdir()
    (tmp_path / "lacking" / "obstore.py").write_text(
        "raise ModuleNotFoundError(\"No module named 'obstore'\", name='obstore')\n"
    )
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path / 'lacking'}:{os.environ.get('PYTHONPATH', '')}")
    file = tmp_path / "bridge.toml"
    file.write_text(
        f'root = "{root}"\n[clusters.c]\nbootstrap_servers = "127.0.0.1:1"\n'
        '[archive]\nurl = "s3://b"\n'
    )
    process = bridge("run", "--config", file)
    assert process.end(60) == 2
    assert "objects" in process.stderr
    assert aolog.cursors(root / "a") == []
