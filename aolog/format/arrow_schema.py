"""The columns of a log in Arrow: the schema of batches, for reading and for writing.

This module imports pyarrow; import it only when it is used.
"""

from __future__ import annotations

import pyarrow as pa

HEADER = pa.struct([pa.field("key", pa.string(), nullable=False), pa.field("value", pa.binary())])
SCHEMA = pa.schema(
    [
        pa.field("address", pa.int64()),  # less than 2^63; Spark has no unsigned type
        pa.field("timestamp", pa.timestamp("us", "UTC")),
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("headers", pa.list_(HEADER)),
        pa.field("topic", pa.string()),
    ]
)
