/* Rows: tuples filled from columns, for `aolog._speed`. What a reader runs for each record.
 *
 * It knows nothing of the log's format: columns are Arrow's own buffers (n+1 offsets u32, bytes, a
 * bitmap of what is present), numbers, or one object for all rows.
 */
#include "_rows.h"

#include <structmember.h>

#include <limits.h>
#include <stdint.h>
#include <string.h>

#define WIDTH_MAX 8

/* A column of byte strings: Arrow's buffers. Entries lie within the data, or reading them fails.
 * The pointers are the views' own, looked up once. */
typedef struct {
    const unsigned char *bits; /* NULL if all entries are there */
    const char *offsets;
    const char *bytes;
    size_t size;
    Py_buffer validity, cuts, data;
} Entries;

enum {
    SHARED = 'c',
    RISING = 'n',
    NUMBERS = 'q',
    BYTES = 'b',
    VIEWS = 'v',
    TEXT = 't',
    PAIRS = 'p'
};

typedef struct {
    char kind;
    long long first;   /* RISING: of row 0, one more with each row */
    Py_buffer numbers; /* NUMBERS: i64 each; PAIRS: offsets u32 into the entries */
    uint32_t last;     /* PAIRS: the last of them */
    Entries entries;   /* BYTES, VIEWS, TEXT; PAIRS: the first of each pair, as text */
    Entries seconds;   /* PAIRS: the second of each pair, as bytes */
} Column;

typedef struct {
    PyObject_HEAD
    PyObject *type; /* a subclass of tuple without fields of its own; NULL: entries, no rows */
    allocfunc alloc;
    Py_ssize_t width;
    Py_ssize_t at; /* of the next row */
    Py_ssize_t end;
    PyObject *shared[WIDTH_MAX]; /* SHARED: of all rows; NULL where a column varies */
    Column columns[WIDTH_MAX];
} Rows;

static inline uint32_t
offset_at(const char *offsets, Py_ssize_t i)
{
    uint32_t offset;
    memcpy(&offset, offsets + i * (Py_ssize_t)sizeof offset, sizeof offset);
    return offset;
}

/* --- an entry without a copy --------------------------------------------------------------- */

/* A buffer that nobody has to give back: who takes bytes or what is like them, and copies them at
 * once, as a producer of messages does, asks for such a one. (A memoryview has to be given back.) */
typedef struct {
    PyObject_HEAD
    PyObject *rows; /* which hold the data */
    const char *bytes;
    Py_ssize_t size;
} View;

static PyTypeObject *view_type; /* as of the module that was made last; never let go */

static PyObject *
view_of(PyObject *rows, const char *bytes, Py_ssize_t size)
{
    View *view = PyObject_New(View, view_type);
    if (view == NULL)
        return NULL;
    Py_INCREF(rows);
    view->rows = rows;
    view->bytes = bytes;
    view->size = size;
    return (PyObject *)view;
}

static void
view_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    Py_DECREF(((View *)self)->rows);
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
    {Py_tp_doc, "An entry of a column of bytes, where it stands; see speed.PythonRows."},
    {Py_tp_dealloc, view_dealloc},
    {Py_sq_length, view_len},
    {Py_bf_getbuffer, view_buffer},
    {0, NULL},
};

static PyType_Spec view_spec = {
    "aolog._speed.View", sizeof(View), 0,
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION | Py_TPFLAGS_IMMUTABLETYPE, view_slots,
};

/* --- the type's own ------------------------------------------------------------------------ */

/* What a new tuple has between its head and its items: nothing, since CPython 3.14 its hash, not
 * known yet. An allocator's zeros there would be the hash 0, and no set would find the row. */
static char fresh[16];
static size_t fresh_len;

int
aolog_rows_begin(PyObject *module)
{
    view_type = (PyTypeObject *)PyType_FromModuleAndSpec(module, &view_spec, NULL);
    if (view_type == NULL)
        return -1;
    PyObject *size = PyObject_GetAttrString((PyObject *)&PyTuple_Type, "__basicsize__");
    PyObject *tuple = PyTuple_New(1);
    Py_ssize_t len = size == NULL ? -1 : PyLong_AsSsize_t(size) - (Py_ssize_t)sizeof(PyVarObject);
    int known = tuple != NULL && len >= 0 && len <= (Py_ssize_t)sizeof fresh;
    if (known)
        memcpy(fresh, (char *)tuple + sizeof(PyVarObject), fresh_len = (size_t)len);
    else /* then everything runs in Python */
        PyErr_SetString(PyExc_ImportError, "the tuples of this Python are of another layout");
    Py_XDECREF(size);
    Py_XDECREF(tuple);
    return known ? 0 : -1;
}

