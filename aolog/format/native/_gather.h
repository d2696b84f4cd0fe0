/* Gathering: plain frames that follow one another become one set of columns, in one buffer; the Python twin is
 * stretch.python_gather, which has the rules.
 *
 * Only for _walk.c. Measured first, so that the buffer is allocated once, with the interpreter's lock; then filled
 * without it. Values of bare frames stay in a chunk that nobody has seen yet: they are moved together in it, which
 * takes a tenth of the time of a copy, as no other memory is written.
 */
#ifndef AOLOG_GATHER_H
#define AOLOG_GATHER_H

#include "_plain.h"

#define SMALL_BYTES (16 << 10)     /* stretch.SMALL_BYTES */
#define MOVED_BYTES (128 << 10)    /* stretch.MOVED_BYTES */
#define GATHERED_BYTES (528 << 10) /* stretch.GATHERED_BYTES */

/* A binary column of all frames together. */
typedef struct {
    size_t size;
    int is_used, has_nulls;
} Total;

/* Plain frames that follow one another, with the totals of their columns. */
typedef struct {
    size_t begin, end; /* in the chunk */
    size_t frames;     /* of records */
    size_t records, entries;
    uint32_t ordinal; /* of the first record */
    int64_t greatest_us;
    const char *topic; /* of the first frame: of all, unless there is a column of topics */
    size_t topic_len;
    int has_headers;
    int is_small; /* none of the frames has more than SMALL_BYTES */
    int is_bare;  /* none of the frames has anything but values, or more than MOVED_BYTES */
    const char *data; /* of the first frame's values, in the chunk */
    Total values, keys, topics, names, contents;
} Stretch;

static void
total_add(Total *total, const Part *part)
{
    total->is_used |= part->offsets != NULL;
    total->has_nulls |= part->offsets == NULL || part->bits != NULL;
    total->size += part->size;
}

/* Whether all records have the first frame's topic, or none, if the frame joins. */
static inline int
same_topic(const Stretch *stretch, const Plain *frame)
{
    if (stretch->topics.is_used || frame->topics.offsets != NULL || !stretch->topic != !frame->topic)
        return 0;
    return frame->topic == NULL || (frame->topic_len == stretch->topic_len &&
                                    memcmp(frame->topic, stretch->topic, frame->topic_len) == 0);
}

static inline int
is_bare(const Plain *frame)
{
    return (frame->columns == 0 || frame->columns == VALUES) && frame->length <= MOVED_BYTES;
}

/* Whether a frame joins those before it. topics: bytes of its topics in a column of them. */
static inline int
joins(const Stretch *stretch, const Plain *frame, size_t topics, const Chunk *chunk)
{
    if (!chunk->is_format_1 && frame->ordinal != stretch->ordinal + (uint64_t)stretch->records)
        return 0;
    if (frame->is_mark)
        return 1;
    int are_small = stretch->is_small && frame->length <= SMALL_BYTES;
    int are_bare = stretch->is_bare && is_bare(frame);
    if (!(are_small || are_bare) || stretch->end - stretch->begin + frame->length > chunk->most)
        return 0;
    return same_topic(stretch, frame) || stretch->topics.size + topics <= GATHERED_BYTES;
}

/* Adds a frame; false if it does not join those before it. */
static int
stretch_add(Stretch *stretch, const Plain *frame, const Chunk *chunk)
{
    size_t topics = frame->topics.offsets != NULL ? frame->topics.size : frame->topic_len * (size_t)frame->records;
    if (stretch->frames == 0) {
        if (frame->is_mark)
            return 0;
        stretch->begin = frame->at;
        stretch->ordinal = frame->ordinal;
        stretch->topic = frame->topic;
        stretch->topic_len = frame->topic_len;
        stretch->greatest_us = frame->stamp_us;
        stretch->is_small = stretch->is_bare = 1;
        stretch->data = frame->columns ? frame->values.data : frame->body;
    } else if (!joins(stretch, frame, topics, chunk))
        return 0;
    stretch->end = frame->at + frame->length;
    if (frame->is_mark)
        return 1;
    stretch->is_small &= frame->length <= SMALL_BYTES;
    stretch->is_bare &= is_bare(frame);
    if (!same_topic(stretch, frame))
        stretch->topics.is_used = 1;
    stretch->topics.size += topics;
    stretch->topics.has_nulls |= frame->topics.bits != NULL || (frame->topics.offsets == NULL && frame->topic == NULL);
    Part body = {NULL, frame->body, frame->body, frame->size};
    total_add(&stretch->values, frame->columns ? &frame->values : &body);
    total_add(&stretch->keys, &frame->keys);
    if (frame->pairs != NULL) {
        stretch->has_headers = 1;
        total_add(&stretch->names, &frame->names);
        total_add(&stretch->contents, &frame->contents);
        stretch->entries += frame->entries;
    }
    if (frame->stamp_us > stretch->greatest_us)
        stretch->greatest_us = frame->stamp_us;
    stretch->records += frame->records;
    stretch->frames++;
    return 1;
}

/* --- the buffer ----------------------------------------------------------------------------- */

/* A column in the buffer: where its parts begin, and what was filled. */
typedef struct {
    size_t bits, offsets, data; /* in the buffer; bits: 0 for none */
    char *own;                  /* the data, if they are not in the buffer */
    size_t entries, size;       /* filled so far */
} Place;

typedef struct {
    size_t addresses, stamps, pairs, end;
    Place values, keys, topics, names, contents;
    char *buffer;
} Places;

static size_t
take(size_t *at, size_t length)
{
    size_t begin = *at;
    *at = (begin + length + 7) & ~(size_t)7;
    return begin;
}

