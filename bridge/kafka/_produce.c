/* Rows queued with the Kafka client as they stand in their columns: without objects for each, and
 * without a call of Python's. And single messages, with reports on those that failed, and no others. It
 * knows nothing of the log, and of the client only what librdkafka makes public: `rd_kafka_producev`, in
 * which the client's own `produce` ends, and interceptors, by which a plugin hears of a producer that is
 * made, and of messages that have their outcome. This module is such a plugin.
 */
#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030B0000
#include <Python.h>

#include "_failures.h"

#include <stdint.h>
#include <string.h>

#define QUEUE "bridge.kafka.queue" /* the name of the capsule */

/* From rdkafka.h; the numbers are of librdkafka's ABI. */
enum { COPY = 0x2 };
enum { END, RKT = 2, PARTITION, VALUE, KEY, FLAGS = 7, TIMESTAMP, HEADER };
typedef int (*Producev)(void *rk, ...);
typedef void *(*TopicNew)(void *rk, const char *name, void *conf);
typedef void (*TopicDestroy)(void *topic);
typedef int (*OnNew)(void *rk, const void *conf, void *opaque, char *errstr, size_t errstr_size);
typedef int (*AddOnNew)(void *conf, const char *name, OnNew on_new, void *opaque);

static Producev producev;
static TopicNew topic_new;
static TopicDestroy topic_destroy;
static AddOnNew add_on_new;

/* --- the plugin ---------------------------------------------------------------------------- */

/* What this thread made last, unless it was taken. */
static _Thread_local void *made;
static _Thread_local Failures *made_failures;
static _Thread_local int wants_failures;

static int
on_new(void *rk, const void *conf, void *opaque, char *errstr, size_t errstr_size)
{
    (void)conf, (void)opaque, (void)errstr, (void)errstr_size;
    made = rk;
    if (wants_failures)
        made_failures = add_failures(rk);
    return OK;
}

/* librdkafka looks for this name. */
Py_EXPORTED_SYMBOL int
conf_init(void *conf, void **opaque, char *errstr, size_t errstr_size)
{
    (void)opaque, (void)errstr, (void)errstr_size;
    if (add_on_new != NULL)
        add_on_new(conf, "aolog", on_new, NULL); /* refused where it is there already */
    return OK;
}

/* --- topics -------------------------------------------------------------------------------- */

/* The client's handle of a topic: by its name, each row would look for it behind a lock. */
typedef struct {
    PyObject *name;
    void *handle;
} Topic;

#define TOPICS_MAX 16 /* of which rows may name others in turns */

typedef struct {
    void *rk; /* whoever has the capsule lets it go before the producer */
    Failures *failures; /* NULL: they are not collected */
    Topic topics[TOPICS_MAX];
    int last, count;
} Queue;

/* A string without a NUL in it; NULL of anything else. */
static const char *
text_of(PyObject *object)
{
    Py_ssize_t size;
    const char *text = NULL;
    if (object != NULL && PyUnicode_CheckExact(object))
        text = PyUnicode_AsUTF8AndSize(object, &size);
    return text == NULL || strlen(text) != (size_t)size ? NULL : text;
}

static void
forget_topics(Queue *queue)
{
    for (; queue->count > 0; queue->count--) {
        topic_destroy(queue->topics[queue->count - 1].handle);
        Py_DECREF(queue->topics[queue->count - 1].name);
    }
}

/* NULL for what can be no topic's name. */
static void *
topic_of(Queue *queue, PyObject *name)
{
    if (queue->count > 0 && queue->topics[queue->last].name == name)
        return queue->topics[queue->last].handle;
    for (int i = 0; i < queue->count; i++)
        if (queue->topics[i].name == name)
            return queue->topics[queue->last = i].handle;
    const char *text = text_of(name);
    void *handle = text == NULL ? NULL : topic_new(queue->rk, text, NULL);
    if (handle == NULL)
        return NULL;
    if (queue->count == TOPICS_MAX)
        forget_topics(queue);
    queue->last = queue->count++;
    Py_INCREF(name);
    queue->topics[queue->last] = (Topic){name, handle};
    return handle;
}