/* --- life ---------------------------------------------------------------------------------- */

static int
rows_traverse(PyObject *self, visitproc visit, void *arg)
{
    Rows *rows = (Rows *)self;
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(rows->type);
    for (Py_ssize_t i = 0; i < rows->width; i++)
        Py_VISIT(rows->shared[i]);
    return 0;
}

static void
entries_release(Entries *entries)
{
    PyBuffer_Release(&entries->validity);
    PyBuffer_Release(&entries->cuts);
    PyBuffer_Release(&entries->data);
}

static int
rows_clear(PyObject *self)
{
    Rows *rows = (Rows *)self;
    rows->end = 0; /* nothing is made any more */
    for (Py_ssize_t i = 0; i < rows->width; i++) {
        Column *column = &rows->columns[i];
        Py_CLEAR(rows->shared[i]);
        PyBuffer_Release(&column->numbers);
        entries_release(&column->entries);
        entries_release(&column->seconds);
    }
    Py_CLEAR(rows->type);
    return 0;
}

static void
rows_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    rows_clear(self);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
    Py_DECREF(type);
}

/* --- making one ---------------------------------------------------------------------------- */

static int
too_short(void)
{
    PyErr_SetString(PyExc_ValueError, "a column has fewer entries than there are rows");
    return -1;
}

/* Takes (validity or None, offsets, data); how many entries there are, -1 on an error. */
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

/* Fills a column from what stands for it; how many rows it has, PY_SSIZE_T_MAX if any number. */
static Py_ssize_t
column_take(Column *column, char kind, PyObject *given)
{
    PyObject *lists, *firsts, *seconds;
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
        return entries_take(&column->entries, given);
    case PAIRS:
        if (!PyTuple_Check(given)) {
            PyErr_SetString(PyExc_TypeError, "pairs are a tuple: offsets, firsts, seconds");
            return -1;
        }
        if (!PyArg_ParseTuple(given, "OOO", &lists, &firsts, &seconds) ||
            PyObject_GetBuffer(lists, &column->numbers, PyBUF_SIMPLE) < 0 ||
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
        PyErr_SetString(PyExc_ValueError, "kinds are of c n q b v t p");
        return -1;
    }
}

/* Not __init__, which could be called again: columns never change. */
static PyObject *
rows_new(PyTypeObject *kind, PyObject *args, PyObject *kwargs)
{
    PyObject *type, *columns;
    const char *kinds;
    Py_ssize_t width, first, end;
    static char *names[] = {"kind", "kinds", "columns", "first", "end", NULL};
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "Os#O!nn", names, &type, &kinds, &width,
                                     &PyTuple_Type, &columns, &first, &end))
        return NULL;
    int alone = type == Py_None;
    if (!alone && (!PyType_Check(type) ||
                   !PyType_IsSubtype((PyTypeObject *)type, &PyTuple_Type) ||
                   !(PyType_GetFlags((PyTypeObject *)type) & Py_TPFLAGS_HEAPTYPE))) {
        PyErr_SetString(PyExc_TypeError, "rows are a subclass of tuple");
        return NULL;
    }
    if (width > WIDTH_MAX || width != PyTuple_Size(columns) ||
        (alone ? width != 1 || kinds[0] == SHARED : kinds[0] != RISING)) {
        PyErr_SetString(PyExc_ValueError, "the first column rises, and each has a kind");
        return NULL;
    }
    if (first < 0 || end < first) {
        PyErr_SetString(PyExc_ValueError, "0 <= first <= end");
        return NULL;
    }
    Rows *self = (Rows *)((allocfunc)PyType_GetSlot(kind, Py_tp_alloc))(kind, 0);
    if (self == NULL)
        return NULL;
    for (Py_ssize_t i = 0; i < width; i++) {
        self->width = i + 1; /* what is taken is given back */
        PyObject *given = PyTuple_GetItem(columns, i);
        if (kinds[i] == SHARED) {
            Py_INCREF(given);
            self->shared[i] = given;
            continue;
        }
        Py_ssize_t count = column_take(&self->columns[i], kinds[i], given);
        if (count < end && count >= 0)
            count = too_short();
        if (count < 0) {
            Py_DECREF(self);
            return NULL;
        }
    }
    if (!alone) {
        Py_INCREF(type);
        self->type = type;
        self->alloc = (allocfunc)PyType_GetSlot((PyTypeObject *)type, Py_tp_alloc);
    }
    self->at = first;
    self->end = end;
    return (PyObject *)self;
}

