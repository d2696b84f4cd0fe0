/* A column and its entries, only for `_rows.c`. It is a header and not compiled alone, so that a row's
 * fields are made without a call each.
 *
 * It does not know the log's format: columns are Arrow's buffers (n+1 offsets u32, bytes, a validity
 * bitmap), numbers, or one object for all rows.
 */
#ifndef AOLOG_COLUMN_H
#define AOLOG_COLUMN_H

#include "_entries.h"
#include "_rows.h"

#include <limits.h>

/* The letters of speed.shared, rising, numbers, binary, text and pairs. */
enum { SHARED = 'c', RISING = 'n', NUMBERS = 'q', BYTES = 'b', TEXT = 't', PAIRS = 'p' };

typedef struct {
    char kind;
    PyObject *shared;  /* SHARED: of all rows; NUMBERS: the last one, as neighbours often have the same; or NULL */
    long long first;   /* RISING: of row 0; each row adds one. NUMBERS: of `shared` */
    uint32_t last;     /* PAIRS: the last offset */
    Entries entries;   /* BYTES, TEXT; PAIRS: the first item of each pair, text */
    Entries seconds;   /* PAIRS: the second item of each pair, bytes */
    Py_buffer numbers; /* NUMBERS: i64 each; PAIRS: offsets u32 into the entries */
} Column;

/* --- life ---------------------------------------------------------------------------------- */

static void
column_clear(Column *column)
{
    Py_CLEAR(column->shared);
    entries_clear(&column->entries);
    entries_clear(&column->seconds);
    PyBuffer_Release(&column->numbers);
}

/* --- reading the argument ------------------------------------------------------------------ */

/* Fills a column from its argument; returns its number of rows, PY_SSIZE_T_MAX for any number. */
static Py_ssize_t
column_take(Column *column, PyObject *given)
{
    PyObject *offsets, *firsts, *seconds;
    Py_ssize_t count, more;
    switch (column->kind) {
    case SHARED:
        Py_INCREF(given);
        column->shared = given;
        return PY_SSIZE_T_MAX;
    case RISING:
        column->first = PyLong_AsLongLong(given);
        if (column->first == -1 && PyErr_Occurred())
            return -1;
        return column->first < 0 ? PY_SSIZE_T_MAX : (Py_ssize_t)(LLONG_MAX - column->first);
    case NUMBERS:
        if (PyObject_GetBuffer(given, &column->numbers, PyBUF_SIMPLE) < 0)
            return -1;
        return column->numbers.len / (Py_ssize_t)sizeof(int64_t);
    case BYTES:
    case TEXT:
        return entries_take(&column->entries, given);
    case PAIRS:
        if (!PyTuple_Check(given)) {
            PyErr_SetString(PyExc_TypeError, "pairs are a tuple: offsets, firsts, seconds");
            return -1;
        }
        if (!PyArg_ParseTuple(given, "OOO", &offsets, &firsts, &seconds) ||
            PyObject_GetBuffer(offsets, &column->numbers, PyBUF_SIMPLE) < 0 ||
            (count = entries_take(&column->entries, firsts)) < 0 ||
            (more = entries_take(&column->seconds, seconds)) < 0)
            return -1;
        count = count < more ? count : more;
        more = column->numbers.len / (Py_ssize_t)sizeof(uint32_t) - 1;
        if (more < 0)
            return too_short();
        column->last = offset_at(column->numbers.buf, more); /* bounds all: see `pairs_of` */
        return (Py_ssize_t)column->last > count ? too_short() : more;
    default:
        PyErr_SetString(PyExc_ValueError, "a column is made by a function of speed.py");
        return -1;
    }
}

/* --- at a row ------------------------------------------------------------------------------ */

static inline PyObject *
entry(const Entries *entries, Py_ssize_t i, int is_text)
{
    const char *bytes;
    size_t size;
    if (!entry_bytes(entries, i, &bytes, &size))
        return NULL;
    if (bytes == NULL)
        Py_RETURN_NONE;
    return is_text ? PyUnicode_DecodeUTF8(bytes, (Py_ssize_t)size, NULL) : PyBytes_FromStringAndSize(bytes, (Py_ssize_t)size);
}

static PyObject *
pairs_of(const Column *column, Py_ssize_t i)
{
    uint32_t begin = offset_at(column->numbers.buf, i), end = offset_at(column->numbers.buf, i + 1);
    if (end < begin || end > column->last) {
        PyErr_SetString(PyExc_ValueError, "an entry lies outside of the data");
        return NULL;
    }
    PyObject *pairs = PyTuple_New((Py_ssize_t)(end - begin));
    for (uint32_t at = begin; pairs != NULL && at < end; at++) {
        PyObject *pair = PyTuple_New(2);
        PyObject *first = entry(&column->entries, at, 1);
        PyObject *second = first == NULL ? NULL : entry(&column->seconds, at, 0);
        if (pair == NULL || second == NULL) {
            Py_XDECREF(pair);
            Py_XDECREF(first);
            Py_XDECREF(second);
            Py_CLEAR(pairs);
            break;
        }
        PyTuple_SetItem(pair, 0, first);
        PyTuple_SetItem(pair, 1, second);
        PyTuple_SetItem(pairs, (Py_ssize_t)(at - begin), pair);
    }
    return pairs;
}

/* The entry at a row. */
static inline PyObject *
field(Column *column, Py_ssize_t i)
{
    int64_t number;
    switch (column->kind) {
    case SHARED:
        Py_INCREF(column->shared);
        return column->shared;
    case RISING:
        return PyLong_FromLongLong(column->first + i);
    case NUMBERS:
        number = number_at(&column->numbers, i);
        if (number == INT64_MIN)
            Py_RETURN_NONE;
        if (column->shared == NULL || number != column->first) {
            PyObject *made = PyLong_FromLongLong(number), *last = column->shared;
            if (made == NULL)
                return NULL;
            column->shared = made;
            column->first = number;
            Py_XDECREF(last);
        }
        return Py_NewRef(column->shared);
    case BYTES:
    case TEXT:
        return entry(&column->entries, i, column->kind == TEXT);
    default:
        return pairs_of(column, i);
    }
}

#endif