/* --- values -------------------------------------------------------------------------------- */

/* The values of all rows: a list of objects, or of columns of bytes, one after the other. Of a column the
 * one with the last row is open. Each is (validity or None, offsets u32, data), as Arrow has them. */
typedef struct {
    PyObject *list;
    int columns;
    Py_ssize_t next;       /* the column after the open one */
    Py_ssize_t first, end; /* rows of the open one */
    Py_buffer validity, offsets, data;
} Values;

static void
close_column(Values *values)
{
    PyBuffer_Release(&values->validity);
    PyBuffer_Release(&values->offsets);
    PyBuffer_Release(&values->data);
}

/* Opens the next column. 0 and an exception on an error. */
static int
open_column(Values *values)
{
    PyObject *column = PyList_GetItem(values->list, values->next), *validity, *offsets, *data;
    close_column(values);
    if (column == NULL || !PyArg_ParseTuple(column, "OOO", &validity, &offsets, &data) ||
        PyObject_GetBuffer(offsets, &values->offsets, PyBUF_SIMPLE) < 0 ||
        PyObject_GetBuffer(data, &values->data, PyBUF_SIMPLE) < 0 ||
        (validity != Py_None && PyObject_GetBuffer(validity, &values->validity, PyBUF_SIMPLE) < 0))
        return 0;
    Py_ssize_t count = values->offsets.len / (Py_ssize_t)sizeof(uint32_t) - 1;
    if (count < 0 || (validity != Py_None && values->validity.len < (count + 7) / 8)) {
        PyErr_SetString(PyExc_ValueError, "a column has fewer entries than it should");
        return 0;
    }
    values->next++;
    values->first = values->end;
    values->end += count;
    return 1;
}

/* What an object's bytes are, NULL for None; 0 if it has none. */
static int
bytes_of(PyObject *object, const char **bytes, size_t *size)
{
    *bytes = NULL;
    *size = 0;
    if (object == Py_None)
        return 1;
    if (!PyBytes_CheckExact(object))
        return 0;
    *bytes = PyBytes_AsString(object);
    *size = (size_t)PyBytes_Size(object);
    return 1;
}

/* The value of a row; the rows come in order. 0 if it has no bytes, -1 and an exception on an error. */
static int
value_of(Values *values, Py_ssize_t i, const char **bytes, size_t *size)
{
    if (!values->columns) {
        PyObject *object = PyList_GetItem(values->list, i);
        return object == NULL ? -1 : bytes_of(object, bytes, size);
    }
    while (i >= values->end)
        if (!open_column(values))
            return -1;
    i -= values->first;
    *bytes = NULL;
    *size = 0;
    const unsigned char *bits = values->validity.buf;
    if (bits != NULL && !(bits[i >> 3] >> (i & 7) & 1))
        return 1;
    uint32_t cuts[2];
    memcpy(cuts, (const char *)values->offsets.buf + i * (Py_ssize_t)sizeof cuts[0], sizeof cuts);
    if (cuts[1] < cuts[0] || cuts[1] > (size_t)values->data.len) {
        PyErr_SetString(PyExc_ValueError, "an entry lies outside of the data");
        return -1;
    }
    *bytes = (const char *)values->data.buf + cuts[0];
    *size = cuts[1] - cuts[0];
    return 1;
}

/* --- rows ---------------------------------------------------------------------------------- */

typedef struct {
    PyObject *lanes, *keys, *callbacks; /* lists; callbacks: or None */
    Values values;
    Py_buffer times; /* i64 each: milliseconds */
    const char *name;
    Py_buffer stamps; /* `size` bytes each: the only header */
    Py_ssize_t size;
} Rows;

/* Queues the row at i: 1 if it did. What has a callback, or is refused, is not taken: the client's call
 * does that, and says why. -1 and an exception on an error. */
