/* The messages that a consumer takes, as columns, without the client's object of each. Only for _produce.c.
 *
 * librdkafka calls an interceptor for each message before the program gets it, in the thread that asks for messages.
 * At the first one the interceptor takes those that follow, from the same queue. It does so within the
 * client's own call, because that also calls back, which the client only can do in a call of its own.
 */
#ifndef BRIDGE_ARRIVALS_H
#define BRIDGE_ARRIVALS_H

#include "../../aolog/format/native/_entries.h"
#include "_failures.h"

#include <time.h>

#define NO_TIME 0 /* RD_KAFKA_TIMESTAMP_NOT_AVAILABLE */
#define UNTIMED -1 /* Kafka's RecordBatch.NO_TIMESTAMP */
#define TIME_MS_MAX (INT64_MAX / 1000) /* a log's times are microseconds, and INT64_MIN is none */
#define FOLLOWING_MAX 1000

typedef int64_t (*MessageTime)(const Message *message, int *kind);
typedef int (*MessageHeaders)(const Message *message, void **headers);
typedef const char *(*MessageError)(const Message *message);
typedef void (*MessageDestroy)(Message *message);
typedef int (*HeaderAt)(const void *headers, size_t at, const char **name, const void **value, size_t *size);
typedef void *(*HeadersCopy)(const void *headers);
typedef void (*HeadersDestroy)(void *headers);
typedef int (*AddOnConsume)(void *rk, const char *name, OnOutcome on_consume, void *opaque);
typedef void *(*QueueOfConsumer)(void *rk);
typedef void (*QueueDestroy)(void *queue);
typedef Py_ssize_t (*ConsumeBatch)(void *queue, int timeout_ms, Message **messages, size_t count);

static MessageTime message_time;
static MessageHeaders message_headers;
static MessageError message_error;
static MessageDestroy message_destroy;
static HeaderAt header_at;
static HeadersCopy headers_copy;
static HeadersDestroy headers_destroy;
static AddOnConsume add_on_consume;
static QueueOfConsumer queue_of_consumer;
static QueueDestroy queue_destroy;
static ConsumeBatch consume_batch;

typedef struct {
    const Message *message;
    const char *topic;
    void *headers; /* NULL: none */
    int64_t time_ms;
    int kind; /* of the time */
} Arrival;

/* Of one consumer. Not thread-safe: one thread takes its messages and asks for their columns. */
typedef struct {
    void *queue;      /* the consumer's, from `arrivals` on; whoever asks lets it go before the consumer */
    size_t wanted;    /* messages of the next call; 0: they are the client's alone */
    int64_t until_ms; /* how long it waits for them */
    int has_first, is_lost; /* is_lost: there was no memory for the first one */
    Arrival first;    /* a copy: the client destroys its own */
    Message copy;
    char *bytes; /* of the copy */
    Message *following[FOLLOWING_MAX];
    Py_ssize_t count;
    atomic_int owners; /* the consumer, and whoever asks */
} Arrivals;

static void
forget_arrivals(Arrivals *arrivals)
{
    while (arrivals->count > 0)
        message_destroy(arrivals->following[--arrivals->count]);
    if (arrivals->first.headers != NULL)
        headers_destroy(arrivals->first.headers);
    free(arrivals->bytes);
    arrivals->first.headers = arrivals->bytes = NULL;
    arrivals->has_first = arrivals->is_lost = 0;
    arrivals->wanted = 0;
}

/* Before the consumer goes. */
static void
end_arrivals(Arrivals *arrivals)
{
    forget_arrivals(arrivals);
    if (arrivals->queue != NULL)
        queue_destroy(arrivals->queue);
    arrivals->queue = NULL;
}

static void
drop_arrivals(Arrivals *arrivals)
{
    if (arrivals != NULL && atomic_fetch_sub(&arrivals->owners, 1) == 1)
        free(arrivals);
}

static int64_t
now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static Arrival
arrival_of(const Message *message)
{
    Arrival found = {.message = message, .topic = message->topic == NULL ? "" : topic_name(message->topic)};
    found.time_ms = message_time(message, &found.kind);
    if (message_headers(message, &found.headers) != OK)
        found.headers = NULL;
    return found;
}

