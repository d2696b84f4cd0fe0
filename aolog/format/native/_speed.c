/* Loops that a writer and a reader run for each record, in C. Optional: speed.py does the same in
 * Python.
 *
 * It does not know the log's format, files or clocks. It appends to lists, adds lengths, groups, cuts
 * bytes, fills tuples (_rows.c), splits them (_split.c) and passes buffers on (_export.c). It holds the interpreter's lock, so
 * each call is atomic for other threads.
 *
 * It uses the limited API of CPython 3.11: one build serves every later version. After a type check,
 * Py_SIZE is the length, which the API inlines; PyBytes_Size and PyList_Size are calls.
 */
#include "_rows.h" /* Python.h */

#include <limits.h>
#include <stdint.h>
#include <string.h>

/* --- Gate: the fast path of append --------------------------------------------------------- */

typedef struct {
    PyObject_HEAD
    PyObject *joined;    /* the open list, or NULL */
    long long first;     /* address of the first value in the list */
    Py_ssize_t size;     /* bytes of the list */
    Py_ssize_t limit;    /* a value is added if it and `size` together are less */
    Py_ssize_t most;     /* maximum number of values */
    Py_ssize_t overhead; /* bytes of each value beside its own */
} Gate;

/* "_append" and "_append_value", interned; never released */
static PyObject *append_name, *append_value_name;

static int
gate_traverse(PyObject *self, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(((Gate *)self)->joined);
    return 0;
}

static int
gate_clear(PyObject *self)
{
    Py_CLEAR(((Gate *)self)->joined);
    return 0;
}

static void
gate_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    gate_clear(self);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
    Py_DECREF(type);
}

static PyObject *
gate_open(PyObject *object, PyObject *const *args, Py_ssize_t count)
{
    Gate *self = (Gate *)object;
    if (count != 6 || !PyList_Check(args[0])) {
        PyErr_SetString(PyExc_TypeError, "_open_gate takes a list and five numbers");
        return NULL;
    }
    PyObject *values = args[0], *before;
    long long first = PyLong_AsLongLong(args[1]);
    Py_ssize_t numbers[4];
    if (first == -1 && PyErr_Occurred())
        return NULL;
    for (int i = 0; i < 4; i++) {
        numbers[i] = PyLong_AsSsize_t(args[i + 2]);
        if (numbers[i] == -1 && PyErr_Occurred())
            return NULL;
    }
    Py_ssize_t size = numbers[0], limit = numbers[1], most = numbers[2], overhead = numbers[3];
    if (size < 0 || overhead < 0) {
        PyErr_SetString(PyExc_ValueError, "bytes cannot be negative");
        return NULL;
    }
    if (first > 0 && most > LLONG_MAX - first)
        most = (Py_ssize_t)(LLONG_MAX - first); /* numbers stay below 2^63 */
    before = self->joined; /* read last: a number's __index__ may have closed the gate */
    Py_INCREF(values);
    self->joined = values;
    self->first = first;
    self->size = size;
    self->limit = limit > overhead ? limit - overhead : 0; /* so that no sum below overflows */
    self->most = most;
    self->overhead = overhead;
    Py_XDECREF(before);
    Py_RETURN_NONE;
}

static PyObject *
gate_close(PyObject *self, PyObject *Py_UNUSED(ignored))
{
    Py_ssize_t size = ((Gate *)self)->size;
    ((Gate *)self)->size = 0;
    gate_clear(self);
    return PyLong_FromSsize_t(size);
}

static PyObject *
gate_pass_on(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *names)
{
    Py_ssize_t named = names == NULL ? 0 : PyTuple_Size(names);
    PyObject *result = NULL, *keywords = NULL, *append = NULL;
    PyObject *positional = PyTuple_New(count);
    if (positional == NULL)
        return NULL;
    for (Py_ssize_t i = 0; i < count; i++) {
        Py_INCREF(args[i]);
        PyTuple_SetItem(positional, i, args[i]);
    }
    if (named > 0) {
        keywords = PyDict_New();
        if (keywords == NULL)
            goto done;
        for (Py_ssize_t i = 0; i < named; i++)
            if (PyDict_SetItem(keywords, PyTuple_GetItem(names, i), args[count + i]) < 0)
                goto done;
    }
    append = PyObject_GetAttr(self, append_name);
    if (append != NULL)
        result = PyObject_Call(append, positional, keywords);
done:
    Py_XDECREF(append);
    Py_DECREF(positional);
    Py_XDECREF(keywords);
    return result;
}

