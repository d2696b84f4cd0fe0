"""The sink in a data source of its own, whose tasks and commits can be made to go wrong.

Options, beside the sink's: `attempts`: each task is carried out so often, and the last counts.
`killAt`: before which call the process that commits is killed, by its name and path.
"""

from __future__ import annotations

import copyreg
from typing import Any

from pyspark.sql.datasource import DataSource

from aolog.spark.sink import BatchWriter, StreamWriter, batch_writer, stream_writer
from tests.publish.killing import kill_before_call

NAMES = ("attempts", "killat")


class Troubled:
    """What goes wrong in a writer."""

    trouble: dict[str, str]

    def __reduce__(self) -> Any:  # the writer's own would leave the trouble out
        return copyreg.__newobj__, (type(self),), self.__dict__  # type: ignore[attr-defined]  # pickle's own

    def write(self, iterator: Any) -> Any:
        batches = list(iterator)
        for _ in range(int(self.trouble.get("attempts", 1)) - 1):
            super().write(iter(batches))  # type: ignore[misc]  # a mixin
        return super().write(iter(batches))  # type: ignore[misc]  # a mixin

    def commit(self, *args: Any) -> None:
        if (where := self.trouble.get("killat")) is not None:
            kill_before_call(where)
        super().commit(*args)  # type: ignore[misc]  # a mixin


class TroubledBatch(Troubled, BatchWriter):
    pass


class TroubledStream(Troubled, StreamWriter):
    pass


class Sink(DataSource):
    @classmethod
    def name(cls) -> str:
        return "troubled"

    def _split(self) -> tuple[dict[str, str], dict[str, str]]:
        given = {key.lower(): value for key, value in self.options.items()}
        trouble = {name: given.pop(name) for name in NAMES if name in given}
        return given, trouble

    def writer(self, schema: Any, overwrite: bool) -> Any:
        given, trouble = self._split()
        made = batch_writer(given, schema, overwrite)
        troubled = TroubledBatch(made.options, made.job)
        troubled.trouble = trouble
        return troubled

    def streamWriter(self, schema: Any, overwrite: bool) -> Any:  # noqa: N802 -- Spark's name
        given, trouble = self._split()
        troubled = TroubledStream(stream_writer(given, schema, overwrite).options)
        troubled.trouble = trouble
        return troubled
