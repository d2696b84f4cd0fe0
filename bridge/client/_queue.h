/* Queue: a Buffer's messages in memory, and `send`, which puts plain ones there; the Python twin is
 * memory_queue.PythonQueue. Only for _report.c.
 *
 * It calls no Python code while it changes something, so each call is atomic for other threads and for signal handlers.
 */
#ifndef BRIDGE_QUEUE_H
#define BRIDGE_QUEUE_H

#define PY_SSIZE_T_CLEAN
#ifndef Py_LIMITED_API
#define Py_LIMITED_API 0x030B0000
#endif
#include <Python.h>

#include <pthread.h>
#include <stddef.h>
#include <string.h>
#include <structmember.h>
#include <time.h>

#define OVERHEAD_BYTES 300 /* of a message in memory, in addition to its bytes: as in memory_queue.py */
/* What is larger is checked against the log's bound. */
#define PLAIN_BYTES (1 << 20) /* of a value, a key, or the value of a header */
#define PLAIN_HEADERS 16

static int forks; /* between the start of the program and this process */

static void
after_fork_in_child(void)
{
    forks++;
}

typedef struct {
    PyObject_HEAD
    PyObject **messages; /* those in [begin, end) are here */
    size_t begin, end, capacity;
    double messages_max, bytes_max, age_max_us;
    long long bytes; /* of all messages, about */
    PyTypeObject *message_type;
    PyObject *topics, *names, *accept, *otherwise, *wake; /* see `serve` */
    int forks;
    char is_open, waits;
} Queue;

/* Of a value or a key, without an exception: 0 for None. */
static long long
length_of(PyObject *object)
{
    return object != NULL && PyBytes_Check(object) ? PyBytes_Size(object) : 0;
}

static long long
bytes_of(PyObject *message)
{
    PyObject *headers = PyTuple_GetItem(message, 3);
    long long size = length_of(PyTuple_GetItem(message, 1)) + length_of(PyTuple_GetItem(message, 2)) + OVERHEAD_BYTES;
    for (Py_ssize_t i = 0, count = PyTuple_Size(headers); i < count; i++)
        size += length_of(PyTuple_GetItem(PyTuple_GetItem(headers, i), 1));
    return size;
}

static long long
time_of(PyObject *message)
{
    return PyLong_AsLongLong(PyTuple_GetItem(message, 4));
}

/* Room for one more at the end. 0 and an exception if there is no memory. */
static int
make_room(Queue *self)
{
    size_t count = self->end - self->begin;
    if (self->end < self->capacity)
        return 1;
    if (count > self->capacity / 2 || self->capacity == 0) {
        size_t capacity = 2 * self->capacity + 64;
        PyObject **moved = PyMem_Realloc(self->messages, capacity * sizeof *moved);
        if (moved == NULL) {
            PyErr_NoMemory();
            return 0;
        }
        self->messages = moved;
        self->capacity = capacity;
    } else {
        memmove(self->messages, self->messages + self->begin, count * sizeof *self->messages);
        self->begin = 0;
        self->end = count;
    }
    return 1;
}

/* Whether it was taken. -1 and an exception on an error. */
static int
put(Queue *self, PyObject *message, long long size, long long time_us)
{
    size_t count = self->end - self->begin;
    if (count > 0 && ((double)count >= self->messages_max || (double)self->bytes >= self->bytes_max ||
                      (double)(time_us - time_of(self->messages[self->begin])) > self->age_max_us))
        return 0;
    if (!make_room(self))
        return -1;
    self->messages[self->end++] = Py_NewRef(message);
    self->bytes += size;
    return 1;
}

static int
is_message(PyObject *object)
{
    int is_one = PyTuple_Check(object) && PyTuple_Size(object) == 5 && PyLong_Check(PyTuple_GetItem(object, 4)) &&
                 PyTuple_Check(PyTuple_GetItem(object, 3));
    PyObject *headers = is_one ? PyTuple_GetItem(object, 3) : NULL;
    for (Py_ssize_t i = 0; is_one && i < PyTuple_Size(headers); i++)
        is_one = PyTuple_Check(PyTuple_GetItem(headers, i)) && PyTuple_Size(PyTuple_GetItem(headers, i)) == 2;
    if (!is_one)
        PyErr_SetString(PyExc_TypeError, "it is no message");
    return is_one;
}