/* 0 if there is no memory. */
static int
copy_first(Arrivals *arrivals, const Message *message)
{
    Arrival first = arrival_of(message);
    size_t topic_size = strlen(first.topic) + 1;
    char *bytes = arrivals->bytes = malloc(topic_size + message->value_size + message->key_size);
    void *headers = first.headers == NULL ? NULL : headers_copy(first.headers);
    arrivals->copy = *message;
    arrivals->first = first;
    arrivals->first.message = &arrivals->copy;
    arrivals->first.headers = headers;
    if (bytes == NULL)
        return 0;
    arrivals->first.topic = memcpy(bytes, first.topic, topic_size);
    if (message->value != NULL)
        arrivals->copy.value = memcpy(bytes + topic_size, message->value, message->value_size);
    if (message->key != NULL)
        arrivals->copy.key = memcpy(bytes + topic_size + message->value_size, message->key, message->key_size);
    return 1;
}

static int
on_consume(void *rk, Message *message, void *opaque)
{
    Arrivals *arrivals = opaque;
    size_t wanted = arrivals->wanted;
    (void)rk;
    if (wanted == 0)
        return OK;
    arrivals->wanted = 0; /* it is called for those that follow, too */
    arrivals->has_first = 1;
    if (!copy_first(arrivals, message)) {
        arrivals->is_lost = 1;
        return OK;
    }
    int64_t left_ms = arrivals->until_ms - now_ms();
    size_t following = wanted - 1 < FOLLOWING_MAX ? wanted - 1 : FOLLOWING_MAX;
    Py_ssize_t count = consume_batch(arrivals->queue, left_ms > 0 ? (int)left_ms : 0, arrivals->following, following);
    arrivals->count = count < 0 ? 0 : count;
    return OK;
}

/* NULL if the consumer cannot have them. */
static Arrivals *
add_arrivals(void *rk)
{
    Arrivals *arrivals = calloc(1, sizeof *arrivals);
    if (arrivals == NULL)
        return NULL;
    atomic_store(&arrivals->owners, 2);
    if (add_on_consume(rk, "aolog", on_consume, arrivals) == OK)
        return arrivals;
    free(arrivals);
    return NULL;
}

enum { OFFSETS, TIMES_US, KEYS, VALUES, HEADERS, LEFT_OUT, COLUMNS }; /* of a run */

/* Adds to a column that begins with the first entry that is not None; takes over the entry. `at` entries are before
 * it. 0 and an exception on an error, as below. */
static int
add_sparsely(PyObject **column, Py_ssize_t at, PyObject *entry)
{
    int ok = entry != NULL;
    if (ok && *column == NULL && entry != Py_None) {
        ok = (*column = PyList_New(0)) != NULL;
        while (ok && PyList_Size(*column) < at)
            ok = PyList_Append(*column, Py_None) == 0;
    }
    if (ok && *column != NULL)
        ok = PyList_Append(*column, entry) == 0;
    Py_XDECREF(entry);
    return ok;
}

static int
add(PyObject *column, PyObject *entry)
{
    int ok = entry != NULL && PyList_Append(column, entry) == 0;
    Py_XDECREF(entry);
    return ok;
}

static PyObject *
bytes_or_none(const char *bytes, size_t size)
{
    return bytes == NULL ? Py_NewRef(Py_None) : PyBytes_FromStringAndSize(bytes, (Py_ssize_t)size);
}

/* A list of pairs, None if there are none. left_out: how many have a name that is not UTF-8. */
static PyObject *
pairs_of_headers(const void *headers, Py_ssize_t *left_out)
{
    const char *name;
    const void *value;
    size_t size;
    if (headers == NULL)
        return Py_NewRef(Py_None);
    PyObject *pairs = PyList_New(0);
    for (size_t i = 0; pairs != NULL && header_at(headers, i, &name, &value, &size) == OK; i++) {
        PyObject *text = PyUnicode_DecodeUTF8(name, (Py_ssize_t)strlen(name), NULL);
        if (text == NULL && PyErr_ExceptionMatches(PyExc_UnicodeDecodeError)) {
            PyErr_Clear();
            ++*left_out;
            continue;
        }
        PyObject *pair = text == NULL ? NULL : Py_BuildValue("ON", text, bytes_or_none(value, size));
        Py_XDECREF(text);
        if (!add(pairs, pair))
            Py_CLEAR(pairs);
    }
    if (pairs == NULL)
        return NULL;
    if (PyList_Size(pairs) > 0)
        return pairs;
    Py_DECREF(pairs);
    return Py_NewRef(Py_None);
}

