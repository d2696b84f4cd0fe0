"""FORMAT.md is normative: its tables, labels, pictures and hex are compared with the code."""

from __future__ import annotations

import importlib
import re
import struct
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple, get_args

import pytest
import xxhash

import aolog
from aolog.format import columns, compression, cursor_copy, frame, slab
from aolog.format.cursor_copy import COPIES, CursorPosition
from aolog.format.slab import Index, Seal, SlabHeader
from aolog.queuefka import format1
from aolog.record import GapReason
from aolog.write.recovery_cases import Case
from tests.aolog.conftest import commit

DOCUMENT = (Path(aolog.__file__).parent / "FORMAT.md").read_text(encoding="utf-8")
SALT = 0x0BADCAFE
BEGIN = slab.DATA_BEGIN

TYPES = {"u8": "B", "u16": "H", "u32": "I", "u64": "Q", "i64": "q"}


# --- reading the document -------------------------------------------------------------------


def section(heading: str) -> str:
    """The text under a heading, up to the next of the same depth or above."""
    depth = len(heading) - len(heading.lstrip("#"))
    _, text = f"\n{DOCUMENT}".split(f"\n{heading}\n")
    return re.split(rf"\n#{{1,{depth}}} ", text, maxsplit=1)[0]


def rows(text: str, head: str) -> list[list[str]]:
    """Rows of the text's table whose first column is headed so."""
    for table in re.findall(r"^\|.*(?:\n\|.*)*", text, re.MULTILINE):
        cells = [
            [cell.strip() for cell in line.strip("|").split("|")] for line in table.split("\n")
        ]
        if cells[0][0] == head:
            return cells[2:]
    raise AssertionError(f"no table headed {head!r}")


class Field(NamedTuple):
    offset: int
    size: int
    type: str
    name: str
    meaning: str

    def unpack(self, structure: bytes) -> int | bytes:
        raw = structure[self.offset : self.offset + self.size]
        return raw if self.type == "bytes" else struct.unpack(f"<{TYPES[self.type]}", raw)[0]


def fields(heading: str) -> dict[str, Field]:
    text = section(heading).split("\n### ")[0]
    listed = [
        Field(int(offset), int(size), type_, name, meaning)
        for offset, size, type_, name, meaning in rows(text, "offset")
    ]
    return {field.name: field for field in listed}


def hex_lines(text: str) -> dict[int, bytes]:
    """Bytes of a fenced listing, by the offset that begins each line."""
    found = re.findall(
        r"^ {0,4}(\d+):?  ?((?:[0-9a-f]{2} )*[0-9a-f]{2})(?=  |$)", text, re.MULTILINE
    )
    return {int(offset): bytes.fromhex(octets) for offset, octets in found}


# --- the example ----------------------------------------------------------------------------


def frame_a() -> bytes:
    parts, _ = frame.encode_frame(
        BEGIN,
        SALT,
        [b"hello"],
        flags=frame.FLAG_DURABLE,
        timestamp_us=1_700_000_000_000_000,
        count=1,
    )
    return b"".join(parts)


def frame_b() -> bytes:
    bits, parts = columns.encode_columns([b"v1", None], keys=[b"k1", None])
    encoded, _ = frame.encode_frame(
        BEGIN + len(frame_a()),
        SALT,
        parts,
        timestamp_us=1_700_000_001_000_000,
        ordinal=1,
        count=2,
        columns=bits,
    )
    return b"".join(encoded)


def example_listing() -> dict[int, bytes]:
    return hex_lines(section("## A worked example"))


def test_the_worked_examples_hex_is_what_the_code_writes():
    listing = example_listing()
    starts = sorted(listing)
    for at, following in pairwise(starts):
        assert at + len(listing[at]) == following, f"a hole in the listing behind {at}"
    assert starts[0] == BEGIN
    assert b"".join(listing[at] for at in starts) == frame_a() + frame_b()


def test_the_worked_examples_annotations_stand_at_the_fields_offsets():
    annotated = {
        int(offset): name
        for offset, name in re.findall(
            r"^(\d+)  (?:[0-9a-f]{2} )+ +(\w+)", section("## A worked example"), re.MULTILINE
        )
    }
    for begin in (BEGIN, BEGIN + len(frame_a())):
        for field in fields("## Frame header").values():
            assert annotated[begin + field.offset] == field.name


def test_the_worked_examples_addresses_are_those_that_a_reader_gives(tmp_path):
    header = HEADER._replace(base=0, base_ordinal=0, salt=SALT, predecessor_base=0, topic=None)
    (tmp_path / slab.slab_name(0)).write_bytes(header.encode_prelude() + frame_a() + frame_b())
    with aolog.Reader(tmp_path) as reader:
        assert [(r.address, r.key, r.value) for r in reader] == [
            (8192, None, b"hello"),
            (8240, b"k1", b"v1"),
            (8241, None, None),
        ]
    assert "addresses are 8240 and 8241; 8242 to 8343 mean the next frame" in DOCUMENT
    assert frame.FRAME_HEADER_LEN + 58 + frame.padding(58) == 8344 - 8240


