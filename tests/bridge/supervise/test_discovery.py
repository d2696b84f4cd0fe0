"""Which logs a discovery holds, and what is noticed of their coming, growing and going."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from aolog import Writer
from bridge.supervise import discovery as discovery_module
from bridge.supervise.discovery import Discovery, find_logs, is_gone
from tests.bridge.logs import fill


@pytest.fixture(params=["inotify", "none"])
def discovery(
    tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Discovery]:
    if request.param == "none":
        monkeypatch.setattr(discovery_module, "_inotify", lambda: None)
    discovery = Discovery(str(tmp_path / "root"))
    yield discovery
    discovery.close()


def test_logs_are_found_by_their_slabs_at_any_depth(tmp_path: Path) -> None:
    for name in ("a", "b/c", "b/d/e"):
        fill(tmp_path / name, 1)
    (tmp_path / "b/d/e/cursors").mkdir(exist_ok=True)
    for inner in ("inner", "dead-letter", "dead-letter-other"):
        fill(tmp_path / "a" / inner, 1)  # nothing is looked for inside of a log
    (tmp_path / "empty").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "b")
    (tmp_path / "00000000000000000000.slab.txt").touch()
    assert find_logs(str(tmp_path)) == {
        name: str(tmp_path / name) for name in ("a", "b/c", "b/d/e")
    }
    assert list(find_logs(str(tmp_path), ["b/*"])) == ["b/c", "b/d/e"]
    assert list(find_logs(str(tmp_path), ["*"], ["b/*/*", "a"])) == ["b/c"]
    assert find_logs(str(tmp_path / "a")) == {".": str(tmp_path / "a")}
    assert find_logs(str(tmp_path / "nothing")) == {}


def test_logs_that_come_and_go_are_seen(discovery: Discovery, tmp_path: Path) -> None:
    root = tmp_path / "root"
    assert discovery.scan() == {}
    fill(root / "a", 1)
    assert list(discovery.scan()) == ["a"]
    fill(root / "deep/b", 1)
    assert list(discovery.scan()) == ["a", "deep/b"]
    shutil.rmtree(root / "a")
    assert list(discovery.scan()) == ["deep/b"]


def test_growth_is_reported_for_parked_logs_only(
    discovery: Discovery, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    paths = [tmp_path / "root" / name for name in "abc"]
    for path in paths:
        fill(path, 10)
    discovery.scan()
    for path in paths[:2]:
        discovery.park(str(path))
    assert (discovery.changes()[0], discovery.grown()) == (set(), set())
    fill(paths[0], 1)
    fill(paths[2], 1)
    assert discovery.grown() == {str(paths[0])}
    if request.node.callspec.params["discovery"] == "inotify":
        assert discovery.changes()[0] == {str(paths[0])}
    discovery.unpark(str(paths[0]))
    fill(paths[0], 1)
    assert (discovery.changes()[0], discovery.grown()) == (set(), set())


def test_growth_within_a_slab_with_zeros_ahead_is_seen(
    discovery: Discovery, tmp_path: Path
) -> None:
    path = tmp_path / "root/a"
    with Writer(path) as writer:
        writer.append(b"x")
        writer.flush()
        os.truncate(next(path.glob("*.slab")), 1 << 20)
        discovery.scan()
        discovery.park(str(path))
        writer.append(b"y")
        writer.flush()
        assert discovery.grown() == {str(path)}


def test_growth_not_yet_seen_is_reported_after_another_worker_parked_the_log(
    discovery: Discovery, tmp_path: Path
) -> None:
    path = tmp_path / "root/a"
    fill(path, 1)
    discovery.park(str(path))
    fill(path, 1)
    discovery.park(str(path))
    assert discovery.grown() == {str(path)}
    assert discovery.grown() == set()
    fill(path, 1)
    assert discovery.grown() == {str(path)}


# --- what cannot be listed ------------------------------------------------------------------


def test_what_cannot_be_listed_may_hold_logs(
    discovery: Discovery, tmp_path: Path, unlisted: dict[str, int]
) -> None:
    for name in ("a", "b/c", "bb"):
        fill(tmp_path / "root" / name, 1)
    assert list(discovery.scan()) == ["a", "b/c", "bb"]
    assert discovery.unlisted == {}
    unlisted[str(tmp_path / "root/b")] = errno.EMFILE
    assert list(discovery.scan()) == ["a", "bb"]
    assert discovery.unlisted == {"b": "Too many open files"}
    assert [name for name in ("a", "b", "b/c", "bb") if discovery.may_hold(name)] == ["b", "b/c"]
    unlisted[str(tmp_path / "root")] = errno.EIO
    assert discovery.scan() == {}
    assert all(map(discovery.may_hold, ("a", "b/c", ".")))
    for gone in (errno.ENOENT, errno.ENOTDIR):
        unlisted[str(tmp_path / "root")] = gone
        assert discovery.scan() == discovery.unlisted == {}
        assert not discovery.may_hold("a")


@pytest.mark.parametrize(
    ("include", "exclude", "reported"),
    [
        (["*"], [], True),
        (["*"], ["b*"], False),
        (["*"], ["b"], True),  # what lies below it is wanted
        (["*"], ["b/*"], True),  # it may be a log itself
        (["a", "x/*"], [], False),
        (["b/c/*"], [], True),
        (["?/c"], [], True),
        (["b"], [], True),
    ],
)
def test_a_directory_that_cannot_be_listed_is_reported_unless_patterns_exclude_it(
    tmp_path: Path, unlisted: dict[str, int], include: list[str], exclude: list[str], reported: bool
) -> None:
    fill(tmp_path / "b/c", 1)
    unlisted[str(tmp_path / "b")] = errno.EACCES
    discovery = Discovery(str(tmp_path))
    discovery.configure({}, include, exclude)
    discovery.scan()
    assert list(discovery.unlisted) == ["b"] * reported
    unlisted[str(tmp_path)] = errno.EACCES
    discovery.scan()
    assert list(discovery.unlisted) == ["."]
    discovery.close()


def test_single_logs_are_as_a_tree_of_them_and_one_that_cannot_be_listed_is_there(
    tmp_path: Path, unlisted: dict[str, int]
) -> None:
    path = str(tmp_path / "a")
    discovery = Discovery(None, {path: path, "b": str(tmp_path / "b")})
    assert discovery.scan() == {}
    fill(tmp_path / "a", 1)
    unlisted[path] = errno.EACCES
    assert discovery.scan() == {path: path}
    assert not is_gone(path)
    unlisted[path] = errno.ENOENT
    assert discovery.scan() == discovery.unlisted == {}
    assert is_gone(path)
    discovery.close()


def test_a_parked_log_that_cannot_be_listed_has_not_grown(
    discovery: Discovery, tmp_path: Path, unlisted: dict[str, int]
) -> None:
    path = str(tmp_path / "root/a")
    fill(tmp_path / "root/a", 1)
    discovery.park(path)
    unlisted[path] = errno.EMFILE
    assert discovery.grown() == set()
    discovery.unpark(path)
    discovery.park(path)  # how it looks is not known, so the next look is news
    unlisted.clear()
    assert discovery.grown() == {path}
