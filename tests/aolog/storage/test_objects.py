"""Logs below the URL of an object store, here in a directory: read as any log, and never written."""

from __future__ import annotations

import hashlib
import itertools
import random
import shutil
import subprocess
import sys
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

import aolog
from aolog.errors import StorageFailed, UsageError
from aolog.format.archive import MANIFEST, Entry, Manifest, encode_manifest
from aolog.format.slab import ADDRESS_END
from aolog.log.directory import Log
from aolog.log.log_tree import walk_logs
from aolog.read import seek
from aolog.read.ranges import Range, read_range
from aolog.storage.storage import Storage
from tests.aolog.commands import answer, failure, well

obstore = pytest.importorskip("obstore")

from aolog.storage.objects import client as client_module  # noqa: E402 -- needs obstore
from aolog.storage.objects import read_ahead as read_ahead_module  # noqa: E402
from aolog.storage.objects import system as object_system  # noqa: E402
from aolog.storage.objects.read_ahead import RANGE_BYTES, ReadAhead  # noqa: E402
from aolog.storage.objects.requests import Get  # noqa: E402
from aolog.storage.objects.url import is_url, normal_url  # noqa: E402


@pytest.fixture(autouse=True)
def another_system(monkeypatch):
    """What a test leaves open is not the next one's; a follower looks at once."""
    object_system.object_system.cache_clear()
    monkeypatch.setattr(object_system, "REFRESH_S", 0.0)


def written(path: Path, count: int = 3000, **options) -> str:
    with aolog.Writer(path, slab_bytes=32 << 10, **options) as log:
        for number in range(count):
            log.append(b"value %d" % number, key=b"k")
            if number % 100 == 0:
                log.flush()
    return str(path)


def url(path: object) -> str:
    return f"file://{path}"


def entry_of(slab: Path, into: Path, end: int | None = None) -> Entry:
    """Puts a slab, or its beginning, into an archive in a directory."""
    data = slab.read_bytes()[:end]
    base = int(slab.stem)
    entry = Entry(base, base + len(data), end is None, hashlib.sha256(data).hexdigest())
    object_path = into / entry.object_name
    object_path.parent.mkdir(parents=True, exist_ok=True)
    object_path.write_bytes(data)
    etag = obstore.head(obstore.store.LocalStore(into), entry.object_name)["e_tag"]
    return entry._replace(etag=etag)


def publish(into: Path, log: str, entries: list[Entry], sequence: int = 1) -> None:
    with aolog.Reader(log) as reader:
        uuid = reader.topic_uuid.hex()
    manifest = Manifest(uuid, None, sequence, f"w{sequence}", 0, tuple(entries))
    (into / MANIFEST).write_bytes(encode_manifest(manifest))


@pytest.fixture
def log(tmp_path: Path) -> str:
    return written(tmp_path / "log")


@pytest.fixture
def archived(tmp_path: Path, log: str) -> Path:
    into = tmp_path / "archive"
    publish(into, log, [entry_of(slab, into) for slab in sorted(Path(log).glob("*.slab"))])
    (into / "slabs" / f"{0:020d}-{9:020d}-0000000000000000.slab").write_bytes(b"leftover")
    return into


def test_a_copy_and_an_archive_are_read_as_the_log_is(tmp_path, log, archived):
    copy = shutil.copytree(log, tmp_path / "copy")
    local = list(aolog.Reader(log))
    assert len(local) == 3000
    for there in url(copy), url(archived):
        with aolog.Reader(there) as reader:
            assert list(reader) == local
            assert reader.gaps == []
            assert reader.seek(ordinal=2000) == local[2000].address
            assert reader.read() == local[2000]
        report = aolog.verify(there)
        assert (report.ok, report.records) == (True, 3000)
        assert report._replace(findings=[]) == aolog.verify(log)._replace(findings=[])


def test_the_commands_that_read_take_a_url(log, archived):
    assert well("read", url(archived)).stdout == well("read", log).stdout
    assert well("tail", url(archived), "-n", 3).stdout.splitlines()[-1] == "value 2999"
    assert answer("verify", url(archived))["records"] == 3000
    info = answer("info", url(archived))
    assert info["bytes"] == answer("info", log)["bytes"]
    assert (info["records"], info["cursors"]) == (3000, [])


