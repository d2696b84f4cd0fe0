"""`aolog info`: describes a log from its headers, seals and last slab, without reading all of it."""

from __future__ import annotations

import uuid
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import click

import aolog
from aolog.cli.cursor_state import HEAD, cursor_states
from aolog.cli.lock_holders import Holders
from aolog.cli.output import human_bytes, iso_time, json_option, out, table
from aolog.cli.parse import log_argument
from aolog.errors import AddressPruned, CodecUnavailable, counted, one_line
from aolog.format.names import ASIDE_DIRECTORY
from aolog.format.slab import NO_TIMESTAMP
from aolog.log.directory import Log
from aolog.read import seek
from aolog.read.gaps import reported_elsewhere
from aolog.read.reader import Reader
from aolog.storage.directory import Inside
from aolog.storage.mounts import limits_of
from aolog.storage.storage import Storage

if TYPE_CHECKING:
    from aolog.cli.cursor_state import CursorState


def _aside(log: str, storage: Storage) -> list[dict[str, object]]:
    """What recovery saved before it truncated."""
    directory = Inside(log, ASIDE_DIRECTORY)
    there = storage.entry(directory)
    if there is None or there.kind != "directory":
        return []
    entries = [
        (name, storage.entry(directory / name)) for name in sorted(storage.list_names(directory))
    ]
    return [{"name": name, "bytes": entry.size} for name, entry in entries if entry is not None]


def _describe(log: Log) -> dict[str, Any]:
    """Fields of the log. The number of records does not subtract damage. Raises FileNotFoundError if a slab
    is pruned meanwhile."""
    log.require_slabs()
    count = len(log.bases)
    first = next((header for i in range(count) if (header := log.slab(i).header)), None)
    last = log.last_header()
    end = seek.latest(log)
    first_ordinal = seek.earliest(log).ordinal if log.has_headers else None
    counts = first_ordinal is not None and end.ordinal is not None
    greatest_us = NO_TIMESTAMP
    slab = log.slab(count - 1)
    if slab.header is not None:
        greatest_us = max(slab.header.greatest_before_us, slab.end().greatest_before_us)
    first_us, last_us = _timestamps(log, end.ordinal)
    return {
        "log": log.path,
        "format": 2 if log.has_headers else 1,
        "compressed": last.compressed if last else None,
        "topic_uuid": str(uuid.UUID(bytes=last.topic_uuid)) if last else None,
        "topic": last.topic if last else None,
        "first_epoch": first.epoch if first else None,
        "epoch": last.epoch if last else None,
        "slabs": count,
        "bytes": sum(_size(log, base) for base in log.bases),
        "first_address": log.bases[0],
        "end_address": end.address,
        "records": end.ordinal - first_ordinal if counts else None,  # type: ignore[operator]  # ints
        "first_ordinal": first_ordinal,
        "end_ordinal": end.ordinal,
        "first_timestamp": iso_time(first_us),
        "last_timestamp": iso_time(last_us),
        "greatest_timestamp": iso_time(None if greatest_us == NO_TIMESTAMP else greatest_us),
    }


def _size(log: Log, base: int) -> int:
    """Raises FileNotFoundError if the slab was pruned meanwhile."""
    entry = log.storage.entry(log.slab_path(base))
    if entry is None:
        raise FileNotFoundError(base)
    return entry.size


def _timestamps(log: Log, end_ordinal: int | None) -> tuple[int | None, int | None]:
    """Of the first and the last record, as far as they can be decompressed here."""
    first_us = last_us = None
    if end_ordinal:
        with Reader(log.path, on_gap=reported_elsewhere) as reader:
            with suppress(CodecUnavailable):
                first_us = (record := reader.read()) and record.timestamp
            with suppress(CodecUnavailable, AddressPruned):
                reader.seek(ordinal=end_ordinal - 1)
                last_us = (record := reader.read()) and record.timestamp
    return first_us, last_us


_BAR = 40  # columns


