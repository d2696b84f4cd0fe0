/* `flush` and `sync`: the open frame joins the slab's frames, they are written, and the device is waited for.
 *
 * Only for _inlet.c. Python does it (`Writer._flush`, `Writer._sync`) if another call is under way, if something else
 * is due, and after anything that fails. It knows no policies.
 */
#ifndef AOLOG_FLUSH_H
#define AOLOG_FLUSH_H

#include "_open.h"

#include <errno.h>

static PyObject *flush_name, *sync_name; /* "_flush", "_sync": interned; never released */

static PyObject *
inlet_prepare(PyObject *object, PyObject *const *args, Py_ssize_t count)
{
    Inlet *self = (Inlet *)object;
    long long numbers[4];
    if (count < 4 ||
        !numbers_from(args + 4, count - 4, 4, numbers, "_prepare takes three locks, a set and four numbers"))
        return NULL;
    PyObject **fields[4] = {(PyObject **)&self->lock, (PyObject **)&self->device, (PyObject **)&self->turn,
                            &self->syncing};
    PyTypeObject *types[4] = {lock_type, lock_type, lock_type, &PySet_Type};
    for (int i = 0; i < 4; i++) {
        PyObject *before = *fields[i];
        if (!PyObject_TypeCheck(args[i], types[i])) {
            PyErr_SetString(PyExc_TypeError, "_prepare takes three locks, and a set");
            return NULL;
        }
        Py_INCREF(args[i]);
        *fields[i] = args[i];
        Py_XDECREF(before);
    }
    self->record_max = numbers[0];
    self->limit_after_flush = numbers[1];
    self->most_after_flush = numbers[2];
    self->syncs = numbers[3] != 0;
    Py_RETURN_NONE;
}

#if HASHES

