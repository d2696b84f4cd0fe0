/* Records on their way into a frame, as the columns that the frame will store (aolog/format/columns.py).
 *
 * Only for _inlet.c. It knows types and sizes, and no limit: what is not plain (bytes, int, str, tuples, of
 * exactly these types) is refused, and Python decides. `record_measure` looks at a record and changes
 * nothing; `records_add` takes a measured one, whole or not at all.
 */
#ifndef AOLOG_RECORDS_H
#define AOLOG_RECORDS_H

#define PY_SSIZE_T_CLEAN
#ifndef Py_LIMITED_API
#define Py_LIMITED_API 0x030B0000
#endif
#include <Python.h>

#include <stdint.h>
#include <string.h>

enum { /* bits of a frame's columns */
    VALUES = 0x001,
    VALUE_NULLS = 0x002,
    STAMPS = 0x004,
    KEYS = 0x008,
    KEY_NULLS = 0x010,
    TOPIC = 0x020,
    TOPICS = 0x040,
    TOPIC_NULLS = 0x080,
    HEADERS = 0x100,
    HEADER_NULLS = 0x200
};
#define OFFSET 4      /* bytes of an entry's offset */
#define TOPIC_MAX 249 /* bytes of a topic: slab.TOPIC_LEN_MAX */

/* --- bytes that grow ------------------------------------------------------------------------ */

typedef struct {
    char *at;
    size_t len, cap;
} Bytes;

#define KEPT_BYTES (1u << 20) /* capacity that is kept for the next frame */

static int
bytes_grow(Bytes *self, size_t more)
{
    size_t cap = self->cap < 512 ? 512 : self->cap;
    while (cap - self->len < more) {
        if (cap > (size_t)PY_SSIZE_T_MAX / 2)
            return 0;
        cap *= 2;
    }
    char *moved = PyMem_Realloc(self->at, cap);
    if (moved == NULL)
        return 0;
    self->at = moved;
    self->cap = cap;
    return 1;
}

/* Room for so many bytes more; false if there is no memory. */
static inline int
bytes_reserve(Bytes *self, size_t more)
{
    return more <= self->cap - self->len || bytes_grow(self, more);
}

/* After `bytes_reserve`. */
static inline void
bytes_put(Bytes *self, const void *from, size_t length)
{
    if (length) /* otherwise `from` may be NULL */
        memcpy(self->at + self->len, from, length);
    self->len += length;
}

static inline void
bytes_put_u32(Bytes *self, uint32_t number)
{
    bytes_put(self, &number, sizeof number);
}

static void
bytes_empty(Bytes *self)
{
    self->len = 0;
    if (self->cap > KEPT_BYTES) {
        PyMem_Free(self->at);
        self->at = NULL;
        self->cap = 0;
    }
}

static void
bytes_free(Bytes *self)
{
    PyMem_Free(self->at);
    memset(self, 0, sizeof *self);
}

/* --- a binary column ------------------------------------------------------------------------ */

typedef struct {
    size_t nulls;
    Bytes ends;    /* u32 each: where an entry ends in `data` */
    Bytes data;
    Bytes present; /* a bit an entry, least first; empty as long as no entry is null */
} Column;

static inline size_t
column_count(const Column *self)
{
    return self->ends.len / sizeof(uint32_t);
}

/* Room for entries of `length` bytes together; of no bitmap, unless `nulls`. */
static inline int
column_reserve(Column *self, size_t entries, size_t length, int nulls)
{
    if (!bytes_reserve(&self->ends, entries * sizeof(uint32_t)) || !bytes_reserve(&self->data, length))
        return 0;
    if (!nulls && self->present.len == 0)
        return 1;
    size_t bits = (column_count(self) + entries + 7) / 8;
    return bits <= self->present.len || bytes_reserve(&self->present, bits - self->present.len);
}

/* After `column_reserve`. entry: NULL for a null. */
static inline void
column_add(Column *self, const char *entry, size_t length)
{
    size_t i = column_count(self);
    if (entry == NULL || self->present.len != 0) {
        if (self->nulls == 0 && entry == NULL) { /* the first null: all before it are present */
            memset(self->present.at, 0xFF, i / 8);
            self->present.len = i / 8;
            if (i % 8)
                self->present.at[self->present.len++] = (char)((1 << i % 8) - 1);
        }
        if (i % 8 == 0)
            self->present.at[self->present.len++] = 0;
        if (entry == NULL)
            self->nulls++;
        else
            self->present.at[i / 8] = (char)(self->present.at[i / 8] | 1 << i % 8);
    }
    if (entry != NULL)
        bytes_put(&self->data, entry, length);
    bytes_put_u32(&self->ends, (uint32_t)self->data.len);
}

