"""Ways to store records, one in each file: aolog, and what a Python user would choose instead.

Each file imports its own library. `load_peers` returns the peers that can run, and names the others.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from bench.measure import Skipped

if TYPE_CHECKING:
    from bench.peers.peer import Peer

__all__ = ["MSGPACK", "load_peers"]

MSGPACK = "msgpack"  # the stream that a user would write by hand: a baseline

_MODULES = {
    MSGPACK: "msgpack_stream",
    "arrow IPC": "arrow_ipc",
    "lmdb": "lmdb_env",
    "sqlite WAL": "sqlite_wal",
    "rocksdict": "rocksdb",
    "aolog": "aolog_log",
}


def load_peers() -> tuple[list[Peer], list[Skipped]]:
    """Every variant of every peer that is installed, and those that are not."""
    peers: list[Peer] = []
    skipped = []
    for name, module in _MODULES.items():
        try:
            peers += importlib.import_module(f"bench.peers.{module}").PEERS
        except ModuleNotFoundError as error:
            if (error.name or "").split(".")[0] in {"bench", "aolog"}:
                raise
            skipped.append(Skipped(name, "not installed"))
        except ImportError as error:  # its own library does not load here
            skipped.append(Skipped(name, str(error)))
    return peers, skipped