/* (validity or None, offsets u32, data) of the messages' keys, or values, as Arrow has them; None if all are null, unless
 * they are values. */
static PyObject *
column_of(const Arrival *run, Py_ssize_t count, int is_key)
{
    size_t size = 0, nulls = 0;
    for (Py_ssize_t i = 0; i < count; i++) {
        const Message *message = run[i].message;
        nulls += (is_key ? message->key : message->value) == NULL;
        size += is_key ? message->key_size : message->value_size;
    }
    if (is_key && nulls == (size_t)count)
        return Py_NewRef(Py_None);
    Py_ssize_t bitmap = (count + 7) / 8;
    PyObject *present = nulls ? PyBytes_FromStringAndSize(NULL, bitmap) : Py_NewRef(Py_None);
    PyObject *offsets = PyBytes_FromStringAndSize(NULL, (count + 1) * (Py_ssize_t)sizeof(uint32_t));
    PyObject *data = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)size);
    if (present == NULL || offsets == NULL || data == NULL) {
        Py_XDECREF(present), Py_XDECREF(offsets), Py_XDECREF(data);
        return NULL;
    }
    uint32_t end = 0, *ends = (uint32_t *)PyBytes_AsString(offsets);
    char *bytes = PyBytes_AsString(data), *bits = nulls ? memset(PyBytes_AsString(present), 0, (size_t)bitmap) : NULL;
    *ends = 0;
    for (Py_ssize_t i = 0; i < count; i++) {
        const Message *message = run[i].message;
        const char *entry = is_key ? message->key : message->value;
        size_t length = is_key ? message->key_size : message->value_size;
        if (entry != NULL)
            memcpy(bytes + end, entry, length);
        if (entry != NULL && bits != NULL)
            bits[i >> 3] = (char)(bits[i >> 3] | 1 << (i & 7));
        *++ends = end += (uint32_t)length;
    }
    return Py_BuildValue("NNN", present, offsets, data);
}

/* Adds the headers of a message to a run's, and what a log cannot hold of it; stores its time for the log. `at` messages
 * are before it. 0 and an exception on an error. */
static int
add_message(PyObject **to, int64_t *time_us, Py_ssize_t at, const Arrival *arrival, PyObject *left_out_type)
{
    int64_t time_ms = arrival->time_ms;
    int is_timed = arrival->kind != NO_TIME && time_ms != UNTIMED;
    int is_kept = is_timed && time_ms >= -TIME_MS_MAX && time_ms <= TIME_MS_MAX;
    *time_us = is_kept ? 1000 * time_ms : INT64_MIN;
    Py_ssize_t unnamed = 0;
    PyObject *left_out;
    if (!add_sparsely(&to[HEADERS], at, pairs_of_headers(arrival->headers, &unnamed)))
        return 0;
    if (is_timed && !is_kept)
        left_out = PyObject_CallFunction(left_out_type, "nL", unnamed, (long long)time_ms);
    else
        left_out = unnamed > 0 ? PyObject_CallFunction(left_out_type, "n", unnamed) : Py_NewRef(Py_None);
    return add_sparsely(&to[LEFT_OUT], at, left_out);
}

/* Adds a run of these messages, if there are any. 0 and an exception on an error. */
static int
add_run(PyObject *runs, const Arrival *run, Py_ssize_t count, PyObject *left_out_type)
{
    PyObject *of[COLUMNS] = {NULL};
    if (count == 0)
        return 1;
    Py_ssize_t size = count * (Py_ssize_t)sizeof(int64_t);
    of[OFFSETS] = PyBytes_FromStringAndSize(NULL, size);
    of[TIMES_US] = PyBytes_FromStringAndSize(NULL, size);
    of[KEYS] = column_of(run, count, 1);
    of[VALUES] = of[KEYS] == NULL ? NULL : column_of(run, count, 0);
    int ok = of[OFFSETS] != NULL && of[TIMES_US] != NULL && of[VALUES] != NULL;
    for (Py_ssize_t i = 0; ok && i < count; i++) {
        ((int64_t *)PyBytes_AsString(of[OFFSETS]))[i] = run[i].message->offset;
        ok = add_message(of, (int64_t *)PyBytes_AsString(of[TIMES_US]) + i, i, &run[i], left_out_type);
    }
    for (int i = HEADERS; ok && i < COLUMNS; i++)
        if (of[i] == NULL)
            of[i] = Py_NewRef(Py_None);
    ok = ok && add(runs, Py_BuildValue("(si)OOOOOO", run->topic, (int)run->message->partition, of[OFFSETS], of[TIMES_US],
                                       of[KEYS], of[VALUES], of[HEADERS], of[LEFT_OUT]));
    for (int i = 0; i < COLUMNS; i++)
        Py_XDECREF(of[i]);
    return ok;
}

