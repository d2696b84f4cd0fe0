"""`aolog info`: what a log says of itself, without reading it: headers, seals, the last slab."""

from __future__ import annotations

import uuid
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

import aolog
from aolog.cli.distributions import warn_of_conflict
from aolog.cli.holder import Holders
from aolog.cli.output import counted, human_bytes, iso_time, json_option, one_line, out, table
from aolog.cli.parse import log_argument
from aolog.cli.positions import HEAD, Standing, row, standings
from aolog.errors import AddressPruned, CodecUnavailable
from aolog.format.slab import NO_TIMESTAMP
from aolog.log.directory import Log
from aolog.log.names import ASIDE_DIRECTORY
from aolog.maintenance.verify import find_leftovers
from aolog.read import seek
from aolog.read.reader import Reader
from aolog.storage.mounts import limits_of
from aolog.storage.storage import Storage

if TYPE_CHECKING:
    from aolog.cli.holder import Holder
    from aolog.format.slab import SlabHeader
    from aolog.log.slab_file import Slab
    from aolog.record import Record

__all__ = ["info"]


class _SlabInfo(NamedTuple):
    """A slab. records: None where nothing tells. created, least, greatest (of the
    records' timestamps): microseconds. compressed: whether bodies may be."""

    base: int
    end: int
    bytes: int
    records: int | None
    format: int
    epoch: int | None
    sealed: bool
    compressed: bool | None
    created: int | None
    least: int | None
    greatest: int | None


class _Info(NamedTuple):
    """What is shown. records: that are there, damage not taken off."""

    headers: tuple[SlabHeader, SlabHeader] | None
    format: int
    slabs: int
    bytes: int
    first_address: int
    end_address: int
    first_ordinal: int | None
    end_ordinal: int | None
    first_us: int | None
    last_us: int | None
    greatest_us: int | None

    @property
    def records(self) -> int | None:
        """Between the first slab and the end."""
        if self.first_ordinal is None or self.end_ordinal is None:
            return None
        return self.end_ordinal - self.first_ordinal


def _header(log: Log, order: range) -> SlabHeader | None:
    """The first header that is intact, in this order of slabs."""
    for i in order:
        header = log.slab(i).header
        if header is not None:
            return header
    return None


def _look(log: Log) -> _Info:
    log.require_slabs()
    count = len(log.bases)
    first, last = _header(log, range(count)), _header(log, range(count - 1, -1, -1))
    end = seek.latest(log)
    greatest_us = NO_TIMESTAMP
    slab = log.slab(count - 1)
    if slab.header is not None:
        greatest_us = max(slab.header.greatest_before_us, slab.end().greatest_before_us)
    first_us = last_us = None
    if end.ordinal:
        with Reader(log.path) as reader:
            with suppress(CodecUnavailable):  # all else is known without
                first_us = _timestamp(reader.read())
            with suppress(CodecUnavailable, AddressPruned):
                reader.seek(ordinal=end.ordinal - 1)
                last_us = _timestamp(reader.read())
    return _Info(
        headers=None if first is None or last is None else (first, last),
        format=log.format,
        slabs=count,
        bytes=sum(Path(log.slab_path(base)).lstat().st_size for base in log.bases),
        first_address=log.bases[0],
        end_address=end.address,
        first_ordinal=seek.earliest(log).ordinal if log.format == 2 else None,
        end_ordinal=end.ordinal,
        first_us=first_us,
        last_us=last_us,
        greatest_us=None if greatest_us == NO_TIMESTAMP else greatest_us,
    )


def _timestamp(record: Record | None) -> int | None:
    return None if record is None else record.timestamp


def _look_with_slabs(log: Log, *, slabs: bool) -> tuple[_Info, list[_SlabInfo]]:
    """slabs: whether they are wanted too. Raises FileNotFoundError if one is pruned meanwhile."""
    found = _look(log)
    wanted = range(len(log.bases)) if slabs else ()
    return found, [_slab_info(log, i, end_ordinal=found.end_ordinal) for i in wanted]


def _slab_info(log: Log, i: int, *, end_ordinal: int | None) -> _SlabInfo:
    slab = log.slab(i)
    header, seal = slab.header, slab.seal()
    records = None if seal is None else seal.records
    if records is None and header is not None:
        behind = end_ordinal
        if i + 1 < len(log.bases):
            successor = log.slab(i + 1).header
            behind = None if successor is None else successor.base_ordinal
        records = None if behind is None else behind - header.base_ordinal
    times = seal is not None and seal.records > 0
    return _SlabInfo(
        base=slab.base,
        end=_slab_end(slab),
        bytes=slab.file.stat().size,
        records=records,
        format=slab.format,
        epoch=header.epoch if header else None,
        sealed=seal is not None,
        compressed=header.compressed if header else None,
        created=header.created_us if header else None,
        least=seal.least_us if seal and times else None,
        greatest=seal.greatest_us if seal and times else None,
    )


def _slab_end(slab: Slab) -> int:
    return slab.base + (slab.end_offset if slab.limit is None else slab.limit)


def _aside(path: str) -> list[tuple[str, int]]:
    """What recovery and repair kept: (name, size)."""
    root = f"{path}/{ASIDE_DIRECTORY}/"
    found = [each for each in find_leftovers(path, Storage()) if each.kind == "aside"]
    return [(each.path.removeprefix(root), each.bytes) for each in found]


def _time(timestamp_us: int | None) -> str | None:
    return None if timestamp_us is None else iso_time(timestamp_us)


