/* Rows queued with the Kafka client as they stand in their columns: without objects for each, and
 * without a call of Python's. It knows nothing of the log, and of the client only what librdkafka
 * makes public: `rd_kafka_producev`, in which the client's own `produce` ends, and interceptors, by
 * which a plugin hears of a producer that is made. This module is such a plugin.
 */
#include "../../aolog/format/native/_sink.h"

#include <string.h>

/* From rdkafka.h; the numbers are of librdkafka's ABI. */
enum { OK = 0, COPY = 0x2 };
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
static _Thread_local void *made; /* the producer that this thread made last, unless it was taken */

/* --- the plugin ---------------------------------------------------------------------------- */

static int
on_new(void *rk, const void *conf, void *opaque, char *errstr, size_t errstr_size)
{
    (void)conf, (void)opaque, (void)errstr, (void)errstr_size;
    made = rk;
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

/* --- a row --------------------------------------------------------------------------------- */

/* As in Messages.part. */
enum { F_TOPIC, F_VALUE, F_KEY, F_PARTITION, F_CALLBACK, F_NOTHING, F_TIME, F_STAMP, FIELDS };

/* The client's handle of a topic: by its name, each row would look for it behind a lock. */
typedef struct {
    PyObject *name;
    void *handle;
} Topic;

#define TOPICS_MAX 16 /* of which rows may name others in turns */

typedef struct {
    AologSink sink;
    void *rk; /* whoever has the capsule lets it go before the producer */
    Topic topics[TOPICS_MAX];
    int last, count;
} Queue;

/* What a field's bytes are, NULL for None; 0 if it has none. */
static int
bytes_of(const AologField *field, const char **bytes, size_t *size)
{
    if (field->object == NULL) {
        *bytes = field->bytes;
        *size = (size_t)field->size;
        return 1;
    }
    *bytes = NULL;
    *size = 0;
    if (field->object == Py_None)
        return 1;
    if (!PyBytes_CheckExact(field->object))
        return 0;
    *bytes = PyBytes_AsString(field->object);
    *size = (size_t)PyBytes_Size(field->object);
    return 1;
}

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

/* What has a callback, or is refused, is not taken: the client's call does that, and says why. */
static int
take(void *context, const AologField *fields, Py_ssize_t width)
{
    const AologField *stamp = &fields[F_STAMP];
    const char *name, *value, *key;
    size_t value_size, key_size;
    PyObject *number = fields[F_PARTITION].object;
    if (width != FIELDS || fields[F_CALLBACK].object != Py_None || stamp->bytes == NULL ||
        fields[F_TIME].object != NULL || number == NULL || !PyLong_CheckExact(number))
        return 0;
    void *topic = topic_of(context, fields[F_TOPIC].object);
    name = text_of(stamp->object);
    long partition = PyLong_AsLong(number);
    if (topic == NULL || name == NULL || partition != (int)partition || PyErr_Occurred()) {
        PyErr_Clear();
        return 0;
    }
    if (!bytes_of(&fields[F_VALUE], &value, &value_size) ||
        !bytes_of(&fields[F_KEY], &key, &key_size))
        return 0;
    return producev(((Queue *)context)->rk, RKT, topic, PARTITION, (int)partition, VALUE, value,
                    value_size, KEY, key, key_size, TIMESTAMP, fields[F_TIME].number, FLAGS, COPY,
                    HEADER, name, stamp->bytes, stamp->size, END) == OK;
}

/* --- the module ---------------------------------------------------------------------------- */

static PyObject *
bind(PyObject *module, PyObject *args)
{
    PyObject *given[4];
    void *found[4];
    (void)module;
    if (!PyArg_ParseTuple(args, "OOOO", &given[0], &given[1], &given[2], &given[3]))
        return NULL;
    for (int i = 0; i < 4; i++)
        found[i] = PyLong_AsVoidPtr(given[i]);
    if (PyErr_Occurred())
        return NULL;
    producev = (Producev)found[0];
    topic_new = (TopicNew)found[1];
    topic_destroy = (TopicDestroy)found[2];
    add_on_new = (AddOnNew)found[3];
    Py_RETURN_NONE;
}

static PyObject *
begin(PyObject *module, PyObject *nothing)
{
    (void)module, (void)nothing;
    made = NULL;
    Py_RETURN_NONE;
}

static void
let_go(PyObject *capsule)
{
    Queue *queue = PyCapsule_GetPointer(capsule, AOLOG_SINK);
    forget_topics(queue);
    PyMem_Free(queue);
}

static PyObject *
sink(PyObject *module, PyObject *nothing)
{
    (void)module, (void)nothing;
    if (made == NULL || producev == NULL)
        Py_RETURN_NONE;
    Queue *queue = PyMem_Malloc(sizeof *queue);
    if (queue == NULL)
        return PyErr_NoMemory();
    *queue = (Queue){.sink = {take, queue}, .rk = made};
    made = NULL;
    PyObject *capsule = PyCapsule_New(&queue->sink, AOLOG_SINK, let_go);
    if (capsule == NULL)
        PyMem_Free(queue);
    return capsule;
}

static PyMethodDef methods[] = {
    {"bind", bind, METH_VARARGS, "Where librdkafka's functions are."},
    {"begin", begin, METH_NOARGS, "This thread is about to make a producer."},
    {"sink", sink, METH_NOARGS,
     "For Rows.feed: queues rows with the producer just made; None if there is none."},
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
