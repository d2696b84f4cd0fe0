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

#include "_format.h"

#include <stdint.h>
#include <string.h>

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

/* The parts of one record, borrowed. */
typedef struct {
    const char *value, *key, *topic; /* NULL for a null */
    size_t value_len, key_len, topic_len;
    PyObject *headers;                     /* a tuple or a list of pairs; NULL for none */
    size_t pairs, names_len, contents_len; /* of the headers */
    int header_nulls;                      /* whether a header's value is null */
    int stamped;                           /* whether it has a timestamp */
    int64_t stamp;
    size_t size; /* bytes that it takes in a frame, as aolog/write/validate.py counts */
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
    record->key_len = record->topic_len = 0;
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

/* A column that no record has used is empty. */
typedef struct {
    size_t count;
    int64_t now_us;                /* the timestamp of a record that has none */
    int64_t least_us, greatest_us; /* of all timestamps; `now_us` as long as no record has one */
    Column values, keys, topics;
    Column names, contents; /* of headers */
    Bytes pairs;            /* u32 each: where the headers of a record end in `names` and `contents` */
    Bytes stamps;           /* i64 each: timestamps */
    int topics_differ;      /* otherwise all have the first record's, which is stored once */
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

/* The columns that the frame has with this record, besides the values. */
static inline uint32_t
columns_with(const Records *self, const Record *record)
{
    return (record->key != NULL || self->keys.ends.len ? KEYS : 0) |
           (record->topic != NULL || self->topics.ends.len ? TOPICS : 0) |
           (record->pairs || self->pairs.len ? HEADERS : 0) | (record->stamped || self->stamps.len ? STAMPS : 0);
}

/* Room for one more entry. A column that begins with it gets a null for each of the `before` records. */
static int
column_reserve_next(Column *self, size_t before, const char *entry, size_t length)
{
    if (!self->ends.len && before) {
        if (!column_reserve(self, before + 1, 0, 1))
            return 0;
        for (size_t i = 0; i < before; i++)
            column_add(self, NULL, 0);
    }
    return column_reserve(self, 1, length, entry == NULL);
}

/* Room for a measured record in these columns; false if there is no memory. */
static int
records_reserve(Records *self, const Record *record, uint32_t columns)
{
    size_t before = self->count;
    if (!column_reserve(&self->values, 1, record->value_len, record->value == NULL))
        return 0;
    if (columns & KEYS && !column_reserve_next(&self->keys, before, record->key, record->key_len))
        return 0;
    if (columns & TOPICS && !column_reserve_next(&self->topics, before, record->topic, record->topic_len))
        return 0;
    if (columns & HEADERS) {
        if (!bytes_reserve(&self->pairs, (self->pairs.len ? 1 : before + 1) * sizeof(uint32_t)) ||
            !column_reserve(&self->names, record->pairs, record->names_len, 0) ||
            !column_reserve(&self->contents, record->pairs, record->contents_len, record->header_nulls))
            return 0;
        if (!self->pairs.len) {
            memset(self->pairs.at, 0, before * sizeof(uint32_t));
            self->pairs.len = before * sizeof(uint32_t);
        }
    }
    if (columns & STAMPS) {
        if (!bytes_reserve(&self->stamps, (self->stamps.len ? 1 : before + 1) * sizeof(int64_t)))
            return 0;
        if (!self->stamps.len)
            for (size_t i = 0; i < before; i++)
                bytes_put(&self->stamps, &self->now_us, sizeof self->now_us);
    }
    return 1;
}

static void
add_topic(Records *self, const Record *record)
{
    const Column *topics = &self->topics;
    uint32_t first = 0;
    if (self->count)
        memcpy(&first, topics->ends.at, sizeof first);
    self->topics_differ |= record->topic == NULL || /* or the first record has none: then `first` is 0 */
                           (self->count && (first != record->topic_len ||
                                            memcmp(topics->data.at, record->topic, first) != 0));
    column_add(&self->topics, record->topic, record->topic_len);
}

static void
add_headers(Records *self, const Record *record)
{
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

static void
add_stamp(Records *self, const Record *record)
{
    int64_t stamp = record->stamped ? record->stamp : self->now_us;
    if (!self->count || stamp < self->least_us)
        self->least_us = stamp;
    if (!self->count || stamp > self->greatest_us)
        self->greatest_us = stamp;
    bytes_put(&self->stamps, &stamp, sizeof stamp);
}

/* Takes a measured record. False if there is no memory; then nothing is taken. */
static inline int
records_add(Records *self, const Record *record)
{
    uint32_t columns = columns_with(self, record);
    if (!records_reserve(self, record, columns))
        return 0;
    column_add(&self->values, record->value, record->value_len);
    if (columns & KEYS)
        column_add(&self->keys, record->key, record->key_len);
    if (columns & TOPICS)
        add_topic(self, record);
    if (columns & HEADERS)
        add_headers(self, record);
    if (columns & STAMPS)
        add_stamp(self, record);
    self->count++;
    return 1;
}

#endif
