"""`aolog archive`, `aolog hold`, `aolog compact` and `aolog restore`: a log in an object store, and back."""

from __future__ import annotations

from contextlib import suppress

import click

from aolog.cli.output import human_bytes, json_option, named, out, progress
from aolog.cli.parse import DIRECTORY, DURATION, SIZE, log_argument
from aolog.cli.stop_signals import StopSignals
from aolog.errors import counted, one_line
from aolog.maintenance.archive.archiver import SHIP_SECONDS, Archived, Archiver, Keep, Stopped
from aolog.maintenance.archive.compaction import OBJECT_BYTES
from aolog.maintenance.archive.compaction import compact as compact_archive
from aolog.maintenance.archive.hold import hold as hold_archive
from aolog.maintenance.archive.restore import restore as restore_log


@click.command(
    epilog="""\b
Examples:
  aolog archive LOG s3://bucket/logs/host-7
  aolog archive LOG s3://bucket/logs/host-7 --follow --max-age 400d
  aolog read s3://bucket/logs/host-7

A full slab is archived at once; of the slab that grows, what is durable. Retention waits for the cursor
`archive`. A kill at any moment loses nothing: the next run finds what was uploaded. Nothing is ever
overwritten. Needs the extra `objects`; credentials as the provider's own tools find them."""
)
@log_argument
@click.argument("url")
@click.option("--follow", is_flag=True, help="Go on, until interrupted; an outage is waited out.")
@click.option(
    "--ship-after",
    type=DURATION,
    default=f"{SHIP_SECONDS:g}s",
    show_default=True,
    help="With --follow: archive what a slab that grows has, after this long.",
)
@click.option(
    "--max-bytes",
    type=SIZE,
    help="Remove the archive's oldest slabs above this size of all, as they are stored.",
)
@click.option(
    "--max-age", type=DURATION, help="Remove the archive's slabs with only older records: 90d."
)
@json_option
def archive(
    log: str,
    url: str,
    follow: bool,  # noqa: FBT001 -- click passes options by name
    ship_after: float,
    max_bytes: int | None,
    max_age: float | None,
    as_json: bool,  # noqa: FBT001 -- the same
) -> None:
    """Archive LOG below URL in an object store, beside its writer."""

    def report(done: Archived) -> None:
        if as_json:
            out.json(named(done))
        else:
            late = f", {human_bytes(done.behind_bytes)} to come" if done.behind_bytes else ""
            out.line(
                f"{one_line(done.url)}: {counted(done.slabs, 'slab', ',')} up to address {done.end}"
                f"{late} ({counted(done.requests, 'request', ',')}, {human_bytes(done.sent_bytes)} sent)"
            )
        out.flush()

    keep = Keep(max_bytes, max_age)
    if not follow:
        with Archiver(log, url, keep=keep) as archiver:
            archiver.begin()
            report(archiver.round())
        return
    with (
        StopSignals() as signals,
        suppress(Stopped),
        Archiver(log, url, ship_seconds=ship_after, keep=keep, wait=signals.wait) as archiver,
    ):
        archiver.begin()
        archiver.follow(report)


@click.command(
    epilog="""\b
Examples:
  aolog hold s3://bucket/logs/host-7
  aolog hold s3://bucket/logs/host-7 --release

While an archive is held, `aolog archive` removes nothing from it, on any machine, whatever --max-bytes and
--max-age say, and `aolog compact` refuses it. The hold is in force when the command ends. Other programs can still delete the objects: the
store's own locks prevent that."""
)
@click.argument("url")
@click.option("--release", is_flag=True, help="End the hold.")
@json_option
def hold(url: str, release: bool, as_json: bool) -> None:  # noqa: FBT001 -- as above
    """Keep all that the archive below URL has; or --release it."""
    done = hold_archive(url, held=not release)
    if as_json:
        out.json(named(done))
    else:
        state = "held" if done.held else "not held"
        slabs = counted(done.slabs, "slab", ",")
        out.line(f"{one_line(done.url)}: {state}: {slabs}, {human_bytes(done.bytes)}")


@click.command(
    epilog="""\b
Examples:
  aolog compact s3://bucket/logs/host-7 --dry-run
  aolog compact s3://bucket/logs/host-7

Addresses, ordinals, cursors and Spark's offsets stay as they are. Archivers and readers may run; releases
that do not know packed slabs refuse the archive (newer_format). A kill loses nothing: the next run goes on. A run
deletes what runs more than a day before have replaced. Needs the extras `objects` and `compression`."""
)
@click.argument("url")
@click.option(
    "--object-bytes",
    type=SIZE,
    default=f"{OBJECT_BYTES >> 20}MiB",
    show_default=True,
    help="Pack slabs below this size, until an object has so many bytes of them.",
)
@click.option("--dry-run", is_flag=True, help="Show what would be packed; write nothing.")
@json_option
def compact(
    url: str,
    object_bytes: int,
    dry_run: bool,  # noqa: FBT001 -- as above
    as_json: bool,  # noqa: FBT001 -- as above
) -> None:
    """Pack small slabs of the archive below URL into large objects, compressed."""
    with progress("compact", shown=not as_json) as update:
        done = compact_archive(url, object_bytes=object_bytes, dry_run=dry_run, progress=update)
    if as_json:
        out.json(named(done))
        return
    packed = f"{counted(done.packed, 'slab', ',')} of {human_bytes(done.slab_bytes)}"
    into = "" if done.packed_bytes is None else f" of {human_bytes(done.packed_bytes)}"
    out.line(
        f"{one_line(done.url)}: {'would pack' if dry_run else 'packed'} {packed} into "
        f"{counted(done.packs, 'object', ',')}{into}; {counted(done.objects, 'object', ',')} in all, "
        f"{done.deleted:,} deleted"
    )


@click.command(
    epilog="""\b
Examples:
  aolog restore s3://bucket/logs/host-7 /var/lib/app/log

Every object's checksum is checked. DIR appears when it is complete; what a killed restore had fetched is
used by the next one. The log keeps its UUID: stop the writer of the original first, or use `aolog backup
--new-uuid` of the copy. Cursors are not archived."""
)
@click.argument("url")
@click.argument("directory", type=DIRECTORY, metavar="DIR")
@json_option
def restore(url: str, directory: str, as_json: bool) -> None:  # noqa: FBT001 -- as above
    """Make a log in a new DIR from the archive below URL."""
    with progress("restore", shown=not as_json) as update:
        done = restore_log(url, directory, progress=update)
    if as_json:
        out.json({"url": url, **named(done)})
    else:
        slabs = counted(done.slabs, "slab", ",")
        out.line(f"{one_line(done.into)}: {slabs}, {human_bytes(done.bytes)}, up to {done.end}")