static void
place(Place *to, const Total *total, size_t entries, char *own, size_t *at)
{
    if (!total->is_used)
        return;
    to->offsets = take(at, 4 * (entries + 1));
    to->bits = total->has_nulls ? take(at, (entries + 7) / 8) : 0;
    to->own = own;
    to->data = own == NULL ? take(at, total->size) : 0;
}

/* Where everything is in the buffer, which has `end` bytes. in_chunk: values stay in the chunk, if they are alone. */
static void
place_all(Places *places, const Stretch *stretch, int in_chunk)
{
    memset(places, 0, sizeof *places);
    size_t at = 0;
    places->addresses = take(&at, 8 * stretch->records); /* at 0: so no bits are */
    places->stamps = take(&at, 8 * stretch->records);
    char *own = in_chunk && stretch->is_bare ? (char *)stretch->data : NULL;
    place(&places->values, &stretch->values, stretch->records, own, &at);
    place(&places->keys, &stretch->keys, stretch->records, NULL, &at);
    place(&places->topics, &stretch->topics, stretch->records, NULL, &at);
    if (stretch->has_headers) {
        places->pairs = take(&at, 4 * (stretch->records + 1));
        place(&places->names, &stretch->names, stretch->entries, NULL, &at);
        place(&places->contents, &stretch->contents, stretch->entries, NULL, &at);
    }
    places->end = at;
}

static inline char *
data_at(const Places *places, const Place *at)
{
    return at->own != NULL ? at->own : places->buffer + at->data;
}

/* --- filling -------------------------------------------------------------------------------- */

static inline void
put_u32(char *at, size_t number)
{
    uint32_t stored = (uint32_t)number;
    memcpy(at, &stored, sizeof stored);
}

/* Adds `count` entries of this text; NULL: nulls. */
static inline void
fill_same(Places *places, Place *to, size_t count, const char *text, size_t length)
{
    for (size_t i = 0; i < count; i++, to->entries++) {
        if (length)
            memmove(data_at(places, to) + to->size, text, length);
        to->size += length;
        put_u32(places->buffer + to->offsets + 4 * (to->entries + 1), to->size);
        if (to->bits && text != NULL)
            places->buffer[to->bits + to->entries / 8] |= (char)(1 << to->entries % 8);
    }
}

static inline void
fill_part(Places *places, Place *to, size_t count, const Part *part)
{
    char *offsets = places->buffer + to->offsets + 4 * (to->entries + 1);
    for (size_t i = 0; i < count; i++)
        put_u32(offsets + 4 * i, to->size + u32_at(part->offsets + 4 * (i + 1)));
    if (part->size)
        memmove(data_at(places, to) + to->size, part->data, part->size); /* after the offsets: it may cover them */
    to->size += part->size;
    if (!to->bits) {
        to->entries += count;
        return;
    }
    for (size_t i = 0; i < count; i++, to->entries++)
        if (part->bits == NULL || (unsigned char)part->bits[i / 8] >> i % 8 & 1)
            places->buffer[to->bits + to->entries / 8] |= (char)(1 << to->entries % 8);
}

/* Adds a frame's part of a column, if there is one: what the frame has, or this text for each record. */
static inline void
fill(Places *places, Place *to, size_t count, const Part *part, const char *text, size_t length)
{
    if (to->offsets && part->offsets != NULL)
        fill_part(places, to, count, part);
    else if (to->offsets)
        fill_same(places, to, count, text, length);
}

static inline void
fill_frame(Places *places, const Chunk *chunk, uint64_t base, const Plain *frame)
{
    size_t first = places->values.entries, count = frame->records;
    uint64_t address = base + chunk->offset + frame->at;
    for (size_t i = 0; i < count; i++, address++) {
        memcpy(places->buffer + places->addresses + 8 * (first + i), &address, 8);
        if (frame->stamps == NULL)
            memcpy(places->buffer + places->stamps + 8 * (first + i), &frame->stamp_us, 8);
    }
    if (frame->stamps != NULL)
        memcpy(places->buffer + places->stamps + 8 * first, frame->stamps, 8 * count);
    fill(places, &places->values, count, &frame->values, frame->body, frame->size);
    fill(places, &places->keys, count, &frame->keys, NULL, 0);
    fill(places, &places->topics, count, &frame->topics, frame->topic, frame->topic_len);
    if (places->pairs) {
        for (size_t i = 0; i < count; i++)
            put_u32(places->buffer + places->pairs + 4 * (first + i + 1),
                    places->names.entries + (frame->pairs == NULL ? 0 : u32_at(frame->pairs + 4 * (i + 1))));
        if (frame->pairs != NULL) {
            fill_part(places, &places->names, frame->entries, &frame->names);
            fill_part(places, &places->contents, frame->entries, &frame->contents);
        }
    }
}

/* Fills the buffer from the frames, which were measured. */
static void
fill_all(Places *places, const Stretch *stretch, const Chunk *chunk, uint64_t base)
{
    Place *columns[] = {&places->values, &places->keys, &places->topics, &places->names, &places->contents};
    for (size_t i = 0; i < sizeof columns / sizeof *columns; i++) {
        Place *to = columns[i];
        size_t entries = i < 3 ? stretch->records : stretch->entries;
        if (to->offsets)
            memset(places->buffer + to->offsets, 0, 4);
        if (to->bits)
            memset(places->buffer + to->bits, 0, (entries + 7) / 8);
    }
    if (places->pairs)
        memset(places->buffer + places->pairs, 0, 4);
    Plain frame;
    for (size_t at = stretch->begin; at < stretch->end; at += frame.length) {
        find_plain(chunk, at, 0, &frame); /* as before: what was moved is before it */
        if (!frame.is_mark)
            fill_frame(places, chunk, base, &frame);
    }
}

#endif
