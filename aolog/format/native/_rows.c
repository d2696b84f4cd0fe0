/* Rows: tuples filled from columns, for `aolog.format.native._speed`. Readers and the bridge run it for
 * each record.
 */
#include "_column.h"

#include <structmember.h>

#define WIDTH_MAX 8

typedef struct {
    PyObject_HEAD
    PyObject *type; /* tuple, or a subclass without fields; NULL: entries instead of rows */
    allocfunc alloc; /* NULL: tuple's */
    Py_ssize_t width;
    Py_ssize_t at; /* index of the next row */
    Py_ssize_t end;
    PyObject *made; /* a plain tuple, used for the next row if nobody else owns it */
    PyObject *shared[WIDTH_MAX]; /* SHARED: of all rows; NULL if a column varies */
    Column columns[WIDTH_MAX];
} Rows;

/* --- the type ------------------------------------------------------------------------------ */

/* Slots of classes made in Python; they inherit the others. */
static destructor python_dealloc;

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
aolog_rows_begin(PyObject *module)
{
    view_type = (PyTypeObject *)PyType_FromModuleAndSpec(module, &view_spec, NULL);
    if (view_type == NULL)
        return -1;
    pieces_type = (PyTypeObject *)PyType_FromModuleAndSpec(module, &pieces_spec, NULL);
    if (pieces_type == NULL)
        return -1;
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
    Py_VISIT(rows->made);
    for (Py_ssize_t i = 0; i < rows->width; i++) {
        int stopped = column_traverse(&rows->columns[i], visit, arg);
        if (stopped)
            return stopped;
        Py_VISIT(rows->shared[i]);
    }
    return 0;
}

static int
rows_clear(PyObject *self)
{
    Rows *rows = (Rows *)self;
    rows->end = 0; /* no more rows */
    for (Py_ssize_t i = 0; i < rows->width; i++) {
        Py_CLEAR(rows->shared[i]);
        column_clear(&rows->columns[i]);
    }
    Py_CLEAR(rows->type);
    Py_CLEAR(rows->made);
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
    int alone = type == Py_None, plain = type == (PyObject *)&PyTuple_Type;
    if (!alone && !plain &&
        (!PyType_Check(type) || !is_python_tuple((PyTypeObject *)type))) {
        PyErr_SetString(PyExc_TypeError,
                        "rows are tuples, or of a class derived from tuple in Python");
        return NULL;
    }
    if (width > WIDTH_MAX || width != PyTuple_Size(columns) ||
        (alone   ? width != 1 || kinds[0] == SHARED
         : plain ? width == 0 || kinds[0] == SHARED
                 : kinds[0] != RISING && kinds[0] != NUMBERS)) {
        PyErr_SetString(PyExc_ValueError, "the first column must have kind n or q, and each column a kind");
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
        self->width = i + 1; /* released on an error */
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
        if (!plain)
            self->alloc = (allocfunc)PyType_GetSlot((PyTypeObject *)type, Py_tp_alloc);
    }
    self->at = first;
    self->end = end;
    return (PyObject *)self;
}

/* --- a row --------------------------------------------------------------------------------- */

static void
keep(Rows *self, PyObject *row)
{
    PyObject *before = self->made;
    Py_INCREF(row);
    self->made = row;
    Py_XDECREF(before);
}

static PyObject *
give_back(PyObject **items, Py_ssize_t count)
{
    while (count > 0)
        Py_DECREF(items[--count]);
    return NULL;
}

/* Fills the previous row again: nobody else owns it. Releasing its old items may run code that calls
 * this again, so meanwhile it is not our row. */
static PyObject *
refilled(Rows *self, Py_ssize_t i)
{
    PyObject *row = self->made;
    self->made = NULL;
    refresh(row);
    for (Py_ssize_t k = 0; k < self->width; k++) {
        if (self->shared[k] != NULL)
            continue;
        if (self->columns[k].kind == TAGGED) { /* the row must not own what is filled again */
            Py_INCREF(Py_None);
            PyTuple_SetItem(row, k, Py_None);
        }
        PyObject *item = field(&self->columns[k], i, PyTuple_GetItem(row, k));
        if (item == NULL || PyTuple_SetItem(row, k, item) < 0) {
            self->at = i;
            Py_DECREF(row);
            return NULL;
        }
    }
    keep(self, row);
    return row;
}

static PyObject *
rows_next(PyObject *object)
{
    Rows *self = (Rows *)object;
    Py_ssize_t i = self->at;
    if (i >= self->end)
        return NULL;
    PyObject *items[WIDTH_MAX];
    self->at = i + 1; /* advance first: a garbage collection below may run code that calls this again */
    if (self->type == NULL) {
        PyObject *item = field(&self->columns[0], i, NULL);
        if (item == NULL)
            self->at = i;
        return item;
    }
    if (self->made != NULL && Py_REFCNT(self->made) == 1)
        return refilled(self, i);
    for (Py_ssize_t k = 0; k < self->width; k++) {
        PyObject *item = self->shared[k];
        if (item != NULL)
            Py_INCREF(item);
        else if ((item = field(&self->columns[k], i, NULL)) == NULL) {
            self->at = i;
            return give_back(items, k);
        }
        items[k] = item;
    }
    /* Last, so that no code, not even its __del__, sees a row without its items. */
    PyObject *row = self->alloc == NULL ? PyTuple_New(self->width)
                                        : self->alloc((PyTypeObject *)self->type, self->width);
    if (row == NULL) {
        self->at = i;
        return give_back(items, self->width);
    }
    if (fresh_len != 0 && self->alloc != NULL)
        memcpy((char *)row + sizeof(PyVarObject), fresh, fresh_len);
    for (Py_ssize_t k = 0; k < self->width; k++)
        PyTuple_SetItem(row, k, items[k]);
    if (self->alloc == NULL)
        keep(self, row);
    return row;
}

static PyObject *
rows_stop(PyObject *self, PyObject *Py_UNUSED(ignored))
{
    ((Rows *)self)->at = ((Rows *)self)->end;
    Py_RETURN_NONE;
}

/* No Python code runs here, so no row can be requested meanwhile and returned twice. */
static PyObject *
rows_feed(PyObject *object, PyObject *capsule)
{
    Rows *self = (Rows *)object;
    const AologSink *sink = PyCapsule_GetPointer(capsule, AOLOG_SINK);
    if (sink == NULL)
        return NULL;
    AologField fields[WIDTH_MAX];
    memset(fields, 0, sizeof fields);
    for (Py_ssize_t k = 0; k < self->width; k++)
        fields[k].object = self->shared[k];
    while (self->at < self->end) {
        for (Py_ssize_t k = 0; k < self->width; k++)
            if (self->shared[k] == NULL &&
                field_for_sink(&self->columns[k], self->at, &fields[k]) < 0)
                return NULL;
        if (!sink->take(sink->context, fields, self->width))
            break;
        self->at++;
    }
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
    {"feed", rows_feed, METH_O,
     "Passes rows to a sink (_sink.h), up to one that it refuses."},
    {"stop", rows_stop, METH_NOARGS, "Drops the remaining rows."},
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
    "aolog.format.native._speed.Rows", sizeof(Rows), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC, rows_slots,
};