static PyObject *
queue_append(PyObject *object, PyObject *message)
{
    if (!is_message(message))
        return NULL;
    long long time_us = time_of(message);
    int taken = PyErr_Occurred() ? -1 : put((Queue *)object, message, bytes_of(message), time_us);
    return taken < 0 ? NULL : PyBool_FromLong(taken);
}

static PyObject *
queue_first(PyObject *object, PyObject *most)
{
    Queue *self = (Queue *)object;
    Py_ssize_t count = PyLong_AsSsize_t(most);
    if (count < 0)
        return PyErr_Occurred() ? NULL : PyList_New(0);
    PyObject *list = PyList_New(count < (Py_ssize_t)(self->end - self->begin) ? count : (Py_ssize_t)(self->end - self->begin));
    for (Py_ssize_t i = 0; list != NULL && i < PyList_Size(list); i++)
        PyList_SetItem(list, i, Py_NewRef(self->messages[self->begin + (size_t)i]));
    return list;
}

static void
drop_first(Queue *self)
{
    PyObject *message = self->messages[self->begin++];
    self->bytes -= bytes_of(message);
    if (self->begin == self->end)
        self->begin = self->end = 0;
    Py_DECREF(message);
}

/* Allocates nothing, so that it cannot fail halfway. */
static PyObject *
queue_drop(PyObject *object, PyObject *bytes)
{
    Queue *self = (Queue *)object;
    char *done;
    Py_ssize_t count;
    if (PyBytes_AsStringAndSize(bytes, &done, &count) < 0)
        return NULL;
    if ((size_t)count > self->end - self->begin)
        count = (Py_ssize_t)(self->end - self->begin);
    PyObject **first = self->messages + self->begin;
    Py_ssize_t gone = count;
    for (Py_ssize_t i = count - 1; i >= 0; i--)
        if (!done[i]) { /* to the end of these, in order */
            PyObject *message = first[i];
            first[i] = first[--gone];
            first[gone] = message;
        }
    for (; gone > 0; gone--)
        drop_first(self);
    Py_RETURN_NONE;
}

/* --- send ---------------------------------------------------------------------------------- */

static int
is_plain_entry(PyObject *object)
{
    return object == Py_None || (PyBytes_CheckExact(object) && PyBytes_Size(object) <= PLAIN_BYTES);
}

/* Whether this text is in the set. */
static int
is_known(PyObject *set, PyObject *text)
{
    int found = PyUnicode_CheckExact(text) ? PySet_Contains(set, text) : 0;
    PyErr_Clear();
    return found == 1;
}

/* Headers as a new tuple of pairs, if they are plain, and known by name. NULL, perhaps with an exception, otherwise. */
static PyObject *
plain_headers(Queue *self, PyObject *given)
{
    PyObject *headers = given == NULL             ? PyTuple_New(0)
                        : PyTuple_CheckExact(given) ? Py_NewRef(given)
                        : PyList_CheckExact(given)  ? PyList_AsTuple(given)
                                                    : NULL;
    Py_ssize_t count = headers == NULL ? 0 : PyTuple_Size(headers);
    int plain = count <= PLAIN_HEADERS;
    for (Py_ssize_t i = 0; plain && i < count; i++) {
        PyObject *pair = PyTuple_GetItem(headers, i);
        plain = PyTuple_CheckExact(pair) && PyTuple_Size(pair) == 2 && is_known(self->names, PyTuple_GetItem(pair, 0)) &&
                is_plain_entry(PyTuple_GetItem(pair, 1));
    }
    if (!plain)
        Py_CLEAR(headers);
    return headers;
}

