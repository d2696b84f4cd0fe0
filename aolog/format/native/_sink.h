/* A sink: a C function that takes rows directly from their columns, without Python objects. `Rows.feed`
 * passes rows to it; the function comes in a capsule with this name.
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

/* A field of a row; its column has a kind (see speed.PythonRows). object: of c, o, 1 and 2, and the tag
 * of h, borrowed; otherwise NULL. bytes: of b, v and h, NULL if the entry is None. number: of q. */
typedef struct {
    PyObject *object;
    const char *bytes;
    Py_ssize_t size;
    int64_t number;
} AologField;

/* take: returns 1 if it took the row, 0 if it refuses the row, which ends the rows. It runs no Python
 * code and keeps nothing. */
typedef struct {
    int (*take)(void *context, const AologField *fields, Py_ssize_t width);
    void *context;
} AologSink;

#endif
