/* Byte strings in pieces, without copies, only for `_column.h`. It does not know the log's format: each
 * piece has Arrow's buffers (n+1 offsets u32, bytes, a validity bitmap).
 */
#ifndef AOLOG_PIECES_H
#define AOLOG_PIECES_H

#include "_rows.h"

#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* Arrow's buffers of byte strings. Reading an entry outside the data fails. The pointers are those of
 * the buffers, looked up once. */
typedef struct {
    const unsigned char *bits; /* NULL if all entries are present */
    const char *offsets;
    const char *bytes;
    size_t size;
    Py_ssize_t first, end; /* range of its entries among those of all pieces */
    Py_buffer validity, cuts, data;
} Entries;

/* A column of byte strings: consecutive pieces. A view of one entry keeps all of them. */
typedef struct {
    PyObject_VAR_HEAD
    Entries piece[1];
} Pieces;

static inline uint32_t
offset_at(const char *offsets, Py_ssize_t i)
{
    uint32_t offset;
    memcpy(&offset, offsets + i * (Py_ssize_t)sizeof offset, sizeof offset);
    return offset;
}

/* --- an entry without a copy --------------------------------------------------------------- */

/* A buffer that need not be released, for callers that copy bytes immediately, such as a producer of
 * messages. (A memoryview must be released.) */
typedef struct {
    PyObject_HEAD
    Pieces *pieces; /* own the data */
    const char *bytes;
    Py_ssize_t size;
} View;

static PyTypeObject *view_type, *pieces_type; /* of the last module; never released */

static void
view_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    Py_DECREF((PyObject *)((View *)self)->pieces);
    PyObject_Free(self);
    Py_DECREF(type);
}

static Py_ssize_t
view_len(PyObject *self)
{
    return ((View *)self)->size;
}

static int
view_buffer(PyObject *self, Py_buffer *buffer, int flags)
{
    View *view = (View *)self;
    return PyBuffer_FillInfo(buffer, self, (void *)view->bytes, view->size, 1, flags);
}

static PyType_Slot view_slots[] = {
    {Py_tp_doc, "An entry of a column of bytes, not copied; see speed.PythonRows."},
    {Py_tp_dealloc, view_dealloc},
    {Py_sq_length, view_len},
    {Py_bf_getbuffer, view_buffer},
    {0, NULL},
};

static PyType_Spec view_spec = {
    "aolog.format.native._speed.View", sizeof(View), 0,
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION | Py_TPFLAGS_IMMUTABLETYPE, view_slots,
};

static void
pieces_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    Entries *piece = ((Pieces *)self)->piece;
    for (Py_ssize_t i = 0; i < Py_SIZE(self); i++) {
        PyBuffer_Release(&piece[i].validity);
        PyBuffer_Release(&piece[i].cuts);
        PyBuffer_Release(&piece[i].data);
    }
    PyObject_Free(self);
    Py_DECREF(type);
}

static PyType_Slot pieces_slots[] = {{Py_tp_dealloc, pieces_dealloc}, {0, NULL}};

static PyType_Spec pieces_spec = {
    "aolog.format.native._speed.Pieces", offsetof(Pieces, piece), sizeof(Entries),
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION | Py_TPFLAGS_IMMUTABLETYPE, pieces_slots,
};

/* --- reading the arguments ------------------------------------------------------------------ */

static int
too_short(void)
{
    PyErr_SetString(PyExc_ValueError, "a column has fewer entries than there are rows");
    return -1;
}

/* Reads (validity or None, offsets, data); returns the number of entries, -1 on an error. */
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

/* Reads such a tuple, or a list of them; returns the number of entries, -1 on an error. The column owns
 * what was read before an error. */
static Py_ssize_t
pieces_take(Pieces **taken, PyObject *given)
{
    int is_list = PyList_Check(given);
    Py_ssize_t count = is_list ? PyList_Size(given) : 1, end = 0;
    Pieces *pieces = PyObject_NewVar(Pieces, pieces_type, count);
    if (pieces == NULL)
        return -1;
    memset(pieces->piece, 0, (size_t)count * sizeof(Entries));
    *taken = pieces;
    for (Py_ssize_t i = 0; i < count; i++) {
        /* Code of a buffer may have changed the list meanwhile. */
        PyObject *one = is_list ? PyList_GetItem(given, i) : given;
        if (one == NULL)
            return -1;
        Py_INCREF(one);
        Py_ssize_t more = entries_take(&pieces->piece[i], one);
        Py_DECREF(one);
        if (more < 0)
            return -1;
        pieces->piece[i].first = end;
        pieces->piece[i].end = end += more;
    }
    return end;
}

/* --- at a row ------------------------------------------------------------------------------ */

/* before: the old item of a row that is filled again, or NULL. A view that nobody else owns is used
 * again. */
static inline PyObject *
view_of(Pieces *pieces, const char *bytes, Py_ssize_t size, PyObject *before)
{
    View *view;
    if (before != NULL && Py_REFCNT(before) == 1 && Py_TYPE(before) == view_type) {
        Py_INCREF(before);
        view = (View *)before;
    } else {
        view = PyObject_New(View, view_type);
        if (view == NULL)
            return NULL;
        Py_INCREF((PyObject *)pieces);
        view->pieces = pieces;
    }
    view->bytes = bytes;
    view->size = size;
    return (PyObject *)view;
}

#endif
