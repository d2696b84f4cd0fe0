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

# Where the C code is, and the module that it becomes.
HOMES = {
    "aolog/format/native": "aolog.format.native._speed",
    "bridge/kafka": "bridge.kafka._produce",
}


class CMutant(NamedTuple):
    """A changed text in the C files of HOMES."""

    name: str
    clause: str  # what breaks: frames, limits, columns, reading, flushing, syncing, payloads, walking, queueing, messages, failures, arrivals
    before: str  # occurs once in these files together, so code may move between them
    after: str  # what replaces it
    test: str  # which must fail, as of `Mutant`


UNCHANGED = CMutant("unchanged", "", "", "", "")
"""The code as it is: all tests must pass with it."""


def changed_source(one: CMutant) -> tuple[Path, str]:
    """The file and its text with the change. Raises LookupError unless `before` occurs once."""
    files = [path for home in HOMES for path in sorted((ROOT / home).glob("*.[ch]"))]
    texts = {path: path.read_text(encoding="utf-8") for path in files}
    places = [path for path, text in texts.items() for _ in range(text.count(one.before))]
    if len(places) != 1:
        raise LookupError(f"{one.name}: {one.before!r} occurs {len(places)} times")
    return places[0], texts[places[0]].replace(one.before, one.after)


def _uses(home: Path, path: Path) -> bool:
    """Whether the module there has this file, or includes it."""
    texts = (each.read_text(encoding="utf-8") for each in home.glob("*.[ch]"))
    return (home / path.name).exists() or any(f'/{path.name}"' in text for text in texts)


def load(one: CMutant, work: Path) -> None:
    """Compiles the mutant below `work`, and loads it in place of the compiled half, which no module may have
    imported yet."""
    tree = work / f"{one.name}.c"
    for home in HOMES:
        others = shutil.ignore_patterns("*.so", "*.py", "__pycache__")
        shutil.copytree(ROOT / home, tree / home, ignore=others)
    homes = list(HOMES)
    if one is not UNCHANGED:
        path, changed = changed_source(one)
        (tree / path.relative_to(ROOT)).write_text(changed, encoding="utf-8")
        homes = [home for home in HOMES if _uses(tree / home, path)]
    for home in homes:
        name = HOMES[home]
        assert name not in sys.modules
        built = build(name, into=tree, flags=["-O1"], tree=tree)
        spec = importlib.util.spec_from_file_location(name, built)
        assert spec is not None
        assert spec.loader is not None
        sys.modules[name] = module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)


KEPT = "door::test_plain_records_join_and_are_kept_and_others_are_passed_on_unchanged"
HALVES = "inlet::test_both_halves_take_the_same_records_and_make_the_same_frames"
GIVEN = "inlet::test_frames_of_given_bodies_are_the_same"
BODY = "inlet::test_a_body_of_columns_is_that_of_its_records"
BOUNDS = "inlet::test_a_record_joins_until_a_bound_and_goes_to_the_writer_from_there_on"
EACH = "inlet::test_a_frame_a_record_is_made_without_the_writer_until_something_is_due"
TURNS = "inlet_flush::test_a_flush_is_the_writer_s_if_another_call_is_under_way_or_something_is_due"
WRITTEN = "inlet_flush::test_a_flush_and_a_sync_write_what_python_s_frames_would_be"
ALONE = "inlet_flush::test_a_sync_is_the_writer_s_while_another_call_is_under_way"
REFUSED = "inlet_flush::test_a_sync_that_fails_is_the_writer_s_and_never_tried_again"
PAYLOADS = "growing_slab::test_both_halves_make_the_same_frames_of_the_same_values"
FILES = "growing_slab::test_an_append_leaves_the_same_files_with_and_without_the_inlet"
ROWS = "speed::test_rows_are_the_same"
WALKS = "stretch::test_both_halves_survey_and_gather_the_same"
STOPS = "stretch::test_a_walk_stops_before_a_frame_that_is_not_plain"
ARRIVE = "producing::test_rows_arrive_as_they_are"
NOTED = "producing::test_a_message_that_the_broker_refuses_is_noted_with_its_content"
ONE_PLACE = "arrivals::test_a_run_is_of_one_partition_even_where_offsets_rise"
MADE = "messages::test_columns_are_those_of_the_records"
UNFIT = "messages::test_columns_that_do_not_fit_are_refused"
SAME = "arrivals::test_columns_are_what_the_client_s_messages_say"
DROPPED = "producing::test_messages_that_a_producer_drops_are_noted_whatever_queued_them"
NOT_PLAIN = "producing::test_what_is_not_plain_is_left_to_the_clients_call"
DAMAGED = "stretch::test_a_damaged_bit_anywhere_ends_the_walk_before_its_frame"