/* The first four entries of a plain message, as new references, of the arguments of `send`. If it is not plain 0, perhaps
 * with an exception. */
static int
take_fields(Queue *self, PyObject *args, PyObject *named, PyObject *fields[4])
{
    Py_ssize_t count = PyTuple_Size(args), taken = 0;
    PyObject *given[4] = {NULL, NULL, Py_None, NULL};
    if (count < 2 || count > 4)
        return 0;
    for (Py_ssize_t i = 0; i < count; i++)
        given[i] = PyTuple_GetItem(args, i);
    if (named != NULL) {
        PyObject *key = PyDict_GetItemString(named, "key"), *headers = PyDict_GetItemString(named, "headers");
        taken = (key != NULL && count < 3) + (headers != NULL && count < 4);
        if (taken != PyDict_Size(named))
            return 0;
        given[2] = key != NULL ? key : given[2];
        given[3] = headers != NULL ? headers : given[3];
    }
    if (!is_known(self->topics, given[0]) || !is_plain_entry(given[1]) || !is_plain_entry(given[2]))
        return 0;
    fields[3] = plain_headers(self, given[3]);
    if (fields[3] == NULL)
        return 0;
    for (int i = 0; i < 3; i++)
        fields[i] = Py_NewRef(given[i]);
    return 1;
}

/* The collector of cycles, which would visit each one that waits, does not know it: that is a tenth of what sending
 * takes. It is in no cycle. */
static PyObject *
plain_message(Queue *self, PyObject *fields[4], long long time_us)
{
    PyObject *message = ((allocfunc)PyType_GetSlot(self->message_type, Py_tp_alloc))(self->message_type, 5);
    PyObject *time = message == NULL ? NULL : PyLong_FromLongLong(time_us);
    if (time == NULL) {
        Py_CLEAR(message);
        for (int i = 0; i < 4; i++)
            Py_DECREF(fields[i]);
        return NULL;
    }
    PyObject_GC_UnTrack(message);
    for (int i = 0; i < 4; i++)
        PyTuple_SetItem(message, i, fields[i]);
    PyTuple_SetItem(message, 4, time);
    return message;
}

static PyObject *
queue_send(PyObject *object, PyObject *args, PyObject *named)
{
    Queue *self = (Queue *)object;
    PyObject *fields[4], *result = NULL;
    struct timespec now;
    int taken = 0;
    if (self->wake == NULL) {
        PyErr_SetString(PyExc_ValueError, "nobody takes what is sent");
        return NULL;
    }
    if (!take_fields(self, args, named, fields))
        return PyErr_Occurred() ? NULL : PyObject_Call(self->otherwise, args, named);
    clock_gettime(CLOCK_REALTIME, &now);
    long long time_us = now.tv_sec * 1000000LL + now.tv_nsec / 1000;
    PyObject *message = plain_message(self, fields, time_us);
    if (message == NULL)
        return NULL;
    if (self->is_open && self->forks == forks)
        taken = put(self, message, bytes_of(message), time_us);
    if (taken == 0)
        result = PyObject_CallFunctionObjArgs(self->accept, message, NULL);
    else if (taken > 0)
        result = self->waits ? PyObject_CallNoArgs(self->wake) : Py_NewRef(Py_None);
    Py_DECREF(message);
    return result;
}

/* --- the type ------------------------------------------------------------------------------ */

static int
queue_init(PyObject *object, PyObject *args, PyObject *named)
{
    Queue *self = (Queue *)object;
    static char *names[] = {"messages_max", "bytes_max", "age_max_us", NULL};
    if (!PyArg_ParseTupleAndKeywords(args, named, "ddd", names, &self->messages_max, &self->bytes_max,
                                     &self->age_max_us))
        return -1;
    self->forks = forks;
    return 0;
}

static int queue_clear(PyObject *object);

