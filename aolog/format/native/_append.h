/* `append`: one record joins the open frame, or becomes a frame by itself.
 *
 * Only for _inlet.c. It passes a record on to `Writer._append`, unchanged, if it is not plain or would reach a bound,
 * and if the inlet is shut. It knows no policies and no files.
 */
#ifndef AOLOG_APPEND_H
#define AOLOG_APPEND_H

#include "_open.h"

static PyObject *append_name;      /* "_append": interned; never released */
static PyObject *keyword_names[4]; /* key, headers, timestamp, topic: interned; never released */

/* Calls it with the same arguments. */
static PyObject *
call_with(PyObject *callable, PyObject *const *args, Py_ssize_t count, PyObject *names)
{
    PyObject *result = NULL, *keywords = NULL, *positional = PyTuple_New(count);
    Py_ssize_t named = names == NULL ? 0 : PyTuple_Size(names);
    if (positional == NULL)
        return NULL;
    for (Py_ssize_t i = 0; i < count; i++) {
        Py_INCREF(args[i]);
        PyTuple_SetItem(positional, i, args[i]);
    }
    if (named > 0) {
        keywords = PyDict_New();
        if (keywords == NULL)
            goto done;
        for (Py_ssize_t i = 0; i < named; i++)
            if (PyDict_SetItem(keywords, PyTuple_GetItem(names, i), args[count + i]) < 0)
                goto done;
    }
    result = PyObject_Call(callable, positional, keywords);
done:
    Py_DECREF(positional);
    Py_XDECREF(keywords);
    return result;
}

/* Calls `_append` with the same arguments. */
static PyObject *
inlet_pass_on(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *names)
{
    PyObject *append = PyObject_GetAttr(self, append_name);
    PyObject *result = append == NULL ? NULL : call_with(append, args, count, names);
    Py_XDECREF(append);
    return result;
}

/* The keyword arguments in their order; false if one is unknown. */
static int
sort_keywords(PyObject *const *given, PyObject *names, PyObject *sorted[4])
{
    Py_ssize_t named = PyTuple_Size(names);
    for (Py_ssize_t i = 0; i < named; i++) {
        PyObject *name = PyTuple_GetItem(names, i);
        int k = 0;
        while (k < 4 && keyword_names[k] != name) /* names in code are interned */
            k++;
        if (k == 4)
            return 0;
        sorted[k] = given[i];
    }
    return 1;
}

#if HASHES

/* As `inlet_take`, of a measured record: it becomes a frame of format 1. */
static PyObject *
take_payload(Inlet *self, const Record *record, PyObject *value)
{
    Payloads *slab = self->each;
    long long length = PAYLOAD_HEADER + (long long)record->value_len;
    if (record->size != record->value_len + OFFSET || length >= self->limit ||
        !payloads_has_room(slab, record->value_len))
        return NULL;
    long long address = payloads_add(slab, value);
    if (address < 0)
        return NULL;
    self->limit -= length;
    self->most--;
    return PyLong_FromLongLong(address);
}

/* As `inlet_take`, of a measured record: it becomes a frame of format 2. */
static PyObject *
take_frame(Inlet *self, const Record *record)
{
    Frames *frames = (Frames *)self->each;
    long long before = self->each->offset;
    if (before >= self->each->full_at)
        return NULL;
    records_begin(&self->records, record->stamped ? 0 : now_us());
    if (!records_add(&self->records, record))
        return PyErr_NoMemory();
    long long address = frames_add_open(frames, &self->records);
    records_begin(&self->records, 0);
    if (address < 0)
        return NULL;
    self->limit -= self->each->offset - before;
    if (self->limit < 0)
        self->limit = 0;
    self->most--;
    return PyLong_FromLongLong(address);
}

#endif

/* Takes a record. fields: value, key, headers, timestamp, topic, of which all but the first may be NULL. Returns its
 * address; NULL without an error if it goes to Python, and then nothing has changed. */
static PyObject *
inlet_take(Inlet *self, PyObject *const *fields)
{
    Record record;
    if (!self->limit || !record_measure(&record, fields[0], fields[1], fields[2], fields[3], fields[4]))
        return NULL;
    long long size = (long long)record.size;
    if (size - OFFSET > self->record_max || size >= self->limit - self->size ||
        (long long)self->records.count + 1 >= self->most)
        return NULL;
#if HASHES
    if (self->each != NULL)
        return self->format_1 ? take_payload(self, &record, fields[0]) : take_frame(self, &record);
#endif
    if (!self->records.count && self->records.now_us == NO_TIMESTAMP)
        records_begin(&self->records, now_us());
    if (!records_add(&self->records, &record))
        return PyErr_NoMemory();
    self->size += size;
    return PyLong_FromLongLong(self->first + (long long)self->records.count - 1);
}

static PyObject *
inlet_append(PyObject *object, PyObject *const *args, Py_ssize_t count, PyObject *names)
{
    PyObject *fields[5] = {count == 1 ? args[0] : NULL, NULL, NULL, NULL, NULL}, *address = NULL;
    if (count == 1 && (names == NULL || sort_keywords(args + 1, names, fields + 1)))
        address = inlet_take((Inlet *)object, fields);
    return address != NULL || PyErr_Occurred() ? address : inlet_pass_on(object, args, count, names);
}

static PyObject *
inlet_join(PyObject *object, PyObject *const *args, Py_ssize_t count)
{
    if (count != 5) {
        PyErr_SetString(PyExc_TypeError, "_join takes value, key, headers, timestamp and topic");
        return NULL;
    }
    PyObject *address = inlet_take((Inlet *)object, args);
    if (address != NULL || PyErr_Occurred())
        return address;
    Py_RETURN_NONE;
}

/* Interns the names; -1 on an error. */
static int
append_prepare(void)
{
    const char *names[4] = {"key", "headers", "timestamp", "topic"};
    for (int k = 0; k < 4; k++)
        if ((keyword_names[k] = PyUnicode_InternFromString(names[k])) == NULL)
            return -1;
    append_name = PyUnicode_InternFromString("_append");
    return append_name == NULL ? -1 : 0;
}

#endif
