"""Archives on gs:// and az://: other conditions, metadata and lists than S3's, and deletions that are refused."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import aolog
from aolog.maintenance.archive.compaction import compact
from tests.aolog.commands import answer, well
from tests.aolog.maintenance.archive.azure import azurite, program
from tests.aolog.maintenance.archive.google import google
from tests.aolog.maintenance.archive.stores import BUCKET

pytest.importorskip("obstore")

from aolog.storage.objects import client as client_module
from aolog.storage.objects import system as object_system
from aolog.storage.objects.requests import Delete, Deleted, Found, Head, Put, Refused, Stored, Tag

pytestmark = pytest.mark.xdist_group("object stores")


@pytest.fixture(scope="module", params=["gs", "az"])
def store(request, tmp_path_factory) -> Iterator[tuple[str, dict[str, str]]]:
    """A URL below which stores are, and the variables with which clients find them."""
    if request.param == "gs":
        found = google()
    else:
        if program() is None:
            assert "CI" not in os.environ, ".ci/run installs it"
            pytest.skip("azurite is not installed")
        found = azurite(tmp_path_factory.mktemp("azurite"))
    with found as variables:
        yield f"{request.param}://{BUCKET}", variables


@pytest.fixture
def url(store, monkeypatch, tmp_path) -> str:
    """Below it nothing is stored yet."""
    at, variables = store
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    object_system.object_system.cache_clear()
    return f"{at}/a b/{tmp_path.name}"


def grown(log: str, count: int) -> None:
    with aolog.Writer(log, slab_bytes=16 << 10) as writer:
        for number in range(count):
            writer.append(b"%d " % number + bytes(100))
            writer.flush()


def read(path: object) -> list[aolog.Record]:
    object_system.object_system.cache_clear()
    with aolog.Reader(str(path)) as reader:
        return list(reader)


def test_a_log_is_archived_compacted_dropped_and_restored(url, log_path, tmp_path):
    grown(log_path, 300)
    slabs = answer("archive", log_path, url)["slabs"]
    grown(log_path, 100)
    assert answer("archive", log_path, url)["behind_bytes"] == 0
    assert read(url) == read(log_path)
    assert answer("hold", url)["held"]
    assert not answer("hold", url, "--release")["held"]
    assert answer("compact", url, "--object-bytes", "1MiB")["packed"] > slabs
    assert compact(url, grace_seconds=-1.0).deleted > slabs
    assert read(url) == read(log_path)
    well("restore", url, tmp_path / "back")
    assert read(tmp_path / "back") == read(log_path)
    # Which deletes objects that compaction has deleted.
    assert answer("archive", log_path, url, "--max-bytes", "1")["slabs"] == 1


def test_a_copy_is_read_though_the_list_has_etags_without_quotes(url, log_path):
    grown(log_path, 300)
    client = client_module.Client(url)
    for slab in Path(log_path).glob("*.slab"):
        client.send(Put(slab.name, slab.read_bytes(), "", ""))
    assert read(url) == read(log_path)


def test_a_replacement_demands_what_was_read_and_a_deletion_of_what_is_gone_is_done(url):
    client = client_module.Client(url)
    made = client.send(Put("n", b"1", "w", "s"))
    assert isinstance(made, Stored)
    assert isinstance(client.send(Put("n", b"2", "w", "s")), Refused)
    other = Tag('"other"', "1")
    assert isinstance(client.send(Put("n", b"2", "w", "s", other)), Refused)
    again = client.send(Put("n", b"1", "v", "s", made.tag))
    assert isinstance(again, Stored)
    assert again.tag != made.tag, "the same bytes, stored again, have a tag of their own"
    found = client.send(Head("n"))
    assert isinstance(found, Found)
    assert (found.tag, found.write_id, found.sha256) == (again.tag, "v", "s")
    assert client.send(Delete("n")) == client.send(Delete("n")) == Deleted()


def test_metadata_has_names_that_every_provider_takes():
    """Azure takes identifiers only, and compares them without their case."""
    for name in client_module.WRITE_ID, client_module.SHA256:
        assert re.fullmatch("[a-z][a-z0-9]*", name)
