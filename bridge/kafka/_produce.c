/* Rows queued with the Kafka client as they stand in their columns: without objects for each, and
 * without a call of Python's. And single messages, with reports on those that failed, and no others.
 *
 * It knows the fields of a log's frames and of their columns (_messages.h), and of the client only what
 * librdkafka makes public: `rd_kafka_producev`, in which the client's own `produce` ends, and interceptors, by
 * which a plugin hears of a client that is made, of messages that have their outcome, and of those that a
 * consumer takes. This module is such a plugin.
 */
#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030B0000
#include <Python.h>

#include "_arrivals.h"
#include "_failures.h"
#include "_messages.h"

#include <dlfcn.h>
#include <stdint.h>
#include <string.h>

#define QUEUE "bridge.kafka.queue" /* the names of the capsules */
#define ARRIVALS "bridge.kafka.arrivals"
#define KEPT "bridge.kafka.kept"

/* From rdkafka.h; the numbers are of librdkafka's ABI. */
enum { COPY = 0x2 };
enum { END, RKT = 2, PARTITION, VALUE, KEY, FLAGS = 7, TIMESTAMP, HEADER, ALL_HEADERS };
typedef int (*Producev)(void *rk, ...);
typedef void *(*TopicNew)(void *rk, const char *name, void *conf);
typedef void (*TopicDestroy)(void *topic);
typedef void *(*HeadersNew)(size_t count);
typedef int (*HeaderAdd)(void *headers, const char *name, Py_ssize_t name_size, const char *value, Py_ssize_t size);
typedef int (*OnNew)(void *rk, const void *conf, void *opaque, char *errstr, size_t errstr_size);
typedef int (*AddOnNew)(void *conf, const char *name, OnNew on_new, void *opaque);
typedef int (*OnConfDestroy)(void *opaque);
typedef int (*AddOnConfDestroy)(void *conf, const char *name, OnConfDestroy on_conf_destroy, void *opaque);

static Producev producev;
static TopicNew topic_new;
static TopicDestroy topic_destroy;
static HeadersNew headers_new;
static HeaderAdd header_add;
static AddOnNew add_on_new;
static AddOnConfDestroy add_on_conf_destroy;

/* --- the plugin ---------------------------------------------------------------------------- */

/* What this thread made last, unless it was taken. */
static _Thread_local void *made;
static _Thread_local Failures *made_failures;
static _Thread_local Arrivals *made_arrivals;
static _Thread_local enum { NOTHING, WITH_FAILURES, WITH_ARRIVALS } wanted;

/* Of one configuration, and so of the one client that is made with it. The client destroys it last, when its
 * threads have ended. (It calls `on_destroy` before that: they go on then, and messages may fail.) */
typedef struct {
    Failures *failures;
    Arrivals *arrivals;
} Collected;

static int
on_new(void *rk, const void *conf, void *opaque, char *errstr, size_t errstr_size)
{
    Collected *collected = opaque;
    (void)conf, (void)errstr, (void)errstr_size;
    made = rk;
    if (wanted == WITH_FAILURES)
        made_failures = collected->failures = add_failures(rk);
    if (wanted == WITH_ARRIVALS)
        made_arrivals = collected->arrivals = add_arrivals(rk);
    return OK;
}

static int
on_conf_destroy(void *opaque)
{
    Collected *collected = opaque;
    drop_failures(collected->failures);
    drop_arrivals(collected->arrivals);
    free(collected);
    return OK;
}

/* librdkafka looks for this name. */
Py_EXPORTED_SYMBOL int
conf_init(void *conf, void **opaque, char *errstr, size_t errstr_size)
{
    (void)opaque, (void)errstr, (void)errstr_size;
    Collected *collected = add_on_new == NULL ? NULL : calloc(1, sizeof *collected);
    if (collected == NULL || add_on_conf_destroy(conf, "aolog", on_conf_destroy, collected) != OK)
        free(collected);
    else
        add_on_new(conf, "aolog", on_new, collected); /* refused where it is there already */
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
 * one with the last row is open. */
typedef struct {
    PyObject *list;
    int columns;
    Py_ssize_t next;       /* the column after the open one */
    Py_ssize_t first, end; /* rows of the open one */
    Entries open;
} Values;

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
    while (i >= values->end) {
        PyObject *column = PyList_GetItem(values->list, values->next);
        entries_clear(&values->open);
        Py_ssize_t count = column == NULL ? -1 : entries_take(&values->open, column);
        if (count < 0)
            return -1;
        values->next++;
        values->first = values->end;
        values->end += count;
    }
    return entry_bytes(&values->open, i - values->first, bytes, size) ? 1 : -1;
}

/* --- rows ---------------------------------------------------------------------------------- */

