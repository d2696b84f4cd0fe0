/* A plain frame: whether one begins at a place of a chunk, and where its columns are.
 *
 * Only for _walk.c, after _hash.h. It touches no Python object, so it runs without the interpreter's lock. The
 * chunk is hostile: a frame's hash is compared before any of its fields is used, and each length is bounded by what
 * contains it. The rules of a plain frame are in aolog/format/stretch.py.
 */
#ifndef AOLOG_PLAIN_H
#define AOLOG_PLAIN_H

#include "_format.h"
#include "_hash_wide.h"

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define HASHED_LEN 36 /* of a frame's header, what its own hash covers */

/* Bytes of a slab. */
typedef struct {
    const char *bytes;
    size_t size;
    uint64_t offset; /* of the first byte in the slab */
    uint32_t salt;
    int is_format_1;
    size_t most; /* bytes of several frames that are gathered */
} Chunk;

/* A binary column where it is stored; `offsets` is NULL if the frame has none. */
typedef struct {
    const char *bits; /* NULL: no entry is null */
    const char *offsets;
    const char *data;
    size_t size; /* of the data */
} Part;

typedef struct {
    size_t at, length; /* in the chunk, with header and padding */
    int is_mark, is_durable;
    int64_t stamp_us;
    uint32_t ordinal, records, columns;
    const char *body;
    size_t size;       /* of the body, without padding */
    const char *stamps; /* NULL: all records have the frame's */
    const char *topic;  /* of all records; NULL for none */
    size_t topic_len;
    const char *pairs; /* n+1 offsets into the headers' entries; NULL for no headers */
    uint32_t entries;  /* of the headers */
    Part values, keys, topics, names, contents;
} Plain;

static inline uint32_t
u32_at(const char *at)
{
    uint32_t number;
    memcpy(&number, at, sizeof number);
    return number;
}

static inline int64_t
i64_at(const char *at)
{
    int64_t number;
    memcpy(&number, at, sizeof number);
    return number;
}

/* --- the columns ---------------------------------------------------------------------------- */

static int
is_ascii(const char *text, size_t length)
{
    unsigned char seen = 0;
    for (size_t i = 0; i < length; i++)
        seen |= (unsigned char)text[i];
    return seen < 0x80;
}

/* `length` bytes from the next multiple of 8 on; NULL if the body has fewer. */
static inline const char *
cut(const Plain *frame, size_t *at, uint64_t length)
{
    size_t begin = (*at + 7) & ~(size_t)7;
    if (begin > frame->size || length > frame->size - begin)
        return NULL;
    *at = begin + (size_t)length;
    return frame->body + begin;
}

/* n+1 offsets that begin with 0 and do not fall; NULL if they do. */
static inline const char *
cut_offsets(const Plain *frame, size_t *at, uint64_t count)
{
    const char *offsets = cut(frame, at, 4 * (count + 1));
    if (offsets == NULL || u32_at(offsets) != 0)
        return NULL;
    uint32_t falls = 0;
    for (uint64_t i = 0; i < count; i++) /* independent steps: compilers vectorize this */
        falls |= u32_at(offsets + 4 * i + 4) < u32_at(offsets + 4 * i);
    return falls ? NULL : offsets;
}

static inline int
cut_part(const Plain *frame, size_t *at, uint64_t count, int has_nulls, Part *part)
{
    if (has_nulls && (part->bits = cut(frame, at, (count + 7) / 8)) == NULL)
        return 0;
    if ((part->offsets = cut_offsets(frame, at, count)) == NULL)
        return 0;
    part->size = u32_at(part->offsets + 4 * count);
    return (part->data = cut(frame, at, part->size)) != NULL;
}

static inline int
cut_text(const Plain *frame, size_t *at, uint64_t count, int has_nulls, Part *part)
{
    return cut_part(frame, at, count, has_nulls, part) && is_ascii(part->data, part->size);
}