# By clause: name, before, after, test.
_ROWS = {
    "frames": (
        ("a frame is hashed without its padding", "uint64_t hash = body_hash(body, padded)", "uint64_t hash = body_hash(body, length)", HALVES),
        ("parts are hashed without their padding",
         "XXH3_64bits_update(&state, zeros, aligned(*length) - *length);",
         "(void)zeros;", GIVEN),
        ("a frame after the durable end is called durable",
         "self->slab.durable == self->slab.base + self->slab.offset",
         "self->slab.durable >= self->slab.base", GIVEN),
        ("a durable frame is not called so", "? FLAG_DURABLE : 0", "? 0 : 0", HALVES),
        ("a frame has the ordinal of the next",
         "put_le(at + 24, (uint64_t)self->slab.records, 4);",
         "put_le(at + 24, (uint64_t)self->slab.records + count, 4);", HALVES),
        ("a header fits any offset", "self->salt ^ (uint32_t)(self->slab.offset >> 3)", "self->salt", HALVES),
        ("a frame has its least timestamp",
         "make_head(self, length, hash, 0, records->greatest_us",
         "make_head(self, length, hash, 0, records->least_us", HALVES),
        ("a slab's least timestamp is its first",
         "if (!self->slab.records || least < self->least_us)",
         "if (!self->slab.records)", GIVEN),
        ("a slab's greatest timestamp is its last", "if (greatest > self->greatest_us)\n", "", GIVEN),
        ("the index has twice the entries",
         "INDEX_SPACING (16 << 10)",
         "INDEX_SPACING (8 << 10)", "inlet::test_the_index_has_an_entry_for_each_16_kib"),
        ("the seal does not cover the headers",
         "XXH3_64bits_update(self->headers, head->bytes, FRAME_HEADER);",
         "(void)head;", GIVEN),
    ),
    "limits": (
        ("a record joins through a shut door", "if (self->is_open && self->room", "if (self->room",
         "door::test_a_shut_door_passes_everything_on"),
        ("what is kept has no bound", "self->is_open && self->room > 0", "self->is_open",
         "door::test_records_are_kept_up_to_a_bound"),
        ("a record that joined is not kept", "PyList_Append(self->kept, record) < 0", "0", KEPT),
        ("a record joins without its headers",
         "(given[3] == NULL || (PyTuple_CheckExact(given[3]) && Py_SIZE(given[3]) == 0))",
         "1", KEPT),
        ("nobody is woken", "return self->waits ? PyObject_CallNoArgs(self->wake) : ", "return ",
         "door::test_a_door_wakes_after_a_record_that_joined_if_that_is_wanted"),
        ("the open frame takes a byte too many", "size >= self->limit - self->size", "size > self->limit - self->size", BOUNDS),
        ("the open frame takes a record too many",
         "(long long)self->records.count + 1 >= self->most",
         "(long long)self->records.count >= self->most", BOUNDS),
        ("a record's bound counts an offset", "size - OFFSET > self->record_max", "size > self->record_max", BOUNDS),
        ("a full slab takes a frame", "before >= self->each->full_at", "before > self->each->full_at", EACH),
        ("frames a record never fill the memory", "self->limit -= self->each->offset - before;", "", EACH),
        ("a cut frame keeps its size", "self->size = 0; /* only now", "/* only now", HALVES),
        ("a key's offset is not counted",
         "record->size += record->key_len + OFFSET;",
         "record->size += record->key_len;", HALVES),
        ("a topic may be longer than a slab's header holds", "TOPIC_MAX 249", "TOPIC_MAX 250", BODY),
    ),
    "columns": (
        ("a null alone is an empty value", "self->count == 1 && !self->values.nulls", "self->count == 1", HALVES),
        ("entries before the first null are null", "(char)((1 << i % 8) - 1)", "0", HALVES),
        ("present entries are marked one too far", "| 1 << i % 8)", "| 1 << (i + 1) % 8)", HALVES),
        ("a frame does not say that keys are null", "(self->keys.nulls ? KEY_NULLS : 0)", "0", HALVES),
        ("topics of one length are one topic", "memcmp(topics->data.at, record->topic, first) != 0", "0", HALVES),
        ("the greatest timestamp is the first", "if (!self->count || stamp > self->greatest_us)", "if (!self->count)", HALVES),
        ("a record without a timestamp is of 1970",
         "record->stamped ? record->stamp : self->now_us",
         "record->stamped ? record->stamp : 0", HALVES),
        ("columns begin at multiples of four", "(length + 7) & ~(size_t)7", "(length + 3) & ~(size_t)3", BODY),
    ),
    "reading": (
        ("a reader looks at another entry's null bit",
         "entries->bits[i >> 3] >> (i & 7) & 1",
         "entries->bits[i >> 3] >> (i & 3) & 1", ROWS),
        ("an entry may end after the data",
         "end > entries->size)",
         "end > entries->size + 1)", "speed::test_compiled_rows_look_before_they_read"),
        ("only the last step of a column must rise",
         "falls |= number < before",
         "falls = number < before", "speed::test_rising_is_the_same"),
        ("a sum may exceed 64 bits", "number < 0 || *sum > INT64_MAX - number", "number < 0", "speed::test_totals_are_the_same"),
        ("objects at like addresses are one group",
         "seen->object == object ?",
         "seen->object != NULL ?", "speed::test_groups_are_the_same"),
        ("a shorter file is the one that was meant",
         "found.stx_size >= size",
         "1", "speed::test_a_name_leads_to_a_file_of_this_inode_device_and_size_alone"),
    ),
    "flushing": (
        ("a flush that is due to the writer is not", "frames == NULL || now_ns() >= self->until_ns", "frames == NULL", TURNS),
        ("a flush enters another call", "    if (self->owner || self->waiting)\n        return 0;\n", "", TURNS),
        ("a flush that failed counts as done",
         "if (written != (Py_ssize_t)length)\n        return 0;",
         "", "inlet_flush::test_a_write_that_fails_is_the_writer_s_and_loses_nothing"),
        ("a flush does not count its records", "self->flushed_records = self->records;", "", WRITTEN),
        ("a record after a flush has the time of those before",
         "records_begin(&self->records, NO_TIMESTAMP);",
         "records_begin(&self->records, self->records.now_us);", "inlet_flush::test_a_record_that_comes_after_a_flush_has_its_own_time"),
    ),
    "payloads": (
        ("a payload's hash has another seed", "XXH32(payload, length, 0)", "XXH32(payload, length, 1)", PAYLOADS),
        ("a long payload comes before those before it",
         "    if (!growing_settle(self))\n        return -1;\n    PyObject *header",
         "    PyObject *header", PAYLOADS),
        ("a full slab takes a payload",
         "self->full_at - self->offset > PAYLOAD_HEADER",
         "self->full_at - self->offset >= PAYLOAD_HEADER", FILES),
        ("payloads in memory have no bound", "length >= self->limit ||", "", FILES),
    ),
    "syncing": (
        ("a sync does not look for its file",
         "if (name_leads_to(file->directory",
         "if (1 || name_leads_to(file->directory", "inlet_flush::test_a_sync_is_the_writer_s_if_its_file_is_not_the_one_of_its_name"),
        ("a sync that failed counts", "        frames->sync_errno = failed;\n        return 0;\n", "", REFUSED),
        ("a sync that failed is tried again", "|| frames->sync_errno ||", "||", REFUSED),
        ("a sync past the zeros is compiled",
         "slab->written <= frames->zeros_end",
         "1", "inlet_flush::test_a_sync_is_the_writer_s_past_the_zeros_and_when_something_is_due"),
        ("a sync does not wait for the device",
         "takes_device = lock_try(self->device);",
         "takes_device = lock_try(self->device) || 1;", ALONE),
        ("a sync overtakes those in line", "PySet_Size(self->syncing) || ", "", ALONE),
        ("a sync covers what comes meanwhile",
         "long long end = slab->base + slab->written, records",
         "long long end = slab->base + slab->written + 1, records", WRITTEN),
        ("a sync does not count its records", "    slab->synced_records = records;\n", "    (void)records;\n", WRITTEN),
        ("a released lock wakes no thread",
         "if (self->waiting)\n        PyThread_release_lock",
         "if (0)\n        PyThread_release_lock",
         "concurrency::test_a_thread_that_flushes_all_the_time_leaves_the_others_their_turns"),
    ),
    "walking": (
        ("a walk takes a header with a wrong hash", "XXH32(head, HASHED_LEN, seed) != u32_at(head + HASHED_LEN)", "0", DAMAGED),
        ("a walk takes a body with a wrong hash",
         "body_hash(frame->body, (size_t)padded) != (uint64_t)i64_at(head + 8)",
         "0", DAMAGED),
        ("a walk takes a payload with a wrong hash",
         "XXH32(head + PAYLOAD_HEADER, length, 0) != u32_at(head + 4)",
         "0", "stretch::test_both_halves_survey_and_gather_the_same_of_format_1"),
        ("a walk takes compressed frames", "flags & ~FLAG_DURABLE ||", "", STOPS),
        ("a walk takes offsets that fall", "return falls ? NULL : offsets;", "return offsets;", STOPS),
        ("a walk takes any text", "return seen < 0x80;", "return 1;", "stretch::test_a_text_that_is_not_ascii_is_left_to_python"),
        ("a walk takes bytes after the last column", "&& at == frame->size;", ";", WALKS),
        ("a stretch has a hole in its ordinals",
         "frame->ordinal != stretch->ordinal + (uint64_t)stretch->records",
         "0", "stretch::test_a_hole_in_the_ordinals_begins_another_stretch"),
        ("a stretch copies large frames",
         "!(are_small || are_bare) ||",
         "", "stretch::test_a_large_frame_with_more_than_values_is_alone_and_is_not_copied"),
        ("values are moved in a chunk that others have seen",
         "in_chunk && stretch->is_bare", "stretch->is_bare",
         "stretch::test_frames_with_nothing_but_values_join_unless_they_are_long"),
        ("topics are copied without a bound",
         "stretch->topics.size + topics <= GATHERED_BYTES",
         "1", "stretch::test_a_topic_that_would_be_copied_too_often_ends_a_stretch"),
        ("records of a stretch have their frame's address", "i < count; i++, address++)", "i < count; i++)", WALKS),
        ("keys that a frame lacks are empty",
         "total->has_nulls |= part->offsets == NULL || part->bits != NULL;",
         "total->has_nulls |= part->bits != NULL;", WALKS),
        ("a survey has the first timestamp as the least",
         "least = stamp < least ? stamp : least;",
         "least = i ? least : stamp;", WALKS),
        ("a survey has half the marks",
         "offset - survey->indexed >= INDEX_SPACING",
         "offset - survey->indexed >= 2 * INDEX_SPACING", "stretch::test_a_survey_counts_frames_records_and_times_and_marks_each_16_kib"),
    ),
    "queueing": (
        ("rows have the stamp of the first", "rows->stamps.buf + i * rows->size", "rows->stamps.buf", ARRIVE),
        ("rows go to the first partition", "PARTITION, (int)partition,", "PARTITION, 0,", ARRIVE),
        ("rows have the time of the first", "number_at(&rows->times, i)", "number_at(&rows->times, 0)", ARRIVE),
        ("a row with a callback is queued without it",
         "if (callback != Py_None || !PyLong_CheckExact(number))",
         "if (!PyLong_CheckExact(number))", "producing::test_callbacks_are_called_and_rows_keep_their_order"),
        ("a topic's name ends at its first NUL",
         "text == NULL || strlen(text) != (size_t)size ? NULL : text",
         "text", "producing::test_an_invalid_row_raises_the_clients_own_error"),
        ("all rows go to the topic that was used last",
         "if (queue->topics[i].name == name)",
         "if (1)", "producing::test_many_topics_in_turns_and_names_of_none_between_them"),
        ("a partition is cut to 32 bits",
         "topic == NULL || partition != (int)partition ||",
         "topic == NULL ||", "producing::test_an_invalid_row_raises_the_clients_own_error"),
        ("a message may be before 1970", "topic != NULL && time_ms >= 0 &&", "topic != NULL &&", NOT_PLAIN),
    ),
    "messages": (
        ("a column has the nulls of the one before", "*entries = (Entries){0};", "", ARRIVE),
        ("a null is an empty value", "entries->bits != NULL && !(", "0 && !(", ARRIVE),
        ("a time before 1970 is kept", "us < 2000 ? 1 : us / 1000", "us / 1000", MADE),
        ("stamps have the address of their frame", "stamp + sizeof made->head, &address", "stamp + sizeof made->head, made->addresses", MADE),
        ("sizes leave out the keys", "(int64_t)(value_size + key_size)", "(int64_t)value_size", MADE),
        ("fewer records are made than were asked for", "added && made.at == count", "added", UNFIT),
    ),
    "failures": (
        ("a failure is not noted", "*failures->last = failure;", "", NOTED),
        ("what was delivered counts as failed", "if (message->error == OK)", "if (0)", NOTED),
        ("a failure is noted with its key as its value",
         'Py_BuildValue("OOOi", topic, value, key',
         'Py_BuildValue("OOOi", topic, key, value', NOTED),
        ("a value that is None is empty", "bytes == NULL ? -1 : (Py_ssize_t)size", "(Py_ssize_t)size", DROPPED),
        ("of several failures one is noted", "failures->last = &failure->next;", "", DROPPED),
    ),
    "arrivals": (
        ("a run has messages of two topics",
         "message->topic != first->topic || message", "message", ONE_PLACE),
        ("a run has messages of two partitions",
         "message->topic != first->topic || message->partition != first->partition",
         "message->topic != first->topic", ONE_PLACE),
        ("a run has a message twice", "message->offset <= run[size - 1].message->offset ||", "",
         "arrivals::test_offsets_rise_within_a_run_also_if_the_client_fetches_again"),
        ("a run has any number of bytes", "bytes >= most_bytes ||", "",
         "arrivals::test_a_run_of_large_messages_has_fewer"),
        ("messages have the offset of the first of their run", "= run[i].message->offset;", "= run->message->offset;", SAME),
        ("keys are not taken", "column_of(run, count, 1)", "Py_NewRef(Py_None)", SAME),
        ("a message without a value has an empty one", "if (entry != NULL && bits != NULL)", "if (bits != NULL)", SAME),
        ("a header without a value is empty", "bytes_or_none(value, size)",
         'PyBytes_FromStringAndSize(value == NULL ? "" : value, (Py_ssize_t)size)', SAME),
        ("the first message has no headers", "first.headers == NULL ? NULL : headers_copy(first.headers)", "NULL", SAME),
        ("the first message is not among the columns", "Py_ssize_t i = -1; ok && i < arrivals->count",
         "Py_ssize_t i = 0; ok && i < arrivals->count", SAME),
        ("a time that cannot be kept is kept", "is_timed && time_ms >= -TIME_MS_MAX && time_ms <= TIME_MS_MAX",
         "is_timed && time_ms >= -TIME_MS_MAX", "arrivals::test_a_time_that_cannot_be_kept_is_left_out"),
        ("errors among messages are passed over", "ok = add_error(errors, &arrival);", "",
         "arrivals::test_the_end_and_an_offset_that_is_gone_are_reported"),
        ("a number loses a digit", "while (rest /= 10);", "while ((rest /= 10) > 9);", "arrivals::test_a_column_is_numbered"),
    ),
}  # fmt: skip  # a table

C_MUTANTS = {
    row[0]: CMutant(row[0], clause, *row[1:]) for clause, rows in _ROWS.items() for row in rows
}
"""By name. CI runs the first of each clause."""
