/* A survey: what the plain frames of a chunk are, in numbers; the Python twin is stretch.python_survey.
 *
 * Only for _walk.c.
 */
#ifndef AOLOG_SURVEY_H
#define AOLOG_SURVEY_H

#include "_plain.h"

#define KEPT_HEADER 16 /* of format 1, with the frame's offset before it */

typedef struct {
    long long frames, batches, records; /* batches: frames of records */
    long long before, ordinal;          /* records of the slab before the first frame, and before the end */
    long long durable;                  /* offset of the last frame with the durable flag; -1 if there is none */
    long long least_us, greatest_us;
    long long indexed; /* offset of the index's last point; -1 if there is none */
    long long until;   /* ends before the frame with this record of the slab; -1: at none */
    size_t end;       /* in the chunk */
    size_t points;
} Survey;

/* A point of the index, as it is returned. */
typedef struct {
    int64_t offset, ordinal, greatest_us;
} Point;

static int64_t
least_of(const Plain *frame)
{
    if (frame->stamps == NULL)
        return frame->stamp_us;
    int64_t least = INT64_MAX;
    for (uint32_t i = 0; i < frame->records; i++) {
        int64_t stamp = i64_at(frame->stamps + 8 * (size_t)i);
        least = stamp < least ? stamp : least;
    }
    return least;
}

/* Adds the plain frames from `end` on. points: an entry for each, as many as the chunk can have. */
static void
survey_frames(const Chunk *chunk, Survey *survey, Point *points)
{
    Plain frame;
    while (survey->end < chunk->size && find_plain(chunk, survey->end, 1, &frame)) {
        int64_t offset = (int64_t)(chunk->offset + frame.at);
        if (survey->until >= 0 && (long long)frame.ordinal + frame.records > survey->until)
            break;
        if (!chunk->is_format_1 && (survey->indexed < 0 || offset - survey->indexed >= INDEX_SPACING)) {
            survey->indexed = offset;
            points[survey->points++] = (Point){offset, frame.ordinal, survey->greatest_us};
        }
        if (frame.is_durable)
            survey->durable = offset;
        if (!frame.is_mark) {
            int64_t least = least_of(&frame);
            if (!survey->batches || least < survey->least_us)
                survey->least_us = least;
            if (frame.stamp_us > survey->greatest_us)
                survey->greatest_us = frame.stamp_us;
            survey->batches++;
        }
        if (!survey->frames++)
            survey->before = frame.ordinal;
        survey->records += frame.records;
        survey->ordinal = (long long)frame.ordinal + frame.records;
        survey->end += frame.length;
    }
}

/* Copies the headers of the chunk's frames, up to `end`. */
static void
copy_headers(const Chunk *chunk, size_t end, char *to)
{
    size_t at = 0;
    while (at < end) {
        const char *head = chunk->bytes + at;
        if (chunk->is_format_1) {
            uint64_t offset = chunk->offset + at;
            memcpy(to, &offset, sizeof offset);
            memcpy(to + sizeof offset, head, PAYLOAD_HEADER);
            to += KEPT_HEADER;
            at += PAYLOAD_HEADER + (size_t)u32_at(head);
        } else {
            memcpy(to, head, FRAME_HEADER);
            to += FRAME_HEADER;
            at += FRAME_HEADER + (((size_t)u32_at(head + 4) + 7) & ~(size_t)7);
        }
    }
}

#endif
