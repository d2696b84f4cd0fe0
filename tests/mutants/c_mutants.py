"""Mutants of the C code: a small change of its text, compiled. Tests of the compiled half must find them."""

from __future__ import annotations

import importlib.util
import shutil
import sys
from pathlib import Path
from typing import NamedTuple

from tests.compiling import build
from tests.mutants.mutant import ROOT

__all__ = ["C_MUTANTS", "UNCHANGED", "CMutant", "changed_source", "load"]

NATIVE = "aolog/format/native"
MODULE = "aolog.format.native._speed"


class CMutant(NamedTuple):
    """A changed text in the C files of aolog/format/native."""

    name: str
    clause: str  # what breaks: frames, limits, columns, reading, flushing, payloads of format 1, walking
    before: str  # occurs once in these files together, so code may move between them
    after: str  # what replaces it
    test: str  # which must fail, as of `Mutant`


UNCHANGED = CMutant("unchanged", "", "", "", "")
"""The code as it is: all tests must pass with it."""


def changed_source(one: CMutant) -> tuple[Path, str]:
    """The file and its text with the change. Raises LookupError unless `before` occurs once."""
    texts = {
        path: path.read_text(encoding="utf-8") for path in sorted((ROOT / NATIVE).glob("*.[ch]"))
    }
    places = [path for path, text in texts.items() for _ in range(text.count(one.before))]
    if len(places) != 1:
        raise LookupError(f"{one.name}: {one.before!r} occurs {len(places)} times in {NATIVE}")
    return places[0], texts[places[0]].replace(one.before, one.after)


def load(one: CMutant, work: Path) -> None:
    """Compiles the mutant below `work`, and loads it in place of the compiled half, which no module may have
    imported yet."""
    assert MODULE not in sys.modules
    tree = work / f"{one.name}.c"
    native = tree / NATIVE
    shutil.copytree(
        ROOT / NATIVE, native, ignore=shutil.ignore_patterns("*.so", "*.py", "__pycache__")
    )
    if one is not UNCHANGED:
        path, text = changed_source(one)
        (native / path.name).write_text(text, encoding="utf-8")
    spec = importlib.util.spec_from_file_location(
        MODULE, build(MODULE, into=tree, flags=["-O1"], tree=tree)
    )
    assert spec is not None
    assert spec.loader is not None
    sys.modules[MODULE] = module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)


HALVES = "inlet::test_both_halves_take_the_same_records_and_make_the_same_frames"
GIVEN = "inlet::test_frames_of_given_bodies_are_the_same"
BODY = "inlet::test_a_body_of_columns_is_that_of_its_records"
BOUNDS = "inlet::test_a_record_joins_until_a_bound_and_goes_to_the_writer_from_there_on"
EACH = "inlet::test_a_frame_a_record_is_made_without_the_writer_until_something_is_due"
TURNS = "inlet::test_a_flush_is_the_writer_s_if_another_call_is_under_way_or_something_is_due"
PAYLOADS = "growing_slab::test_both_halves_make_the_same_frames_of_the_same_values"
FILES = "growing_slab::test_an_append_leaves_the_same_files_with_and_without_the_inlet"
ROWS = "speed::test_rows_are_the_same"
WALKS = "stretch::test_both_halves_survey_and_gather_the_same"
STOPS = "stretch::test_a_walk_stops_before_a_frame_that_is_not_plain"
DAMAGED = "stretch::test_a_damaged_bit_anywhere_ends_the_walk_before_its_frame"

