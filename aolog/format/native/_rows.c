/* Rows: tuples filled from columns, for `aolog.format.native._speed`, also for `async for`. Readers run it for each
 * record.
 */
#include "_column.h"

#include <structmember.h>

#define WIDTH_MAX 6 /* the fields of a record */

/* Its size is its number of columns. */
typedef struct {
    PyObject_VAR_HEAD
    PyTypeObject *type; /* a class derived from tuple; NULL: entries instead of rows */
    allocfunc alloc;
    Py_ssize_t at; /* index of the next row */
    Py_ssize_t end;
    PyObject *given[2]; /* the last two rows, the last one first; NULL for entries */
    Column columns[1];
} Rows;

/* --- the type ------------------------------------------------------------------------------ */

/* Slots of classes made in Python; they inherit the others. */
static destructor python_dealloc;

/* The bytes of a new tuple between its head and its items: none; since CPython 3.14 its hash, not known
 * yet. An allocator's zeros would be the hash 0, and no set would find the row. */
static char fresh[16];
static size_t fresh_len;

/* Whether this is a class of tuple made in Python, with only such bases. A class made in C may have
 * another layout: a struct sequence, such as os.stat_result, has items that its length does not count. */
static int
is_python_tuple(PyTypeObject *type)
{
    while (type != &PyTuple_Type) {
        if (type == NULL || (destructor)PyType_GetSlot(type, Py_tp_dealloc) != python_dealloc)
            return 0;
        type = PyType_GetSlot(type, Py_tp_base);
    }
    return 1;
}

int
aolog_rows_begin(void)
{
    PyObject *sample = PyObject_CallFunction((PyObject *)&PyType_Type, "s(O){}", "sample",
                                             (PyObject *)&PyTuple_Type);
    if (sample == NULL)
        return -1;
    python_dealloc = (destructor)PyType_GetSlot((PyTypeObject *)sample, Py_tp_dealloc);
    Py_DECREF(sample);
    PyObject *size = PyObject_GetAttrString((PyObject *)&PyTuple_Type, "__basicsize__");
    PyObject *tuple = PyTuple_New(1);
    Py_ssize_t len = size == NULL ? -1 : PyLong_AsSsize_t(size) - (Py_ssize_t)sizeof(PyVarObject);
    int known = tuple != NULL && len >= 0 && len <= (Py_ssize_t)sizeof fresh;
    if (known)
        memcpy(fresh, (char *)tuple + sizeof(PyVarObject), fresh_len = (size_t)len);
    else /* then Python is used */
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
    Py_VISIT(rows->given[0]);
    Py_VISIT(rows->given[1]);
    for (Py_ssize_t i = 0; i < Py_SIZE((PyObject *)rows); i++)
        Py_VISIT(rows->columns[i].shared);
    return 0;
}

static void
forget(Rows *rows)
{
    Py_CLEAR(rows->given[0]);
    Py_CLEAR(rows->given[1]);
}

static int
rows_clear(PyObject *self)
{
    Rows *rows = (Rows *)self;
    rows->end = 0; /* no more rows */
    forget(rows);
    for (Py_ssize_t i = 0; i < Py_SIZE((PyObject *)rows); i++)
        column_clear(&rows->columns[i]);
    Py_CLEAR(rows->type);
    return 0;
}

/* Of both types. */
static void
rows_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    ((inquiry)PyType_GetSlot(type, Py_tp_clear))(self);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
    Py_DECREF(type);
}

/* --- making one ---------------------------------------------------------------------------- */

/* Reads (letter, argument). 0; -1 and an exception on an error, or if there are fewer rows. */
static int
take_column(Column *column, PyObject *given, Py_ssize_t end)
{
    int letter;
    PyObject *argument;
    if (!PyTuple_Check(given)) {
        PyErr_SetString(PyExc_TypeError, "a column is made by a function of speed.py");
        return -1;
    }
    if (!PyArg_ParseTuple(given, "CO", &letter, &argument))
        return -1;
    column->kind = letter < 128 ? (char)letter : 0;
    Py_ssize_t count = column_take(column, argument);
    return count < 0 ? -1 : count < end ? too_short() : 0;
}

