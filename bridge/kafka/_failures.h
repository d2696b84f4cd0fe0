/* The messages of a producer that failed, as its client's threads note them. Only for _produce.c.
 *
 * librdkafka calls an interceptor for each message that has its outcome, before it reports that to anybody. It holds no
 * lock of Python's, and runs no code of Python's.
 */
#ifndef BRIDGE_FAILURES_H
#define BRIDGE_FAILURES_H

#define PY_SSIZE_T_CLEAN
#ifndef Py_LIMITED_API
#define Py_LIMITED_API 0x030B0000
#endif
#include <Python.h>

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* From rdkafka.h; the numbers are of librdkafka's ABI. */
enum { OK = 0 };
typedef const char *(*TopicName)(const void *topic);
typedef struct { /* the begin of rd_kafka_message_t */
    int error;
    void *topic;
    int32_t partition;
    const char *value;
    size_t value_size;
    const char *key;
    size_t key_size;
    int64_t offset;
} Message;
typedef int (*OnOutcome)(void *rk, Message *message, void *opaque);
typedef int (*AddOnOutcome)(void *rk, const char *name, OnOutcome on_outcome, void *opaque);

static TopicName topic_name;
static AddOnOutcome add_on_outcome;

typedef struct Failure {
    struct Failure *next;
    int error;
    Py_ssize_t topic_size, value_size, key_size; /* -1: None */
    char bytes[];                                /* topic, value, key */
} Failure;

/* Of one producer: threads of the client add to it, until its configuration is destroyed. */
typedef struct {
    pthread_mutex_t lock;
    Failure *first, **last;
    int lost;            /* there was no memory for one */
    atomic_int owners;   /* the producer, and whoever reads it */
} Failures;

static void
drop_failures(Failures *failures)
{
    if (failures == NULL || atomic_fetch_sub(&failures->owners, 1) > 1)
        return;
    for (Failure *next, *each = failures->first; each != NULL; each = next) {
        next = each->next;
        free(each);
    }
    pthread_mutex_destroy(&failures->lock);
    free(failures);
}

static char *
copied(char *to, const char *bytes, size_t size, Py_ssize_t *length)
{
    *length = bytes == NULL ? -1 : (Py_ssize_t)size;
    if (bytes != NULL && size > 0)
        memcpy(to, bytes, size);
    return to + (bytes == NULL ? 0 : size);
}

/* The client calls it for each message, in any of its threads, before it reports the outcome to anybody. */
static int
on_outcome(void *rk, Message *message, void *opaque)
{
    (void)rk;
    if (message->error == OK)
        return OK;
    Failures *failures = opaque;
    const char *topic = message->topic == NULL ? NULL : topic_name(message->topic);
    size_t topic_size = topic == NULL ? 0 : strlen(topic);
    size_t size = topic_size + message->value_size + message->key_size;
    Failure *failure = malloc(sizeof *failure + size);
    pthread_mutex_lock(&failures->lock);
    if (failure == NULL) {
        failures->lost = 1;
    } else {
        failure->next = NULL;
        failure->error = message->error;
        char *to = copied(failure->bytes, topic, topic_size, &failure->topic_size);
        to = copied(to, message->value, message->value_size, &failure->value_size);
        copied(to, message->key, message->key_size, &failure->key_size);
        *failures->last = failure;
        failures->last = &failure->next;
    }
    pthread_mutex_unlock(&failures->lock);
    return OK;
}

/* NULL if the producer cannot have them. */
static Failures *
add_failures(void *rk)
{
    Failures *failures = calloc(1, sizeof *failures);
    if (failures == NULL || pthread_mutex_init(&failures->lock, NULL) != 0) {
        free(failures);
        return NULL;
    }
    failures->last = &failures->first;
    atomic_store(&failures->owners, 2);
    if (add_on_outcome(rk, "aolog", on_outcome, failures) == OK)
        return failures;
    atomic_store(&failures->owners, 1);
    drop_failures(failures);
    return NULL;
}

static PyObject *
object_of(const char **bytes, Py_ssize_t size)
{
    if (size < 0)
        return Py_NewRef(Py_None);
    PyObject *object = PyBytes_FromStringAndSize(*bytes, size);
    *bytes += size;
    return object;
}

/* Of a list of failures, as tuples; it is released. */
static int
add_tuples(PyObject *list, Failure *first)
{
    int found = 0;
    for (Failure *next, *each = first; each != NULL; each = next) {
        next = each->next;
        const char *at = each->bytes;
        PyObject *topic = found < 0 ? NULL : object_of(&at, each->topic_size);
        PyObject *value = topic == NULL ? NULL : object_of(&at, each->value_size);
        PyObject *key = value == NULL ? NULL : object_of(&at, each->key_size);
        PyObject *row = key == NULL ? NULL : Py_BuildValue("OOOi", topic, value, key, each->error);
        if (row == NULL || PyList_Append(list, row) < 0)
            found = -1;
        Py_XDECREF(topic), Py_XDECREF(value), Py_XDECREF(key), Py_XDECREF(row);
        free(each);
    }
    return found;
}

/* The failures since the last call, as a list of tuples. An entry None: more, for which there was no memory. */
static PyObject *
take_failures(Failures *failures)
{
    PyObject *list = PyList_New(0);
    if (list == NULL)
        return NULL;
    pthread_mutex_lock(&failures->lock);
    Failure *first = failures->first;
    int lost = failures->lost;
    failures->first = NULL;
    failures->last = &failures->first;
    failures->lost = 0;
    pthread_mutex_unlock(&failures->lock);
    if (add_tuples(list, first) < 0 || (lost && PyList_Append(list, Py_None) < 0))
        Py_CLEAR(list);
    return list;
}

#endif