@click.command(
    epilog="""\b
Examples:
  aolog info LOG
  aolog info LOG --json | jq '.cursors[] | {name, records: .lag.records}'

/proc/locks shows whether a writer has the log open. Processes of other containers are not visible
there.""",
)
@log_argument
@json_option
def info(log: str, as_json: bool) -> None:  # noqa: FBT001 -- click passes by name
    """Show what LOG holds: addresses, times, cursors with their lag, and its writer.

    Reads headers and the last slab, not the whole log.
    """
    with Log(log, Storage()) as listed:
        fields = listed.listed(lambda: _describe(listed))
        bases = list(listed.bases)
        holders = Holders(listed.slab_path(listed.bases[0]))
    cursors = cursor_states(log, holders)
    writer = holders.of(log)
    mount = Storage().mount_of(log)
    limits = {} if mount is None else limits_of(mount)
    aside = _aside(log, Storage())
    fields |= {
        "writer_open": writer.held,
        "writer_pid": writer.pid,
        "backend": aolog.backend,
        "version": aolog.__version__,
        "file_system": mount.kind if mount else None,
        "mount_point": mount.point if mount else None,
        "storage_limits": list(limits),
        "aside": aside,
    }
    if as_json:
        fields["cursors"] = [each.to_json() for each in cursors]
        out.json(fields)
    else:
        _print(fields, cursors, bases)
        for text in limits.values():
            out.line(f"\n{mount.point if mount else log}: {text}.")


def _print(fields: dict[str, Any], cursors: list[CursorState], bases: list[int]) -> None:
    epoch, records, aside = fields["epoch"], fields["records"], fields["aside"]
    if epoch is not None and fields["first_epoch"] != epoch:
        epoch = f"{fields['first_epoch']} to {epoch}"
    if records is not None:
        records = f"{records:,}"
        if fields["first_ordinal"]:
            records += f" (ordinals {fields['first_ordinal']:,} to {fields['end_ordinal']:,})"
    pid = fields["writer_pid"]
    writer = {True: f"open, process {pid}" if pid else "open", False: "none", None: "unknown"}
    aside_bytes = human_bytes(sum(each["bytes"] for each in aside))
    lines = {
        "log": fields["log"],
        "format": f"{fields['format']}{' (queuefka)' if fields['format'] == 1 else ''}"
        f"{', compressed' if fields['compressed'] else ''}",
        "topic": fields["topic"],
        "topic UUID": fields["topic_uuid"],
        "epoch": epoch,
        "slabs": f"{fields['slabs']:,}, {human_bytes(fields['bytes'])}",
        "addresses": f"[{fields['first_address']}, {fields['end_address']})",
        "records": records,
        "first": fields["first_timestamp"],
        "last": fields["last_timestamp"],
        "greatest": fields["greatest_timestamp"],
        "writer": writer[fields["writer_open"]],
        "set aside": f"{counted(len(aside), 'file')}, {aside_bytes}" if aside else "nothing",
        "storage": fields["file_system"] and f"{fields['file_system']} on {fields['mount_point']}",
        "backend": fields["backend"],
    }
    for name, value in lines.items():
        out.line(f"{name + ':':<12}{'-' if value is None else one_line(str(value))}")
    if cursors:
        out.line("\n" + table(HEAD, [each.row() for each in cursors]))
    begin, end = fields["first_address"], fields["end_address"]
    out.line(f"\n{_slab_bar(bases, end)} {counted(len(bases), 'slab')}")
    for each in cursors:
        at = begin if each.position is None else each.position.address
        if each.lag is not None and each.lag.records == 0:
            at = end  # only a seal, or a gap, is left
        out.line(f"{bar(begin, at, end)} {one_line(each.name)}")


def _slab_bar(bases: list[int], end: int) -> str:
    """The log from its first slab to its end, with a mark where a slab begins."""
    length = max(1, end - bases[0])
    begins = {min(_BAR - 1, _BAR * (base - bases[0]) // length) for base in bases}
    return f"[{''.join('┃' if i in begins else '━' for i in range(_BAR))}]"


def bar(begin: int, at: int, end: int) -> str:
    """The log from its first slab to its end: what a cursor has passed, and what is left to read."""
    passed = 0 if end <= begin else round(_BAR * (min(max(at, begin), end) - begin) / (end - begin))
    if begin < at < end:
        passed = min(max(passed, 1), _BAR - 1)  # a remainder is never invisible
    elif at >= end:
        passed = _BAR
    return f"[{'█' * passed}{'░' * (_BAR - passed)}]"