def test_a_stream_of_arrow_reads_it(archived):
    polars = pytest.importorskip("polars")
    with aolog.Reader(url(archived)) as reader:
        assert polars.DataFrame(reader).height == 3000


def test_a_reader_follows_an_archive_that_grows(tmp_path, log):
    into = tmp_path / "archive"
    first, second, *_ = sorted(Path(log).glob("*.slab"))
    everything = list(aolog.Reader(log))
    half = next(r.address for r in everything if r.address > int(second.stem) // 2) & ~7
    frame_end = max(r.address for r in everything if r.address <= half)
    publish(into, log, [entry_of(first, into, frame_end)])
    with aolog.Reader(url(into)) as reader:
        got = list(reader)
        assert 0 < len(got) < len(everything)
        publish(into, log, [entry_of(first, into), entry_of(second, into)], 2)
        got += list(reader)
        assert [r.address for r in got] == [r.address for r in everything[: len(got)]]
        assert got[-1].address > int(second.stem)


def test_the_object_of_a_beginning_may_be_deleted_under_a_reader(tmp_path, log):
    into = tmp_path / "archive"
    first = min(Path(log).glob("*.slab"))
    everything = list(aolog.Reader(log))
    beginning = entry_of(first, into, 16 << 10)
    publish(into, log, [beginning])
    with aolog.Reader(url(into)) as reader:
        assert reader.read() == everything[0]
        publish(into, log, [entry_of(first, into)], 2)
        (into / beginning.object_name).unlink()
        got = list(reader)
    assert got == everything[1 : len(got) + 1]
    assert got[-1].address > 16 << 10


def test_an_object_that_was_replaced_under_a_reader_is_an_error(tmp_path):
    with aolog.Writer(tmp_path / "copy") as writer:
        for _ in range(30):
            writer.append(bytes(10_000))
            writer.flush()
    copy = tmp_path / "copy"
    with aolog.Reader(url(copy)) as reader:
        assert reader.read() is not None
        last = max(copy.glob("*.slab"))
        data = last.read_bytes()
        last.unlink()
        last.write_bytes(data[:-1] + b"x")
        with pytest.raises(StorageFailed, match="was replaced or removed while it was read"):
            list(reader)


def test_an_archive_that_is_gone_is_missed_by_a_process_that_knew_it(log, archived):
    with aolog.Reader(log, archive=url(archived)) as reader:
        assert len(list(reader)) == 3000
    (archived / MANIFEST).unlink()
    min(Path(log).glob("*.slab")).unlink()
    with pytest.raises(aolog.NotALog, match="no archive"):
        aolog.Reader(log, archive=url(archived))


@pytest.mark.parametrize("name", ["a%20b", "50%", "a#b", "a?b", "a b", " a ", "ä", "%41"])
def test_every_log_below_a_folder_is_found_whatever_its_name_is(tmp_path, name):
    """A part of a URL may be the name of another folder: %20 is a space."""
    written(tmp_path / "root" / name, 10)
    found = [at for at, _, is_log in walk_logs(url(tmp_path / "root"), Storage()) if is_log]
    assert len(found) == 1
    assert len(list(aolog.Reader(found[0]))) == 10


def test_an_archive_of_a_newer_release_is_refused(archived):
    (archived / MANIFEST).write_bytes(b'{"aolog_archive": 99}')
    assert failure("read", url(archived))["code"] == "newer_format"


def test_nothing_is_written_to_a_url(archived, tmp_path):
    before = sorted(path for path in archived.rglob("*") if path.is_file())
    with pytest.raises(UsageError, match="a URL is not a directory"):
        aolog.Writer(url(archived))
    with pytest.raises(UsageError, match="no cursors"):
        aolog.Reader(url(archived), cursor="c").commit()
    for command in ("prune", "--max-slabs", "1"), ("cursor", "set", "c", "0"):
        name, *rest = command
        assert failure(name, *rest[:1], url(archived), *rest[1:])["code"] == "usage"
    assert sorted(path for path in archived.rglob("*") if path.is_file()) == before


def test_an_empty_place_is_no_log(tmp_path):
    with pytest.raises(aolog.NotALog):
        aolog.Reader(url(tmp_path / "nothing"))


def test_an_open_asks_for_the_manifest_and_the_slab_that_is_read(archived, monkeypatch):
    monkeypatch.setattr(object_system, "REFRESH_S", 60.0)
    with aolog.Reader(url(archived)) as reader:
        assert reader.read() is not None
        (folder,) = object_system.object_system().looked_at()
        assert folder.client.requests == 2


def test_a_slab_that_is_known_is_requested_while_the_manifest_is_read_again(archived, monkeypatch):
    with aolog.Reader(url(archived)) as reader:
        wanted = list(reader)
    slab_requested = threading.Event()
    ask = client_module.Client.ask

    def ask_after(self, request):
        if request == Get(MANIFEST):
            assert slab_requested.wait(30)
        else:
            slab_requested.set()
        return ask(self, request)

    monkeypatch.setattr(client_module.Client, "ask", ask_after)
    object_system.object_system().prefetch(url(archived), 0, ADDRESS_END)
    with aolog.Reader(url(archived)) as reader:
        assert list(reader) == wanted


@pytest.mark.parametrize("begin", [0, 12 << 10])
def test_a_known_slab_that_was_replaced_meanwhile_is_read_in_its_new_object(tmp_path, log, begin):
    into = tmp_path / "archive"
    first = min(Path(log).glob("*.slab"))
    beginning = entry_of(first, into, 16 << 10)
    publish(into, log, [beginning])
    with aolog.Reader(url(into)) as reader:
        assert len(list(reader)) > 1
    publish(into, log, [entry_of(first, into)], 2)
    (into / beginning.object_name).unlink()
    object_system.object_system().prefetch(url(into), begin, ADDRESS_END)
    with aolog.Reader(url(into), begin) as reader:
        got = list(reader)
    with aolog.Reader(log, begin) as reader:
        assert got == list(itertools.islice(reader, len(got)))
    assert got[-1].address > 16 << 10


def test_a_part_up_to_the_logs_end_does_not_look_for_more(tmp_path, monkeypatch):
    path, into = written(tmp_path / "log", 100), tmp_path / "archive"
    publish(into, path, [entry_of(slab, into) for slab in Path(path).glob("*.slab")])
    asked = []
    ask = client_module.Client.ask
    monkeypatch.setattr(
        client_module.Client,
        "ask",
        lambda self, request: (asked.append(request), ask(self, request))[1],
    )
    with Log(url(into), Storage()) as opened:
        end = seek.latest(opened).address
        asked.clear()
        found = list(read_range(opened, Range(0, end, 0, end)))
    assert sum(frame.columns.records for frame in found) == 100
    assert Get(MANIFEST) not in asked


FORKS = """
import os, sys
from aolog.errors import Forked
from aolog.storage.objects.client import Client
from aolog.storage.objects.requests import Get

client = Client(sys.argv[1])
client.entries("")
for ask in (lambda: client.entries(""), lambda: client.ask(Get("x"))):
    pid = os.fork()
    if pid == 0:
        try:
            ask()
        except Forked:
            os._exit(7)
        os._exit(1)
    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
"""


def test_a_child_of_a_process_that_asked_a_store_gets_an_error_for_every_request(archived):
    found = subprocess.run(
        [sys.executable, "-c", FORKS, url(archived)], capture_output=True, timeout=60, check=True
    )
    assert found.stdout.split() == [b"7", b"7"]


def test_the_names_below_a_prefix_are_asked_for_again_after_waits_that_grow(archived, monkeypatch):
    list_names, waits = obstore.list_with_delimiter, []

    def cut_off(*args):
        if len(waits) < 8:
            raise obstore.exceptions.GenericError("the connection broke")
        return list_names(*args)

    monkeypatch.setattr(obstore, "list_with_delimiter", cut_off)
    monkeypatch.setattr(client_module.time, "sleep", waits.append)
    client = client_module.Client(url(archived))
    assert client.entries("")[1] == ["slabs"]
    assert client.requests == 9
    assert len(waits) == 8
    assert 5.0 <= waits[-1] <= 10.0


@pytest.fixture
def credentials(monkeypatch):
    for name in "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY":
        monkeypatch.setenv(name, "hidden")
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    monkeypatch.setattr(client_module, "LATE_S", 0.0)


def test_a_store_without_an_answer_is_a_warning_soon_with_the_host(
    credentials, monkeypatch, caplog
):
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://user:hidden@127.0.0.1:9")
    asked = client_module.Client("s3://bucket/x", deadline_s=0.5)
    with pytest.raises(
        StorageFailed, match=r"\(no connection to 127.0.0.1:9\) in 0.5 s; check the"
    ):
        asked.ask(Get(MANIFEST))
    (line,) = caplog.messages
    assert "no clear answer from the store yet (no connection to 127.0.0.1:9)" in line
    assert "hidden" not in line


SERVICE = "http://169.254.169.254/latest/api/token in 1ms"


@pytest.mark.parametrize("how", ["HTTP error: error sending request", "status code: 403 Forbidden"])
def test_no_credentials_are_told_where_a_machines_service_was_asked(credentials, monkeypatch, how):
    def fail(*_, **__):
        raise obstore.exceptions.GenericError(f"Error performing PUT {SERVICE} - {how}")

    monkeypatch.setattr(obstore, "get", fail)
    with pytest.raises(StorageFailed, match="no credentials: none in the environment"):
        client_module.Client("s3://bucket/x", deadline_s=0.0).ask(Get(MANIFEST))


# --- urls -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "normal"),
    [
        ("s3a://b/x//y/", "s3://b/x/y"),
        ("s3://b", "s3://b"),
        ("gs://b/x", "gs://b/x"),
        ("abfss://c@account.dfs.core.windows.net/x", "abfss://c@account.dfs.core.windows.net/x"),
        ("file://localhost/x/y", "file:///x/y"),
    ],
)
def test_a_url_has_one_normal_form(given, normal):
    assert normal_url(given) == normal