/* Not __init__, which could be called again: columns never change. */
static PyObject *
rows_new(PyTypeObject *kind, PyObject *args, PyObject *kwargs)
{
    PyObject *type, *columns;
    Py_ssize_t first, end;
    static char *names[] = {"kind", "columns", "first", "end", NULL};
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OO!nn", names, &type, &PyTuple_Type, &columns,
                                     &first, &end))
        return NULL;
    int alone = type == Py_None;
    if (!alone && (!PyType_Check(type) || !is_python_tuple((PyTypeObject *)type))) {
        PyErr_SetString(PyExc_TypeError, "rows are of a class derived from tuple in Python");
        return NULL;
    }
    Py_ssize_t width = PyTuple_Size(columns);
    if (width < 1 || width > (alone ? 1 : WIDTH_MAX) || first < 0 || end < first) {
        PyErr_SetString(PyExc_ValueError, "1 to 6 columns, one for rows without a kind, and 0 <= first <= end");
        return NULL;
    }
    Rows *self = (Rows *)((allocfunc)PyType_GetSlot(kind, Py_tp_alloc))(kind, width);
    if (self == NULL)
        return NULL;
    for (Py_ssize_t i = 0; i < width; i++)
        if (take_column(&self->columns[i], PyTuple_GetItem(columns, i), end) < 0) {
            Py_DECREF(self);
            return NULL;
        }
    if (!alone) {
        Py_INCREF(type);
        self->type = (PyTypeObject *)type;
        self->alloc = (allocfunc)PyType_GetSlot(self->type, Py_tp_alloc);
    }
    self->at = first;
    self->end = end;
    return (PyObject *)self;
}

/* --- a row --------------------------------------------------------------------------------- */

/* The row at i; NULL on an error. As `zip` does, it fills a row again that nobody has kept: making and freeing a row
 * takes as long as its items. The last one is mostly the caller's until it has this one, so it is the one before. */
static inline PyObject *
row_at(Rows *self, Py_ssize_t i)
{
    PyObject *items[WIDTH_MAX], *row = NULL;
    Py_ssize_t made = 0, width = Py_SIZE((PyObject *)self);
    while (made < width && (items[made] = field(&self->columns[made], i)) != NULL)
        made++;
    if (made == width) {
        PyObject *before = self->given[1];
        if (before != NULL && Py_REFCNT(before) == 1)
            row = Py_NewRef(before);
        else /* after the items, so that no code, not even its __del__, sees a row without them */
            row = self->alloc(self->type, made);
    }
    if (row != NULL) {
        if (fresh_len != 0)
            memcpy((char *)row + sizeof(PyVarObject), fresh, fresh_len);
        PyObject **at = (PyObject **)((char *)row + sizeof(PyVarObject) + fresh_len);
        for (Py_ssize_t k = 0; k < made; k++) {
            PyObject *item = at[k]; /* NULL in a new row */
            at[k] = items[k];
            items[k] = item;
        }
        PyObject *oldest = self->given[1];
        self->given[1] = self->given[0];
        self->given[0] = Py_NewRef(row);
        Py_XDECREF(oldest);
    }
    while (made > 0)
        Py_XDECREF(items[--made]);
    return row;
}

static PyObject *
rows_next(PyObject *object)
{
    Rows *self = (Rows *)object;
    Py_ssize_t i = self->at;
    if (i >= self->end) {
        forget(self);
        return NULL;
    }
    self->at = i + 1; /* advance first: a garbage collection below may run code that calls this again */
    PyObject *row = self->type == NULL ? field(&self->columns[0], i) : row_at(self, i);
    if (row == NULL)
        self->at = i;
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
    {"at", T_PYSSIZET, offsetof(Rows, at), READONLY, "The index of the next row."},
    {NULL, 0, 0, 0, NULL},
};