static PyObject *
queue_serve(PyObject *object, PyObject *args)
{
    Queue *self = (Queue *)object;
    PyObject *type, *topics, *names, *accept, *otherwise, *wake;
    if (!PyArg_ParseTuple(args, "O!O!O!OOO", &PyType_Type, &type, &PySet_Type, &topics, &PySet_Type, &names, &accept,
                          &otherwise, &wake))
        return NULL;
    if (!PyType_IsSubtype((PyTypeObject *)type, &PyTuple_Type)) {
        PyErr_SetString(PyExc_TypeError, "a message is a tuple");
        return NULL;
    }
    queue_clear(object);
    self->message_type = (PyTypeObject *)Py_NewRef(type);
    self->topics = Py_NewRef(topics);
    self->names = Py_NewRef(names);
    self->accept = Py_NewRef(accept);
    self->otherwise = Py_NewRef(otherwise);
    self->wake = Py_NewRef(wake);
    Py_RETURN_NONE;
}

static Py_ssize_t
queue_length(PyObject *object)
{
    return (Py_ssize_t)(((Queue *)object)->end - ((Queue *)object)->begin);
}

/* Not the messages: they are in no cycle. */
static int
queue_traverse(PyObject *object, visitproc visit, void *arg)
{
    Queue *self = (Queue *)object;
    Py_VISIT(Py_TYPE(object));
    Py_VISIT(self->message_type);
    Py_VISIT(self->topics);
    Py_VISIT(self->names);
    Py_VISIT(self->accept);
    Py_VISIT(self->otherwise);
    Py_VISIT(self->wake);
    return 0;
}

static int
queue_clear(PyObject *object)
{
    Queue *self = (Queue *)object;
    Py_CLEAR(self->wake); /* without it nothing is sent any more */
    Py_CLEAR(self->message_type);
    Py_CLEAR(self->topics);
    Py_CLEAR(self->names);
    Py_CLEAR(self->accept);
    Py_CLEAR(self->otherwise);
    return 0;
}

static void
queue_dealloc(PyObject *object)
{
    Queue *self = (Queue *)object;
    PyTypeObject *type = Py_TYPE(object);
    PyObject_GC_UnTrack(object);
    queue_clear(object);
    while (self->begin < self->end)
        drop_first(self);
    PyMem_Free(self->messages);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(object);
    Py_DECREF(type);
}

static PyMethodDef queue_methods[] = {
    {"append", queue_append, METH_O, "append(message): takes it. False, and nothing is changed, if a bound is reached."},
    {"first", queue_first, METH_O, "first(count): the oldest messages, at most so many, which stay here."},
    {"drop", queue_drop, METH_O, "drop(done): of the oldest messages, removes those whose byte here is not 0."},
    {"serve", queue_serve, METH_VARARGS,
     "serve(type, topics, names, accept, otherwise, wake): for `send`. type: of messages. topics, names: sets, of those\n"
     "of a plain message and of its headers. accept: gets a plain message that is not taken here; otherwise: the arguments of any other; wake: is\n"
     "called when a message was taken while `waits`."},
    {"send", (PyCFunction)(void (*)(void))queue_send, METH_VARARGS | METH_KEYWORDS,
     "send($self, topic, value, key=None, headers=())\n--\n\nSee Buffer.send."},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef queue_members[] = {
    {"bytes", T_LONGLONG, offsetof(Queue, bytes), READONLY, NULL},
    {"is_open", T_BOOL, offsetof(Queue, is_open), 0, NULL},
    {"waits", T_BOOL, offsetof(Queue, waits), 0, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyType_Slot queue_slots[] = {
    {Py_tp_doc, "Messages in memory: see memory_queue.PythonQueue."},
    {Py_tp_init, queue_init},
    {Py_tp_traverse, queue_traverse},
    {Py_tp_clear, queue_clear},
    {Py_tp_dealloc, queue_dealloc},
    {Py_tp_methods, queue_methods},
    {Py_tp_members, queue_members},
    {Py_sq_length, queue_length},
    {0, NULL},
};

static PyType_Spec queue_spec = {
    "bridge.client._report.Queue", sizeof(Queue), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC, queue_slots,
};

#endif