/* Finds the columns in the body; false if they are not plain. The frame has none set. */
static int
find_columns(Plain *frame)
{
    uint32_t bits = frame->columns;
    uint64_t count = frame->records;
    size_t at = 0;
    if (bits == 0)
        return count == 1;
    if (bits & ~(uint32_t)KNOWN || !(bits & VALUES) || count == 0 || (bits & TOPIC && bits & TOPICS))
        return 0;
    if (bits & STAMPS && (frame->stamps = cut(frame, &at, 8 * count)) == NULL)
        return 0;
    if (bits & KEYS && !cut_part(frame, &at, count, bits & KEY_NULLS, &frame->keys))
        return 0;
    if (bits & TOPIC) {
        const char *length = cut(frame, &at, 4);
        if (length == NULL || (frame->topic_len = u32_at(length)) > frame->size - at)
            return 0;
        frame->topic = frame->body + at;
        at += frame->topic_len;
        if (!is_ascii(frame->topic, frame->topic_len))
            return 0;
    }
    if (bits & TOPICS && !cut_text(frame, &at, count, bits & TOPIC_NULLS, &frame->topics))
        return 0;
    if (bits & HEADERS) {
        if ((frame->pairs = cut_offsets(frame, &at, count)) == NULL)
            return 0;
        frame->entries = u32_at(frame->pairs + 4 * count);
        if (!cut_text(frame, &at, frame->entries, 0, &frame->names) ||
            !cut_part(frame, &at, frame->entries, bits & HEADER_NULLS, &frame->contents))
            return 0;
    }
    return cut_part(frame, &at, count, bits & VALUE_NULLS, &frame->values) && at == frame->size;
}

/* --- the frame ------------------------------------------------------------------------------ */

/* A frame without columns. Not by memset: gcc made it a `rep stos`, a fifth of the time of a survey of small ones. */
static inline void
frame_empty(Plain *frame)
{
    static const Part none;
    frame->is_mark = frame->is_durable = 0;
    frame->columns = frame->entries = 0;
    frame->stamps = frame->topic = frame->pairs = NULL;
    frame->topic_len = 0;
    frame->values = frame->keys = frame->topics = frame->names = frame->contents = none;
}

/* As find_plain, for format 1. */
static inline int
find_payload(const Chunk *chunk, size_t at, int is_new, Plain *frame)
{
    size_t room = chunk->size - at;
    if (room < PAYLOAD_HEADER)
        return 0;
    const char *head = chunk->bytes + at;
    uint32_t length = u32_at(head);
    if (length == 0 || length > PAYLOAD_MAX || length > room - PAYLOAD_HEADER)
        return 0;
    if (is_new && XXH32(head + PAYLOAD_HEADER, length, 0) != u32_at(head + 4))
        return 0;
    frame->length = PAYLOAD_HEADER + (size_t)length;
    frame->stamp_us = NO_TIMESTAMP;
    frame->ordinal = 0;
    frame->records = 1;
    frame->body = head + PAYLOAD_HEADER;
    frame->size = length;
    return 1;
}

/* Whether a plain frame begins at `at`, which is in the chunk. is_new: false if it was found before. */
static inline int
find_plain(const Chunk *chunk, size_t at, int is_new, Plain *frame)
{
    frame_empty(frame);
    frame->at = at;
    if (chunk->is_format_1)
        return find_payload(chunk, at, is_new, frame);
    size_t room = chunk->size - at;
    if (room < FRAME_HEADER)
        return 0;
    const char *head = chunk->bytes + at;
    uint16_t magic;
    memcpy(&magic, head, sizeof magic);
    if (magic != MAGIC)
        return 0;
    uint32_t seed = chunk->salt ^ (uint32_t)((chunk->offset + at) >> 3);
    if (is_new && XXH32(head, HASHED_LEN, seed) != u32_at(head + HASHED_LEN))
        return 0;
    int kind = (unsigned char)head[2], flags = (unsigned char)head[3];
    frame->size = u32_at(head + 4);
    uint64_t padded = ((uint64_t)frame->size + 7) & ~(uint64_t)7;
    frame->records = u32_at(head + 28);
    if ((kind != KIND_RECORDS && kind != KIND_MARK) || flags & ~FLAG_DURABLE ||
        padded > room - FRAME_HEADER || frame->records > FRAME_HEADER + padded)
        return 0;
    frame->body = head + FRAME_HEADER;
    if (is_new && body_hash(frame->body, (size_t)padded) != (uint64_t)i64_at(head + 8))
        return 0;
    frame->length = FRAME_HEADER + (size_t)padded;
    frame->is_mark = kind == KIND_MARK;
    frame->is_durable = flags & FLAG_DURABLE;
    frame->stamp_us = i64_at(head + 16);
    frame->ordinal = u32_at(head + 24);
    frame->columns = u32_at(head + 32);
    return frame->is_mark ? frame->records == 0 && frame->size == 0 : find_columns(frame);
}

#endif
