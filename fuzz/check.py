"""Compares a damaged log with the oracle: every way of reading, verify, ranges, a writer.

Each check raises `Mismatch` with the expected and the actual result. Any other error that the log raises
is a finding too.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import aolog
from aolog.record import Gap, Record
from fuzz.layout import DATA_BEGIN, HEADER_AT, HEADER_LEN, RECORDS, SLAB_MAGIC, base_of, know
from fuzz.oracle import Expected, expect
from fuzz.ways import WAYS, CountingStorage, Seen, read_split

if TYPE_CHECKING:
    import random
    from collections.abc import Iterator, Sequence

    from fuzz.disk import Disk
    from fuzz.layout import Files, Known

__all__ = [
    "Mismatch",
    "check_all",
    "check_ranges",
    "check_verify",
    "check_way",
    "check_writer",
    "format_is_unclear",
]

# How often a reading may read each byte: in the chain, in a search over a bad place, to see whether that
# is blank, the place once more, seals and headers.
READS_MAX = 8
READ_SPARE = 64 << 10  # a few slab headers, whatever the size


class Mismatch(AssertionError):
    """The result is not the expected one."""


def check_all(known: Known, files: Files, disk: Disk, rng: random.Random) -> Expected | None:
    """Makes all checks. Returns what was expected; None if no slab is left, or none shows the format."""
    if not any(base_of(name) is not None for name in files):
        return None
    path = disk.put(files)
    expected = expect(known, files)
    if format_is_unclear(known, files, expected):
        _check_nothing_invented(known, path)
        return None
    for way in WAYS:
        check_way(way, path, files, expected)
    check_verify(path, files, expected)
    check_ranges(known, path, files, expected, rng)
    check_writer(known, files, disk, expected)
    return expected


def format_is_unclear(known: Known, files: Files, expected: Expected) -> bool:
    """Whether a log of format 2 may be taken for format 1: no header is intact, and the first slab is too
    short to have had one."""
    first = min(name for name in files if base_of(name) is not None)
    is_2 = any(slab.format == 2 for slab in known.slabs)
    return is_2 and expected.headers == 0 and len(files[first]) < DATA_BEGIN


def _check_nothing_invented(known: Known, path: str) -> None:
    for way, read in WAYS.items():
        refusals = (aolog.NewerFormat, aolog.IdentityUnclear)
        with contextlib.suppress(*refusals), aolog.Reader(path) as reader:
            for record in read(reader):
                if record.value != known.records[record.address].value:
                    raise Mismatch(f"{way}: {record} was never appended")


def check_way(way: str, path: str, files: Files, expected: Expected) -> None:
    """Checks one way of reading from the beginning: records, gaps, and the bytes read."""
    storage = CountingStorage()
    got: Seen | None = None
    with _refused(expected, way), aolog.Reader(path, storage=storage) as reader:
        got = Seen(WAYS[way](reader), reader.gaps)
    if got is None:
        return
    _compare(way, got, expected.records, expected.gaps)
    size = sum(map(len, files.values()))
    if storage.bytes_read > READS_MAX * size + READ_SPARE:
        raise Mismatch(f"{way}: {storage.bytes_read} bytes were read of {size}")


def check_verify(path: str, files: Files, expected: Expected) -> None:
    """`verify` reports the same gaps, records and end."""
    with _refused(expected, "verify"):
        report = aolog.verify(path)
        records = [len(expected.records), report.records]
        if report.gaps != expected.gaps or records[0] != records[1]:
            raise Mismatch(f"verify: {_gaps(expected.gaps, report.gaps)}; records {records}")
        if (report.end, report.tail_bytes) != (expected.end, expected.tail_bytes):
            raise Mismatch(f"verify: end and tail {report} are not those of {expected[2:]}")
        if report.ok != (not report.gaps and not report.problems):
            raise Mismatch(f"verify: ok is wrong: {report}")
        if _headers_damaged(expected.log, files) and report.ok:
            raise Mismatch("verify: a damaged header copy counts as ok")


def _headers_damaged(known: Known, files: Files) -> bool:
    """Whether a header copy is damaged. Slabs that a repair emptied do not count: they are a gap."""
    headers = {slab.base: slab.data[:HEADER_LEN] for slab in known.slabs if slab.format == 2}
    return any(
        files[name][at : at + HEADER_LEN] != headers[base]
        for name in files
        if (base := base_of(name)) in headers and not _is_emptied(files[name][:DATA_BEGIN])
        for at in HEADER_AT
    )


def _is_emptied(prelude: bytes) -> bool:
    return prelude == SLAB_MAGIC[: len(prelude)].ljust(len(prelude), b"\0")


def check_ranges(
    known: Known, path: str, files: Files, expected: Expected, rng: random.Random
) -> None:
    """Ranges that are cut anywhere have the records and gaps of the whole log; a seek by ordinal finds
    its record."""
    bases = sorted(base for name in files if (base := base_of(name)) is not None)
    if expected.newer or expected.unclear or expected.end <= bases[0]:
        return
    places = [record.address for record in expected.records]
    places += [place for gap in expected.gaps for place in (gap.begin, (gap.begin + gap.end) // 2)]
    places += [rng.randrange(bases[0], expected.end + 1) for _ in range(2)]
    places = [place for place in places if bases[0] <= place <= expected.end]
    points = sorted({bases[0], *rng.sample(places, min(3, len(places)))})
    ranges = read_split(path, points)
    together = [record for _, seen in ranges for record in seen.records]
    if together != expected.records:
        raise Mismatch(f"in ranges from {points}: {_records(expected.records, together)}")
    for begin, seen in ranges:
        _check_gaps_from(begin, seen, expected.gaps, last=begin == points[-1])
    if known.slabs[0].format == 2 and expected.records:
        _check_ordinal(expected.log, path, rng.choice(expected.records))


def _check_gaps_from(begin: int, seen: Seen, gaps: Sequence[Gap], *, last: bool) -> None:
    """A range has the gaps from `begin` on. A gap around `begin` may begin there, or at its own begin."""
    wanted = [gap for gap in gaps if gap.end > begin or gap.begin >= begin]
    got = list(seen.gaps)
    while (
        got
        and got[0].begin < begin
        and got[0].end <= begin
        and any(got[0].begin >= gap.begin and got[0][1:3] == gap[1:3] for gap in gaps)
    ):
        got = got[1:]  # a range that begins between two slabs also reports the hole before it
    if wanted and wanted[0].begin < begin:
        whole, *wanted = wanted
        part, *got = got or [Gap(0, 0, "torn", None)]
        counted = (
            whole.records_lost is None
            or part.records_lost == whole.records_lost
            or (
                part.begin > whole.begin
                and part.records_lost is not None
                and 0 <= part.records_lost < whole.records_lost
            )
        )
        if (
            not whole.begin <= part.begin <= begin
            or (part.end, part.reason) != (whole.end, whole.reason)
            or not counted
        ):
            raise Mismatch(f"from {begin}, in the gap {whole}: reported as {part}")
    if got != wanted[: len(got)] or (last and len(got) != len(wanted)):
        raise Mismatch(f"from {begin}: {_gaps(wanted, got)}")


def _check_ordinal(known: Known, path: str, record: Record) -> None:
    ordinal = next(
        slab.base_ordinal + frame.ordinal + record.address - slab.base - frame.begin
        for slab in known.slabs
        for frame in slab.frames
        if frame.kind == RECORDS
        and 0 <= record.address - slab.base - frame.begin < frame.records
        and known.of(slab, frame)[record.address - slab.base - frame.begin] == record
    )
    with aolog.Reader(path) as reader:
        reader.seek(ordinal=ordinal)
        got = reader.read()
    if got != record:
        raise Mismatch(f"record {ordinal} is {record}, and not {got}")


def check_writer(known: Known, files: Files, disk: Disk, expected: Expected) -> None:
    """A writer cuts only bytes after the last intact frame, saves them aside, and appends; no intact
    record is lost. A second writer finds nothing to recover."""
    if expected.newer:
        return
    format_1 = known.slabs[0].format == 1
    try:
        with _writer(disk.path, format_1=format_1) as writer:
            opening = writer.opening
            address = writer.append(b"behind", timestamp=None if format_1 else 7)
    except aolog.AologError as error:
        if format_1 or (expected.headers and not expected.unclear):
            raise
        if disk.take() != files:
            raise Mismatch(f"a refused opening ({error.code}) changed the log") from error
        return
    if expected.unclear:
        raise Mismatch("a writer opened a log whose identity is unclear")
    after = disk.take()
    stamp = None if format_1 else 7
    new = Record(address, stamp, None, b"behind", (), None)
    last = max(name for name in files if base_of(name) is not None)
    base = base_of(last) or 0
    for name, data in files.items():
        if name != last and not name.endswith(".slab.tmp") and after.get(name) != data:
            raise Mismatch(f"opening ({opening}) changed {name}")
    kept = after[last][: len(files[last])]
    if not format_1 or opening.cut_bytes == 0:
        if not files[last].startswith(kept) or base + len(kept) < min(
            expected.end, base + len(files[last])
        ):
            raise Mismatch(f"opening ({opening}) cut {last} to {len(kept)}, before {expected.end}")
        cut = files[last][len(kept) :].rstrip(b"\0")
        aside = [
            data
            for name, data in after.items()
            if name.startswith("aside/") and files.get(name) != data
        ]
        if cut and aside != [cut]:
            raise Mismatch(f"opening ({opening}): {len(cut)} bytes were cut and not kept aside")
    if format_1:
        _check_format_1_after(disk.path, expected, new)
        return
    made = {name: data for name, data in after.items() if name not in files}
    wanted = expect(know(made, [new], expected.log), after)
    if wanted.records != [*expected.records, new]:
        raise Mismatch(f"opening ({opening}): {_records([*expected.records, new], wanted.records)}")
    for way in ("one by one", "batches"):
        check_way(way, disk.path, after, wanted)
    with _writer(disk.path) as again:
        if again.opening.case != "sealed" or again.opening.cut_bytes:
            raise Mismatch(f"opened again after ({opening}): {again.opening}")
    disk.take()


def _check_format_1_after(path: str, expected: Expected, new: Record) -> None:
    with aolog.Reader(path) as reader:
        got = list(reader)
    if got != [*expected.records, new]:
        raise Mismatch(f"after a writer: {_records([*expected.records, new], got)}")


def _writer(path: str, *, format_1: bool = False) -> aolog.Writer:
    return aolog.Writer(
        path, flush_seconds=None, sync="never", format="queuefka" if format_1 else "aolog"
    )


@contextlib.contextmanager
def _refused(expected: Expected, who: str) -> Iterator[None]:
    """The block raises NewerFormat for a slab of a newer release, IdentityUnclear if the log's identity is
    unclear, and neither otherwise."""
    try:
        yield
    except aolog.NewerFormat:
        if not expected.newer:
            raise
    except aolog.IdentityUnclear:
        if not expected.unclear:
            raise
    else:
        if expected.newer or expected.unclear:
            raise Mismatch(f"{who}: a slab of a newer format, or of another log, was not refused")


def _compare(who: str, got: Seen, records: list[Record], gaps: list[Gap]) -> None:
    if got.records != records:
        raise Mismatch(f"{who}: {_records(records, got.records)}")
    if got.gaps != gaps:
        raise Mismatch(f"{who}: {_gaps(gaps, got.gaps)}")


def _records(wanted: Sequence[Record], got: Sequence[Record]) -> str:
    missing = [record.address for record in wanted if record not in got]
    invented = [record for record in got if record not in wanted]
    counts = f"{len(wanted)} records were to come, {len(got)} came"
    return f"{counts}; missing {missing[:5]}, invented {invented[:3]}"


def _gaps(wanted: Sequence[Gap], got: Sequence[Gap]) -> str:
    missing = [tuple(gap) for gap in wanted if gap not in got]
    invented = [tuple(gap) for gap in got if gap not in wanted]
    return f"gaps missing {missing[:3]}, invented {invented[:3]}"
