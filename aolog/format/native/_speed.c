/* Loops that are run for each record, in C. Optional: speed.py and inlet.py do the same in Python.
 *
 * This file does not know the log's format or clocks. It adds lengths, groups, cuts bytes, fills tuples
 * (_rows.c), passes buffers on (_export.c), and looks up a file; records become frames in _inlet.c. It holds the
 * interpreter's lock, so each call is atomic for other threads; `join`, which only copies, does not.
 *
 * It uses the limited API of CPython 3.11: one build serves every later version. After a type check,
 * Py_SIZE is the length, which the API inlines; PyBytes_Size and PyList_Size are calls.
 */
#include "_rows.h" /* Python.h */

#include "_inlet.h"
#include "_presence.h"
#include "_walk.h"

#include <limits.h>
#include <stdint.h>
#include <string.h>

/* --- lengths and offsets ------------------------------------------------------------------- */

/* Bytes of all values; false if the type of one is not bytes. */
static int
add_up(PyObject *values, Py_ssize_t *total)
{
    Py_ssize_t count = PyList_Size(values);
    *total = 0;
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *value = PyList_GetItem(values, i);
        if (!PyBytes_CheckExact(value))
            return 0;
        *total += Py_SIZE(value);
    }
    return 1;
}

static PyObject *
speed_column(PyObject *Py_UNUSED(module), PyObject *values)
{
    Py_ssize_t total;
    if (!PyList_CheckExact(values)) {
        PyErr_SetString(PyExc_TypeError, "column takes a list");
        return NULL;
    }
    if (!add_up(values, &total))
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

/* Copies the columns, (validity, offsets, data) each, one after another. views: those of the outputs, then two of each
 * column; of the right sizes. */
static void
join_columns(const Py_buffer *views, Py_ssize_t columns)
{
    char *offsets = views[0].buf, *data = views[1].buf;
    uint32_t begin = 0;
    for (Py_ssize_t i = 1; i <= columns; i++) {
        const Py_buffer *from = &views[2 * i], *part = &views[2 * i + 1];
        Py_ssize_t entries = from->len / 4 - 1;
        uint32_t first;
        memcpy(&first, from->buf, sizeof first);
        for (Py_ssize_t k = 0; k < entries; k++) { /* independent steps: compilers vectorize this */
            uint32_t at;
            memcpy(&at, (const char *)from->buf + 4 * k, sizeof at);
            at += begin - first;
            memcpy(offsets + 4 * k, &at, sizeof at);
        }
        offsets += 4 * entries;
        memcpy(data + begin, part->buf, (size_t)part->len);
        begin += (uint32_t)part->len;
    }
    memcpy(offsets, &begin, sizeof begin);
}

static PyObject *
speed_join(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *columns, *offsets, *data;
    if (!PyArg_ParseTuple(args, "O!OO", &PyTuple_Type, &columns, &offsets, &data))
        return NULL;
    Py_ssize_t count = PyTuple_Size(columns), taken = 0, entries = 0, size = 0;
    Py_buffer *views = PyMem_Calloc((size_t)count + 1, 2 * sizeof *views);
    if (views == NULL)
        return PyErr_NoMemory();
    int right = PyObject_GetBuffer(offsets, &views[taken], PyBUF_WRITABLE) == 0 && ++taken &&
                PyObject_GetBuffer(data, &views[taken], PyBUF_WRITABLE) == 0 && ++taken;
    for (Py_ssize_t i = 0; right && i < count; i++) {
        PyObject *column = PyTuple_GetItem(columns, i);
        right = PyTuple_Check(column) && PyTuple_Size(column) == 3 &&
                PyObject_GetBuffer(PyTuple_GetItem(column, 1), &views[taken], PyBUF_SIMPLE) == 0 && ++taken &&
                PyObject_GetBuffer(PyTuple_GetItem(column, 2), &views[taken], PyBUF_SIMPLE) == 0 && ++taken;
        if (right) {
            entries += views[taken - 2].len / 4 - 1;
            size += views[taken - 1].len;
            right = views[taken - 2].len >= 4;
        }
    }
    right = right && views[0].len == 4 * (entries + 1) && views[1].len == size && (uint64_t)size <= UINT32_MAX;
    if (right) {
        Py_BEGIN_ALLOW_THREADS
        join_columns(views, count);
        Py_END_ALLOW_THREADS
    } else if (!PyErr_Occurred())
        PyErr_SetString(PyExc_ValueError, "the buffers do not have the size of the columns");
    while (taken > 0)
        PyBuffer_Release(&views[--taken]);
    PyMem_Free(views);
    return right ? Py_NewRef(Py_None) : NULL;
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

/* --- a file -------------------------------------------------------------------------------- */

static PyObject *
speed_leads_to(PyObject *Py_UNUSED(module), PyObject *const *given, Py_ssize_t count)
{
    if (count != 5) {
        PyErr_SetString(PyExc_TypeError, "leads_to takes 5 arguments");
        return NULL;
    }
    int directory = (int)PyLong_AsLong(given[0]);
    const char *name = PyErr_Occurred() ? NULL : PyUnicode_AsUTF8AndSize(given[1], NULL);
    if (name == NULL)
        return NULL;
    unsigned long long inode = PyLong_AsUnsignedLongLong(given[2]);
    unsigned long long device = PyErr_Occurred() ? 0 : PyLong_AsUnsignedLongLong(given[3]);
    unsigned long long size = PyErr_Occurred() ? 0 : PyLong_AsUnsignedLongLong(given[4]);
    if (PyErr_Occurred())
        return NULL;
    return PyBool_FromLong(name_leads_to(directory, name, inode, device, size));
}

/* --- the module ---------------------------------------------------------------------------- */

static PyMethodDef speed_methods[] = {
    {"column", speed_column, METH_O,
     "column(values): n+1 u32, the begin of each in the bytes that follow, zeros up to "
     "a multiple of 8, and the bytes. None if one is not bytes. Raises OverflowError."},
    {"rise", speed_rise, METH_O,
     "rise(columns): whether in none of the columns of u32 a number is less than the one before."},
    {"join", speed_join, METH_VARARGS, "join(columns, offsets, data): see speed.python_join."},
    {"total", speed_total, METH_VARARGS,
     "total(numbers[, indices]): (sum, greatest) of a column of i64, none of them negative, or of "
     "those at the indices. Raises IndexError, OverflowError."},
    {"groups", speed_groups, METH_O,
     "groups(objects): the indices of each object, by object, in order of appearance."},
    {"body", (PyCFunction)(void (*)(void))aolog_body, METH_FASTCALL,
     "body(values, keys, headers, timestamps, topics, now_us): see inlet.python_body."},
    {"leads_to", (PyCFunction)(void (*)(void))speed_leads_to, METH_FASTCALL,
     "leads_to(directory, name, inode, device, size): see aolog/storage/system.py."},
    {"export", aolog_export, METH_O,
     "export((length, buffers, children)): an Arrow array by its C data interface; see speed.py."},
    {NULL, NULL, 0, NULL},
};

/* By default glibc returns freed memory to the system again and again, and each page costs a fault when it is taken
 * anew: half of the time of an `append_many` of 100 KB. It keeps twice as much as the largest block that was freed. */
#define LARGEST_BLOCK (1u << 20)

static int
add_type(PyObject *module, PyType_Spec *spec)
{
    PyObject *type = PyType_FromModuleAndSpec(module, spec, NULL);
    int failed = type == NULL || PyModule_AddType(module, (PyTypeObject *)type) < 0;
    Py_XDECREF(type);
    return failed ? -1 : 0;
}

static int
speed_exec(PyObject *module)
{
    PyMem_Free(PyMem_Malloc(LARGEST_BLOCK));
    if (aolog_inlet_begin(module) < 0 || aolog_rows_begin() < 0 || aolog_walk_begin(module) < 0 ||
        add_type(module, &aolog_rows_spec) < 0)
        return -1;
    return add_type(module, &aolog_async_rows_spec);
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
