/* A column and its entries, only for `_rows.c`. It is a header and not compiled alone, so that a row's
 * fields are made without a call each.
 *
 * It does not know the log's format: columns are Arrow's buffers (n+1 offsets u32, bytes, a validity
 * bitmap), numbers, bytes of one length, lists, or one object for all rows.
 */
#ifndef AOLOG_COLUMN_H
#define AOLOG_COLUMN_H

#include "_pieces.h"
#include "_sink.h"

#include <limits.h>

enum {
    SHARED = 'c',
    RISING = 'n',
    NUMBERS = 'q',
    BYTES = 'b',
    VIEWS = 'v',
    TEXT = 't',
    PAIRS = 'p',
    OBJECTS = 'o',
    FIRSTS = '1',
    SECONDS = '2',
    TAGGED = 'h'
};

typedef struct {
    char kind;
    long long first;   /* RISING: of row 0; each row adds one */
    Py_buffer numbers; /* NUMBERS: i64 each; PAIRS: offsets u32 into the entries; TAGGED: bytes */
    uint32_t last;     /* PAIRS: the last offset */
    Py_ssize_t at;     /* BYTES, VIEWS, TEXT: the piece of the last row */
    Pieces *entries;   /* BYTES, VIEWS, TEXT: the pieces; PAIRS: the first item of each pair, text */
    Pieces *seconds;   /* PAIRS: the second item of each pair, bytes */
    PyObject *object;  /* OBJECTS, FIRSTS, SECONDS: the list; TAGGED: the tag */
    PyObject *made;    /* TAGGED: the last row's list, used again if nobody else owns it */
    Py_ssize_t size;   /* TAGGED: bytes of a row */
} Column;

/* --- a tuple that is filled again ---------------------------------------------------------- */

/* The bytes of a new tuple between its head and its items: none; since CPython 3.14 its hash, not known
 * yet. An allocator's zeros would be the hash 0, and no set would find the row. */
static char fresh[16];
static size_t fresh_len;

/* Makes it like a new one: without a hash, and tracked by the collector, which untracks tuples that own
 * nothing that it tracks. */
static inline void
refresh(PyObject *tuple)
{
    if (fresh_len != 0)
        memcpy((char *)tuple + sizeof(PyVarObject), fresh, fresh_len);
    if (!PyObject_GC_IsTracked(tuple))
        PyObject_GC_Track(tuple);
}

/* --- life ---------------------------------------------------------------------------------- */

static int
column_traverse(const Column *column, visitproc visit, void *arg)
{
    Py_VISIT(column->object);
    Py_VISIT(column->made);
    return 0;
}

static void
column_clear(Column *column)
{
    Py_CLEAR(column->object);
    Py_CLEAR(column->made);
    Py_CLEAR(column->entries);
    Py_CLEAR(column->seconds);
    PyBuffer_Release(&column->numbers);
}

/* --- reading the argument ------------------------------------------------------------------ */

/* Fills a column from its argument; returns its number of rows, PY_SSIZE_T_MAX for any number. */
static Py_ssize_t
column_take(Column *column, char kind, PyObject *given)
{
    PyObject *lists, *firsts, *seconds, *tag;
    Py_ssize_t count, more;
    column->kind = kind;
    switch (kind) {
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
    case VIEWS:
    case TEXT:
        return pieces_take(&column->entries, given);
    case PAIRS:
        if (!PyTuple_Check(given)) {
            PyErr_SetString(PyExc_TypeError, "pairs are a tuple: offsets, firsts, seconds");
            return -1;
        }
        if (!PyArg_ParseTuple(given, "OO!O!", &lists, &PyTuple_Type, &firsts, &PyTuple_Type,
                              &seconds) ||
            PyObject_GetBuffer(lists, &column->numbers, PyBUF_SIMPLE) < 0 ||
            (count = pieces_take(&column->entries, firsts)) < 0 ||
            (more = pieces_take(&column->seconds, seconds)) < 0)
            return -1;
        count = count < more ? count : more;
        more = column->numbers.len / (Py_ssize_t)sizeof(uint32_t) - 1;
        if (more < 0)
            return too_short();
        column->last = offset_at(column->numbers.buf, more); /* bounds all: see `pairs_of` */
        return (Py_ssize_t)column->last > count ? too_short() : more;
    case OBJECTS:
    case FIRSTS:
    case SECONDS:
        if (!PyList_Check(given)) {
            PyErr_SetString(PyExc_TypeError, "objects are a list");
            return -1;
        }
        Py_INCREF(given);
        column->object = given;
        return PyList_Size(given);
    case TAGGED:
        if (!PyTuple_Check(given)) {
            PyErr_SetString(PyExc_TypeError, "a tag, bytes a row, and all bytes are a tuple");
            return -1;
        }
        if (!PyArg_ParseTuple(given, "OnO", &tag, &column->size, &seconds) ||
            PyObject_GetBuffer(seconds, &column->numbers, PyBUF_SIMPLE) < 0)
            return -1;
        Py_INCREF(tag);
        column->object = tag;
        return column->size < 1 ? too_short() : column->numbers.len / column->size;
    default:
        PyErr_SetString(PyExc_ValueError, "kinds are of c n q b v t p o 1 2 h");
        return -1;
    }
}

/* --- at a row ------------------------------------------------------------------------------ */

/* The piece with a row's entry. It exists: there are at least as many entries as rows. */
static inline const Entries *
piece_of(Column *column, Py_ssize_t i)
{
    const Entries *piece = &column->entries->piece[column->at];
    if (i < piece->first) { /* a row before the last one was requested */
        column->at = 0;
        piece = column->entries->piece;
    }
    while (i >= piece->end) {
        column->at++;
        piece++;
    }
    return piece;
}