def test_the_codecs_are_the_documents():
    listed = {name: int(n) for n, name, _ in rows(section("### Compressed body"), "codec")}
    assert listed == compression.CODECS
    rules = section("### Compressed body")
    assert f"raw_len is at most {compression.EXPANSION_MAX} " in rules
    assert f"below {compression.RAW_LEN_MIN} bytes" in rules
    assert compression.RAW_LEN_MAX == 2**30
    assert "1 to 2^30" in fields("### Compressed body")["raw_len"].meaning
    assert "would save less than an eighth" in rules


def test_format_1s_example_is_what_the_code_writes():
    listing = hex_lines(section("## Format 1"))
    assert b"".join(listing.values()) == b"".join(format1.encode_record(b"hello"))
    assert list(listing) == [0, 4, 8]


# --- field tables ---------------------------------------------------------------------------

HEADER = SlabHeader(
    topic_uuid=bytes(range(16)),
    base=0x0101_0101_0101_0108,
    base_ordinal=2,
    salt=3,
    epoch=4,
    created_us=-5,
    slab_bytes=6,
    reach=7,
    predecessor_base=8,
    predecessor_end=9,
    predecessor_cut=10,
    greatest_before_us=-11,
    boot_id=bytes(range(100, 116)),
    inode=12,
    synced=True,
    ordinal_unsure=True,
    topic="größe",
)


def assert_contiguous(table: dict[str, Field], size: int) -> None:
    end = 0
    for field in table.values():
        assert field.offset == end, f"{field.name} begins at {field.offset}, not {end}"
        assert field.type == "bytes" or struct.calcsize(TYPES[field.type]) == field.size
        end += field.size
    assert end == size


def test_the_slab_header_has_its_fields_where_the_document_says():
    table = fields("## Slab header")
    assert_contiguous(table, slab.HEADER_LEN)
    copy = HEADER.encode()
    says = {name: field.unpack(copy) for name, field in table.items()}
    plain = set(HEADER._fields) - {"synced", "ordinal_unsure", "compressed", "topic"}
    assert {name: says[name] for name in plain} == {name: getattr(HEADER, name) for name in plain}
    assert says["magic"] == slab.MAGIC == bytes.fromhex(table["magic"].meaning.strip("`"))
    assert (says["version"], says["header_len"]) == (slab.VERSION_PLAIN, slab.HEADER_LEN)
    assert says["flags"] == slab.FLAG_SYNCED | slab.FLAG_ORDINAL_UNSURE
    assert isinstance(says["topic"], bytes)
    assert says["topic"][: int(says["topic_len"])].decode() == HEADER.topic
    assert says["zeros"] == bytes(table["zeros"].size)
    assert says["hash"] == xxhash.xxh32_intdigest(copy[:508])
    assert table["topic"].size == slab.TOPIC_LEN_MAX


def test_the_frame_header_has_its_fields_where_the_document_says():
    table = fields("## Frame header")
    assert_contiguous(table, frame.FRAME_HEADER_LEN)
    parts, _ = frame.encode_frame(
        4096 * 8,
        SALT,
        [b"body"],
        kind=frame.KIND_RECORDS,
        flags=frame.FLAG_DURABLE,
        timestamp_us=-7,
        ordinal=8,
        count=9,
        columns=10,
    )
    head = bytes(parts[0])
    says = {name: field.unpack(head) for name, field in table.items()}
    assert says == {
        "magic": frame.MAGIC,
        "kind": frame.KIND_RECORDS,
        "flags": frame.FLAG_DURABLE,
        "body_len": 4,
        "body_hash": xxhash.xxh3_64_intdigest(b"body\0\0\0\0"),
        "timestamp_us": -7,
        "ordinal": 8,
        "count": 9,
        "columns": 10,
        "head_hash": xxhash.xxh32_intdigest(head[:36], SALT ^ 4096),
    }
    assert "seed (salt XOR offset / 8) mod 2^32" in table["head_hash"].meaning


