"""Archives on real servers: read, restored, and written through a proxy that loses and refuses.

The waits between attempts are short here; a store that is found by its environment variables, as users
have it, is on loopback.
"""

from __future__ import annotations

import logging
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import aolog
from aolog.errors import PermissionDenied, StorageFailed, UsageError
from aolog.format.root_manifest import Transaction
from aolog.maintenance.archive import archiver as archiver_module
from aolog.maintenance.archive import replacing
from aolog.maintenance.archive.archiver import Archiver
from aolog.maintenance.archive.compaction import compact
from aolog.publish import objects
from aolog.publish.pending import PendingLog
from tests.aolog.commands import answer, failure, well
from tests.aolog.conftest import SOON_S
from tests.aolog.maintenance.archive.stores import (
    BUCKET,
    INSTALL,
    SECRET,
    STORES,
    Proxy,
    environment,
    make_bucket,
    program,
)

pytest.importorskip("obstore")

from aolog.storage.objects import client as client_module
from aolog.storage.objects import system as object_system

pytestmark = pytest.mark.xdist_group("object stores")


@pytest.fixture(scope="module", params=STORES)
def proxy(request) -> Iterator[Proxy]:
    if request.param == "gofakes3" and program() is None:
        assert "CI" not in os.environ, ".ci/run installs it"
        pytest.skip(f"gofakes3, a second server, is not installed: {INSTALL}")
    with STORES[request.param]() as endpoint:
        make_bucket(endpoint)
        proxy = Proxy(endpoint)
        yield proxy
        proxy.close()


@pytest.fixture
def long(request) -> bool:
    return request.config.getoption("--long")


@pytest.fixture(autouse=True)
def found_by_variables(proxy, monkeypatch):
    for name, value in environment(proxy.endpoint).items():
        monkeypatch.setenv(name, value)
    for module in client_module, archiver_module, replacing:
        monkeypatch.setattr(module, "_WAIT_S_MIN", 0.001)
    monkeypatch.setattr(object_system, "REFRESH_S", 0.0)
    object_system.object_system.cache_clear()
    proxy.rule = lambda *_: None
    proxy.seen.clear()


@pytest.fixture
def url(tmp_path) -> str:
    """Below it nothing is stored yet; some of its characters need care in a signature and in a path."""
    return f"s3://{BUCKET}/a b+c=ä/{tmp_path.name}"


@pytest.fixture
def log(tmp_path) -> str:
    path = str(tmp_path / "log")
    with aolog.Writer(path, slab_bytes=16 << 10) as writer:
        for number in range(250):
            writer.append(b"%d " % number + bytes(100))
            writer.flush()
    return path


def archived(path: object, url: str, *, probe: bool = True) -> archiver_module.Archived:
    with Archiver(str(path), url) as archiver:
        archiver.begin(probe=probe)
        return archiver.round()


def read(url: str) -> list[aolog.Record]:
    object_system.object_system.cache_clear()
    with aolog.Reader(url) as reader:
        return list(reader)


def test_a_log_is_archived_read_and_restored_by_the_commands(log, url, tmp_path):
    done = answer("archive", log, url)
    assert done["behind_bytes"] == 0
    assert done["uploaded"] == done["slabs"] >= 2
    assert read(url) == list(aolog.Reader(log))
    assert read(url.replace("s3:", "s3a:")) == list(aolog.Reader(log))
    assert answer("verify", url)["records"] == 250
    well("restore", url, tmp_path / "back")
    assert list(aolog.Reader(tmp_path / "back")) == list(aolog.Reader(log))
    assert answer("archive", tmp_path / "back", url)["uploaded"] == 0
    assert failure("restore", url, tmp_path / "back")["code"] == "usage"


def test_small_slabs_are_packed_and_every_record_stays(log, url, tmp_path):
    wanted, slabs = list(aolog.Reader(log)), archived(log, url).slabs
    assert answer("compact", url, "--dry-run")["packed"] == slabs
    done = answer("compact", url, "--object-bytes", "1MiB")
    assert (done["packs"], done["objects"], done["slabs"]) == (1, 1, slabs)
    with aolog.Reader(url) as reader:
        got = [reader.read()]
        assert compact(url, grace_seconds=-1.0).deleted == slabs
        assert [*got, *reader] == wanted
    assert read(url) == wanted
    assert answer("archive", log, url)["uploaded"] == 0
    well("restore", url, tmp_path / "back")
    assert list(aolog.Reader(tmp_path / "back")) == wanted


