/* Growing: what the frames of a slab that grows have in common in both formats. They wait in memory from the offset
 * `written` on, short ones gathered in one buffer. It begins the structs in _frames.h and _payloads.h.
 *
 * Only for _inlet.c. If HASHES is 0, none of the three exists, and Python makes the frames. The caller of each
 * function holds the writer's lock.
 */
#ifndef AOLOG_GROWING_H
#define AOLOG_GROWING_H

#include "_hash.h"
#include "_records.h"

#include <stddef.h>
#include <structmember.h>
#include <unistd.h>

#if HASHES

#define GATHERED_BYTES (64u << 10) /* stay in a core's second-level cache until they are copied */

typedef struct {
    PyObject_HEAD
    PyObject *settled; /* a list: buffers that are not written, in order; the gathered frames follow */
    Bytes gathered;
    long long base;            /* address of the slab */
    long long offset;          /* where the next frame begins */
    long long written;         /* the file has the bytes before this offset */
    long long full_at;         /* a frame at this offset or later belongs to the next slab */
    long long durable;         /* every byte before this address is on the device */
    long long records;         /* in the frames */
    long long flushed_records; /* of `records`, those that are in the file */
    long long synced_records;  /* of `records`, those that are on the device */
} Growing;

#define GROWING(field) {#field, T_LONGLONG, offsetof(Growing, field), 0, NULL}
#define GROWING_MEMBERS \
    GROWING(base), GROWING(offset), GROWING(written), GROWING(full_at), GROWING(durable), GROWING(records), \
        GROWING(flushed_records), GROWING(synced_records)

/* Whether it was initialized; raises otherwise. */
static int
growing_ready(const Growing *self)
{
    if (self->settled != NULL)
        return 1;
    PyErr_SetString(PyExc_ValueError, "not initialized");
    return 0;
}

/* Begins at `offset`; raises if there is no memory. */
static int
growing_begin(Growing *self)
{
    PyObject *settled = PyList_New(0), *before = self->settled;
    if (settled == NULL)
        return 0;
    self->settled = settled;
    Py_XDECREF(before);
    bytes_empty(&self->gathered);
    self->written = self->offset;
    self->durable = -1;
    self->records = self->flushed_records = self->synced_records = 0;
    return 1;
}

/* Moves the gathered frames into `settled`; raises if there is no memory, and nothing has changed. */
static int
growing_settle(Growing *self)
{
    if (!self->gathered.len)
        return 1;
    PyObject *frames = PyBytes_FromStringAndSize(self->gathered.at, (Py_ssize_t)self->gathered.len);
    int failed = frames == NULL || PyList_Append(self->settled, frames) < 0;
    Py_XDECREF(frames);
    if (failed)
        return 0;
    bytes_empty(&self->gathered);
    return 1;
}

/* Room in `gathered` for so many bytes, at most GATHERED_BYTES; raises if there is no memory. */
static inline int
growing_reserve(Growing *self, size_t more)
{
    if (self->gathered.len + more > GATHERED_BYTES && !growing_settle(self))
        return 0;
    if (bytes_reserve(&self->gathered, more))
        return 1;
    PyErr_NoMemory();
    return 0;
}

/* Writes what waits, if it is in one piece. False if something is left to do; then nothing has changed, but in the
 * file. Without the interpreter's lock while it writes. */
static int
growing_write(Growing *self, int fd)
{
    Py_ssize_t parts = PyList_Size(self->settled);
    PyObject *part = parts == 1 ? PyList_GetItem(self->settled, 0) : NULL;
    const char *from = self->gathered.at;
    size_t length = self->gathered.len;
    if (parts > 1 || (part != NULL && (length || !PyBytes_CheckExact(part))))
        return 0;
    if (part != NULL) {
        from = PyBytes_AsString(part);
        length = (size_t)Py_SIZE(part);
    }
    if ((long long)length != self->offset - self->written)
        return 0;
    if (!length)
        return 1;
    Py_ssize_t written;
    Py_XINCREF(part);
    Py_BEGIN_ALLOW_THREADS
    written = pwrite(fd, from, length, (off_t)self->written);
    Py_END_ALLOW_THREADS
    Py_XDECREF(part);
    if (written != (Py_ssize_t)length)
        return 0;
    if (part != NULL && PyList_SetSlice(self->settled, 0, 1, NULL) < 0) {
        PyErr_Clear();
        return 0;
    }
    bytes_empty(&self->gathered);
    self->written = self->offset;
    self->flushed_records = self->records;
    return 1;
}

static PyObject *
growing_get_pending(PyObject *object, void *Py_UNUSED(closure))
{
    Growing *self = (Growing *)object;
    if (!growing_ready(self) || !growing_settle(self))
        return NULL;
    Py_INCREF(self->settled);
    return self->settled;
}

static PyGetSetDef growing_properties[] = {
    {"pending", growing_get_pending, NULL, NULL, NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static int
growing_traverse(PyObject *self, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(((Growing *)self)->settled);
    return 0;
}

static int
growing_clear(PyObject *self)
{
    Py_CLEAR(((Growing *)self)->settled);
    return 0;
}

static void
growing_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    ((inquiry)PyType_GetSlot(type, Py_tp_clear))(self);
    bytes_free(&((Growing *)self)->gathered);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
    Py_DECREF(type);
}

#endif

#endif
