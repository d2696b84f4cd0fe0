"""The options of a write, checked on the driver before a job begins.

Options have the names that Spark's Kafka sink and Delta use, in any case; an unknown one is an error
that names it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from aolog.errors import CodecUnavailable, UsageError
from aolog.format.compression import packer
from aolog.format.root_manifest import LEFTOVER_SECONDS
from aolog.log.log_tree import is_log
from aolog.publish.pending import depth_of
from aolog.spark.options_parsing import (
    boolean,
    naming,
    place,
    refused,
    size,
    unknown,
    whole_number,
)
from aolog.storage.objects.url import is_url
from aolog.storage.storage import Storage
from aolog.write.options import WriterOptions, table
from aolog.write.validate import check_topic, read_mode

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aolog.write.options import Option

_DEFAULT_LOG = "default"  # of a root that is not a log itself
# A smaller slab is mostly header, and costs three syncs and a line of the manifest. A user who writes
# 64 means 64m.
_SLAB_BYTES_MIN = 64 << 10
# A writer's options that a write takes, by the names that they have in Spark.
OF_WRITER = {
    "slabBytes": "slab_bytes",
    "maxRecordBytes": "max_record_bytes",
    "compression": "compression",
    "compressionLevel": "compression_level",
    "mode": "mode",
}
OPTION_NAMES = {
    name.lower(): name
    for name in (
        "log", "topic", *OF_WRITER, "txnAppId", "txnVersion", "onRepeatedBatch", "leftoverSeconds",
    )
}  # fmt: skip  # a table
# Options of every write, of streams and of Kafka's sink that have no effect here.
_IGNORED = {"path", "checkpointlocation", "queryname", "includeheaders", "includegaps"}


class SinkOptions(NamedTuple):
    """root: absolute, or the URL of an object store. log: for rows without one. topic: replaces that of all records. app: names what
    commits, in place of a stream's query; version: of a batch, which is not a transaction without an app.
    fail_on_repeated: whether a version that was published with other rows is an error. checkpoint: of a
    stream, as given."""

    root: str
    log: str
    topic: str | None = None
    writer: WriterOptions = WriterOptions()
    app: str | None = None
    version: int = 0
    fail_on_repeated: bool = True
    checkpoint: str | None = None
    leftover_seconds: float = LEFTOVER_SECONDS


def _number(given: Mapping[str, str], name: str, default: int, *, least: int = 1) -> int:
    text = given.get(name.lower())
    return default if text is None else whole_number(name, text, least)


def _writer(given: Mapping[str, str]) -> WriterOptions:
    """Raises UsageError once, on the driver, rather than in every task."""
    found = {
        name: _read(spark_name, table()[name], given[spark_name.lower()])
        for spark_name, name in OF_WRITER.items()
        if spark_name.lower() in given
    }
    options = WriterOptions(**found)
    level = options.compression_level
    if level is not None and options.compression == "none":
        raise refused("compressionLevel", "needs the option compression")
    try:
        packer(options.compression, level)
    except CodecUnavailable:
        raise
    except UsageError as error:
        raise refused("compressionLevel", f"{level}", error.hint) from None
    return options


def _read(spark_name: str, option: Option, text: str) -> Any:
    about = option.about
    if about.unit == "bytes":
        least = max(about.least, _SLAB_BYTES_MIN) if option.name == "slab_bytes" else about.least
        return size(spark_name, text, least, about.most)
    if about.unit == "octal":
        with naming(spark_name):
            return read_mode(text)
    if option.choices:
        if text not in option.choices:
            raise refused(spark_name, f"{text!r} is not one of {', '.join(option.choices)}")
        return text
    return whole_number(spark_name, text, about.least, about.most)


def read_sink_options(options: Mapping[str, str], *, stream: bool) -> SinkOptions:
    """The options of a write. stream: whether it is a stream. Raises UsageError, which names the option."""
    given = {key.lower(): value for key, value in options.items()}
    for key in given:
        if key not in OPTION_NAMES and key not in _IGNORED and not key.startswith("kafka."):
            raise unknown(key, OPTION_NAMES)
    root = place(given.get("path", ""))
    log = given.get("log")
    if is_url(root):
        if log not in {None, "."}:
            raise refused("log", "below a URL is one log, at the URL itself", "add it to the URL")
        log = "."
    if log is None:
        log = "." if is_log(root, Storage()) else _DEFAULT_LOG
    with naming("log"):
        depth_of(log)
    with naming("topic"):
        topic, _ = check_topic(given.get("topic"))
    app = given.get("txnappid")
    if stream and "txnversion" in given:
        raise refused("txnVersion", "applies to batches: a stream numbers its own")
    if not stream and (app is None) != ("txnversion" not in given):
        raise UsageError("options txnAppId and txnVersion: give both or neither")
    repeated = given.get("onrepeatedbatch", "fail")
    return SinkOptions(
        root=root,
        log=log,
        topic=topic,
        writer=_writer(given),
        app=app,
        version=_number(given, "txnVersion", 0, least=0),
        fail_on_repeated=boolean("onRepeatedBatch", repeated, "fail", "skip"),
        checkpoint=given.get("checkpointlocation"),
        leftover_seconds=_number(given, "leftoverSeconds", int(LEFTOVER_SECONDS)),
    )