def test_faults_at_half_of_the_requests_of_a_compaction_change_nothing(log, url, proxy):
    wanted = list(aolog.Reader(log))
    archived(log, url)
    proxy.seen.clear()
    proxy.rule = lambda n, *_: FAULTS[n // 2 % len(FAULTS)] if n % 2 else None
    assert compact(url, object_bytes=1 << 20, probe=False).packs == 1
    assert compact(url, grace_seconds=-1.0, probe=False).deleted > 2
    proxy.rule = lambda *_: None
    assert read(url) == wanted


def test_a_copy_that_a_tool_made_is_read_too(log, url):
    client = client_module.Client(url)
    for slab in sorted(Path(log).glob("*.slab")):
        client.send(client_module.Put(slab.name, slab.read_bytes(), "", ""))
    assert read(url) == list(aolog.Reader(log))


FAULTS = ("drop", "lose", 500, 503, 429, "cut", 0.1)


def test_a_fault_at_every_request_of_an_archive_changes_nothing(log, url, tmp_path, proxy, long):
    """One kind of fault at each request; in the small budget without those of the probe."""
    archived(shutil.copytree(log, tmp_path / "whole"), url, probe=long)
    wanted = list(aolog.Reader(log))
    for number in range(1, len(proxy.seen) + 1):
        fault = FAULTS[number % len(FAULTS)]
        path = shutil.copytree(log, tmp_path / f"{number}")
        proxy.seen.clear()
        proxy.rule = lambda n, *_, number=number, fault=fault: fault if n == number else None
        assert archived(path, f"{url}-{number}", probe=long).behind_bytes == 0, fault
        proxy.rule = lambda *_: None
        assert read(f"{url}-{number}") == wanted


def test_a_fault_at_every_request_of_a_sink_changes_nothing(url, tmp_path, proxy):
    """Of a task's upload and the driver's commit; each batch meets another fault at another request."""
    pa = pytest.importorskip("pyarrow")
    job, committed = "a" * 32, 0
    for number in range(1, 13):
        fault = FAULTS[number % len(FAULTS)]
        directory = str(tmp_path / f"{number}")
        with PendingLog(directory, ".", job) as pending:
            pending.append_arrow(pa.record_batch({"value": [b"%d" % number]}))
        proxy.seen.clear()
        proxy.rule = lambda n, *_, number=number, fault=fault: fault if n == number else None
        sent = objects.send(url, directory, job, pending.slabs)
        assert not objects.commit(url, job, sent, transaction=Transaction("q", number)).repeated
        committed += 1
        proxy.rule = lambda *_: None
    assert [record.value for record in read(url)] == [b"%d" % n for n in range(1, committed + 1)]
    assert objects.commit(url, job, sent, transaction=Transaction("q", committed)).slabs == 1
    assert len(read(url)) == committed


def test_a_reader_gets_every_record_though_requests_fail(log, url, proxy):
    archived(log, url)
    proxy.seen.clear()
    proxy.rule = lambda n, *_: FAULTS[n // 2 % len(FAULTS)] if n % 2 else None
    assert read(url) == list(aolog.Reader(log))
    assert len(proxy.seen) > 6


def test_a_store_that_is_away_is_an_error_at_the_deadline(log, url, proxy, monkeypatch):
    proxy.rule = lambda *_: 503
    monkeypatch.setattr(client_module, "DEADLINE_S", 0.0)
    with pytest.raises(StorageFailed, match=r"no clear answer from the store \(503\)"):
        client_module.Client(url, deadline_s=0.0).ask(client_module.Get("archive.json"))
    with (
        Archiver(log, url, deadline_s=0.0) as archiver,
        pytest.raises(StorageFailed, match="no clear answer"),
    ):
        archiver.begin()


EXPIRED = f"<Error><Code>ExpiredToken</Code><Message>AKIAEXAMPLE {SECRET}</Message></Error>"


@pytest.mark.parametrize(
    ("rule", "kind", "says"),
    [
        (
            (403, EXPIRED.replace("ExpiredToken", "AccessDenied")),
            PermissionDenied,
            "403 AccessDenied",
        ),
        ((401, ""), PermissionDenied, "401"),
        (
            (403, EXPIRED.replace("ExpiredToken", "RequestTimeTooSkewed")),
            PermissionDenied,
            "403 RequestTimeTooSkewed.*this host's clock",
        ),
        ((400, EXPIRED), StorageFailed, "400 ExpiredToken"),
    ],
)
def test_what_the_store_refuses_is_told_without_its_words(
    log, url, proxy, caplog, rule, kind, says
):
    proxy.rule = lambda *_: rule
    caplog.set_level(logging.DEBUG)
    with pytest.raises(kind, match=says) as told:
        archived(log, url)
    with pytest.raises(kind, match=says):
        read(url)
    everything = f"{told.value} {told.value.details} {caplog.text}"
    assert "AKIA" not in everything
    assert SECRET not in everything
    assert aolog.cursors(log) == []


def test_a_bucket_that_does_not_exist_is_told(log):
    with pytest.raises(UsageError, match="the bucket does not exist"):
        archived(log, "s3://nobody/x")


def test_an_archiver_that_is_killed_while_it_follows_goes_on(log, url, long):
    """While the log grows; three times with --long."""
    for number in range(3 if long else 1):
        process = subprocess.Popen(
            [sys.executable, "-m", "aolog", "archive", log, url, "--follow", "--json"],
            stdout=subprocess.PIPE,
        )  # fmt: skip  # one call
        try:
            assert process.stdout.readline(), "it archived something"
            with aolog.Writer(log, slab_bytes=16 << 10) as writer:
                writer.append_many([b"%d" % number * 50] * 300)
        finally:
            process.send_signal(signal.SIGKILL)
            process.wait(SOON_S)
            process.stdout.close()
    assert archived(log, url).behind_bytes == 0
    assert read(url) == list(aolog.Reader(log))
