"""The options of a write, checked on the driver before a job begins.

Options have the names that Spark's Kafka sink and Delta use, in any case; an unknown one is an error
that names it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, cast

from aolog.errors import CodecUnavailable, UsageError
from aolog.format.compression import CODECS, packer
from aolog.log.directory import is_log
from aolog.publish.leftovers import LEFTOVER_SECONDS
from aolog.publish.pending import depth_of
from aolog.spark.options_parsing import directory, naming, refused, size, unknown, whole_number
from aolog.storage.storage import DIRECTORY_MODE, Storage
from aolog.write.options import MAX_RECORD_BYTES, SLAB_BYTES, WriterOptions
from aolog.write.validate import RECORD_BYTES_MAX, SLAB_BYTES_MAX, check_topic, read_mode

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from aolog.format.compression import Compression

_DEFAULT_LOG = "default"  # of a root that is no log itself
# A smaller slab is mostly header, and costs three syncs and a line of the manifest. A user who writes
# 64 means 64m.
_SLAB_BYTES_MIN = 64 << 10
OPTION_NAMES = {
    name.lower(): name
    for name in (
        "log", "topic", "slabBytes", "maxRecordBytes", "compression", "compressionLevel",
        "mode", "txnAppId", "txnVersion", "onRepeatedBatch", "leftoverSeconds",
    )
}  # fmt: skip  # a table
# Options of every write, of streams and of Kafka's sink that have no effect here.
_IGNORED = {"path", "checkpointlocation", "queryname", "includeheaders"}


class SinkOptions(NamedTuple):
    """root: absolute. log: for rows without one. topic: replaces that of all records. app: names what
    commits, in place of a stream's query; version: of a batch, which is no transaction without an app.
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


def _number(
    given: Mapping[str, str],
    name: str,
    default: int,
    read: Callable[..., int] = whole_number,
    **bounds: int,
) -> int:
    text = given.get(name.lower())
    return default if text is None else read(name, text, **bounds)


def _check_compression(name: str, level: int) -> None:
    """Raises UsageError once, on the driver, rather than in every task."""
    if name not in {"none", *CODECS}:
        raise refused("compression", f"{name!r} is not one of none, {', '.join(CODECS)}")
    if level and name == "none":
        raise refused("compressionLevel", "needs the option compression")
    try:
        packer(name, level or None)
    except CodecUnavailable:
        raise
    except UsageError as error:
        raise refused("compressionLevel", f"{level}", error.hint) from None


def read_sink_options(options: Mapping[str, str], *, stream: bool) -> SinkOptions:
    """The options of a write. stream: whether it is a stream. Raises UsageError, which names the option."""
    given = {key.lower(): value for key, value in options.items()}
    for key in given:
        if key not in OPTION_NAMES and key not in _IGNORED and not key.startswith("kafka."):
            raise unknown(key, OPTION_NAMES)
    root = directory(given.get("path", ""))
    log = given.get("log")
    if log is None:
        log = "." if is_log(root, Storage()) else _DEFAULT_LOG
    with naming("log"):
        depth_of(log)
    with naming("topic"):
        topic, _ = check_topic(given.get("topic"))
    with naming("mode"):
        mode = read_mode(given.get("mode", f"{DIRECTORY_MODE:o}"))
    app = given.get("txnappid")
    if stream and "txnversion" in given:
        raise refused("txnVersion", "applies to batches: a stream numbers its own")
    if not stream and (app is None) != ("txnversion" not in given):
        raise UsageError("options txnAppId and txnVersion: give both or neither")
    repeated = given.get("onrepeatedbatch", "fail").lower()
    if repeated not in {"fail", "skip"}:
        raise refused("onRepeatedBatch", f"{repeated!r} is neither fail nor skip")
    compression = given.get("compression", "none")
    level = _number(given, "compressionLevel", 0)
    _check_compression(compression, level)
    writer = WriterOptions(
        slab_bytes=_number(
            given, "slabBytes", SLAB_BYTES, size, least=_SLAB_BYTES_MIN, most=SLAB_BYTES_MAX
        ),
        max_record_bytes=_number(
            given, "maxRecordBytes", MAX_RECORD_BYTES, size, most=RECORD_BYTES_MAX
        ),
        compression=cast("Compression", compression),
        compression_level=level or None,
        mode=mode,
    )
    return SinkOptions(
        root=root,
        log=log,
        topic=topic,
        writer=writer,
        app=app,
        version=_number(given, "txnVersion", 0, least=0),
        fail_on_repeated=repeated == "fail",
        checkpoint=given.get("checkpointlocation"),
        leftover_seconds=_number(given, "leftoverSeconds", int(LEFTOVER_SECONDS)),
    )
