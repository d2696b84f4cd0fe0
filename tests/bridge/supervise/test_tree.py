"""Which logs a tree holds, and what is noticed of their coming, growing and going."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from aolog import Writer
from bridge.supervise import discovery as tree_module
from bridge.supervise.discovery import Tree, find_logs, is_gone
from tests.bridge.conftest import fill


@pytest.fixture(params=["inotify", "none"])
def tree(
    tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Tree]:
    if request.param == "none":
        monkeypatch.setattr(tree_module, "_inotify", lambda: None)
    tree = Tree(str(tmp_path / "root"))
    yield tree
    tree.close()


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


@pytest.mark.skipif(os.geteuid() == 0, reason="root may list everything")
def test_what_may_not_be_listed_holds_no_log(tmp_path: Path) -> None:
    fill(tmp_path / "a", 1)
    fill(tmp_path / "b/c", 1)
    (tmp_path / "b").chmod(0)
    try:
        assert list(find_logs(str(tmp_path))) == ["a"]
    finally:
        (tmp_path / "b").chmod(0o755)


def test_logs_that_come_and_go_are_seen(tree: Tree, tmp_path: Path) -> None:
    root = tmp_path / "root"
    assert tree.scan() == {}
    fill(root / "a", 1)
    assert list(tree.scan()) == ["a"]
    fill(root / "deep/b", 1)
    assert list(tree.scan()) == ["a", "deep/b"]
    shutil.rmtree(root / "a")
    assert list(tree.scan()) == ["deep/b"]


def test_a_parked_log_is_told_when_it_grows_and_no_other(tree: Tree, tmp_path: Path) -> None:
    paths = [tmp_path / "root" / name for name in "abc"]
    for path in paths:
        fill(path, 10)
    tree.scan()
    for path in paths[:2]:
        tree.park(str(path))
    assert (tree.told()[0], tree.grown()) == (set(), set())
    fill(paths[0], 1)
    fill(paths[2], 1)
    assert tree.grown() == {str(paths[0])}
    if tree._inotify is not None:
        assert tree.told()[0] == {str(paths[0])}
    tree.unpark(str(paths[0]))
    fill(paths[0], 1)
    assert (tree.told()[0], tree.grown()) == (set(), set())


def test_growth_within_a_slab_that_was_allocated_whole_is_seen(tree: Tree, tmp_path: Path) -> None:
    path = tmp_path / "root/a"
    with Writer(path, preallocate=True, slab_bytes=1 << 20) as writer:
        writer.append(b"x")
        writer.flush()
        tree.scan()
        tree.park(str(path))
        writer.append(b"y")
        writer.flush()
        assert tree.grown() == {str(path)}


def test_news_of_directories_are_told_apart_from_growth(tmp_path: Path) -> None:
    tree = Tree(str(tmp_path))
    if tree._inotify is None:
        pytest.skip("no inotify here")
    tree.scan()
    assert tree.told() == (set(), False)
    fill(tmp_path / "new/log", 1)
    assert tree.told() == (set(), True)
    assert list(tree.scan()) == ["new/log"]
    tree.close()


def test_a_directory_that_was_made_again_is_watched_again(tmp_path: Path) -> None:
    tree = Tree(str(tmp_path))
    if tree._inotify is None:
        pytest.skip("no inotify here")
    (tmp_path / "d").mkdir()
    tree.scan()
    (tmp_path / "d").rmdir()
    (tmp_path / "d").mkdir()
    assert tree.told() == (set(), True)
    tree.scan()
    tree.told()
    fill(tmp_path / "d/log", 1)
    assert tree.told() == (set(), True)
    tree.close()


def test_what_one_was_not_told_yet_is_news_after_another_has_parked_it(
    tree: Tree, tmp_path: Path
) -> None:
    path = tmp_path / "root/a"
    fill(path, 1)
    tree.park(str(path))
    fill(path, 1)
    tree.park(str(path))
    assert tree.grown() == {str(path)}
    assert tree.grown() == set()
    fill(path, 1)
    assert tree.grown() == {str(path)}


def test_single_logs_are_as_a_tree_of_them(tmp_path: Path) -> None:
    fill(tmp_path / "a", 1)
    tree = Tree(None, {"a": str(tmp_path / "a"), "b": str(tmp_path / "b")})
    assert tree.scan() == {"a": str(tmp_path / "a")}
    fill(tmp_path / "b", 1)
    assert list(tree.scan()) == ["a", "b"]
    tree.close()


# --- what cannot be listed ------------------------------------------------------------------


@pytest.fixture
def unlisted(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """Errors of directories that cannot be listed, by their paths."""
    errors: dict[str, int] = {}
    scandir = os.scandir

    def listing(path: str) -> object:
        if str(path) in errors:
            raise OSError(errors[str(path)], "no")
        return scandir(path)

    monkeypatch.setattr(os, "scandir", listing)
    return errors


def test_what_cannot_be_listed_may_hold_logs(
    tree: Tree, tmp_path: Path, unlisted: dict[str, int]
) -> None:
    for name in ("a", "b/c", "bb"):
        fill(tmp_path / "root" / name, 1)
    assert list(tree.scan()) == ["a", "b/c", "bb"]
    assert tree.unlisted == {}
    unlisted[str(tmp_path / "root/b")] = errno.EMFILE
    assert list(tree.scan()) == ["a", "bb"]
    assert tree.unlisted == {"b": "Too many open files"}
    assert [name for name in ("a", "b", "b/c", "bb") if tree.may_hold(name)] == ["b", "b/c"]
    unlisted[str(tmp_path / "root")] = errno.EIO
    assert tree.scan() == {}
    assert all(map(tree.may_hold, ("a", "b/c", ".")))
    for gone in (errno.ENOENT, errno.ENOTDIR):
        unlisted[str(tmp_path / "root")] = gone
        assert tree.scan() == tree.unlisted == {}
        assert not tree.may_hold("a")


@pytest.mark.parametrize(
    ("include", "exclude", "told"),
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
def test_what_cannot_be_listed_is_told_unless_nothing_there_is_wanted(
    tmp_path: Path, unlisted: dict[str, int], include: list[str], exclude: list[str], told: bool
) -> None:
    fill(tmp_path / "b/c", 1)
    unlisted[str(tmp_path / "b")] = errno.EACCES
    tree = Tree(str(tmp_path), include=include, exclude=exclude)
    tree.scan()
    assert list(tree.unlisted) == ["b"] * told
    unlisted[str(tmp_path)] = errno.EACCES
    tree.scan()
    assert list(tree.unlisted) == ["."]
    tree.close()


def test_a_single_log_that_cannot_be_listed_is_there(
    tmp_path: Path, unlisted: dict[str, int]
) -> None:
    fill(tmp_path / "a", 1)
    path = str(tmp_path / "a")
    tree = Tree(None, {path: path})
    unlisted[path] = errno.EACCES
    assert tree.scan() == {path: path}
    assert (tree.unlisted, tree.may_hold(path)) == ({path: "Permission denied"}, True)
    assert not is_gone(path)
    unlisted[path] = errno.ENOENT
    assert tree.scan() == tree.unlisted == {}
    assert is_gone(path)
    tree.close()


def test_a_parked_log_that_cannot_be_listed_has_not_grown(
    tree: Tree, tmp_path: Path, unlisted: dict[str, int]
) -> None:
    path = str(tmp_path / "root/a")
    fill(tmp_path / "root/a", 1)
    tree.park(path)
    unlisted[path] = errno.EMFILE
    assert tree.grown() == set()
    tree.unpark(path)
    tree.park(path)  # how it looks is not known, so the next look is news
    unlisted.clear()
    assert tree.grown() == {path}
