/* Rows: tuples filled from columns, for `aolog.format.native._speed`. Readers run it for each record.
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
    for (Py_ssize_t i = 0; i < Py_SIZE((PyObject *)rows); i++)
        Py_VISIT(rows->columns[i].shared);
    return 0;
}

static int
rows_clear(PyObject *self)
{
    Rows *rows = (Rows *)self;
    rows->end = 0; /* no more rows */
    for (Py_ssize_t i = 0; i < Py_SIZE((PyObject *)rows); i++)
        column_clear(&rows->columns[i]);
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

/* The row at i; NULL on an error. */
static inline PyObject *
row_at(const Rows *self, Py_ssize_t i)
{
    PyObject *items[WIDTH_MAX], *row = NULL;
    Py_ssize_t made = 0, width = Py_SIZE((PyObject *)self);
    while (made < width && (items[made] = field(&self->columns[made], i)) != NULL)
        made++;
    /* Last, so that no code, not even its __del__, sees a row without its items. */
    if (made == width)
        row = self->alloc(self->type, made);
    if (row == NULL) {
        while (made > 0)
            Py_DECREF(items[--made]);
        return NULL;
    }
    if (fresh_len != 0)
        memcpy((char *)row + sizeof(PyVarObject), fresh, fresh_len);
    for (Py_ssize_t k = 0; k < made; k++)
        PyTuple_SetItem(row, k, items[k]);
    return row;
}

static PyObject *
rows_next(PyObject *object)
{
    Rows *self = (Rows *)object;
    Py_ssize_t i = self->at;
    if (i >= self->end)
        return NULL;
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