static PyObject *
gate_append(PyObject *object, PyObject *const *args, Py_ssize_t count, PyObject *names)
{
    Gate *self = (Gate *)object;
    if (count != 1 || names != NULL || !PyBytes_CheckExact(args[0]))
        return gate_pass_on(object, args, count, names);
    if (self->joined != NULL) {
        Py_ssize_t length = Py_SIZE(args[0]), before = Py_SIZE(self->joined);
        if (length < self->limit - self->size && before < self->most) {
            if (PyList_Append(self->joined, args[0]) < 0)
                return NULL;
            self->size += length + self->overhead;
            return PyLong_FromLongLong(self->first + before);
        }
    }
    return PyObject_CallMethodObjArgs(object, append_value_name, args[0], NULL);
}

static PyMethodDef gate_methods[] = {
    {"_open_gate", (PyCFunction)(void (*)(void))gate_open, METH_FASTCALL,
     "_open_gate(values, first, size, limit, most, overhead): values join from now on."},
    {"_close_gate", gate_close, METH_NOARGS,
     "From now on `append` adds nothing. Returns the bytes of the list, 0 if none was open."},
    {"append", (PyCFunction)(void (*)(void))gate_append, METH_FASTCALL | METH_KEYWORDS,
     "append($self, value, *, key=None, headers=(), timestamp=None, topic=None)\n--\n\n"
     "Appends a record; returns its address. The record is in memory on return. It survives a crash\n"
     "of the process after `flush`, and power loss after `sync`.\n\n"
     "timestamp: microseconds since the epoch; default: the time of the batch. Raises RecordRefused,\n"
     "RecordTooLarge, StorageFull and StorageFailed (the record is not appended; earlier records are\n"
     "kept, and the next call writes them), SyncFailed, LogClosed, Forked."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot gate_slots[] = {
    {Py_tp_doc, "The fast path of `append`: see speed.PythonGate."},
    {Py_tp_traverse, gate_traverse},
    {Py_tp_clear, gate_clear},
    {Py_tp_dealloc, gate_dealloc},
    {Py_tp_methods, gate_methods},
    {0, NULL},
};

static PyType_Spec gate_spec = {
    "aolog.format.native._speed.Gate", sizeof(Gate), 0,
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC, gate_slots,
};

/* --- lengths and offsets ------------------------------------------------------------------- */

/* Bytes of all values and of the longest; false if the type of one is not bytes. */
static int
add_up(PyObject *values, Py_ssize_t *total, Py_ssize_t *longest)
{
    Py_ssize_t count = PyList_Size(values);
    *total = *longest = 0;
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *value = PyList_GetItem(values, i);
        if (!PyBytes_CheckExact(value))
            return 0;
        Py_ssize_t length = Py_SIZE(value);
        *total += length;
        if (length > *longest)
            *longest = length;
    }
    return 1;
}

static PyObject *
speed_column(PyObject *Py_UNUSED(module), PyObject *values)
{
    Py_ssize_t total, longest;
    if (!PyList_CheckExact(values)) {
        PyErr_SetString(PyExc_TypeError, "column takes a list");
        return NULL;
    }
    if (!add_up(values, &total, &longest))
        Py_RETURN_NONE;
    if ((uint64_t)total > UINT32_MAX) {
        PyErr_SetString(PyExc_OverflowError, "offsets need more than 32 bits");
        return NULL;
    }
    Py_ssize_t count = PyList_Size(values);
    Py_ssize_t begin = (count + 1) * (Py_ssize_t)sizeof(uint32_t);
    begin += -begin & 7;
    PyObject *made = PyBytes_FromStringAndSize(NULL, begin + total);
    if (made == NULL)
        return NULL;
    char *offsets = PyBytes_AsString(made), *data = offsets + begin;
    memset(data - 4, 0, 4); /* padding after an odd number of offsets */
    uint32_t at = 0;
    memcpy(offsets, &at, sizeof at);
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *value = PyList_GetItem(values, i);
        uint32_t length = (uint32_t)Py_SIZE(value);
        memcpy(data + at, PyBytes_AsString(value), length);
        at += length;
        memcpy(offsets += sizeof at, &at, sizeof at);
    }
    return made;
}