@pytest.mark.parametrize(
    "given", ["s3://", "s3://key:secret@b/x", "s3://b/x?secret=1", "s3://b/../x", "file://host/x"]
)
def test_a_url_with_credentials_or_without_a_bucket_is_refused_and_no_secret_is_shown(given):
    with pytest.raises(UsageError) as told:
        normal_url(given)
    assert "secret" not in str(told.value)


def test_a_name_that_no_store_takes_is_refused_at_once(tmp_path):
    for name in ("plain", "new\nline"):
        written(tmp_path / name, 1)
    with pytest.raises(UsageError, match="no store takes"):
        list(walk_logs(url(tmp_path), Storage()))
    assert len(list(aolog.Reader(url(tmp_path / "plain")))) == 1


def test_a_directory_with_a_colon_is_no_url():
    assert not any(map(is_url, ("a:b", "C://x", "s3:/x", "/s3://x", None)))


# --- reading ahead --------------------------------------------------------------------------


class Counted:
    def __init__(self, size: int) -> None:
        self.size, self.spans, self._lock = size, [], threading.Lock()

    def fetch(self, begin: int, end: int) -> bytes:
        with self._lock:
            self.spans.append((begin, end))
        return b"".join(bytes([at % 251]) for at in range(begin, min(begin + 8, end))).ljust(
            end - begin, b"."
        )


