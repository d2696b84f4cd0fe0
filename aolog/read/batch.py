"""`Batch`: the records of one or more intact frames. Records and Arrow are made on demand.

A batch keeps the bytes that were read and nothing else. A 64-KiB frame becomes Arrow without a
copy; small frames are kept together, so that they become Arrow in one step.
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING

from aolog.errors import counted, load_optional

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import numpy as np
    import pyarrow as pa

    from aolog.read.record_frame import RecordFrame
    from aolog.record import Record

__all__ = ["Batch"]


class Batch:
    """Records in the order of the log. Views are valid as long as the batch exists.

    `len(batch)`, iteration over Records, `addresses`, `to_arrow`.
    """

    __slots__ = ("_frames",)

    def __init__(self, frames: list[RecordFrame]) -> None:
        self._frames = frames

    def __len__(self) -> int:
        return sum(frame.columns.records - frame.skip for frame in self._frames)

    def __iter__(self) -> Iterator[Record]:
        return chain.from_iterable(frame.records() for frame in self._frames)

    @property
    def frames(self) -> list[RecordFrame]:
        """The frames that contain its records."""
        return self._frames

    @property
    def addresses(self) -> np.ndarray:
        """The address of each record, uint64."""
        import numpy as np

        pieces = [
            np.arange(f.address + f.skip, f.address + f.columns.records, dtype=np.uint64)
            for f in self._frames
        ]
        return pieces[0] if len(pieces) == 1 else np.concatenate(pieces)

    @property
    def end(self) -> int:
        """The address after its last record."""
        return self._frames[-1].end

    def to_arrow(self, columns: Iterable[str] | None = None) -> pa.RecordBatch:
        """Columns `address` int64, `timestamp` timestamp[us, UTC], `key` binary, `value` binary,
        `headers` list<struct<key: string, value: binary>>, `topic` string; or the given columns
        in the given order. A single frame is not copied. Imports pyarrow. Raises UsageError for an
        unknown column, and for a column that exceeds Arrow's 2 GiB."""
        made: pa.RecordBatch = load_optional("aolog.read.arrow").to_arrow(self._frames, columns)
        return made

    def __repr__(self) -> str:
        return f"<aolog.Batch of {counted(len(self), 'record')}>"