static void
column_empty(Column *self)
{
    self->nulls = 0;
    bytes_empty(&self->ends);
    bytes_empty(&self->data);
    bytes_empty(&self->present);
}

static void
column_free(Column *self)
{
    bytes_free(&self->ends);
    bytes_free(&self->data);
    bytes_free(&self->present);
}

/* --- one record ----------------------------------------------------------------------------- */

/* What a record has, borrowed. A null is NULL; stamped: whether it has a timestamp. size: what it takes in a
 * frame, as aolog/write/validate.py counts. */
typedef struct {
    const char *value, *key, *topic;
    size_t value_len, key_len, topic_len;
    PyObject *headers; /* a tuple or a list of pairs; NULL for none */
    size_t pairs, names_len, contents_len;
    int header_nulls, stamped;
    int64_t stamp;
    size_t size;
} Record;

/* Bytes or None; false for any other type. */
static inline int
as_bytes(PyObject *object, const char **bytes, size_t *length)
{
    if (PyBytes_CheckExact(object)) {
        *bytes = PyBytes_AsString(object);
        *length = (size_t)Py_SIZE(object);
        return 1;
    }
    *bytes = NULL;
    *length = 0;
    return object == Py_None;
}

/* Text in UTF-8, which the object keeps; false if it is none or has no such form. */
static inline int
as_text(PyObject *object, const char **bytes, size_t *length)
{
    Py_ssize_t size;
    if (!PyUnicode_CheckExact(object))
        return 0;
    *bytes = PyUnicode_AsUTF8AndSize(object, &size);
    if (*bytes == NULL) {
        PyErr_Clear();
        return 0;
    }
    *length = (size_t)size;
    return 1;
}

/* Of a tuple or a list. */
static inline PyObject *
item(PyObject *sequence, Py_ssize_t i)
{
    return PyTuple_CheckExact(sequence) ? PyTuple_GetItem(sequence, i) : PyList_GetItem(sequence, i);
}

static int
measure_headers(PyObject *headers, Record *record)
{
    Py_ssize_t pairs = Py_SIZE(headers);
    for (Py_ssize_t i = 0; i < pairs; i++) {
        PyObject *pair = item(headers, i);
        const char *name, *content;
        size_t name_len, content_len;
        if (!PyTuple_CheckExact(pair) || Py_SIZE(pair) != 2 ||
            !as_text(PyTuple_GetItem(pair, 0), &name, &name_len) ||
            !as_bytes(PyTuple_GetItem(pair, 1), &content, &content_len))
            return 0;
        record->names_len += name_len;
        record->contents_len += content_len;
        record->header_nulls |= content == NULL;
    }
    record->headers = headers;
    record->pairs = (size_t)pairs;
    record->size += record->names_len + record->contents_len + 2 * OFFSET * (size_t)pairs;
    return 1;
}

/* False if the record is not plain. Each argument but the value may be NULL. Runs no Python code: all types are
 * exact. */
static inline int
record_measure(
    Record *record, PyObject *value, PyObject *key, PyObject *headers, PyObject *stamp, PyObject *topic)
{
    if (!as_bytes(value, &record->value, &record->value_len))
        return 0;
    record->key = record->topic = NULL;
    record->headers = NULL;
    record->pairs = record->names_len = record->contents_len = 0;
    record->header_nulls = record->stamped = 0;
    record->size = record->value_len + OFFSET;
    if (key != NULL && key != Py_None) {
        if (!as_bytes(key, &record->key, &record->key_len))
            return 0;
        record->size += record->key_len + OFFSET;
    }
    if (headers != NULL && headers != Py_None) {
        if (!PyTuple_CheckExact(headers) && !PyList_CheckExact(headers))
            return 0;
        if (Py_SIZE(headers) && !measure_headers(headers, record))
            return 0;
    }
    if (stamp != NULL && stamp != Py_None) {
        int overflow = 1;
        if (!PyLong_CheckExact(stamp))
            return 0;
        record->stamp = PyLong_AsLongLongAndOverflow(stamp, &overflow);
        if (overflow)
            return 0;
        record->stamped = 1;
        record->size += sizeof(int64_t);
    }
    if (topic != NULL && topic != Py_None) {
        if (!as_text(topic, &record->topic, &record->topic_len) || record->topic_len == 0 ||
            record->topic_len > TOPIC_MAX)
            return 0;
        record->size += record->topic_len;
    }
    return 1;
}

