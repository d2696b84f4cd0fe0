/* The system's xxHash, inlined; HASHES is 0 if the build found none, and then Python hashes. */
#ifndef AOLOG_HASH_H
#define AOLOG_HASH_H

#define HASHES 0
#if __has_include(<xxhash.h>) && !defined(AOLOG_WITHOUT_XXHASH)
#define XXH_INLINE_ALL
#include <xxhash.h>
#if XXH_VERSION_NUMBER >= 800 /* before that, xxh3 was not final */
#undef HASHES
#define HASHES 1
#endif
#endif

#endif
