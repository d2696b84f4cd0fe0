"""Stamps for rows: the log and the record from which each row was made, by its columns `log` and
`offset`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from aolog.format.origin import encode_stamps, stamp_in
from aolog.format.slab import NO_TIMESTAMP
from aolog.log.directory import Log
from aolog.log.log_tree import is_log
from aolog.read.cursor import identity
from aolog.storage.storage import Storage

if TYPE_CHECKING:
    from typing import Self

_OPEN_LOGS_MAX = 64  # each holds descriptors


class Origins:
    """Opens the logs of one root as rows name them. A context manager; not thread-safe."""

    def __init__(self, root: str) -> None:
        self._root = root
        self._storage = Storage()
        self._is_log = is_log(root, self._storage)
        self._logs: dict[str, Log] = {}

    def stamps(self, batch: pa.RecordBatch) -> list[bytes | None]:
        """One for each row; None without columns `log` and `offset`, and for rows whose slab was pruned:
        a stamp is never guessed. Raises StorageError."""
        found: list[bytes | None] = [None] * batch.num_rows
        names = batch.schema.names
        if "log" not in names or "offset" not in names:
            return found
        logs = batch.column("log").cast(pa.string()).dictionary_encode()
        offsets = batch.column("offset")
        known = np.asarray(logs.is_valid()) & np.asarray(offsets.is_valid())
        codes = np.asarray(logs.indices.fill_null(0))
        addresses = np.asarray(offsets.fill_null(0))
        times = np.full(batch.num_rows, NO_TIMESTAMP, np.int64)
        if "timestamp" in names:
            column = batch.column("timestamp").cast(pa.timestamp("us", "UTC")).cast(pa.int64())
            times = np.asarray(column.fill_null(NO_TIMESTAMP))
        for code, name in enumerate(logs.dictionary.to_pylist()):
            rows = np.flatnonzero(known & (codes == code))
            log = self._log(name)
            positions = np.searchsorted(np.array(log.bases), addresses[rows], "right") - 1
            for position in np.unique(positions[positions >= 0]).tolist():
                of_slab = rows[positions == position]
                try:
                    uuid, epoch = identity(log, log.bases[position])
                except FileNotFoundError:  # pruned meanwhile
                    continue
                made = encode_stamps(uuid, epoch, addresses[of_slab], times[of_slab])
                for i, row in enumerate(of_slab.tolist()):
                    found[row] = stamp_in(made, i)
        return found

    def _log(self, name: str) -> Log:
        log = self._logs.get(name)
        if log is None:
            if len(self._logs) >= _OPEN_LOGS_MAX:
                self._logs.pop(next(iter(self._logs))).close()
            path = self._root if self._is_log else f"{self._root}/{name}"
            log = self._logs[name] = Log(path, self._storage)
        else:
            log.refresh_end()
        return log

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for log in self._logs.values():
            log.close()