typedef struct {
    PyObject *lanes, *keys, *callbacks; /* lists; callbacks: or None */
    Values values;
    Py_buffer times; /* i64 each: milliseconds */
    const char *name;
    Py_buffer stamps; /* `size` bytes each: the only header */
    Py_ssize_t size;
    int is_kept; /* the values stay where they are until `release`, see `keep` */
} Rows;

/* Queues the row at i: 1 if it did. What has a callback, or is refused, is not taken: the client's call
 * does that, and says why. -1 and an exception on an error. */
static int
take(Queue *queue, Rows *rows, Py_ssize_t i)
{
    const char *value, *key;
    size_t value_size, key_size;
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
    return producev(queue->rk, RKT, topic, PARTITION, (int)partition, VALUE, value, value_size, KEY, key,
                    key_size, TIMESTAMP, number_at(&rows->times, i), FLAGS, rows->is_kept ? 0 : COPY, HEADER, rows->name,
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
    if (!PyArg_ParseTuple(args, "OO!O!O!OO(OnO)nnp", &capsule, &PyList_Type, &rows.lanes, &PyList_Type,
                          &rows.values.list, &PyList_Type, &rows.keys, &rows.callbacks, &times, &name,
                          &rows.size, &stamps, &at, &end, &rows.is_kept))
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
    entries_clear(&rows.values.open);
    PyBuffer_Release(&rows.stamps);
    PyBuffer_Release(&rows.times);
    return taken < 0 ? NULL : PyLong_FromSsize_t(at);
}

/* The data of columns. The client may read it at any time until it has answered for its messages. So only `release`
 * gives it back: if the capsule goes without that, the data stays in memory. */
typedef struct {
    Py_ssize_t count;
    Py_buffer data[];
} Kept;

static void
release_data(Kept *kept)
{
    while (kept->count > 0)
        PyBuffer_Release(&kept->data[--kept->count]);
}

static void
forget_kept(PyObject *capsule)
{
    Kept *kept = PyCapsule_GetPointer(capsule, KEPT);
    if (kept->count == 0)
        free(kept);
}

static PyObject *
keep(PyObject *module, PyObject *columns)
{
    (void)module;
    Py_ssize_t count = PyList_Size(columns);
    Kept *kept = count < 0 ? NULL : calloc(1, sizeof *kept + (size_t)count * sizeof kept->data[0]);
    if (kept == NULL)
        return PyErr_Occurred() ? NULL : PyErr_NoMemory();
    for (; kept->count < count; kept->count++) {
        PyObject *data = PyTuple_GetItem(PyList_GetItem(columns, kept->count), 2);
        if (data == NULL || PyObject_GetBuffer(data, &kept->data[kept->count], PyBUF_SIMPLE) < 0)
            break;
    }
    PyObject *capsule = kept->count < count ? NULL : PyCapsule_New(kept, KEPT, forget_kept);
    if (capsule == NULL) {
        release_data(kept);
        free(kept);
    }
    return capsule;
}

static PyObject *
release(PyObject *module, PyObject *capsule)
{
    (void)module;
    Kept *kept = PyCapsule_GetPointer(capsule, KEPT);
    if (kept == NULL)
        return NULL;
    release_data(kept);
    Py_RETURN_NONE;
}

/* --- single messages ----------------------------------------------------------------------- */

/* Milliseconds since the epoch of microseconds, 0 of 0: unknown. -1 of anything else. */
static long long
milliseconds(PyObject *microseconds)
{
    long long us = PyLong_Check(microseconds) ? PyLong_AsLongLong(microseconds) : -1;
    return us < 0 ? -1 : us > 0 && us < 1000 ? 1 : us / 1000;
}

/* A tuple of headers as the client has them, NULL of none; 0 if they are not plain. */
static int
headers_of(PyObject *pairs, void **headers)
{
    Py_ssize_t count = PyTuple_CheckExact(pairs) ? PyTuple_Size(pairs) : -1;
    int plain = count >= 0;
    *headers = count > 0 ? headers_new((size_t)count) : NULL;
    for (Py_ssize_t i = 0; plain && i < count; i++) {
        PyObject *pair = PyTuple_GetItem(pairs, i);
        plain = PyTuple_CheckExact(pair) && PyTuple_Size(pair) == 2;
        const char *value, *name = plain ? text_of(PyTuple_GetItem(pair, 0)) : NULL;
        size_t size;
        plain = name != NULL && bytes_of(PyTuple_GetItem(pair, 1), &value, &size) &&
                header_add(*headers, name, -1, value, (Py_ssize_t)size) == OK;
    }
    if (!plain && *headers != NULL)
        headers_destroy(*headers);
    return plain;
}

/* Whether it is plain and was queued, for the partition that the client chooses. Leaves no exception. */
static int
queue_one(Queue *queue, PyObject *message)
{
    const char *value, *key;
    size_t value_size, key_size;
    void *topic = topic_of(queue, PyTuple_GetItem(message, 0)), *headers = NULL;
    long long time_ms = milliseconds(PyTuple_GetItem(message, 4));
    int queued = topic != NULL && time_ms >= 0 && bytes_of(PyTuple_GetItem(message, 1), &value, &value_size) &&
                 bytes_of(PyTuple_GetItem(message, 2), &key, &key_size) &&
                 headers_of(PyTuple_GetItem(message, 3), &headers);
    PyErr_Clear(); /* whatever is not plain is the client's to judge */
    if (!queued)
        return 0;
    queued = producev(queue->rk, RKT, topic, PARTITION, -1, VALUE, value, value_size, KEY, key, key_size, TIMESTAMP,
                      (int64_t)time_ms, FLAGS, COPY, headers == NULL ? END : ALL_HEADERS, headers, END) == OK;
    if (!queued && headers != NULL)
        headers_destroy(headers);
    return queued;
}

static PyObject *
produce_all(PyObject *module, PyObject *args)
{
    PyObject *capsule, *messages, *topics, *topic = NULL;
    Py_ssize_t at;
    (void)module;
    if (!PyArg_ParseTuple(args, "OO!O!n", &capsule, &PySet_Type, &topics, &PyList_Type, &messages, &at))
        return NULL;
    Queue *queue = PyCapsule_GetPointer(capsule, QUEUE);
    if (queue == NULL)
        return NULL;
    for (; at >= 0 && at < PyList_Size(messages); at++) {
        PyObject *message = PyList_GetItem(messages, at);
        if (!PyTuple_Check(message) || PyTuple_Size(message) != 5)
            break;
        PyObject *named = PyTuple_GetItem(message, 0);
        if (named != topic && (!PyUnicode_CheckExact(named) || PySet_Contains(topics, named) != 1))
            break;
        topic = named;
        if (!queue_one(queue, message))
            break;
    }
    PyErr_Clear(); /* the rest is the client's to judge */
    return PyLong_FromSsize_t(at);
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

/* The client's functions, and where they are called through. */
static const struct { const char *name; void *to; } functions[] = {
    {"rd_kafka_producev", &producev},
    {"rd_kafka_topic_new", &topic_new},
    {"rd_kafka_topic_destroy", &topic_destroy},
    {"rd_kafka_topic_name", &topic_name},
    {"rd_kafka_conf_interceptor_add_on_new", &add_on_new},
    {"rd_kafka_conf_interceptor_add_on_conf_destroy", &add_on_conf_destroy},
    {"rd_kafka_interceptor_add_on_acknowledgement", &add_on_outcome},
    {"rd_kafka_interceptor_add_on_consume", &add_on_consume},
    {"rd_kafka_message_timestamp", &message_time},
    {"rd_kafka_message_headers", &message_headers},
    {"rd_kafka_message_errstr", &message_error},
    {"rd_kafka_message_destroy", &message_destroy},
    {"rd_kafka_header_get_all", &header_at},
    {"rd_kafka_header_add", &header_add},
    {"rd_kafka_headers_new", &headers_new},
    {"rd_kafka_headers_copy", &headers_copy},
    {"rd_kafka_headers_destroy", &headers_destroy},
    {"rd_kafka_queue_get_consumer", &queue_of_consumer},
    {"rd_kafka_consume_batch_queue", &consume_batch},
    {"rd_kafka_queue_destroy", &queue_destroy},
};

static PyObject *
bind(PyObject *module, PyObject *handle)
{
    void *client = PyLong_AsVoidPtr(handle);
    (void)module;
    for (size_t i = 0; i < sizeof functions / sizeof functions[0] && !PyErr_Occurred(); i++) {
        void *found = dlsym(client, functions[i].name);
        if (found == NULL)
            PyErr_Format(PyExc_AttributeError, "the client has no %s", functions[i].name);
        else
            memcpy(functions[i].to, &found, sizeof found);
    }
    return PyErr_Occurred() ? NULL : Py_NewRef(Py_None);
}

static PyObject *
begin(PyObject *module, PyObject *what)
{
    (void)module;
    made = NULL;
    drop_failures(made_failures); /* of a client that nobody took */
    drop_arrivals(made_arrivals);
    made_failures = NULL;
    made_arrivals = NULL;
    wanted = PyLong_AsLong(what);
    return PyErr_Occurred() ? NULL : Py_NewRef(Py_None);
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

static void
let_arrivals_go(PyObject *capsule)
{
    Arrivals *arrivals = PyCapsule_GetPointer(capsule, ARRIVALS);
    end_arrivals(arrivals);
    drop_arrivals(arrivals);
}

static PyObject *
arrivals_of(PyObject *module, PyObject *nothing)
{
    (void)module, (void)nothing;
    void *queue = made == NULL || made_arrivals == NULL ? NULL : queue_of_consumer(made);
    if (queue == NULL)
        Py_RETURN_NONE;
    PyObject *capsule = PyCapsule_New(made_arrivals, ARRIVALS, let_arrivals_go);
    if (capsule == NULL) {
        queue_destroy(queue);
        return NULL;
    }
    made_arrivals->queue = queue;
    made_arrivals = NULL;
    return capsule;
}

static PyObject *
want(PyObject *module, PyObject *args)
{
    PyObject *capsule;
    Py_ssize_t count, timeout_ms;
    (void)module;
    if (!PyArg_ParseTuple(args, "Onn", &capsule, &count, &timeout_ms))
        return NULL;
    Arrivals *arrivals = PyCapsule_GetPointer(capsule, ARRIVALS);
    if (arrivals == NULL)
        return NULL;
    forget_arrivals(arrivals);
    arrivals->wanted = count < 0 ? 0 : (size_t)count;
    arrivals->until_ms = now_ms() + timeout_ms;
    Py_RETURN_NONE;
}

static PyObject *
columns(PyObject *module, PyObject *args)
{
    PyObject *capsule, *left_out_type;
    Py_ssize_t most, most_bytes;
    (void)module;
    if (!PyArg_ParseTuple(args, "OnnO", &capsule, &most, &most_bytes, &left_out_type))
        return NULL;
    Arrivals *arrivals = PyCapsule_GetPointer(capsule, ARRIVALS);
    return arrivals == NULL ? NULL : take_arrivals(arrivals, most, (size_t)most_bytes, left_out_type);
}

static PyObject *
numbered(PyObject *module, PyObject *args)
{
    const char *prefix;
    Py_ssize_t size;
    Py_buffer numbers;
    (void)module;
    if (!PyArg_ParseTuple(args, "y#y*", &prefix, &size, &numbers))
        return NULL;
    PyObject *column = numbered_column(prefix, (size_t)size, &numbers);
    PyBuffer_Release(&numbers);
    return column;
}

static PyMethodDef methods[] = {
    {"bind", bind, METH_O, "Finds librdkafka's functions. Takes the handle of its library, as dlopen returns it."},
    {"begin", begin, METH_O,
     "This thread is about to make a client. Takes what is to be collected: 1: failures, 2: arrivals, 0: neither."},
    {"queue", queue_of, METH_NOARGS,
     "For `put`: the queue of the producer just made; None if there is none."},
    {"put", put, METH_VARARGS,
     "put(queue, lanes, values, keys, callbacks, times_ms, (name, size, stamps), at, end, kept): queues rows, up "
     "to one that it does not take. Returns its index, or the end. kept: the client reads the values where they are."},
    {"messages", messages_of, METH_VARARGS,
     "messages(frames, values, count, source): addresses, topics, keys, sizes, times_ms, stamps of the records of plain "
     "frames, of which values are the columns. See messages.py."},
    {"keep", keep, METH_O,
     "keep(columns): keeps the values of columns where they are, until `release` gets what this returns."},
    {"release", release, METH_O,
     "release(kept): the client reads these values no more."},
    {"produce_all", produce_all, METH_VARARGS,
     "produce_all(queue, topics, messages, at): queues messages (topic, value, key, headers, microseconds) of these "
     "topics, for the partition that the client chooses, up to one that it may refuse. Returns its index, or the end."},
    {"failures", failures_of, METH_O,
     "failures(queue): the messages that failed since the last call, in order: topic, value, key, error. An entry "
     "None: some more failed, for which there was no memory. Returns None if failures are not collected."},
    {"arrivals", arrivals_of, METH_NOARGS,
     "For `want`: the arrivals of the consumer just made; None if they are not collected. Let them go before the "
     "consumer."},
    {"want", want, METH_VARARGS,
     "want(arrivals, count, timeout_ms): with the next message that the consumer gives, so many are taken at most, this "
     "one among them; waits so long for them."},
    {"columns", columns, METH_VARARGS,
     "columns(arrivals, most, bytes, left_out): (runs, errors) of what was taken since `want`. A run: see runs.py; of at most "
     "`most` messages, and it ends when its keys and values have so many bytes. left_out: consumed.LeftOut. An error: (topic, partition, "
     "offset, code, text)."},
    {"numbered", numbered, METH_VARARGS,
     "numbered(prefix, numbers): a column of the prefix and each number, i64, in decimal."},
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
