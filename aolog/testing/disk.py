"""The simulated disk: a tree of inodes, its durable part, and the states that may survive.

A directory has the entries that processes see and the durable ones. Each create, rename, unlink and
mkdir is a change that waits for the fsync of its directory; a power cut keeps any of the waiting changes
and drops the others. A rename is one change. An inode without a durable name is lost.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import suppress
from functools import lru_cache

import xxhash

from aolog.testing.inode import FileNode, fail
from aolog.testing.outcomes import ROOT, Change, Outcomes, apply_change

BLOCK = 4096  # bytes: the unit of allocation
_TICK_NS = 1000  # between two changes: no two have the same time
_BEGIN_NS = 1_700_000_000_000_000_000  # the simulation's clock


class DirectoryNode:
    """entries: visible to processes. durable: on the device."""

    __slots__ = ("durable", "entries", "ino", "linked", "mtime_ns", "opened")

    def __init__(self, ino: int, entries: dict[str, int], mtime_ns: int) -> None:
        self.ino = ino
        self.entries = entries
        self.durable = entries.copy()
        self.mtime_ns = mtime_ns
        self.opened = 0
        self.linked = 0

    def copy(self) -> DirectoryNode:
        """A copy for an independent disk."""
        new = DirectoryNode(self.ino, self.entries.copy(), self.mtime_ns)
        new.durable, new.linked = self.durable.copy(), self.linked
        return new


Node = FileNode | DirectoryNode


@lru_cache(maxsize=1024)
def _names(path: str) -> tuple[str, ...]:
    return tuple(name for name in path.split("/") if name not in {"", "."})


class Disk:
    """Inodes and entries. seed: of random bytes. capacity: maximum size of all files, in blocks of 4 KiB,
    holes included; None: no limit."""

    def __init__(self, *, seed: int, piece_bytes: int, capacity: int | None) -> None:
        self.seed = seed
        self.piece_bytes = piece_bytes
        self.capacity = capacity
        self.boot = 0
        self.asked = 0  # number of requests for random bytes
        self.now_ns = _BEGIN_NS
        self.version = 0  # grows with each change of visible or durable contents
        self.nodes: dict[int, Node] = {ROOT: DirectoryNode(ROOT, {}, self.now_ns)}
        self.waiting: list[Change] = []
        self._stuck: set[int] = set()
        self._last_ino = ROOT
        self._last_change = 0

    def copy(self) -> Disk:
        """An independent disk in the same state; nothing is open."""
        new = Disk.__new__(Disk)
        new.__dict__.update(self.__dict__)
        new.nodes = {ino: node.copy() for ino, node in self.nodes.items()}
        new.waiting = self.waiting.copy()
        new._stuck = self._stuck.copy()  # noqa: SLF001 -- another of this class
        new.collect()
        return new

    # --- names ---------------------------------------------------------------------------------

    def node(self, path: str) -> Node:
        """The inode at a path. Raises OSError."""
        nodes = self.nodes
        found: Node = nodes[ROOT]
        try:
            for name in _names(path):
                found = nodes[found.entries[name]]  # type: ignore[union-attr]  # a file has none
        except KeyError:
            fail(errno.ENOENT, path)
        except AttributeError:
            fail(errno.ENOTDIR, path)
        if path[-1:] == "/" and not isinstance(found, DirectoryNode):
            fail(errno.ENOTDIR, path)
        return found

    def path_of(self, directory: DirectoryNode, known: str) -> str:
        """The path of a directory that has a name. known: its last known path."""
        with suppress(OSError):
            if self.node(known) is directory:
                return known
        todo = [("/", ROOT)]
        while True:
            path, ino = todo.pop()
            node = self.nodes[ino]
            if node is directory:
                return path
            if isinstance(node, DirectoryNode):
                todo += [(f"{path.rstrip('/')}/{name}", at) for name, at in node.entries.items()]

    def parent(self, path: str) -> tuple[DirectoryNode, str]:
        """The directory and the last name of a path. Raises as `node`."""
        head, _, name = path.rstrip("/").rpartition("/")
        found = self.node(head)
        if not isinstance(found, DirectoryNode):
            fail(errno.ENOTDIR, path)
        return found, name

    def new_file(self, directory: DirectoryNode, name: str) -> FileNode:
        """Creates an empty file."""
        node = FileNode(self._last_ino + 1, self.piece_bytes, mtime_ns=self.tick())
        self._add(directory, name, node)
        return node

    def new_directory(self, directory: DirectoryNode, name: str) -> None:
        """Creates an empty directory."""
        self._add(directory, name, DirectoryNode(self._last_ino + 1, {}, self.tick()))

    def _add(self, directory: DirectoryNode, name: str, node: Node) -> None:
        self._last_ino = node.ino
        self.nodes[node.ino] = node
        self._link(directory, name, node)
        self._wait((directory.ino,), (directory.ino, name, node.ino), None)

    def remove(self, directory: DirectoryNode, name: str) -> None:
        """Removes a name, and its inode if that is not open."""
        node = self._unlink(directory, name)
        self._wait((directory.ino,), None, (directory.ino, name, node.ino))
        self.collect()

    def rename(self, old: DirectoryNode, name: str, new: DirectoryNode, new_name: str) -> None:
        """Renames an entry, and replaces an existing one."""
        if new_name in new.entries:
            self._unlink(new, new_name)
        node = self._unlink(old, name)
        self._link(new, new_name, node)
        made, dropped = (new.ino, new_name, node.ino), (old.ino, name, node.ino)
        self._wait(tuple({old.ino, new.ino}), made, dropped)
        self.collect()

    def _link(self, directory: DirectoryNode, name: str, node: Node) -> None:
        directory.entries[name] = node.ino
        directory.mtime_ns = self.tick()
        node.linked += 1

    def _unlink(self, directory: DirectoryNode, name: str) -> Node:
        node = self.nodes[directory.entries.pop(name)]
        directory.mtime_ns = self.tick()
        node.linked -= 1
        return node

    def _wait(
        self,
        directories: tuple[int, ...],
        sets: tuple[int, str, int] | None,
        drops: tuple[int, str, int] | None,
    ) -> None:
        self._last_change += 1
        self.waiting.append(Change(self._last_change, directories, sets, drops))

    def sync_directory(self, directory: DirectoryNode, *, lie: bool = False) -> None:
        """Makes its waiting changes durable. lie: they never become durable, although later syncs succeed."""
        mine = [change for change in self.waiting if directory.ino in change.directories]
        if lie:
            self._stuck.update(change.number for change in mine)
            return
        going = [change for change in mine if change.number not in self._stuck]
        for change in going:
            apply_change(change, lambda ino: self._directory(ino).durable)
        self.waiting = [change for change in self.waiting if change not in going]
        self.version += 1
        self.collect()

    def _directory(self, ino: int) -> DirectoryNode:
        node = self.nodes[ino]
        assert isinstance(node, DirectoryNode)
        return node

    def collect(self) -> None:
        """Removes inodes without a name, descriptor, durable name or waiting change."""
        if all(node.linked or node.opened for node in self.nodes.values() if node.ino != ROOT):
            return
        kept = {ROOT}
        for node in self.nodes.values():
            if isinstance(node, DirectoryNode):
                kept.update(node.entries.values(), node.durable.values())
            if node.opened:
                kept.add(node.ino)
        kept.update(change.sets[2] for change in self.waiting if change.sets)
        self.nodes = {ino: node for ino, node in self.nodes.items() if ino in kept}

    # --- room, time, chance --------------------------------------------------------------------

    def tick(self) -> int:
        """The time of the next change."""
        self.now_ns += _TICK_NS
        self.version += 1
        return self.now_ns

    def room(self, node: FileNode, end: int) -> int | None:
        """The largest size of the file that the disk has room for, None if `end` fits. Allocated blocks
        may be overwritten."""
        if self.capacity is None:
            return None
        files = (
            n for n in self.nodes.values() if isinstance(n, FileNode) and (n.linked or n.opened)
        )
        free = self.capacity // BLOCK - sum(-(-len(file.cache) // BLOCK) for file in files)
        most = (-(-len(node.cache) // BLOCK) + max(0, free)) * BLOCK
        return None if end <= most else most

    def used(self) -> int:
        """Bytes of the blocks of all files that have a name."""
        contents = (content for _, content in self.files() if content is not None)
        return sum(-(-len(content) // BLOCK) * BLOCK for content in contents)

    def random_bytes(self, size: int) -> bytes:
        """Equal in each run with the same seed."""
        self.asked += 1
        found = b""
        while len(found) < size:
            text = f"{self.seed}/{self.boot}/{self.asked}/{len(found)}"
            found += xxhash.xxh3_128_digest(text.encode())
        return found[:size]

    # --- what it holds, and what survives ----------------------------------------------------------

    def files(self) -> Iterator[tuple[str, bytes | None]]:
        """Every path below / with its visible bytes, sorted; None for a directory."""
        found: list[tuple[str, bytes | None]] = []

        def look(directory: DirectoryNode, path: str) -> None:
            for name, ino in sorted(directory.entries.items()):
                node = self.nodes[ino]
                if isinstance(node, FileNode):
                    found.append((f"{path}/{name}", bytes(node.cache)))
                else:
                    found.append((f"{path}/{name}", None))
                    look(node, f"{path}/{name}")

        look(self._directory(ROOT), "")
        return iter(found)

    def outcomes(self) -> Outcomes:
        """The states that a power cut may leave."""
        nodes = self.nodes.values()
        return Outcomes(
            {node.ino: node.durable for node in nodes if isinstance(node, DirectoryNode)},
            self.waiting,
            {node.ino: node.contents() for node in nodes if isinstance(node, FileNode)},
        )

    def after_power_cut(
        self, tree: dict[int, dict[str, int]], choice: dict[int, int], outcomes: Outcomes
    ) -> Disk:
        """One of these states, as `Outcomes.at` returned it: an independent disk on the next boot."""
        new = Disk.__new__(Disk)
        new.__dict__.update(self.__dict__)
        new.boot += 1
        new.asked = 0
        new.waiting = []
        new._stuck = set()  # noqa: SLF001 -- another of this class
        nodes: dict[int, Node] = {}
        new.nodes = nodes
        for ino, entries in tree.items():
            nodes[ino] = DirectoryNode(ino, entries.copy(), self.nodes[ino].mtime_ns)
        for entries in tree.values():
            for ino in entries.values():
                if ino not in nodes:
                    content = outcomes.contents[ino].content(choice.get(ino, 0))
                    mtime_ns = self.nodes[ino].mtime_ns
                    nodes[ino] = FileNode(ino, self.piece_bytes, content, mtime_ns)
                nodes[ino].linked += 1
        return new