/* Where the system has one, a clock of some milliseconds, which takes less time to read. */
static long long
now_ns(void)
{
#ifdef CLOCK_MONOTONIC_COARSE
    const clockid_t clock = CLOCK_MONOTONIC_COARSE;
#else
    const clockid_t clock = CLOCK_MONOTONIC;
#endif
    struct timespec now;
    clock_gettime(clock, &now);
    return (long long)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* The open frame joins the frames, and they are written. The address after them; -1 if Python has to do what is
 * left. The caller holds the writer's lock, and nothing joins meanwhile. */
static long long
write_out(Inlet *self)
{
    Frames *frames = self->flushed;
    if (frames == NULL || now_ns() >= self->until_ns)
        return -1;
    Growing *slab = &frames->slab;
    long long end = -1;
    self->limit = 0;
    if (self->records.count) {
        if (self->first != slab->base + slab->offset)
            return -1;
        if (frames_add_open(frames, &self->records) < 0) {
            PyErr_Clear(); /* Python meets it again */
            return -1;
        }
        records_begin(&self->records, NO_TIMESTAMP);
        self->size = 0;
    }
    self->first = slab->base + slab->offset;
    Py_INCREF((PyObject *)frames);
    if (growing_write(slab, frames->file.fd)) {
        end = slab->base + slab->offset;
        if (self->flushed == frames && slab->offset < slab->full_at)
            admit(self, self->limit_after_flush, self->most_after_flush);
    }
    Py_DECREF((PyObject *)frames);
    return end;
}

static long long
flush_out(Inlet *self)
{
    if (self->flushed == NULL || !lock_try(self->lock))
        return -1;
    long long end = write_out(self);
    lock_release(self->lock);
    return end;
}

static int
sync_device(int fd)
{
#ifdef F_FULLFSYNC /* macOS: see storage/system.py */
    return fcntl(fd, F_FULLFSYNC);
#else
    return fdatasync(fd);
#endif
}

/* The slab's bytes that are in the file are on the device on return. Without the interpreter's lock while it waits.
 * False if it failed: then Python raises that, and no sync succeeds any more. The caller holds the device. */
static int
sync_written(Frames *frames)
{
    Growing *slab = &frames->slab;
    long long end = slab->base + slab->written, records = slab->flushed_records;
    int failed;
    Py_BEGIN_ALLOW_THREADS
    do
        failed = sync_device(frames->file.fd) < 0 ? errno : 0;
    while (failed == EINTR);
    Py_END_ALLOW_THREADS
    if (failed) {
        frames->sync_errno = failed;
        return 0;
    }
    if (slab->durable < end)
        slab->durable = end;
    slab->synced_records = records;
    return 1;
}

/* As `sync`, unless another thread syncs or holds the lock. The durable address; -1 if Python has to do what is
 * left. */
static long long
sync_out(Inlet *self)
{
    Frames *frames = self->flushed;
    if (frames == NULL || frames->sync_errno || PySet_Size(self->syncing) || !lock_try(self->turn))
        return -1;
    const Presence *file = &frames->file;
    Growing *slab = &frames->slab;
    long long end = -1, durable = -1;
    int takes_device = 0;
    Py_INCREF((PyObject *)frames);
    if (lock_try(self->lock)) {
        /* Before the write: after that a file that was cut has its size again. */
        if (name_leads_to(file->directory, file->name, file->inode, file->device, (unsigned long long)slab->written))
            end = write_out(self);
        if (end >= 0 && slab->durable >= end)
            durable = slab->durable;
        else if (end >= 0 && slab->written <= frames->zeros_end)
            takes_device = lock_try(self->device);
        lock_release(self->lock);
    }
    if (takes_device) {
        if (sync_written(frames))
            durable = slab->durable;
        lock_release(self->device);
    }
    lock_release(self->turn);
    Py_DECREF((PyObject *)frames);
    return durable;
}

#endif

static PyObject *
inlet_admit_flush(PyObject *object, PyObject *const *args, Py_ssize_t count)
{
    long long for_ns;
    if (count < 1 || !numbers_from(args + 1, count - 1, 1, &for_ns, "_admit_flush takes frames and a number"))
        return NULL;
#if HASHES
    Inlet *self = (Inlet *)object;
    PyObject *before = (PyObject *)self->flushed;
    if (self->lock != NULL && PyObject_TypeCheck(args[0], frames_type) && ((Frames *)args[0])->file.fd >= 0) {
        Py_INCREF(args[0]);
        self->flushed = (Frames *)args[0];
        Py_XDECREF(before);
    }
    self->until_ns = now_ns() + for_ns;
#endif
    Py_RETURN_NONE;
}

static PyObject *
inlet_write_out(PyObject *object, PyObject *Py_UNUSED(ignored))
{
    long long end = -1;
#if HASHES
    end = write_out((Inlet *)object);
#endif
    if (end < 0)
        Py_RETURN_NONE;
    return PyLong_FromLongLong(end);
}

/* `address`, or if it is -1 what the writer's method returns. */
static PyObject *
or_by_python(PyObject *self, long long address, PyObject *method)
{
    return address < 0 ? PyObject_CallMethodObjArgs(self, method, NULL) : PyLong_FromLongLong(address);
}

static PyObject *
inlet_flush(PyObject *object, PyObject *Py_UNUSED(ignored))
{
    long long end = -1;
#if HASHES
    Inlet *self = (Inlet *)object;
    end = self->syncs ? sync_out(self) : flush_out(self);
#endif
    return or_by_python(object, end, flush_name);
}

static PyObject *
inlet_sync(PyObject *object, PyObject *Py_UNUSED(ignored))
{
    long long durable = -1;
#if HASHES
    durable = sync_out((Inlet *)object);
#endif
    return or_by_python(object, durable, sync_name);
}

/* Interns the names; -1 on an error. */
static int
flush_prepare(void)
{
    flush_name = PyUnicode_InternFromString("_flush");
    sync_name = PyUnicode_InternFromString("_sync");
    return flush_name == NULL || sync_name == NULL ? -1 : 0;
}

#endif
