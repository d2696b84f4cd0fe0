/* See `_hash_wide.c`. */
#ifndef AOLOG_HASH_WIDE_H
#define AOLOG_HASH_WIDE_H

#include <stddef.h>
#include <stdint.h>

typedef uint64_t (*WideHash)(const void *data, size_t length);

/* xxh3 of 64 bits; NULL if this processor or this build has no wide one. */
WideHash aolog_wide_hash(void);

#if defined(HASHES) && HASHES /* after _hash.h */
#define WIDE_MIN 1024 /* shorter ones take as long either way */

static WideHash wide_hash; /* set when the module begins; NULL: there is none */

static inline uint64_t
body_hash(const char *body, size_t length)
{
    return wide_hash != NULL && length >= WIDE_MIN ? wide_hash(body, length) : XXH3_64bits(body, length);
}
#endif

#endif
