/* Arrow's buffers of byte strings, and numbers, read as what they may be: any bytes. For `_column.h`, and for the bridge,
 * which sends a column's entries as they stand (bridge/kafka/_messages.h).
 */
#ifndef AOLOG_ENTRIES_H
#define AOLOG_ENTRIES_H

#define PY_SSIZE_T_CLEAN
#ifndef Py_LIMITED_API
#define Py_LIMITED_API 0x030B0000
#endif
#include <Python.h>

#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* Reading an entry outside the data fails. The pointers are those of the buffers, looked up once. */
typedef struct {
    const unsigned char *bits; /* NULL if all entries are present */
    const char *offsets;
    const char *bytes;
    size_t size;
    Py_buffer validity, cuts, data;
} Entries;

static void
entries_clear(Entries *entries)
{
    PyBuffer_Release(&entries->validity);
    PyBuffer_Release(&entries->cuts);
    PyBuffer_Release(&entries->data);
    *entries = (Entries){0}; /* the next ones may have no nulls */
}

static int
too_short(void)
{
    PyErr_SetString(PyExc_ValueError, "a column has fewer entries than there are rows");
    return -1;
}

/* Reads (validity or None, offsets, data) into cleared entries; returns their number, -1 on an error. */
static Py_ssize_t
entries_take(Entries *entries, PyObject *given)
{
    PyObject *validity, *offsets, *data;
    if (!PyTuple_Check(given)) {
        PyErr_SetString(PyExc_TypeError, "entries are a tuple: validity, offsets, data");
        return -1;
    }
    if (!PyArg_ParseTuple(given, "OOO", &validity, &offsets, &data) ||
        PyObject_GetBuffer(offsets, &entries->cuts, PyBUF_SIMPLE) < 0 ||
        PyObject_GetBuffer(data, &entries->data, PyBUF_SIMPLE) < 0)
        return -1;
    entries->offsets = entries->cuts.buf;
    entries->bytes = entries->data.buf;
    entries->size = (size_t)entries->data.len;
    Py_ssize_t count = entries->cuts.len / (Py_ssize_t)sizeof(uint32_t) - 1;
    if (count < 0)
        return too_short();
    if (validity != Py_None) {
        if (PyObject_GetBuffer(validity, &entries->validity, PyBUF_SIMPLE) < 0)
            return -1;
        if (entries->validity.len < (count + 7) / 8)
            return too_short();
        entries->bits = entries->validity.buf;
    }
    return count;
}

static inline uint32_t
offset_at(const char *offsets, Py_ssize_t i)
{
    uint32_t offset;
    memcpy(&offset, offsets + i * (Py_ssize_t)sizeof offset, sizeof offset);
    return offset;
}

/* The bytes of the entry at i, NULL of a null. 0 and an exception on an error. */
static inline int
entry_bytes(const Entries *entries, Py_ssize_t i, const char **bytes, size_t *size)
{
    *bytes = NULL;
    *size = 0;
    if (entries->bits != NULL && !(entries->bits[i >> 3] >> (i & 7) & 1))
        return 1;
    uint32_t begin = offset_at(entries->offsets, i), end = offset_at(entries->offsets, i + 1);
    if (end < begin || end > entries->size) {
        PyErr_SetString(PyExc_ValueError, "an entry lies outside of the data");
        return 0;
    }
    *bytes = entries->bytes + begin;
    *size = end - begin;
    return 1;
}

/* Of i64 numbers. */
static inline int64_t
number_at(const Py_buffer *numbers, Py_ssize_t i)
{
    int64_t number;
    memcpy(&number, (const char *)numbers->buf + i * (Py_ssize_t)sizeof number, sizeof number);
    return number;
}

#endif
