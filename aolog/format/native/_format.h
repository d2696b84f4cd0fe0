/* The numbers of both formats that writing and walking share; aolog/FORMAT.md is normative. */
#ifndef AOLOG_FORMAT_H
#define AOLOG_FORMAT_H

#include <stdint.h>

#define MAGIC 0xF2A0 /* of a frame */
#define FRAME_HEADER 40
#define KIND_RECORDS 1
#define KIND_MARK 2
#define FLAG_DURABLE 1
#define CODEC_SHIFT 4
#define NO_TIMESTAMP INT64_MIN
#define INDEX_SPACING (16 << 10) /* slab.INDEX_SPACING */

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
    HEADER_NULLS = 0x200,
    KNOWN = 0x3FF
};

#define PAYLOAD_HEADER 8
#define PAYLOAD_MAX 0xFF000000u /* format1.PAYLOAD_LEN_MAX */

#endif