class AtOnce:
    """A pool whose calls end before `submit` returns."""

    def submit(self, call, *args) -> Future:
        done = Future()
        done.set_result(call(*args))
        return done


@pytest.fixture
def pool():
    with ThreadPoolExecutor(4) as pool:
        yield pool


@pytest.mark.parametrize("step", [264 << 10, 10 << 20])
def test_a_scan_reads_large_ranges_each_byte_once(pool, step):
    store = Counted(60 << 20)
    ahead = ReadAhead(store.size, store.fetch, pool)
    ahead.read(512, 0)  # the header
    for at in (0, *range(0, store.size, step)):  # a seek reads the first frame, too
        assert len(ahead.read(step, at)) == min(step, store.size - at)
    spans = sorted(store.spans)
    assert spans[0][0] == 0
    assert all(a[1] == b[0] for a, b in itertools.pairwise(spans)), "twice or not at all"
    assert len(spans) <= 2 + store.size // RANGE_BYTES


def test_a_seal_and_its_index_take_one_request_and_a_seek_a_small_one(pool):
    store = Counted(64 << 20)
    ahead = ReadAhead(store.size, store.fetch, pool)
    ahead.read(24, store.size - 24)
    ahead.read(80 << 10, store.size - (80 << 10))
    assert len(store.spans) == 1
    ahead.read(16 << 10, 30 << 20)
    assert store.spans[1:] == [(30 << 20, (30 << 20) + (64 << 10))]