@click.command(
    short_help="Show what LOG holds, its cursors and its writer.",
    epilog="""\b
Examples:
  aolog info LOG
  aolog info LOG --slabs
  aolog info LOG --json | jq '.cursors[] | {name, records: .lag.records}'

Whether a writer has the log open is read from /proc/locks: processes of other containers are not
seen there.""",
)
@log_argument
@click.option("--slabs", is_flag=True, help="List the slabs.")
@json_option
def info(log: str, slabs: bool, as_json: bool) -> None:  # noqa: FBT001 -- click passes by name
    """Show what LOG holds: its extent, times, cursors and their lag, and its writer.

    Reads headers and the last slab's, not the log.
    """
    warn_of_conflict()
    with Log(log, Storage()) as listed:
        found, rows = listed.listed(lambda: _look_with_slabs(listed, slabs=slabs))
        holders = Holders(listed.slab_path(listed.bases[0]))
    standing = standings(log, holders)
    writer = holders.of(log)
    fields = _fields(log, found, writer)
    aside = _aside(log)
    mount = Storage().mount_of(log)
    limits = [] if mount is None else limits_of(mount)
    fields |= {
        "file_system": mount.kind if mount else None,
        "mount_point": mount.point if mount else None,
        "storage_limits": [limit.code for limit in limits],
    }
    if as_json:
        fields["aside"] = [{"name": name, "bytes": size} for name, size in aside]
        fields["cursors"] = [each.to_json() for each in standing]
        if slabs:
            fields["slab_list"] = [_slab_json(each) for each in rows]
        out.json(fields)
    else:
        _print(fields, found, aside, standing, rows)
        for limit in limits:
            out.line(f"\n{mount.point if mount else log}: {limit.text}.")


def _fields(log: str, found: _Info, writer: Holder) -> dict[str, Any]:
    headers = found.headers
    return {
        "log": log,
        "format": found.format,
        "compressed": headers[1].compressed if headers else None,
        "topic_uuid": str(uuid.UUID(bytes=headers[1].topic_uuid)) if headers else None,
        "topic": headers[1].topic if headers else None,
        "first_epoch": headers[0].epoch if headers else None,
        "epoch": headers[1].epoch if headers else None,
        "slabs": found.slabs,
        "bytes": found.bytes,
        "first_address": found.first_address,
        "end_address": found.end_address,
        "records": found.records,
        "first_ordinal": found.first_ordinal,
        "end_ordinal": found.end_ordinal,
        "first_timestamp": _time(found.first_us),
        "last_timestamp": _time(found.last_us),
        "greatest_timestamp": _time(found.greatest_us),
        "writer_open": writer.held,
        "writer_pid": writer.pid,
        "backend": aolog.backend,
        "version": aolog.__version__,
    }


def _slab_json(slab: _SlabInfo) -> dict[str, Any]:
    fields = slab._asdict()
    for name in ("created", "least", "greatest"):
        fields[name] = _time(fields[name])
    return fields


def _print(
    fields: dict[str, Any],
    found: _Info,
    aside: list[tuple[str, int]],
    standing: list[Standing],
    slabs: list[_SlabInfo],
) -> None:
    epoch = fields["epoch"]
    if epoch is not None and fields["first_epoch"] != epoch:
        epoch = f"{fields['first_epoch']} to {epoch}"
    records = None if found.records is None else f"{found.records:,}"
    if records is not None and found.first_ordinal:
        records = f"{records} (ordinals {found.first_ordinal:,} to {found.end_ordinal:,})"
    pid = fields["writer_pid"]
    writer = {True: f"open, process {pid}" if pid else "open", False: "none", None: "unknown"}
    aside_bytes = sum(size for _, size in aside)
    lines = {
        "log": fields["log"],
        "format": f"{found.format}{' (queuefka)' if found.format == 1 else ''}"
        f"{', compressed' if fields['compressed'] else ''}",
        "topic": fields["topic"],
        "topic UUID": fields["topic_uuid"],
        "epoch": epoch,
        "slabs": f"{found.slabs:,}, {human_bytes(found.bytes)}",
        "addresses": f"[{found.first_address}, {found.end_address})",
        "records": records,
        "first": fields["first_timestamp"],
        "last": fields["last_timestamp"],
        "greatest": fields["greatest_timestamp"],
        "writer": writer[fields["writer_open"]],
        "set aside": f"{counted(len(aside), 'file')}, {human_bytes(aside_bytes)}"
        if aside
        else "nothing",
        "storage": fields["file_system"]
        and one_line(f"{fields['file_system']} on {fields['mount_point']}"),
        "backend": fields["backend"],
    }
    for name, value in lines.items():
        out.line(f"{name + ':':<12}{'-' if value is None else one_line(str(value))}")
    if slabs:
        out.line("")
        out.line(table(_SLABS_HEAD, [_slab_row(slab) for slab in slabs]))
    if standing:
        out.line("")
        out.line(table(HEAD, [row(each) for each in standing]))


_SLABS_HEAD = ("BASE", "END", "BYTES", "RECORDS", "EPOCH", "SEALED", "CREATED", "LEAST", "GREATEST")


def _slab_row(slab: _SlabInfo) -> list[object]:
    sealed = "yes" if slab.sealed else "no"
    times = [_time(slab.created), _time(slab.least), _time(slab.greatest)]
    return [slab.base, slab.end, slab.bytes, slab.records, slab.epoch, sealed, *times]
