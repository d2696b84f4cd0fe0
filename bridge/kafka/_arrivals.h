/* The messages that a consumer takes, as columns, without the client's object of each. Only for _produce.c.
 *
 * librdkafka calls an interceptor for each message before the program gets it, in the thread that asks for messages.
 * At the first one the interceptor takes those that follow, from the same queue. It does so within the
 * client's own call, because that also calls back, which the client only can do in a call of its own.
 */
#ifndef BRIDGE_ARRIVALS_H
#define BRIDGE_ARRIVALS_H

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
    void *queue;      /* the consumer's, from `want` on; whoever asks lets it go before the consumer */
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
    arrivals->count = consume_batch(arrivals->queue, left_ms > 0 ? (int)left_ms : 0, arrivals->following, following);
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

/* A run: messages of one partition, in columns; a column that no message needs is NULL. */
enum { OFFSETS, TIMES_US, KEYS, HEADERS, VALUES, LEFT_OUT, COLUMNS };
typedef struct {
    Arrival first; /* its message is NULL if no run has begun */
    PyObject *columns[COLUMNS];
} Run;

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

/* Adds a message to a run that has `at` others. */
static int
add_message(Run *run, Py_ssize_t at, const Arrival *arrival, PyObject *left_out_type)
{
    const Message *message = arrival->message;
    int64_t time_ms = arrival->time_ms, time_us = INT64_MIN;
    int is_timed = arrival->kind != NO_TIME && time_ms != UNTIMED;
    int is_kept = is_timed && time_ms >= -TIME_MS_MAX && time_ms <= TIME_MS_MAX;
    if (is_kept)
        time_us = 1000 * time_ms;
    Py_ssize_t unnamed = 0;
    PyObject **to = run->columns, *left_out;
    if (!add_sparsely(&to[HEADERS], at, pairs_of_headers(arrival->headers, &unnamed)))
        return 0;
    if (is_timed && !is_kept)
        left_out = PyObject_CallFunction(left_out_type, "nL", unnamed, (long long)time_ms);
    else
        left_out = unnamed > 0 ? PyObject_CallFunction(left_out_type, "n", unnamed) : Py_NewRef(Py_None);
    return add_sparsely(&to[LEFT_OUT], at, left_out) && add(to[OFFSETS], PyLong_FromLongLong(message->offset)) &&
           add(to[TIMES_US], PyLong_FromLongLong(time_us)) &&
           add(to[VALUES], bytes_or_none(message->value, message->value_size)) &&
           add_sparsely(&to[KEYS], at, bytes_or_none(message->key, message->key_size));
}

/* Ends a run, if one has begun: appends it to `runs`, unless an exception is set. */
static int
end_run(PyObject *runs, Run *run, int ok)
{
    if (run->first.message == NULL)
        return ok;
    PyObject **of = run->columns;
    for (int i = 0; i < COLUMNS; i++)
        if (of[i] == NULL)
            of[i] = Py_NewRef(Py_None);
        else if (i != HEADERS && i != LEFT_OUT)
            PyObject_GC_UnTrack(of[i]); /* it has bytes and numbers, which the collector of cycles would all visit */
    ok = ok && add(runs, Py_BuildValue("(si)OOOOOO", run->first.topic, (int)run->first.message->partition, of[OFFSETS],
                                       of[TIMES_US], of[KEYS], of[HEADERS], of[VALUES], of[LEFT_OUT]));
    for (int i = 0; i < COLUMNS; i++)
        Py_CLEAR(of[i]);
    run->first.message = NULL;
    return ok;
}

static int
begin_run(Run *run, Arrival first)
{
    PyObject **of = run->columns;
    run->first = first;
    of[OFFSETS] = PyList_New(0);
    of[TIMES_US] = PyList_New(0);
    of[VALUES] = PyList_New(0);
    return of[OFFSETS] != NULL && of[TIMES_US] != NULL && of[VALUES] != NULL;
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
    Run run = {0};
    size_t bytes = 0;
    int64_t last = 0;
    int ok = 1;
    for (Py_ssize_t i = -1, size = 0; ok && i < arrivals->count; i++) {
        Arrival arrival = i < 0 ? arrivals->first : arrival_of(arrivals->following[i]);
        const Message *message = arrival.message, *first = run.first.message;
        if (message->error != OK) {
            ok = add_error(errors, &arrival);
            continue;
        }
        if (first != NULL && (size == most || bytes >= most_bytes || message->offset <= last ||
                              message->topic != first->topic || message->partition != first->partition))
            ok = end_run(runs, &run, ok);
        if (ok && run.first.message == NULL) {
            ok = begin_run(&run, arrival);
            size = 0;
            bytes = 0;
        }
        bytes += message->value_size;
        last = message->offset;
        ok = ok && add_message(&run, size++, &arrival, left_out_type);
    }
    return end_run(runs, &run, ok);
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

/* `prefix` and a number, in decimal. */
static PyObject *
numbered(const char *prefix, size_t size, long long number)
{
    char text[256], digits[24], *at = digits + sizeof digits;
    unsigned long long rest = (unsigned long long)number;
    do
        *--at = (char)('0' + rest % 10);
    while (rest /= 10);
    size_t length = (size_t)(digits + sizeof digits - at);
    memcpy(text, prefix, size);
    memcpy(text + size, at, length);
    return PyBytes_FromStringAndSize(text, (Py_ssize_t)(size + length));
}

/* A header of each number: ((name, prefix and number),). NULL and an exception on an error. */
static PyObject *
numbered_headers(PyObject *name, const char *prefix, size_t size, PyObject *numbers)
{
    Py_ssize_t count = PyList_Size(numbers);
    PyObject *list = PyList_New(count);
    for (Py_ssize_t i = 0; list != NULL && i < count; i++) {
        long long number = PyLong_AsLongLong(PyList_GetItem(numbers, i));
        if (number < 0 && !PyErr_Occurred())
            PyErr_SetString(PyExc_ValueError, "a number is negative");
        PyObject *value = number < 0 ? NULL : numbered(prefix, size, number);
        PyObject *pair = value == NULL ? NULL : PyTuple_Pack(2, name, value);
        PyObject *headers = pair == NULL ? NULL : PyTuple_Pack(1, pair);
        Py_XDECREF(value), Py_XDECREF(pair);
        if (headers == NULL) {
            Py_CLEAR(list);
        } else {
            /* They refer to a string and bytes: the collector of cycles, which would visit them all, need not know. */
            PyObject_GC_UnTrack(PyTuple_GetItem(headers, 0));
            PyObject_GC_UnTrack(headers);
            PyList_SetItem(list, i, headers);
        }
    }
    return list;
}

#endif
