"""A stream without Spark: calls its reader as Spark does, and keeps its offsets."""

from __future__ import annotations

import json

from pyspark.cloudpickle import dumps, loads

from tests.spark.driving import run, source, struct

SCHEMA = struct("offset", "log")


class Query:
    """What Spark does with a stream reader: batches between offsets, which it keeps as JSON."""

    def __init__(self, path, checkpoint=None, schema=SCHEMA, **options):
        loaded = source(path, **options)
        loaded.schema()
        self.schema = schema
        self.reader = loads(dumps(loads(dumps(loaded)).streamReader(schema)))
        self.offset = checkpoint
        self.limit = self.reader.getDefaultReadLimit()
        self.rows = []
        if checkpoint is None:
            self.offset = json.dumps(self.reader.initialOffset())

    def batch(self, limit=None):
        """One micro-batch; its rows, None where there was none."""
        start = json.loads(self.offset)
        end = json.dumps(self.reader.latestOffset(start, limit or self.limit))
        if end == self.offset:
            return None
        rows = self.between(self.offset, end)
        self.rows += rows
        self.offset = end
        return rows

    def between(self, start, end):
        return [tuple(row.values()) for b in self.tables(start, end) for row in b.to_pylist()]

    def tables(self, start, end):
        """The batches of the tasks, one after the other."""
        planned = self.reader.partitions(json.loads(start), json.loads(end))
        return [b for part in run(self.reader, planned, self.schema) for b in part]

    def all(self):
        """Batches until there is none."""
        sizes = []
        while (rows := self.batch()) is not None:
            sizes.append(len(rows))
            assert len(sizes) < 1000, "it never ends"
        return sizes


def named(addresses, name):
    return [(address, name) for address in addresses]
