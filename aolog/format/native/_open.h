/* The open frame: its records, how many more may join it, and how it is cut.
 *
 * Only for _inlet.c. A writer opens it for records and for flushes (`_admit`, `_admit_flush`), and shuts it. Whoever
 * changes it holds the interpreter's lock and runs no Python code meanwhile, so that other threads and signal
 * handlers see each change whole.
 */
#ifndef AOLOG_OPEN_H
#define AOLOG_OPEN_H

#include "_frames.h"
#include "_lock.h"

#include <limits.h>
#include <time.h>

#if HASHES
#include "_payloads.h"
#else
typedef void Growing, Frames;
#endif

typedef struct {
    PyObject_HEAD
    Records records;      /* of the open frame */
    long long first;      /* address of the first record */
    long long size;       /* bytes of the records, as validate.py counts */
    long long limit;      /* a record joins if `size` stays below it; 0: the inlet is shut */
    long long most;       /* a record joins if the number of records stays below it */
    long long record_max; /* greatest size of a record, without the offset of its value */
    long long limit_after_flush, most_after_flush; /* `limit` and `most` when no frame waits in memory */
    Growing *each;      /* each record becomes a frame of this slab at once; or NULL */
    int format_1;       /* `each` is Payloads; otherwise it is Frames */
    Frames *flushed;    /* `flush` and `sync` write this slab themselves; or NULL */
    int syncs;          /* a flush is a sync */
    long long until_ns; /* by `now_ns`: from then on Python has something else to do at a flush */
    Lock *lock;         /* the writer's; or NULL, and then Python flushes and syncs, as with the next three */
    Lock *device;       /* held during a sync, so that the slab is not closed: log_tail.py */
    Lock *turn;         /* the mutex of the turns, held during a sync: no other begins */
    PyObject *syncing;  /* a set: threads that have a turn or wait for one: group_commit.py */
} Inlet;

static int64_t
now_us(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

/* Numbers from arguments; false on an error. */
static int
numbers_from(PyObject *const *args, Py_ssize_t count, Py_ssize_t expected, long long *numbers, const char *usage)
{
    if (count != expected) {
        PyErr_SetString(PyExc_TypeError, usage);
        return 0;
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        numbers[i] = PyLong_AsLongLong(args[i]);
        if (numbers[i] == -1 && PyErr_Occurred())
            return 0;
    }
    return 1;
}

/* From now on no record joins, and each flush and sync goes to Python. */
static void
shut(Inlet *self)
{
    PyObject *before = (PyObject *)self->flushed;
    self->limit = 0;
    self->flushed = NULL;
    Py_XDECREF(before);
}

static PyObject *
inlet_shut(PyObject *object, PyObject *Py_UNUSED(ignored))
{
    shut((Inlet *)object);
    Py_RETURN_NONE;
}

static PyObject *
inlet_begin(PyObject *object, PyObject *const *args, Py_ssize_t count)
{
    Inlet *self = (Inlet *)object;
    long long numbers[2];
    if (!numbers_from(args, count, 2, numbers, "_begin takes an address and a time"))
        return NULL;
    shut(self);
    self->size = 0;
    self->first = numbers[0];
    records_begin(&self->records, numbers[1]);
    Py_RETURN_NONE;
}

/* What may join from now on. */
static void
admit(Inlet *self, long long limit, long long most)
{
    self->limit = limit > 0 ? limit : 0;
    self->most = most;
    if (self->first > 0 && most > LLONG_MAX - self->first)
        self->most = LLONG_MAX - self->first + 1; /* addresses stay below 2^63 */
}

static PyObject *
inlet_admit(PyObject *object, PyObject *const *args, Py_ssize_t count)
{
    Inlet *self = (Inlet *)object;
    long long numbers[2];
    PyObject *slab = count == 3 ? args[2] : NULL, *each = NULL, *before = (PyObject *)self->each;
    if (!numbers_from(args, slab == NULL ? count : 2, 2, numbers, "_admit takes two numbers, and frames"))
        return NULL;
#if HASHES
    self->format_1 = slab != NULL && PyObject_TypeCheck(slab, payloads_type);
    if (self->format_1 || (slab != NULL && PyObject_TypeCheck(slab, frames_type)))
        each = slab;
#endif
    Py_XINCREF(each);
    self->each = (Growing *)each;
    Py_XDECREF(before);
    admit(self, each == slab ? numbers[0] : 0, numbers[1]); /* 0: Python makes the frames */
    Py_RETURN_NONE;
}

static PyObject *
inlet_put(PyObject *object, PyObject *const *args, Py_ssize_t count)
{
    Inlet *self = (Inlet *)object;
    Record record;
    if (count != 6 || !record_measure(&record, args[0], args[1], args[2], args[3], args[4])) {
        PyErr_SetString(PyExc_TypeError, "_put takes the five parts of a checked record, and its size");
        return NULL;
    }
    if (!records_add(&self->records, &record))
        return PyErr_NoMemory();
    self->size += (long long)record.size; /* the two halves measure alike */
    return PyLong_FromLongLong(self->first + (long long)self->records.count - 1);
}

/* By way of `add_records`: for frames that Python makes, and for a body that is compressed. */
static PyObject *
cut_by_parts(Inlet *self, PyObject *frames, PyObject *pack)
{
    PyObject *body = records_body(&self->records), *added = NULL;
    if (body == NULL)
        return NULL;
    PyObject *parts = Py_BuildValue("[O]", PyTuple_GetItem(body, 2)), *packed = NULL;
    if (parts != NULL)
        packed = pack == Py_None ? Py_BuildValue("iO", 0, parts)
                                 : PyObject_CallFunction(pack, "OO", PyTuple_GetItem(body, 0), parts);
    if (packed != NULL && (!PyTuple_Check(packed) || PyTuple_Size(packed) != 2))
        PyErr_SetString(PyExc_TypeError, "pack returns the codec and the parts");
    else if (packed != NULL)
        added = PyObject_CallMethod(frames, "add_records", "OOOOOO", PyTuple_GetItem(body, 0), PyTuple_GetItem(body, 1),
                                    PyTuple_GetItem(packed, 1), PyTuple_GetItem(body, 3), PyTuple_GetItem(body, 4),
                                    PyTuple_GetItem(packed, 0));
    Py_XDECREF(packed);
    Py_XDECREF(parts);
    Py_DECREF(body);
    return added;
}

static PyObject *
inlet_cut(PyObject *object, PyObject *const *args, Py_ssize_t count)
{
    Inlet *self = (Inlet *)object;
    PyObject *address;
    if (count != 2) {
        PyErr_SetString(PyExc_TypeError, "_cut takes frames, and None or a function that compresses");
        return NULL;
    }
    if (!self->records.count)
        Py_RETURN_NONE;
#if HASHES
    if (args[1] == Py_None && PyObject_TypeCheck(args[0], frames_type)) {
        long long at = frames_add_open((Frames *)args[0], &self->records);
        address = at < 0 ? NULL : PyLong_FromLongLong(at);
    } else
#endif
        address = cut_by_parts(self, args[0], args[1]);
    if (address == NULL)
        return NULL;
    shut(self);
    self->size = 0; /* only now: `_end` never goes back */
    records_begin(&self->records, 0);
    return address;
}

#endif