static int
add_error(PyObject *errors, const Arrival *arrival)
{
    const Message *message = arrival->message;
    return add(errors, Py_BuildValue("siLis", arrival->topic, (int)message->partition, (long long)message->offset,
                                     message->error, message_error(message)));
}

/* Adds what was taken to the runs and the errors. A run has at most `most` messages, and ends at `most_bytes`. In a
 * rebalance the client takes back what a call would return, and fetches it again; but not the first message, which
 * then comes twice. So a run also ends before an offset that does not rise. */
static int
add_arrived(PyObject *runs, PyObject *errors, const Arrivals *arrivals, Py_ssize_t most, size_t most_bytes,
            PyObject *left_out_type)
{
    Arrival *run = malloc((size_t)(arrivals->count + 1) * sizeof *run);
    Py_ssize_t size = 0;
    size_t bytes = 0;
    int ok = run != NULL;
    if (!ok)
        PyErr_NoMemory();
    for (Py_ssize_t i = -1; ok && i < arrivals->count; i++) {
        Arrival arrival = i < 0 ? arrivals->first : arrival_of(arrivals->following[i]);
        const Message *message = arrival.message, *first = size > 0 ? run->message : NULL;
        if (message->error != OK) {
            ok = add_error(errors, &arrival);
            continue;
        }
        if (size > 0 && (size == most || bytes >= most_bytes || message->offset <= run[size - 1].message->offset ||
                         message->topic != first->topic || message->partition != first->partition)) {
            ok = add_run(runs, run, size, left_out_type);
            size = 0;
            bytes = 0;
        }
        bytes += message->key_size + message->value_size;
        run[size++] = arrival;
    }
    ok = ok && add_run(runs, run, size, left_out_type);
    free(run);
    return ok;
}

/* (runs, errors) of what was taken since `want`. */
static PyObject *
take_arrivals(Arrivals *arrivals, Py_ssize_t most, size_t most_bytes, PyObject *left_out_type)
{
    PyObject *runs = PyList_New(0), *errors = PyList_New(0), *found = NULL;
    int ok = runs != NULL && errors != NULL;
    if (arrivals->is_lost)
        PyErr_NoMemory();
    else if (ok && (!arrivals->has_first || add_arrived(runs, errors, arrivals, most, most_bytes, left_out_type)))
        found = PyTuple_Pack(2, runs, errors);
    Py_XDECREF(runs), Py_XDECREF(errors);
    forget_arrivals(arrivals);
    return found;
}

/* The digits of a number, up to `end`; where they begin. */
static char *
digits_of(int64_t number, char *end)
{
    uint64_t rest = (uint64_t)number;
    do
        *--end = (char)('0' + rest % 10);
    while (rest /= 10);
    return end;
}

/* (None, offsets, data) of a column: the prefix and each number, none negative, in decimal. NULL and an exception on an
 * error. */
static PyObject *
numbered_column(const char *prefix, size_t size, const Py_buffer *numbers)
{
    Py_ssize_t count = numbers->len / (Py_ssize_t)sizeof(int64_t);
    size_t most = (size + 20) * (size_t)count;
    PyObject *offsets = PyBytes_FromStringAndSize(NULL, (count + 1) * (Py_ssize_t)sizeof(uint32_t));
    char text[20], *end = text + sizeof text;
    char *data = malloc(most + 1);
    if (offsets == NULL || data == NULL || most > UINT32_MAX) {
        Py_XDECREF(offsets);
        free(data);
        return PyErr_NoMemory();
    }
    uint32_t at = 0, *ends = (uint32_t *)PyBytes_AsString(offsets);
    *ends = 0;
    for (Py_ssize_t i = 0; i < count; i++) {
        char *digits = digits_of(number_at(numbers, i), end);
        memcpy(data + at, prefix, size);
        memcpy(data + at + size, digits, (size_t)(end - digits));
        *++ends = at += (uint32_t)(size + (size_t)(end - digits));
    }
    PyObject *column = Py_BuildValue("O, N, y#", Py_None, offsets, data, (Py_ssize_t)at);
    free(data);
    return column;
}

#endif