static PyObject *
speed_measure(PyObject *Py_UNUSED(module), PyObject *values)
{
    Py_ssize_t total, longest;
    if (!PyList_CheckExact(values)) {
        PyErr_SetString(PyExc_TypeError, "measure takes a list");
        return NULL;
    }
    if (!add_up(values, &total, &longest))
        Py_RETURN_NONE;
    return Py_BuildValue("nn", total, longest);
}

static PyObject *
speed_rise(PyObject *Py_UNUSED(module), PyObject *columns)
{
    if (!PyList_CheckExact(columns)) {
        PyErr_SetString(PyExc_TypeError, "rise takes a list");
        return NULL;
    }
    int rises = 1;
    for (Py_ssize_t i = 0; rises && i < PyList_Size(columns); i++) {
        Py_buffer column;
        PyObject *given = PyList_GetItem(columns, i);
        Py_INCREF(given); /* since CPython 3.12 a __buffer__ may run, and change the list */
        int failed = PyObject_GetBuffer(given, &column, PyBUF_SIMPLE) < 0;
        Py_DECREF(given); /* the view has its own */
        if (failed)
            return NULL;
        const char *bytes = column.buf;
        Py_ssize_t pairs = column.len / (Py_ssize_t)sizeof(uint32_t) - 1;
        uint32_t falls = 0;
        for (Py_ssize_t k = 0; k < pairs; k++) { /* independent steps: compilers vectorize this */
            uint32_t before, number;
            memcpy(&before, bytes + 4 * k, sizeof before);
            memcpy(&number, bytes + 4 * k + 4, sizeof number);
            falls |= number < before;
        }
        rises = !falls;
        PyBuffer_Release(&column);
    }
    return PyBool_FromLong(rises);
}

/* Adds a number of the column to the sum and the greatest; false on an error. */
static int
add_number(const Py_buffer *numbers, Py_ssize_t i, long long *sum, long long *greatest)
{
    int64_t number;
    if (i < 0 || i >= numbers->len / (Py_ssize_t)sizeof number) {
        PyErr_SetString(PyExc_IndexError, "index out of range");
        return 0;
    }
    memcpy(&number, (const char *)numbers->buf + i * (Py_ssize_t)sizeof number, sizeof number);
    if (number < 0 || *sum > INT64_MAX - number) {
        PyErr_SetString(PyExc_OverflowError, "numbers are not negative, and their sum is an i64");
        return 0;
    }
    *sum += number;
    if (number > *greatest)
        *greatest = number;
    return 1;
}

static PyObject *
speed_total(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *given, *indices = NULL;
    long long sum = 0, greatest = 0;
    Py_buffer numbers;
    int right = 1;
    if (!PyArg_ParseTuple(args, "O|O!", &given, &PyList_Type, &indices) ||
        PyObject_GetBuffer(given, &numbers, PyBUF_FORMAT) < 0)
        return NULL;
    if (numbers.format == NULL || strcmp(numbers.format, "q") != 0) {
        PyBuffer_Release(&numbers);
        PyErr_SetString(PyExc_TypeError, "numbers are a column of i64");
        return NULL;
    }
    if (indices == NULL) {
        Py_ssize_t count = numbers.len / (Py_ssize_t)sizeof(int64_t);
        for (Py_ssize_t i = 0; right && i < count; i++)
            right = add_number(&numbers, i, &sum, &greatest);
    } else {
        for (Py_ssize_t i = 0; right && i < PyList_Size(indices); i++) {
            /* Only of an int: an __index__ runs code, which may change the list. */
            Py_ssize_t at = PyLong_AsSsize_t(PyList_GetItem(indices, i));
            if (at == -1 && PyErr_Occurred() && !PyErr_ExceptionMatches(PyExc_OverflowError))
                right = 0;
            else
                right = add_number(&numbers, at, &sum, &greatest); /* too large: index -1 is refused */
        }
    }
    PyBuffer_Release(&numbers);
    return right ? Py_BuildValue("LL", sum, greatest) : NULL;
}

/* --- groups -------------------------------------------------------------------------------- */

#define SEEN 64 /* objects found without hashing; a power of two */