def test_the_seal_has_its_fields_where_the_document_says():
    index = Index([8192, 24576], [0, 5], [slab.NO_TIMESTAMP, 77])
    seal = Seal(HEADER, 1, 2, least_us=-3, greatest_us=4, headers_hash=5, index=index)
    parts = slab.encode_seal(seal, 4096, flags=frame.FLAG_DURABLE, timestamp_us=0)
    body = b"".join(parts[1:])
    summary = fields("### Summary")
    assert_contiguous(summary, 48)
    says = {name: field.unpack(body) for name, field in summary.items()}
    assert says == {
        "records": 1, "frames": 2, "least_us": -3, "greatest_us": 4, "headers_hash": 5,
        "entries": 2, "zero": 0,
    }  # fmt: skip  # a table
    assert body[48:560] == HEADER.encode()
    assert body[560:600] == struct.pack("<2Q2q2I", 8192, 24576, slab.NO_TIMESTAMP, 77, 0, 5)
    assert len(body) == 600 + slab.TRAILER_LEN
    trailer = fields("### Trailer")
    assert_contiguous(trailer, slab.TRAILER_LEN)
    says = {name: field.unpack(body[-24:]) for name, field in trailer.items()}
    assert says["magic"] == slab.TRAILER_MAGIC == trailer["magic"].meaning.strip("`").encode()
    assert (says["seal_offset"], says["salt"]) == (4096, HEADER.salt)
    assert says["hash"] == xxhash.xxh32_intdigest(body[-24:-4])


def test_the_cursor_file_has_its_fields_where_the_document_says(tmp_path):
    table = fields("## Cursor file")
    position = CursorPosition(11, 12, bytes(range(16)), 13, protects=True, committed_us=-14)
    copy = cursor_copy.encode_copy(position, 15)
    assert_contiguous(table, len(copy))
    says = {name: field.unpack(copy) for name, field in table.items()}
    assert says == {
        "magic": b"AOCURSOR", "version": 1, "flags": 1, "epoch": 13, "sequence": 15,
        "topic_uuid": bytes(range(16)), "address": 11, "ordinal": 12, "committed_us": -14,
        "hash": xxhash.xxh32_intdigest(copy[:64]),
    }  # fmt: skip  # a table
    assert (
        cursor_copy.encode_copy(position._replace(ordinal=None, protects=False), 0)[10:12]
        == b"\x02\0"
    )
    assert COPIES == (0, 4096)
    with aolog.Writer(tmp_path) as log:
        log.append(b"x")
    commit(tmp_path, 0)
    assert (tmp_path / "cursors" / "c.cursor").stat().st_size == 8192


def test_format_1s_frame_has_its_fields_where_the_document_says():
    table = fields("## Format 1")
    assert_contiguous(table, format1.FRAME_HEADER_LEN)
    head = bytes(format1.encode_record(b"hello")[0])
    says = {name: field.unpack(head) for name, field in table.items()}
    assert says == {"length": 5, "hash": xxhash.xxh32_intdigest(b"hello")}


def test_the_columns_bits_are_the_documents_in_its_order():
    listed = [(name, int(bit, 16)) for bit, name, _ in rows(section("## Body"), "bit")]
    assert {name: getattr(columns, name) for name, _ in listed} == dict(listed)
    assert sum(bit for _, bit in listed) == columns.KNOWN
    body = columns.encode_columns(
        [b"value"],
        timestamps=[0x7473],
        keys=[b"key"],
        topics=["topic"],
        headers=[(("name", b"data"),)],
    )[1]
    joined = b"".join(body)
    order = [joined.index(word) for word in (b"st", b"key", b"topic", b"name", b"data", b"value")]
    assert order == sorted(order)


def test_the_kinds_are_the_documents():
    listed = {int(n): name for n, name, _ in rows(section("## Frame header"), "kind")}
    assert listed == {
        frame.KIND_RECORDS: "records",
        frame.KIND_MARK: "mark",
        frame.KIND_SEAL: "seal",
    }
    assert set(listed) == set(frame.FLAGS_NEVER)


# --- constants, labels, reasons -------------------------------------------------------------

CONSTANTS = rows(section("## Constants"), "name")


@pytest.mark.parametrize(("name", "value"), [(c[0].strip("`"), c[1]) for c in CONSTANTS])
def test_a_constant_of_the_document_is_the_codes(name, value):
    module, attribute = name.split(".")
    room = "queuefka" if module == "format1" else "format"
    assert getattr(importlib.import_module(f"aolog.{room}.{module}"), attribute) == int(value)


def test_the_recovery_tables_labels_are_the_codes():
    listed = [label for label, *_ in rows(section("## Recovery"), "case")]
    assert listed == [case.value for case in Case]


def test_the_documents_gap_reasons_are_the_codes_in_their_order():
    listed = [reason.strip("`") for reason, _ in rows(section("## Reading"), "reason")]
    assert listed[:3] == ["torn", "corrupt", "torn_or_corrupt"]
    assert sorted(listed) == sorted(get_args(GapReason))
    from aolog.read.gaps import MILD_TO_GRAVE

    order = ", ".join(f"`{reason}`" for reason in MILD_TO_GRAVE)
    assert f"in the order {order}." in DOCUMENT