def test_a_scan_that_has_requested_the_end_says_so_once_and_the_next_one_may_start(pool):
    store, ended = Counted(20 << 20), []
    ahead = ReadAhead(store.size, store.fetch, pool, lambda: ended.append(len(store.spans)))
    step = 1 << 20
    for at in range(0, store.size, step):
        ahead.read(step, at)
    assert len(ended) == 1
    following = ReadAhead(store.size, store.fetch, pool)
    store.spans.clear()
    following.start(0, store.size)
    assert len(following.read(step, 0)) == step
    following.read(step, store.size - step)  # the ranges ahead have been requested
    assert sorted(store.spans) == [(0, 8 << 20), (8 << 20, 16 << 20), (16 << 20, 20 << 20)]


def test_a_scan_of_a_part_waits_once_and_requests_at_most_two_mib_past_it():
    store = Counted(64 << 20)
    begin, end = 30 << 20, 50 << 20
    ahead = ReadAhead(store.size, store.fetch, AtOnce())
    ahead.start(begin, end)
    header, index = (512, 0), (80 << 10, store.size - (80 << 10))
    scanned = [(512 << 10, at) for at in range(begin - (80 << 10), end, 512 << 10)]
    for size, offset in header, index, *scanned:
        known = list(store.spans)
        assert len(ahead.read(size, offset)) == size
        for at in offset, offset + size - 1:
            assert any(low <= at < high for low, high in known), "it waits for a request"
    assert len(store.spans) == 5
    assert max(high for low, high in store.spans if low < end) == end + (2 << 20)


@pytest.mark.parametrize("seed", range(50))
def test_every_read_gives_the_objects_bytes_whatever_was_announced(monkeypatch, seed):
    chance = random.Random(seed)
    sizes = {"RANGE_BYTES": 64, "_PLACE_BYTES": 16, "_TAIL_BYTES_MIN": 24, "_AROUND_BYTES": 20}
    for name, size in sizes.items():
        monkeypatch.setattr(read_ahead_module, name, size)
    content = chance.randbytes(chance.randrange(1, chance.choice((40, 700))))
    places = range(len(content) + 1)

    def fetch(begin: int, end: int) -> bytes:
        assert 0 <= begin < end <= len(content), "a store refuses an empty range"
        return content[begin:end]

    ahead = ReadAhead(len(content), fetch, AtOnce())
    if chance.random() < 0.8:
        begin = chance.choice(places)
        ahead.start(begin, chance.randrange(begin, 2 * len(content) + 1))
    at = chance.choice(places)
    for _ in range(60):
        size = chance.choice((1, 10, 30, 100, 200))
        assert ahead.read(size, at) == content[at : at + size]
        at = chance.choice((min(at + size, len(content)), chance.choice(places)))


def test_a_range_that_fails_is_asked_for_again(pool):
    store = Counted(1 << 20)
    fails = [True]

    def fetch(begin: int, end: int) -> bytes:
        if fails.pop():
            fails.append(False)
            raise StorageFailed("once")
        fails.append(False)
        return store.fetch(begin, end)

    ahead = ReadAhead(store.size, fetch, pool)
    with pytest.raises(StorageFailed):
        ahead.read(10, 0)
    assert len(ahead.read(10, 0)) == 10
