/* See `_hash_wide.c`. */
#ifndef AOLOG_HASH_WIDE_H
#define AOLOG_HASH_WIDE_H

#include <stddef.h>
#include <stdint.h>

typedef uint64_t (*WideHash)(const void *data, size_t length);

/* xxh3 of 64 bits; NULL if this processor or this build has no wide one. */
WideHash aolog_wide_hash(void);

#endif
