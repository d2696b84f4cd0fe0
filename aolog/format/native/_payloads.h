/* Payloads: the frames of a slab of format 1 (queuefka's) that grows; the Python twin is PythonPayloads in
 * aolog/queuefka/slab.py.
 *
 * Only for _inlet.c, after xxhash.h. A frame is a length, a hash and a payload. Short ones are gathered in one
 * buffer; a long payload stays the caller's object.
 */
#ifndef AOLOG_PAYLOADS_H
#define AOLOG_PAYLOADS_H

#include "_growing.h"

#define SHORT_BYTES (16u << 10) /* copying a longer payload costs more than a buffer of its own */

typedef Growing Payloads;

static PyTypeObject *payloads_type; /* never released */

/* Counts a frame that was added. Returns its address. */
static inline long long
payloads_count(Payloads *self, size_t length)
{
    long long address = self->base + self->offset;
    self->offset += PAYLOAD_HEADER + (long long)length;
    self->records++;
    return address;
}

/* Whether the slab has room for the frame, and for one more after it: the caller begins the next slab at once. */
static inline int
payloads_has_room(const Payloads *self, size_t length)
{
    return self->settled != NULL && length && length <= PAYLOAD_MAX &&
           self->full_at - self->offset > PAYLOAD_HEADER + (long long)length;
}

/* Adds a frame. Returns its address; -1 on an error, and then nothing has changed. Runs no Python code. */
static long long
payloads_add(Payloads *self, PyObject *value)
{
    const char *payload = PyBytes_AsString(value);
    size_t length = (size_t)Py_SIZE(value);
    uint32_t head[2] = {(uint32_t)length, XXH32(payload, length, 0)};
    if (length <= SHORT_BYTES) {
        if (!growing_reserve(self, PAYLOAD_HEADER + length))
            return -1;
        bytes_put(&self->gathered, head, sizeof head);
        bytes_put(&self->gathered, payload, length);
        return payloads_count(self, length);
    }
    if (!growing_settle(self))
        return -1;
    PyObject *header = PyBytes_FromStringAndSize((const char *)head, sizeof head);
    Py_ssize_t end = PyList_Size(self->settled);
    int failed = header == NULL || PyList_Append(self->settled, header) < 0;
    Py_XDECREF(header);
    if (failed)
        return -1;
    if (PyList_Append(self->settled, value) < 0) {
        PyList_SetSlice(self->settled, end, end + 1, NULL);
        return -1;
    }
    return payloads_count(self, length);
}

/* Whether the format can store it as it is. */
static inline int
is_payload(PyObject *value)
{
    return PyBytes_CheckExact(value) && Py_SIZE(value) > 0 && Py_SIZE(value) <= PAYLOAD_MAX;
}

static PyObject *
payloads_are_storable(PyObject *Py_UNUSED(type), PyObject *args)
{
    PyObject *values;
    Py_ssize_t most;
    if (!PyArg_ParseTuple(args, "O!n", &PyList_Type, &values, &most))
        return NULL;
    Py_ssize_t i = 0, rows = PyList_Size(values);
    for (; i < rows; i++) {
        PyObject *value = PyList_GetItem(values, i);
        if (!is_payload(value) || Py_SIZE(value) > most)
            break;
    }
    return PyBool_FromLong(i == rows);
}

static PyObject *
payloads_add_values(PyObject *object, PyObject *args)
{
    Payloads *self = (Payloads *)object;
    PyObject *values;
    Py_ssize_t begin;
    if (!PyArg_ParseTuple(args, "O!n", &PyList_Type, &values, &begin) || !growing_ready(self))
        return NULL;
    if (begin < 0) {
        PyErr_SetString(PyExc_ValueError, "an index is not negative");
        return NULL;
    }
    Py_ssize_t end = begin, rows = PyList_Size(values);
    long long room = self->full_at - self->offset;
    for (; end < rows && (end == begin || room > 0); end++) {
        PyObject *value = PyList_GetItem(values, end);
        if (!is_payload(value)) {
            PyErr_SetString(PyExc_TypeError, "format 1 stores bytes that are not empty");
            return NULL;
        }
        room -= PAYLOAD_HEADER + (long long)Py_SIZE(value);
    }
    PyObject *addresses = PyByteArray_FromStringAndSize(NULL, (end - begin) * (Py_ssize_t)sizeof(int64_t));
    if (addresses == NULL)
        return NULL;
    char *at = PyByteArray_AsString(addresses);
    for (Py_ssize_t i = begin; i < end; i++, at += sizeof(int64_t)) { /* no Python code runs: no list changes */
        int64_t address = payloads_add(self, PyList_GetItem(values, i));
        if (address < 0) {
            Py_DECREF(addresses);
            return NULL;
        }
        memcpy(at, &address, sizeof address);
    }
    return addresses;
}

static int
payloads_init(PyObject *object, PyObject *args, PyObject *keywords)
{
    static char *names[] = {"base", "offset", "full_at", NULL};
    Payloads *self = (Payloads *)object;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "LLL", names, &self->base, &self->offset, &self->full_at))
        return -1;
    return growing_begin(self) ? 0 : -1;
}

static PyMethodDef payloads_methods[] = {
    {"are_storable", payloads_are_storable, METH_VARARGS | METH_STATIC,
     "are_storable(values, most): whether each is bytes, not empty, and at most so long."},
    {"add_values", payloads_add_values, METH_VARARGS,
     "add_values(values, begin): adds a frame for each value, up to where the slab is full. Their addresses."},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef payloads_members[] = {GROWING_MEMBERS, {NULL, 0, 0, 0, NULL}};

static PyType_Slot payloads_slots[] = {
    {Py_tp_doc, "The frames of a slab of format 1: see aolog/queuefka/slab.py."},
    {Py_tp_init, payloads_init},
    {Py_tp_traverse, growing_traverse},
    {Py_tp_clear, growing_clear},
    {Py_tp_dealloc, growing_dealloc},
    {Py_tp_methods, payloads_methods},
    {Py_tp_members, payloads_members},
    {Py_tp_getset, growing_properties},
    {0, NULL},
};

static PyType_Spec payloads_spec = {
    "aolog.format.native._speed.Payloads", sizeof(Payloads), 0,
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC, payloads_slots,
};

#endif