static int
take(Queue *queue, Rows *rows, Py_ssize_t i)
{
    const char *value, *key;
    size_t value_size, key_size;
    int64_t time_ms;
    PyObject *lane = PyList_GetItem(rows->lanes, i), *key_object = PyList_GetItem(rows->keys, i);
    PyObject *callback = rows->callbacks == Py_None ? Py_None : PyList_GetItem(rows->callbacks, i);
    if (lane == NULL || key_object == NULL || callback == NULL)
        return -1;
    PyObject *number = PyTuple_GetItem(lane, 1);
    if (number == NULL)
        return -1;
    if (callback != Py_None || !PyLong_CheckExact(number))
        return 0;
    void *topic = topic_of(queue, PyTuple_GetItem(lane, 0));
    long partition = PyLong_AsLong(number);
    if (topic == NULL || partition != (int)partition || PyErr_Occurred()) {
        PyErr_Clear();
        return 0;
    }
    int found = value_of(&rows->values, i, &value, &value_size);
    if (found <= 0 || !bytes_of(key_object, &key, &key_size))
        return found < 0 ? -1 : 0;
    memcpy(&time_ms, (const char *)rows->times.buf + i * (Py_ssize_t)sizeof time_ms, sizeof time_ms);
    return producev(queue->rk, RKT, topic, PARTITION, (int)partition, VALUE, value, value_size, KEY, key,
                    key_size, TIMESTAMP, time_ms, FLAGS, COPY, HEADER, rows->name,
                    (const char *)rows->stamps.buf + i * rows->size, rows->size, END) == OK;
}

static PyObject *
put(PyObject *module, PyObject *args)
{
    PyObject *capsule, *name, *times, *stamps;
    Py_ssize_t at, end;
    int taken = 1;
    Rows rows = {0};
    (void)module;
    if (!PyArg_ParseTuple(args, "OO!O!O!OO(OnO)nn", &capsule, &PyList_Type, &rows.lanes, &PyList_Type,
                          &rows.values.list, &PyList_Type, &rows.keys, &rows.callbacks, &times, &name,
                          &rows.size, &stamps, &at, &end))
        return NULL;
    Queue *queue = PyCapsule_GetPointer(capsule, QUEUE);
    if (queue == NULL || PyObject_GetBuffer(times, &rows.times, PyBUF_SIMPLE) < 0)
        return NULL;
    rows.name = text_of(name);
    if (PyObject_GetBuffer(stamps, &rows.stamps, PyBUF_SIMPLE) < 0)
        taken = -1;
    else if (rows.name == NULL || at < 0 || rows.size < 0 || rows.stamps.len < end * rows.size ||
             rows.times.len < end * (Py_ssize_t)sizeof(int64_t) ||
             (rows.callbacks != Py_None && !PyList_Check(rows.callbacks))) {
        PyErr_SetString(PyExc_ValueError, "the columns are not those of so many rows");
        taken = -1;
    }
    rows.values.columns = PyList_Size(rows.values.list) > 0 && PyTuple_Check(PyList_GetItem(rows.values.list, 0));
    /* No Python code runs here, so no list changes meanwhile. */
    while (taken == 1 && at < end)
        if ((taken = take(queue, &rows, at)) == 1)
            at++;
    close_column(&rows.values);
    PyBuffer_Release(&rows.stamps);
    PyBuffer_Release(&rows.times);
    return taken < 0 ? NULL : PyLong_FromSsize_t(at);
}

/* --- single messages ----------------------------------------------------------------------- */

static PyObject *
produce(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    const char *value, *key;
    size_t value_size, key_size;
    (void)module;
    Queue *queue = count == 5 ? PyCapsule_GetPointer(args[0], QUEUE) : NULL;
    if (queue == NULL) {
        if (!PyErr_Occurred())
            PyErr_SetString(PyExc_TypeError, "produce takes a queue, topic, value, key and milliseconds");
        return NULL;
    }
    void *topic = topic_of(queue, args[1]);
    long long time_ms = PyLong_Check(args[4]) ? PyLong_AsLongLong(args[4]) : -1;
    PyErr_Clear(); /* whatever is not plain is the client's to judge */
    int queued = topic != NULL && time_ms >= 0 && bytes_of(args[2], &value, &value_size) &&
                 bytes_of(args[3], &key, &key_size) &&
                 producev(queue->rk, RKT, topic, PARTITION, -1, VALUE, value, value_size, KEY, key, key_size,
                          TIMESTAMP, (int64_t)time_ms, FLAGS, COPY, END) == OK;
    return PyBool_FromLong(queued);
}

