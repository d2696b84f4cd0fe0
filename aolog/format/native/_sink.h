/* A sink: a C function that takes rows as they stand in their columns, without an object for each.
 * What `Rows.feed` hands them to; whoever has such a function passes it in a capsule of this name.
 */
#ifndef AOLOG_SINK_H
#define AOLOG_SINK_H

#define PY_SSIZE_T_CLEAN
#ifndef Py_LIMITED_API
#define Py_LIMITED_API 0x030B0000
#endif
#include <Python.h>

#include <stdint.h>

#define AOLOG_SINK "aolog.sink.1"

/* A field of a row, of a column of a kind (see speed.PythonRows). object: of c, o, 1 and 2, and
 * the tag of h, borrowed; else NULL. bytes: of b, v and h, NULL where the entry is None. number: of
 * q. */
typedef struct {
    PyObject *object;
    const char *bytes;
    Py_ssize_t size;
    int64_t number;
} AologField;

/* take: 1 where it has taken the row, 0 where it has not, and rows end. It runs no Python code and
 * keeps nothing. */
typedef struct {
    int (*take)(void *context, const AologField *fields, Py_ssize_t width);
    void *context;
} AologSink;

#endif
