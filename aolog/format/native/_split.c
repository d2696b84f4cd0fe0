/* Headers of many records, tuples of pairs, as columns. It calls no code of Python's. */
#include "_rows.h" /* Python.h */

#include <stdint.h>
#include <string.h>

typedef struct {
    PyObject *names, *values; /* lists */
    Py_ssize_t bytes;         /* of all values */
    Py_ssize_t longest;       /* bytes of a value */
} Split;

/* Adds a record's pairs: 1; 0 if they are not plain; -1 on an error. */
static int
add_pairs(Split *split, PyObject *pairs)
{
    Py_ssize_t count = PyTuple_Size(pairs);
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *pair = PyTuple_GetItem(pairs, i);
        if (!PyTuple_CheckExact(pair) || PyTuple_Size(pair) != 2)
            return 0;
        PyObject *name = PyTuple_GetItem(pair, 0), *value = PyTuple_GetItem(pair, 1);
        if (!PyUnicode_CheckExact(name) || (value != Py_None && !PyBytes_CheckExact(value)))
            return 0;
        if (PyList_Append(split->names, name) < 0 || PyList_Append(split->values, value) < 0)
            return -1;
        if (value != Py_None) {
            Py_ssize_t length = PyBytes_Size(value);
            split->bytes += length;
            if (length > split->longest)
                split->longest = length;
        }
    }
    return 1;
}

PyObject *
aolog_split(PyObject *Py_UNUSED(module), PyObject *headers)
{
    if (!PyList_CheckExact(headers)) {
        PyErr_SetString(PyExc_TypeError, "split takes a list");
        return NULL;
    }
    PyObject *made = NULL, *offsets = NULL;
    Split split = {PyList_New(0), PyList_New(0), 0, 0};
    Py_ssize_t count = PyList_Size(headers), most = 0;
    int taken = -1;
    if (split.names == NULL || split.values == NULL)
        goto done;
    offsets = PyBytes_FromStringAndSize(NULL, (count + 1) * (Py_ssize_t)sizeof(uint32_t));
    if (offsets == NULL)
        goto done;
    char *at = PyBytes_AsString(offsets);
    memset(at, 0, sizeof(uint32_t));
    taken = 1;
    for (Py_ssize_t i = 0; taken == 1 && i < count; i++) {
        PyObject *pairs = PyList_GetItem(headers, i);
        taken = PyTuple_CheckExact(pairs) ? add_pairs(&split, pairs) : 0;
        Py_ssize_t end = PyList_Size(split.names);
        if ((uint64_t)end > UINT32_MAX)
            taken = 0;
        if (taken == 1) {
            uint32_t offset = (uint32_t)end;
            memcpy(at += sizeof offset, &offset, sizeof offset);
            Py_ssize_t own = PyTuple_Size(pairs);
            most = own > most ? own : most;
        }
    }
    if (taken == 1)
        made = Py_BuildValue("OOOnnn", offsets, split.names, split.values, split.bytes,
                             split.longest, most);
    else if (taken == 0)
        made = Py_NewRef(Py_None);
done:
    Py_XDECREF(offsets);
    Py_XDECREF(split.names);
    Py_XDECREF(split.values);
    return made;
}
