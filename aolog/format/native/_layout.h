/* The body of a frame: how its columns follow one another (aolog/format/columns.py), written from records.
 *
 * Only for _inlet.c. It knows no frame's header, no hash and no slab.
 */
#ifndef AOLOG_LAYOUT_H
#define AOLOG_LAYOUT_H

#include "_records.h"

#define BODY_MAX (UINT32_MAX - (size_t)FRAME_HEADER - 8) /* frame.BODY_LEN_MAX */

/* Whether a frame can have a body of this length; raises otherwise. */
static int
fits_frame(size_t length)
{
    if (length <= BODY_MAX)
        return 1;
    PyErr_SetString(PyExc_OverflowError, "the body exceeds a frame");
    return 0;
}

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

/* (records, bits, body, greatest, least) */
static PyObject *
records_body(const Records *records)
{
    size_t length;
    uint32_t bits = records_layout(records, &length);
    if (!fits_frame(length))
        return NULL;
    PyObject *body = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)length);
    if (body == NULL)
        return NULL;
    records_write(records, bits, PyBytes_AsString(body));
    return Py_BuildValue("nINLL", (Py_ssize_t)records->count, bits, body, (long long)records->greatest_us,
                         (long long)records->least_us);
}

#endif