static PyObject *
failures_of(PyObject *module, PyObject *capsule)
{
    (void)module;
    Queue *queue = PyCapsule_GetPointer(capsule, QUEUE);
    if (queue != NULL && queue->failures == NULL)
        Py_RETURN_NONE;
    if (queue == NULL)
        return NULL;
    return take_failures(queue->failures);
}

/* --- the module ---------------------------------------------------------------------------- */

static PyObject *
bind(PyObject *module, PyObject *args)
{
    PyObject *given[7];
    void *found[7];
    (void)module;
    if (!PyArg_ParseTuple(args, "OOOOOOO", &given[0], &given[1], &given[2], &given[3], &given[4], &given[5],
                          &given[6]))
        return NULL;
    for (int i = 0; i < 7; i++)
        found[i] = PyLong_AsVoidPtr(given[i]);
    if (PyErr_Occurred())
        return NULL;
    producev = (Producev)found[0];
    topic_new = (TopicNew)found[1];
    topic_destroy = (TopicDestroy)found[2];
    add_on_new = (AddOnNew)found[3];
    topic_name = (TopicName)found[4];
    add_on_outcome = (AddOnOutcome)found[5];
    add_on_destroy = (AddOnDestroy)found[6];
    Py_RETURN_NONE;
}

static PyObject *
begin(PyObject *module, PyObject *with_failures)
{
    (void)module;
    made = NULL;
    drop_failures(made_failures); /* of a producer that nobody took */
    made_failures = NULL;
    wants_failures = PyObject_IsTrue(with_failures) == 1;
    Py_RETURN_NONE;
}

static void
let_go(PyObject *capsule)
{
    Queue *queue = PyCapsule_GetPointer(capsule, QUEUE);
    forget_topics(queue);
    drop_failures(queue->failures);
    PyMem_Free(queue);
}

static PyObject *
queue_of(PyObject *module, PyObject *nothing)
{
    (void)module, (void)nothing;
    if (made == NULL || producev == NULL)
        Py_RETURN_NONE;
    Queue *queue = PyMem_Malloc(sizeof *queue);
    if (queue == NULL)
        return PyErr_NoMemory();
    *queue = (Queue){.rk = made, .failures = made_failures};
    made = NULL;
    made_failures = NULL;
    PyObject *capsule = PyCapsule_New(queue, QUEUE, let_go);
    if (capsule == NULL) {
        drop_failures(queue->failures);
        PyMem_Free(queue);
    }
    return capsule;
}

static PyMethodDef methods[] = {
    {"bind", bind, METH_VARARGS, "Where librdkafka's functions are."},
    {"begin", begin, METH_O,
     "This thread is about to make a producer. Takes whether its failures are to be collected."},
    {"queue", queue_of, METH_NOARGS,
     "For `put`: the queue of the producer just made; None if there is none."},
    {"put", put, METH_VARARGS,
     "put(queue, lanes, values, keys, callbacks, times_ms, (name, size, stamps), at, end): queues rows, up "
     "to one that it does not take. Returns its index, or the end."},
    {"produce", (PyCFunction)(void (*)(void))produce, METH_FASTCALL,
     "produce(queue, topic, value, key, time_ms): queues a message; whether it did. The client chooses "
     "the partition."},
    {"failures", failures_of, METH_O,
     "failures(queue): the messages that failed since the last call, in order: topic, key, value, error. An entry "
     "None: some more failed, for which there was no memory. Returns None if failures are not collected."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "bridge.kafka._produce", NULL, -1, methods, NULL, NULL, NULL, NULL,
};

PyMODINIT_FUNC
PyInit__produce(void)
{
    return PyModule_Create(&definition);
}