static PyMethodDef rows_methods[] = {
    {"stop", rows_stop, METH_NOARGS, "Drops the remaining rows."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot rows_slots[] = {
    {Py_tp_doc, "Rows(kind, columns, first, end): an iterator over tuples of a type, or over "
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
    "aolog.format.native._speed.Rows", offsetof(Rows, columns), sizeof(Column), Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC, rows_slots,
};

/* --- awaited ------------------------------------------------------------------------------- */

/* An asynchronous iterator over rows. It is also the awaitable of each row that is there: nothing is made for a row, and
 * no Python runs, as in an asynchronous generator. */
typedef struct {
    PyObject_HEAD
    PyObject *more; /* called with this iterator if there is no row: returns an awaitable of the next one */
    Rows *rows;     /* NULL until `more` has assigned some */
    int is_asked;   /* whether a row waits for its `await` */
} AsyncRows;

static int
async_traverse(PyObject *self, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(((AsyncRows *)self)->more);
    Py_VISIT(((AsyncRows *)self)->rows);
    return 0;
}

static int
async_clear(PyObject *self)
{
    Py_CLEAR(((AsyncRows *)self)->more);
    Py_CLEAR(((AsyncRows *)self)->rows);
    return 0;
}

static PyObject *
async_new(PyTypeObject *kind, PyObject *args, PyObject *kwargs)
{
    PyObject *more;
    static char *names[] = {"more", NULL};
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O", names, &more))
        return NULL;
    AsyncRows *self = (AsyncRows *)((allocfunc)PyType_GetSlot(kind, Py_tp_alloc))(kind, 0);
    if (self != NULL)
        self->more = Py_NewRef(more);
    return (PyObject *)self;
}

static PyObject *
async_take(PyObject *object, PyObject *rows)
{
    AsyncRows *self = (AsyncRows *)object;
    if (PyType_GetSlot(Py_TYPE(rows), Py_tp_iternext) != (void *)rows_next) {
        PyErr_SetString(PyExc_TypeError, "take takes Rows");
        return NULL;
    }
    PyObject *before = (PyObject *)self->rows;
    self->rows = (Rows *)Py_NewRef(rows);
    Py_XDECREF(before);
    Py_RETURN_NONE;
}

static PyObject *
async_anext(PyObject *object)
{
    AsyncRows *self = (AsyncRows *)object;
    self->is_asked = self->rows != NULL && self->rows->at < self->rows->end;
    if (self->is_asked)
        return Py_NewRef(object);
    return PyObject_CallFunctionObjArgs(self->more, object, NULL);
}

/* It never waits: the row is its result. */
static PySendResult
async_send(PyObject *object, PyObject *Py_UNUSED(sent), PyObject **row)
{
    AsyncRows *self = (AsyncRows *)object;
    *row = self->is_asked ? rows_next((PyObject *)self->rows) : NULL;
    self->is_asked = 0;
    if (*row != NULL)
        return PYGEN_RETURN;
    if (!PyErr_Occurred())
        PyErr_SetString(PyExc_RuntimeError, "use `async for`, and await each row once, before other calls");
    return PYGEN_ERROR;
}

/* As `async_send`, for those who do not call that: Python 3.12, and asyncio.wait_for. */
static PyObject *
async_iternext(PyObject *self)
{
    PyObject *row;
    if (async_send(self, Py_None, &row) != PYGEN_RETURN)
        return NULL;
    PyObject *stop = PyObject_CallFunctionObjArgs(PyExc_StopIteration, row, NULL);
    if (stop != NULL)
        PyErr_SetObject(PyExc_StopIteration, stop);
    Py_XDECREF(stop);
    Py_DECREF(row);
    return NULL;
}

static PyMethodDef async_methods[] = {
    {"take", async_take, METH_O, "Goes on with these Rows."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot async_slots[] = {
    {Py_tp_doc, "AsyncRows(more): see speed.PythonAsyncRows."},
    {Py_tp_new, async_new},
    {Py_tp_traverse, async_traverse},
    {Py_tp_clear, async_clear},
    {Py_tp_dealloc, rows_dealloc},
    {Py_am_aiter, rows_self},
    {Py_am_anext, async_anext},
    {Py_am_await, rows_self},
    {Py_am_send, async_send},
    {Py_tp_iter, rows_self},
    {Py_tp_iternext, async_iternext},
    {Py_tp_methods, async_methods},
    {0, NULL},
};

PyType_Spec aolog_async_rows_spec = {
    "aolog.format.native._speed.AsyncRows", sizeof(AsyncRows), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC, async_slots,
};
