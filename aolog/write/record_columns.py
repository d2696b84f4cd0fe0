"""Records, checked before anything is taken: one for the open frame, or many. Needs no lock."""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, Any, SupportsIndex

from aolog.errors import RecordRefused, load_optional
from aolog.format.columns import Columns, records_of
from aolog.format.compression import Malformed, packer
from aolog.format.native.inlet import Body, body_of, encode_records
from aolog.format.native.speed import rising
from aolog.queuefka.format1 import check_storable, without
from aolog.queuefka.slab import Payloads, put_values
from aolog.storage import clock
from aolog.write.given_columns import check_columns, columns_body
from aolog.write.validate import check_record, check_sizes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    import numpy as np
    import pyarrow as pa

    from aolog.write.options import WriterOptions
    from aolog.write.validate import CheckedRecord


class RecordChecks:
    """See the module. Each call raises RecordRefused, and RecordTooLarge for a record or for all."""

    def __init__(self, options: WriterOptions) -> None:
        self._has_columns = options.has_headers
        self._max_record_bytes = options.max_record_bytes
        self._pack = packer(options.compression, options.compression_level)

    def one(
        self,
        value: object,
        *,
        key: object = None,
        headers: object = (),
        timestamp: SupportsIndex | None = None,
        topic: str | None = None,
    ) -> CheckedRecord:
        """A record for the open frame, checked."""
        record = check_record(value, key, headers, timestamp, topic)
        check_sizes(0, record[5], self._max_record_bytes)
        if not self._has_columns:
            check_storable(*record[:5])
        return record

    def of(
        self, values: Iterable[bytes | None], columns: Mapping[str, Iterable[Any] | None]
    ) -> Body | list[bytes]:
        """Values as one frame; only values in a format without columns. columns: keys, headers,
        timestamps and topics, each with an entry for each value."""
        listed = list(values)
        others = [_column(given, name, listed) for name, given in columns.items()]
        if not self._has_columns and all(column is None for column in others):
            return self._plain(listed)
        return self._frame(self._body(listed, others, clock.now_us()))

    def _body(self, values: list[Any], others: list[list[Any] | None], now_us: int) -> Body:
        """now_us: the timestamp of a record that has none."""
        if not values:
            return Body(0, 0, [], now_us, now_us)
        made = None if body_of is None else body_of(values, *others, now_us)
        if made is not None:
            size, longest, taken = made
            self._check_all(len(values), size, longest)
            assert taken is not None
            records, columns, body, greatest_us, least_us = taken
            return Body(records, columns, [body], greatest_us, least_us)
        absent = zip(others, (None, (), None, None), strict=True)
        whole = [[none] * len(values) if column is None else column for column, none in absent]
        checked = [check_record(*parts) for parts in zip(values, *whole, strict=True)]
        data, keys, headers, moments, names, sizes = zip(*checked, strict=True)
        self._check_all(len(sizes), sum(sizes), max(sizes))
        return encode_records(data, keys, headers, moments, names, now_us)

    def _check_all(self, records: int, size: int, longest: int) -> None:
        bytes_of_all = size + 8 * records  # a column may add offsets for all records
        check_sizes(bytes_of_all, longest, self._max_record_bytes)

    def _plain(self, values: list[Any]) -> list[bytes]:
        """The values as a format without columns stores them."""
        if Payloads.are_storable(values, self._max_record_bytes):
            return values
        return [self.one(value)[0] or b"" for value in values]

    def of_arrow(self, batch: pa.RecordBatch | Columns) -> Body:
        """Arrow's columns as one frame."""
        if isinstance(batch, Columns):
            return self._of_columns(batch)
        arrow = load_optional("aolog.write.arrow")
        return self._frame(arrow.from_arrow(batch, self._max_record_bytes, clock.now_us()))

    def _of_columns(self, columns: Columns) -> Body:
        import numpy as np

        now_us, records = clock.now_us(), columns.records
        if not records:
            return Body(0, 0, [], now_us, now_us)
        try:
            check_columns(columns)
        except Malformed as error:
            raise RecordRefused(f"the columns are malformed: {error}") from None
        bits, body = columns_body(columns)
        longest = 0
        if body.length > self._max_record_bytes:  # otherwise no record is
            longest = max(
                check_record(each.value, each.key, each.headers, each.timestamp, each.topic)[5]
                for each in records_of(columns, rising(0), None)
            )
        check_sizes(body.length, longest, self._max_record_bytes)
        stamps = np.frombuffer(columns.timestamps or array("q", [now_us]), np.int64)
        range_us = int(stamps.max()), int(stamps.min())
        return self._frame(Body(records, bits, body.parts, *range_us))

    def _frame(self, body: Body) -> Body:
        if not self._has_columns:
            raise RecordRefused(
                f"the log {without('columns')}", hint="use append_many with values alone"
            )
        return body if self._pack is None or not body.records else body.packed(self._pack)


def put(records: Body | list[bytes], make_room: Callable[[], Any]) -> list[range] | list[bytearray]:
    """Adds checked records to the slab that `make_room` returns, which has room for a frame. Returns their
    addresses, for `array_of`. The caller holds the writer's lock."""
    if isinstance(records, list):
        return put_values(records, make_room)
    if not records.records:
        return []
    address = make_room().add_records(*records)
    return [range(address, address + records.records)]


def array_of(addresses: list[range] | list[bytearray]) -> np.ndarray:
    """The addresses of records, uint64."""
    import numpy as np

    parts = [
        np.arange(one.start, one.stop, dtype=np.uint64)
        if isinstance(one, range)
        else np.frombuffer(one, np.uint64)
        for one in addresses
    ]
    return parts[0] if len(parts) == 1 else np.concatenate([np.empty(0, np.uint64), *parts])


def _column(given: Iterable[Any] | None, name: str, values: Sequence[object]) -> list[Any] | None:
    """The column as a list, with an entry for each value."""
    if given is None:
        return None
    column = list(given)
    if len(column) != len(values):
        raise RecordRefused(
            f"there are {len(column)} {name} and {len(values)} values",
            hint=f"give an entry of {name} for each value",
        )
    return column