/* --- a row --------------------------------------------------------------------------------- */

static inline PyObject *
entry(const Entries *entries, Py_ssize_t i, char kind, PyObject *rows)
{
    if (entries->bits != NULL && !(entries->bits[i >> 3] >> (i & 7) & 1))
        Py_RETURN_NONE;
    uint32_t begin = offset_at(entries->offsets, i), end = offset_at(entries->offsets, i + 1);
    if (end < begin || end > entries->size) {
        PyErr_SetString(PyExc_ValueError, "an entry lies outside of the data");
        return NULL;
    }
    const char *bytes = entries->bytes + begin;
    Py_ssize_t size = (Py_ssize_t)(end - begin);
    switch (kind) {
    case TEXT:
        return PyUnicode_DecodeUTF8(bytes, size, NULL);
    case VIEWS:
        return view_of(rows, bytes, size);
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
        PyObject *first = entry(&column->entries, at, TEXT, NULL);
        PyObject *second = first == NULL ? NULL : entry(&column->seconds, at, BYTES, NULL);
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

static inline PyObject *
field(const Column *column, Py_ssize_t i, PyObject *rows)
{
    int64_t number;
    switch (column->kind) {
    case RISING:
        return PyLong_FromLongLong(column->first + i);
    case BYTES:
    case VIEWS:
    case TEXT:
        return entry(&column->entries, i, column->kind, rows);
    case NUMBERS:
        memcpy(&number, (const char *)column->numbers.buf + i * (Py_ssize_t)sizeof number,
               sizeof number);
        return PyLong_FromLongLong(number);
    default:
        return pairs_of(column, i);
    }
}

static PyObject *
give_back(PyObject **items, Py_ssize_t count)
{
    while (count > 0)
        Py_DECREF(items[--count]);
    return NULL;
}

static PyObject *
rows_next(PyObject *object)
{
    Rows *self = (Rows *)object;
    Py_ssize_t i = self->at;
    if (i >= self->end)
        return NULL;
    PyObject *items[WIDTH_MAX];
    self->at = i + 1; /* taken: a garbage collection below may run code that comes here again */
    if (self->type == NULL) {
        PyObject *item = field(&self->columns[0], i, object);
        if (item == NULL)
            self->at = i;
        return item;
    }
    for (Py_ssize_t k = 0; k < self->width; k++) {
        PyObject *item = self->shared[k];
        if (item != NULL)
            Py_INCREF(item);
        else if ((item = field(&self->columns[k], i, object)) == NULL) {
            self->at = i;
            return give_back(items, k);
        }
        items[k] = item;
    }
    /* Only now, so that nobody, not even its own __del__, sees a row without its items. */
    PyObject *row = self->alloc((PyTypeObject *)self->type, self->width);
    if (row == NULL) {
        self->at = i;
        return give_back(items, self->width);
    }
    if (fresh_len != 0)
        memcpy((char *)row + sizeof(PyVarObject), fresh, fresh_len);
    for (Py_ssize_t k = 0; k < self->width; k++)
        PyTuple_SetItem(row, k, items[k]);
    return row;
}

static PyObject *
rows_stop(PyObject *self, PyObject *Py_UNUSED(ignored))
{
    ((Rows *)self)->at = ((Rows *)self)->end;
    Py_RETURN_NONE;
}

static PyObject *
rows_self(PyObject *self)
{
    Py_INCREF(self);
    return self;
}

static PyMemberDef rows_members[] = {
    {"at", T_PYSSIZET, offsetof(Rows, at), READONLY, "Of the next row."},
    {NULL, 0, 0, 0, NULL},
};

static PyMethodDef rows_methods[] = {
    {"stop", rows_stop, METH_NOARGS, "There are no more rows."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot rows_slots[] = {
    {Py_tp_doc, "Rows(kind, kinds, columns, first, end): an iterator over tuples of a type, or over "
                "one column's entries; see speed.PythonRows."},
    {Py_tp_new, rows_new},
    {Py_tp_traverse, rows_traverse},
    {Py_tp_clear, rows_clear},
    {Py_tp_dealloc, rows_dealloc},
    {Py_tp_iter, rows_self},
    {Py_tp_iternext, rows_next},
    {Py_tp_members, rows_members},
    {Py_tp_methods, rows_methods},
    {0, NULL},
};

PyType_Spec aolog_rows_spec = {
    "aolog._speed.Rows", sizeof(Rows), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC, rows_slots,
};