/* --- records -------------------------------------------------------------------------------- */

/* A column that no record has used is empty. now_us: the timestamp of records without one. */
typedef struct {
    size_t count;
    int64_t now_us, least_us, greatest_us;
    Column values, keys, topics, names, contents;
    Bytes pairs;  /* u32 each: where the pairs of a record end in `names` and `contents` */
    Bytes stamps; /* i64 each */
    int topics_differ;
} Records;

static void
records_begin(Records *self, int64_t now_us)
{
    self->count = 0;
    self->now_us = self->least_us = self->greatest_us = now_us;
    self->topics_differ = 0;
    column_empty(&self->values);
    column_empty(&self->keys);
    column_empty(&self->topics);
    column_empty(&self->names);
    column_empty(&self->contents);
    bytes_empty(&self->pairs);
    bytes_empty(&self->stamps);
}

static void
records_free(Records *self)
{
    column_free(&self->values);
    column_free(&self->keys);
    column_free(&self->topics);
    column_free(&self->names);
    column_free(&self->contents);
    bytes_free(&self->pairs);
    bytes_free(&self->stamps);
}

/* A column that begins with this record: the records before it have none. False if there is no memory. */
static int
begin_column(Column *column, size_t before)
{
    if (!column_reserve(column, before + 1, 0, before > 0))
        return 0;
    for (size_t i = 0; i < before; i++)
        column_add(column, NULL, 0);
    return 1;
}

/* Takes a measured record. False if there is no memory; then nothing is taken. */
static int
records_add(Records *self, const Record *record)
{
    size_t before = self->count;
    int keyed = record->key != NULL || self->keys.ends.len, titled = record->topic != NULL || self->topics.ends.len,
        headed = record->pairs || self->pairs.len, stamped = record->stamped || self->stamps.len;
    if (!column_reserve(&self->values, 1, record->value_len, record->value == NULL))
        return 0;
    if (keyed) {
        if (!self->keys.ends.len && !begin_column(&self->keys, before))
            return 0;
        if (!column_reserve(&self->keys, 1, record->key_len * (record->key != NULL), record->key == NULL))
            return 0;
    }
    if (titled) {
        if (!self->topics.ends.len && !begin_column(&self->topics, before))
            return 0;
        if (!column_reserve(&self->topics, 1, record->topic_len * (record->topic != NULL), record->topic == NULL))
            return 0;
    }
    if (headed) {
        if (!bytes_reserve(&self->pairs, (self->pairs.len ? 1 : before + 1) * sizeof(uint32_t)) ||
            !column_reserve(&self->names, record->pairs, record->names_len, 0) ||
            !column_reserve(&self->contents, record->pairs, record->contents_len, record->header_nulls))
            return 0;
        if (!self->pairs.len) {
            memset(self->pairs.at, 0, before * sizeof(uint32_t));
            self->pairs.len = before * sizeof(uint32_t);
        }
    }
    if (stamped) {
        if (!bytes_reserve(&self->stamps, (self->stamps.len ? 1 : before + 1) * sizeof(int64_t)))
            return 0;
        if (!self->stamps.len)
            for (size_t i = 0; i < before; i++)
                bytes_put(&self->stamps, &self->now_us, sizeof self->now_us);
    }
    column_add(&self->values, record->value, record->value_len);
    if (keyed)
        column_add(&self->keys, record->key, record->key_len);
    if (titled) {
        const Column *topics = &self->topics;
        uint32_t first = 0;
        if (before)
            memcpy(&first, topics->ends.at, sizeof first);
        self->topics_differ |= record->topic == NULL || /* or the first record has none: then `first` is 0 */
                               (before && (first != record->topic_len ||
                                           memcmp(topics->data.at, record->topic, first) != 0));
        column_add(&self->topics, record->topic, record->topic_len);
    }
    if (headed) {
        for (size_t i = 0; i < record->pairs; i++) {
            PyObject *pair = item(record->headers, (Py_ssize_t)i);
            const char *entry = NULL;
            size_t length = 0;
            as_text(PyTuple_GetItem(pair, 0), &entry, &length);
            column_add(&self->names, entry, length);
            as_bytes(PyTuple_GetItem(pair, 1), &entry, &length);
            column_add(&self->contents, entry, length);
        }
        bytes_put_u32(&self->pairs, (uint32_t)column_count(&self->names));
    }
    if (stamped) {
        int64_t stamp = record->stamped ? record->stamp : self->now_us;
        if (!before || stamp < self->least_us)
            self->least_us = stamp;
        if (!before || stamp > self->greatest_us)
            self->greatest_us = stamp;
        bytes_put(&self->stamps, &stamp, sizeof stamp);
    }
    self->count++;
    return 1;
}

