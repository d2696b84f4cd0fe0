/* The records of plain frames as messages. Only for _produce.c. */
#ifndef BRIDGE_MESSAGES_H
#define BRIDGE_MESSAGES_H

#include "../../aolog/format/native/_entries.h"

enum { UUID_SIZE = 16, EPOCH_SIZE = 4, STAMP_SIZE = UUID_SIZE + EPOCH_SIZE + 16 }; /* see aolog/format/origin.py */
enum { FRAME_ADDRESS, FRAME_TIME = 4, FRAME_COLUMNS = 6, FRAME_EPOCH, FRAME_ADDRESSES }; /* of a RecordFrame */
enum { COLUMNS_RECORDS, COLUMNS_TIMES = 3, COLUMNS_KEYS, COLUMNS_TOPIC };                /* of its Columns */

typedef struct {
    Py_ssize_t at, count;
    char head[UUID_SIZE + EPOCH_SIZE]; /* of each stamp */
    PyObject *topics, *keys;
    int64_t *addresses, *sizes, *times_ms;
    char *stamps;
} Made;

static int64_t
number_in(PyObject *tuple, Py_ssize_t i)
{
    PyObject *number = PyTuple_GetItem(tuple, i);
    return number == NULL ? -1 : PyLong_AsLongLong(number);
}

/* Numbers of records, or none if the object is None. 0 and an exception on an error. */
static int
open_numbers(PyObject *object, Py_ssize_t records, Py_buffer *numbers)
{
    if (object == Py_None)
        return 1;
    if (object == NULL || PyObject_GetBuffer(object, numbers, PyBUF_SIMPLE) < 0)
        return 0;
    if (numbers->len >= records * (Py_ssize_t)sizeof(int64_t))
        return 1;
    PyErr_SetString(PyExc_ValueError, "fewer numbers than records");
    return 0;
}

/* See milliseconds in messages.py. */
static int64_t
time_ms_of(int64_t us)
{
    return us == INT64_MIN ? 0 : us < 2000 ? 1 : us / 1000;
}

/* 0 and an exception on an error. */
static int
add_record(Made *made, const Entries *values, const Entries *keys, Py_ssize_t i, int64_t address, int64_t us)
{
    const char *value, *key_bytes = NULL;
    size_t value_size, key_size = 0;
    char *stamp = made->stamps + made->at * STAMP_SIZE;
    if (!entry_bytes(values, i, &value, &value_size) ||
        (keys->offsets != NULL && !entry_bytes(keys, i, &key_bytes, &key_size)))
        return 0;
    PyObject *key = bytes_or_none(key_bytes, key_size);
    if (key == NULL || PyList_SetItem(made->keys, made->at, key) < 0)
        return 0;
    made->addresses[made->at] = address;
    made->sizes[made->at] = (int64_t)(value_size + key_size);
    made->times_ms[made->at++] = time_ms_of(us);
    memcpy(stamp, made->head, sizeof made->head);
    memcpy(stamp + sizeof made->head, &address, sizeof address);
    memcpy(stamp + sizeof made->head + sizeof address, &us, sizeof us);
    return 1;
}

/* 0 and an exception on an error. */
static int
add_frame(Made *made, PyObject *frame, PyObject *value_column)
{
    Entries values = {0}, keys = {0};
    Py_buffer addresses = {0}, timestamps = {0};
    PyObject *columns = frame == NULL ? NULL : PyTuple_GetItem(frame, FRAME_COLUMNS);
    if (columns == NULL || value_column == NULL)
        return 0;
    PyObject *topic = PyTuple_GetItem(columns, COLUMNS_TOPIC), *key_column = PyTuple_GetItem(columns, COLUMNS_KEYS);
    int64_t first = number_in(frame, FRAME_ADDRESS), us = number_in(frame, FRAME_TIME);
    int64_t records = number_in(columns, COLUMNS_RECORDS);
    Py_ssize_t of_values = 0, of_keys = records;
    int added = !PyErr_Occurred() && (of_values = entries_take(&values, value_column)) >= 0 &&
                (key_column == Py_None || (of_keys = entries_take(&keys, key_column)) >= 0) &&
                open_numbers(PyTuple_GetItem(frame, FRAME_ADDRESSES), records, &addresses) &&
                open_numbers(PyTuple_GetItem(columns, COLUMNS_TIMES), records, &timestamps);
    if (added && (of_values < records || of_keys < records || records > made->count - made->at)) {
        PyErr_SetString(PyExc_ValueError, "the columns are not those of so many records");
        added = 0;
    }
    for (Py_ssize_t i = 0; added && i < records; i++) {
        added = PyList_SetItem(made->topics, made->at, Py_NewRef(topic)) == 0 &&
                add_record(made, &values, &keys, i, addresses.buf == NULL ? first + i : number_at(&addresses, i),
                           timestamps.buf == NULL ? us : number_at(&timestamps, i));
    }
    entries_clear(&values);
    entries_clear(&keys);
    PyBuffer_Release(&addresses);
    PyBuffer_Release(&timestamps);
    return added;
}

static PyObject *
messages_of(PyObject *module, PyObject *args)
{
    PyObject *frames, *values, *parts[6] = {NULL}, *found = NULL;
    const char *source;
    Py_ssize_t count, source_size, number = (Py_ssize_t)sizeof(int64_t);
    (void)module;
    if (!PyArg_ParseTuple(args, "O!O!ny#", &PyList_Type, &frames, &PyList_Type, &values, &count, &source,
                          &source_size))
        return NULL;
    if (count < 0 || source_size != UUID_SIZE || PyList_Size(frames) == 0) {
        PyErr_SetString(PyExc_ValueError, "no frames of a log");
        return NULL;
    }
    const Py_ssize_t sizes[] = {number, 0, 0, number, number, STAMP_SIZE}; /* of an entry; 0: an object */
    int made_all = 1;
    for (int i = 0; i < 6; i++) {
        parts[i] = sizes[i] ? PyBytes_FromStringAndSize(NULL, count * sizes[i]) : PyList_New(count);
        made_all = made_all && parts[i] != NULL;
    }
    if (made_all) {
        Made made = {
            .count = count, .topics = parts[1], .keys = parts[2],
            .addresses = (int64_t *)PyBytes_AsString(parts[0]), .sizes = (int64_t *)PyBytes_AsString(parts[3]),
            .times_ms = (int64_t *)PyBytes_AsString(parts[4]), .stamps = PyBytes_AsString(parts[5]),
        };
        uint32_t epoch = (uint32_t)number_in(PyList_GetItem(frames, 0), FRAME_EPOCH);
        memcpy(made.head, source, UUID_SIZE);
        memcpy(made.head + UUID_SIZE, &epoch, EPOCH_SIZE);
        int added = !PyErr_Occurred();
        for (Py_ssize_t i = 0; added && i < PyList_Size(frames); i++)
            added = add_frame(&made, PyList_GetItem(frames, i), PyList_GetItem(values, i));
        if (added && made.at == count)
            found = PyTuple_Pack(6, parts[0], parts[1], parts[2], parts[3], parts[4], parts[5]);
        else if (added)
            PyErr_SetString(PyExc_ValueError, "the frames have fewer records");
    }
    for (int i = 0; i < 6; i++)
        Py_XDECREF(parts[i]);
    return found;
}

#endif