/* Finds an entry: -1 if it is outside the data, 0 if it is None, else 1. */
static inline int
find_entry(const Entries *piece, Py_ssize_t i, const char **bytes, Py_ssize_t *size)
{
    *bytes = NULL;
    *size = 0;
    if (piece->bits != NULL && !(piece->bits[i >> 3] >> (i & 7) & 1))
        return 0;
    uint32_t begin = offset_at(piece->offsets, i), end = offset_at(piece->offsets, i + 1);
    if (end < begin || end > piece->size) {
        PyErr_SetString(PyExc_ValueError, "an entry lies outside of the data");
        return -1;
    }
    *bytes = piece->bytes + begin;
    *size = (Py_ssize_t)(end - begin);
    return 1;
}

/* before: see view_of. */
static inline PyObject *
entry(Pieces *pieces, const Entries *piece, Py_ssize_t i, char kind, PyObject *before)
{
    const char *bytes;
    Py_ssize_t size;
    int found = find_entry(piece, i, &bytes, &size);
    if (found < 0)
        return NULL;
    if (!found)
        Py_RETURN_NONE;
    switch (kind) {
    case TEXT:
        return PyUnicode_DecodeUTF8(bytes, size, NULL);
    case VIEWS:
        return view_of(pieces, bytes, size, before);
    default:
        return PyBytes_FromStringAndSize(bytes, size);
    }
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
        Pieces *firsts = column->entries, *seconds = column->seconds;
        PyObject *first = entry(firsts, firsts->piece, at, TEXT, NULL);
        PyObject *second =
            first == NULL ? NULL : entry(seconds, seconds->piece, at, BYTES, NULL);
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

/* An item of a list, which may have changed since. Borrowed. */
static inline PyObject *
object_of(const Column *column, Py_ssize_t i)
{
    PyObject *item = PyList_GetItem(column->object, i);
    if (item != NULL && column->kind != OBJECTS) {
        if (!PyTuple_Check(item)) {
            PyErr_SetString(PyExc_TypeError, "each of the list's items is a tuple");
            return NULL;
        }
        item = PyTuple_GetItem(item, column->kind == SECONDS);
    }
    return item;
}

/* A list of one pair: the tag and a row's bytes. The previous list is used again if nobody else owns it:
 * creating two containers for each row would take as long as everything else. */
static PyObject *
tagged(Column *column, Py_ssize_t i)
{
    const char *bytes = (const char *)column->numbers.buf + i * column->size;
    PyObject *second = PyBytes_FromStringAndSize(bytes, column->size), *list = column->made;
    if (second == NULL)
        return NULL;
    if (list != NULL && Py_REFCNT(list) == 1 && PyList_Size(list) == 1) {
        PyObject *pair = PyList_GetItem(list, 0);
        if (Py_REFCNT(pair) == 1 && PyTuple_CheckExact(pair) && PyTuple_Size(pair) == 2 &&
            PyTuple_GetItem(pair, 0) == column->object) {
            Py_INCREF(list);
            refresh(pair);
            PyTuple_SetItem(pair, 1, second);
            return list;
        }
    }
    PyObject *pair = PyTuple_New(2);
    list = PyList_New(1);
    if (list == NULL || pair == NULL) {
        Py_XDECREF(list);
        Py_XDECREF(pair);
        Py_DECREF(second);
        return NULL;
    }
    Py_INCREF(column->object);
    PyTuple_SetItem(pair, 0, column->object);
    PyTuple_SetItem(pair, 1, second);
    PyList_SetItem(list, 0, pair);
    PyObject *before = column->made;
    Py_INCREF(list);
    column->made = list;
    Py_XDECREF(before);
    return list;
}

static inline int64_t
number_at(const Column *column, Py_ssize_t i)
{
    int64_t number;
    memcpy(&number, (const char *)column->numbers.buf + i * (Py_ssize_t)sizeof number,
           sizeof number);
    return number;
}

/* The entry at a row, without an object for it. -1 and an exception on an error. */
static inline int
field_for_sink(Column *column, Py_ssize_t i, AologField *found)
{
    const Entries *piece;
    switch (column->kind) {
    case OBJECTS:
    case FIRSTS:
    case SECONDS:
        found->object = object_of(column, i);
        return found->object == NULL ? -1 : 0;
    case TAGGED:
        found->object = column->object;
        found->bytes = (const char *)column->numbers.buf + i * column->size;
        found->size = column->size;
        return 0;
    case BYTES:
    case VIEWS:
        piece = piece_of(column, i);
        return find_entry(piece, i - piece->first, &found->bytes, &found->size) < 0 ? -1 : 0;
    case NUMBERS:
        found->number = number_at(column, i);
        return 0;
    default:
        PyErr_SetString(PyExc_ValueError, "a sink takes columns of c q b v o 1 2 h");
        return -1;
    }
}

/* The entry at a row. before: the old item of a row that is filled again, or NULL. */
static inline PyObject *
field(Column *column, Py_ssize_t i, PyObject *before)
{
    const Entries *piece;
    PyObject *object;
    switch (column->kind) {
    case OBJECTS:
    case FIRSTS:
    case SECONDS:
        object = object_of(column, i);
        Py_XINCREF(object);
        return object;
    case TAGGED:
        return tagged(column, i);
    case RISING:
        return PyLong_FromLongLong(column->first + i);
    case BYTES:
    case VIEWS:
    case TEXT:
        piece = piece_of(column, i);
        return entry(column->entries, piece, i - piece->first, column->kind, before);
    case NUMBERS:
        return PyLong_FromLongLong(number_at(column, i));
    default:
        return pairs_of(column, i);
    }
}

#endif