/* --- the body of a frame -------------------------------------------------------------------- */

static inline size_t
aligned(size_t length)
{
    return (length + 7) & ~(size_t)7;
}

/* Where a binary column ends that begins at the next multiple of 8. */
static size_t
after_column(size_t at, const Column *column)
{
    if (column->nulls)
        at = aligned(at) + column->present.len;
    return aligned(aligned(at) + sizeof(uint32_t) + column->ends.len) + column->data.len;
}

static char *
put_part(char *begin, char *at, const void *from, size_t length)
{
    for (; (at - begin) & 7; at++)
        *at = 0;
    if (length)
        memcpy(at, from, length);
    return at + length;
}

/* n+1 offsets, the first of them 0. */
static char *
put_offsets(char *begin, char *at, const Bytes *ends)
{
    uint32_t zero = 0;
    at = put_part(begin, at, &zero, sizeof zero);
    if (ends->len)
        memcpy(at, ends->at, ends->len);
    return at + ends->len;
}

static char *
put_column(char *begin, char *at, const Column *column)
{
    if (column->nulls)
        at = put_part(begin, at, column->present.at, column->present.len);
    at = put_offsets(begin, at, &column->ends);
    return put_part(begin, at, column->data.at, column->data.len);
}

/* The bits of the columns, and the body's length. A single record with only a value has no columns. */
static uint32_t
records_layout(const Records *self, size_t *length)
{
    uint32_t bits = 0;
    size_t at = 0;
    int alone = !(self->stamps.len || self->keys.ends.len || self->topics.ends.len || self->pairs.len);
    if (alone && self->count == 1 && !self->values.nulls) {
        *length = self->values.data.len;
        return 0;
    }
    if (self->stamps.len) {
        bits |= STAMPS;
        at = self->stamps.len;
    }
    if (self->keys.ends.len) {
        bits |= KEYS | (self->keys.nulls ? KEY_NULLS : 0);
        at = after_column(at, &self->keys);
    }
    if (self->topics.ends.len && !self->topics_differ) {
        uint32_t topic_len;
        memcpy(&topic_len, self->topics.ends.at, sizeof topic_len);
        bits |= TOPIC;
        at = aligned(at) + sizeof topic_len + topic_len;
    } else if (self->topics.ends.len) {
        bits |= TOPICS | (self->topics.nulls ? TOPIC_NULLS : 0);
        at = after_column(at, &self->topics);
    }
    if (self->pairs.len) {
        bits |= HEADERS | (self->contents.nulls ? HEADER_NULLS : 0);
        at = aligned(at) + sizeof(uint32_t) + self->pairs.len;
        at = after_column(after_column(at, &self->names), &self->contents);
    }
    bits |= VALUES | (self->values.nulls ? VALUE_NULLS : 0);
    *length = after_column(at, &self->values);
    return bits;
}

/* Writes the body that `records_layout` described. */
static void
records_write(const Records *self, uint32_t bits, char *begin)
{
    char *at = begin;
    if (!bits) {
        put_part(begin, at, self->values.data.at, self->values.data.len);
        return;
    }
    if (bits & STAMPS)
        at = put_part(begin, at, self->stamps.at, self->stamps.len);
    if (bits & KEYS)
        at = put_column(begin, at, &self->keys);
    if (bits & TOPIC) {
        uint32_t topic_len;
        memcpy(&topic_len, self->topics.ends.at, sizeof topic_len);
        at = put_part(begin, at, &topic_len, sizeof topic_len);
        memcpy(at, self->topics.data.at, topic_len);
        at += topic_len;
    }
    if (bits & TOPICS)
        at = put_column(begin, at, &self->topics);
    if (bits & HEADERS) {
        at = put_offsets(begin, at, &self->pairs);
        at = put_column(begin, at, &self->names);
        at = put_column(begin, at, &self->contents);
    }
    put_column(begin, at, &self->values);
}

#endif