typedef struct {
    PyObject *object;  /* owned, so that its memory is not used for another object */
    PyObject *indices; /* owned by the dictionary */
} Seen;

/* The list of an object's group, borrowed from the groups; NULL on an error. */
static PyObject *
group_of(PyObject *groups, PyObject *object, Seen *seen)
{
    PyObject *before = seen->object, *indices;
    Py_INCREF(object);
    indices = PyDict_GetItemWithError(groups, object);
    if (indices == NULL && !PyErr_Occurred() && (indices = PyList_New(0)) != NULL) {
        int failed = PyDict_SetItem(groups, object, indices) < 0;
        Py_DECREF(indices); /* the dictionary has its own */
        if (failed)
            indices = NULL;
    }
    seen->object = object;
    seen->indices = indices;
    Py_XDECREF(before);
    return indices;
}

static PyObject *
speed_groups(PyObject *Py_UNUSED(module), PyObject *objects)
{
    if (!PyList_CheckExact(objects)) {
        PyErr_SetString(PyExc_TypeError, "groups takes a list");
        return NULL;
    }
    Seen known[SEEN] = {{NULL, NULL}};
    PyObject *groups = PyDict_New();
    for (Py_ssize_t i = 0; groups != NULL && i < PyList_Size(objects); i++) {
        PyObject *object = PyList_GetItem(objects, i);
        Seen *seen = &known[((uintptr_t)object >> 4) % SEEN];
        PyObject *indices =
            seen->object == object ? seen->indices : group_of(groups, object, seen);
        PyObject *index = indices == NULL ? NULL : PyLong_FromSsize_t(i);
        if (index == NULL || PyList_Append(indices, index) < 0)
            Py_CLEAR(groups);
        Py_XDECREF(index);
    }
    for (int i = 0; i < SEEN; i++)
        Py_XDECREF(known[i].object);
    return groups;
}

/* --- the module ---------------------------------------------------------------------------- */

static PyMethodDef speed_methods[] = {
    {"column", speed_column, METH_O,
     "column(values): n+1 u32, where each of the bytes begins if they stand in a row, zeros up to "
     "a multiple of 8, and the bytes. None if one is not bytes. Raises OverflowError."},
    {"measure", speed_measure, METH_O,
     "measure(values): (bytes of all, bytes of the longest); None if one is not bytes."},
    {"rise", speed_rise, METH_O,
     "rise(columns): whether in none of the columns of u32 a number is less than the one before."},
    {"total", speed_total, METH_VARARGS,
     "total(numbers[, indices]): (sum, greatest) of a column of i64, none of them negative, or of "
     "those at the indices. Raises IndexError, OverflowError."},
    {"groups", speed_groups, METH_O,
     "groups(objects): where each of them stands: indices, by object, in order of appearance."},
    {"split", aolog_split, METH_O, "split(headers): columns of the pairs; see speed.python_split."},
    {"export", aolog_export, METH_O,
     "export((length, buffers, children)): an Arrow array by its C data interface; see speed.py."},
    {NULL, NULL, 0, NULL},
};

static int
speed_exec(PyObject *module)
{
    PyType_Spec *specs[] = {&gate_spec, &aolog_rows_spec};
    const char *names[] = {"Gate", "Rows"};
    append_name = PyUnicode_InternFromString("_append");
    append_value_name = PyUnicode_InternFromString("_append_value");
    if (append_name == NULL || append_value_name == NULL || aolog_rows_begin(module) < 0)
        return -1;
    for (int i = 0; i < 2; i++) {
        PyObject *type = PyType_FromModuleAndSpec(module, specs[i], NULL);
        if (type == NULL)
            return -1;
        int failed = PyModule_AddObjectRef(module, names[i], type);
        Py_DECREF(type);
        if (failed < 0)
            return -1;
    }
    return 0;
}

static PyModuleDef_Slot speed_slots[] = {{Py_mod_exec, speed_exec}, {0, NULL}};

static struct PyModuleDef speed_module = {
    PyModuleDef_HEAD_INIT, "aolog.format.native._speed", "Loops that are run for each record.", 0,
    speed_methods, speed_slots, NULL, NULL, NULL,
};

PyMODINIT_FUNC
PyInit__speed(void)
{
    return PyModuleDef_Init(&speed_module);
}