C_MUTANTS = {one.name: one for one in (
    CMutant("a frame is hashed without its padding", "frames", "XXH3_64bits(body, padded)", "XXH3_64bits(body, length)",
            HALVES),
    CMutant("parts are hashed without their padding", "frames", "XXH3_64bits_update(&state, zeros, aligned(*length) - *length);",
            "(void)zeros;", GIVEN),
    CMutant("a frame after the durable end is called durable", "frames", "self->durable == self->base + self->offset",
            "self->durable >= self->base", GIVEN),
    CMutant("a durable frame is not called so", "frames", "? FLAG_DURABLE : 0", "? 0 : 0", HALVES),
    CMutant("a frame has the ordinal of the next", "frames", "put_le(at + 24, (uint64_t)self->records, 4);",
            "put_le(at + 24, (uint64_t)self->records + count, 4);", HALVES),
    CMutant("a header fits any offset", "frames", "self->salt ^ (uint32_t)(self->offset >> 3)", "self->salt", HALVES),
    CMutant("a frame has its least timestamp", "frames", "make_head(self, length, hash, 0, records->greatest_us",
            "make_head(self, length, hash, 0, records->least_us", HALVES),
    CMutant("a slab's least timestamp is its first", "frames", "if (!self->records || least < self->least_us)",
            "if (!self->records)", GIVEN),
    CMutant("a slab's greatest timestamp is its last", "frames", "if (greatest > self->greatest_us)\n", "", GIVEN),
    CMutant("the index has twice the entries", "frames", "INDEX_SPACING (16 << 10)", "INDEX_SPACING (8 << 10)",
            "inlet::test_the_index_has_an_entry_for_each_16_kib"),
    CMutant("the seal does not cover the headers", "frames", "XXH3_64bits_update(self->headers, head->bytes, FRAME_HEADER);",
            "(void)head;", GIVEN),
    CMutant("the open frame takes a byte too many", "limits", "size >= self->limit - self->size",
            "size > self->limit - self->size", BOUNDS),
    CMutant("the open frame takes a record too many", "limits", "(long long)self->records.count + 1 >= self->most",
            "(long long)self->records.count >= self->most", BOUNDS),
    CMutant("a record's bound counts an offset", "limits", "size - OFFSET > self->record_max", "size > self->record_max",
            BOUNDS),
    CMutant("a full slab takes a frame", "limits", "before >= frames->full_at", "before > frames->full_at", EACH),
    CMutant("frames a record never fill the memory", "limits", "self->limit -= frames->offset - before;", "", EACH),
    CMutant("a cut frame keeps its size", "limits", "self->size = 0; /* only now", "/* only now", HALVES),
    CMutant("a key's offset is not counted", "limits", "record->size += record->key_len + OFFSET;",
            "record->size += record->key_len;", HALVES),
    CMutant("a topic may be longer than a slab's header holds", "limits", "TOPIC_MAX 249", "TOPIC_MAX 250", BODY),
    CMutant("a null alone is an empty value", "columns", "self->count == 1 && !self->values.nulls", "self->count == 1",
            HALVES),
    CMutant("entries before the first null are null", "columns", "(char)((1 << i % 8) - 1)", "0", HALVES),
    CMutant("present entries are marked one too far", "columns", "| 1 << i % 8)", "| 1 << (i + 1) % 8)", HALVES),
    CMutant("a frame does not say that keys are null", "columns", "(self->keys.nulls ? KEY_NULLS : 0)", "0", HALVES),
    CMutant("topics of one length are one topic", "columns", "memcmp(topics->data.at, record->topic, first) != 0",
            "0", HALVES),
    CMutant("the greatest timestamp is the first", "columns", "if (!self->count || stamp > self->greatest_us)", "if (!self->count)",
            HALVES),
    CMutant("a record without a timestamp is of 1970", "columns", "record->stamped ? record->stamp : self->now_us",
            "record->stamped ? record->stamp : 0", HALVES),
    CMutant("columns begin at multiples of four", "columns", "(length + 7) & ~(size_t)7", "(length + 3) & ~(size_t)3",
            BODY),
    CMutant("a reader looks at another entry's null bit", "reading", "piece->bits[i >> 3] >> (i & 7) & 1",
            "piece->bits[i >> 3] >> (i & 3) & 1", ROWS),
    CMutant("an entry may end after the data", "reading", "end > piece->size)", "end > piece->size + 1)",
            "speed::test_compiled_rows_look_before_they_read"),
    CMutant("only the last step of a column must rise", "reading", "falls |= number < before", "falls = number < before",
            "speed::test_rising_is_the_same"),
    CMutant("a sum may exceed 64 bits", "reading", "number < 0 || *sum > INT64_MAX - number", "number < 0",
            "speed::test_totals_are_the_same"),
    CMutant("objects at like addresses are one group", "reading", "seen->object == object ?", "seen->object != NULL ?",
            "speed::test_groups_are_the_same"),
    CMutant("a shorter file is the one that was meant", "reading", "found.stx_size >= size", "1",
            "speed::test_a_name_leads_to_a_file_of_this_inode_device_and_size_alone"),
    CMutant("a flush that is due to the writer is not", "flushing", "frames == NULL || now_ns() >= self->until_ns",
            "frames == NULL", TURNS),
    CMutant("a flush enters another call", "flushing", "    if (held)\n        return 0;\n", "", TURNS),
    CMutant("a flush that failed counts as done", "flushing", "if (written != length)\n            goto done;", "",
            "inlet::test_a_flush_that_fails_is_the_writer_s_and_loses_nothing"),
    CMutant("a flush does not count its records", "flushing", "frames->flushed_records = frames->records;", "",
            "inlet::test_a_flush_writes_what_python_s_frames_would_be"),
    CMutant("a record after a flush has the time of those before", "flushing",
            "records_begin(&self->records, NO_TIMESTAMP);", "records_begin(&self->records, self->records.now_us);",
            "inlet::test_a_record_that_comes_after_a_flush_has_its_own_time"),
    CMutant("a payload's hash has another seed", "payloads", "XXH32(payload, length, 0)", "XXH32(payload, length, 1)",
            PAYLOADS),
    CMutant("a long payload comes before those before it", "payloads", "    if (!payloads_settle(self))\n        return -1;\n    PyObject *header",
            "    PyObject *header", PAYLOADS),
    CMutant("a full slab takes a payload", "payloads", "self->full_at - self->offset > PAYLOAD_HEADER",
            "self->full_at - self->offset >= PAYLOAD_HEADER", FILES),
    CMutant("payloads in memory have no bound", "payloads", "length >= self->limit ||", "", FILES),
    CMutant("a walk takes a header with a wrong hash", "walking", "XXH32(head, HASHED_LEN, seed) != u32_at(head + HASHED_LEN)", "0",
            DAMAGED),
    CMutant("a walk takes a body with a wrong hash", "walking", "XXH3_64bits(frame->body, (size_t)padded) != (uint64_t)i64_at(head + 8)",
            "0", DAMAGED),
    CMutant("a walk takes a payload with a wrong hash", "walking",
            "XXH32(head + PAYLOAD_HEADER, length, 0) != u32_at(head + 4)", "0",
            "stretch::test_both_halves_survey_and_gather_the_same_of_format_1"),
    CMutant("a walk takes compressed frames", "walking", "flags & ~FLAG_DURABLE ||", "", STOPS),
    CMutant("a walk takes offsets that fall", "walking", "return falls ? NULL : offsets;", "return offsets;", STOPS),
    CMutant("a walk takes any text", "walking", "return seen < 0x80;", "return 1;",
            "stretch::test_a_text_that_is_not_ascii_is_left_to_python"),
    CMutant("a walk takes bytes after the last column", "walking", "&& at == frame->size;", ";", WALKS),
    CMutant("a stretch has a hole in its ordinals", "walking",
            "frame->ordinal != stretch->ordinal + (uint64_t)stretch->records", "0",
            "stretch::test_a_hole_in_the_ordinals_begins_another_stretch"),
    CMutant("a stretch copies large frames", "walking", "stretch->is_large || frame->length > SMALL_BYTES ||", "",
            "stretch::test_a_large_frame_is_alone_and_is_not_copied"),
    CMutant("topics are copied without a bound", "walking", "stretch->topics.size + topics <= GATHERED_BYTES", "1",
            "stretch::test_a_topic_that_would_be_copied_too_often_ends_a_stretch"),
    CMutant("records of a stretch have their frame's address", "walking", "i < count; i++, address++)", "i < count; i++)", WALKS),
    CMutant("keys that a frame lacks are empty", "walking",
            "total->has_nulls |= part->offsets == NULL || part->bits != NULL;", "total->has_nulls |= part->bits != NULL;", WALKS),
    CMutant("a survey has the first timestamp as the least", "walking", "least = stamp < least ? stamp : least;",
            "least = i ? least : stamp;", WALKS),
    CMutant("a survey has half the marks", "walking", "offset - survey->marked >= INDEX_SPACING", "offset - survey->marked >= 2 * INDEX_SPACING",
            "stretch::test_a_survey_counts_frames_records_and_times_and_marks_each_16_kib"),
)}  # fmt: skip  # a table
"""By name. CI runs the first of each clause."""
