/* Frames: the frames of a slab of format 2 that grows, and where its file is; the Python twin is PythonFrames in
 * inlet.py.
 *
 * Only for _inlet.c.
 */
#ifndef AOLOG_FRAMES_H
#define AOLOG_FRAMES_H

#include "_growing.h"
#include "_hash_wide.h"
#include "_layout.h"
#include "_presence.h"

#if HASHES

#define ORDINALS_FULL (UINT32_MAX - (1u << 30)) /* active_slab: no further frame after it */

typedef struct {
    Growing slab;
    PyObject *index;                 /* slab.Index: three lists, which grow with the frames */
    long long frames;                /* all, written or not */
    long long least_us, greatest_us; /* of the records' timestamps; NO_TIMESTAMP if there is none */
    unsigned int salt;               /* of the slab's header: a part of each frame header's hash */
    int last_kind;                   /* of the last frame; 0 if there is none */
    XXH3_state_t *headers;           /* hashes the headers of all frames, for the seal */
    Presence file;                   /* `file.fd` is -1 if compiled code must not write it */
    long long zeros_end;             /* the file is filled with zeros up to here; set by active_slab.py */
    int sync_errno;                  /* of a compiled sync that failed: nothing is synced after it; 0 if none did */
} Frames;

static PyTypeObject *frames_type; /* never released */

typedef struct {
    uint8_t bytes[FRAME_HEADER];
} Head;

static void
put_le(uint8_t *to, uint64_t number, int bytes)
{
    memcpy(to, &number, (size_t)bytes); /* frame.py refuses machines that are not little-endian */
}

/* The header of a frame of records at the end of the slab: see frame.py. */
static Head
make_head(const Frames *self, uint64_t body_len, uint64_t body_hash, int codec, int64_t stamp, uint64_t count,
          uint32_t bits)
{
    Head head;
    uint8_t *at = head.bytes;
    int flags = codec << CODEC_SHIFT | (self->slab.durable == self->slab.base + self->slab.offset ? FLAG_DURABLE : 0);
    uint32_t seed = self->salt ^ (uint32_t)(self->slab.offset >> 3);
    at[0] = 0xA0;
    at[1] = 0xF2;
    at[2] = KIND_RECORDS;
    at[3] = (uint8_t)flags;
    put_le(at + 4, body_len, 4);
    put_le(at + 8, body_hash, 8);
    put_le(at + 16, (uint64_t)stamp, 8);
    put_le(at + 24, (uint64_t)self->slab.records, 4);
    put_le(at + 28, count, 4);
    put_le(at + 32, bits, 4);
    put_le(at + 36, XXH32(at, FRAME_HEADER - 4, seed), 4);
    return head;
}

/* Notes the frame in the index if it is due; false if there is no memory. Runs no Python code. */
static int
note_frame(Frames *self)
{
    PyObject *offsets = PyTuple_GetItem(self->index, 0);
    Py_ssize_t entries = PyList_Size(offsets);
    if (entries && self->slab.offset - PyLong_AsLongLong(PyList_GetItem(offsets, entries - 1)) < INDEX_SPACING)
        return 1;
    long long entry[3] = {self->slab.offset, self->slab.records, self->greatest_us};
    for (int i = 0; i < 3; i++) {
        PyObject *number = PyLong_FromLongLong(entry[i]);
        int failed = number == NULL || PyList_Append(PyTuple_GetItem(self->index, i), number) < 0;
        Py_XDECREF(number);
        if (failed) {
            for (; i > 0; i--) /* no column is longer than the others */
                PyList_SetSlice(PyTuple_GetItem(self->index, i - 1), entries, entries + 1, NULL);
            return 0;
        }
    }
    return 1;
}

/* Counts a frame that is in `pending`. Returns its address. */
static long long
count_frame(Frames *self, const Head *head, size_t padded, size_t count, int64_t greatest, int64_t least)
{
    long long address = self->slab.base + self->slab.offset;
    XXH3_64bits_update(self->headers, head->bytes, FRAME_HEADER);
    if (greatest > self->greatest_us)
        self->greatest_us = greatest;
    if (!self->slab.records || least < self->least_us)
        self->least_us = least;
    self->frames++;
    self->last_kind = KIND_RECORDS;
    if (self->slab.records > (long long)ORDINALS_FULL)
        self->slab.full_at = 0;
    self->slab.records += (long long)count;
    self->slab.offset += FRAME_HEADER + (long long)padded;
    return address;
}

/* Adds the records as one frame. Returns its address; -1 on an error, and nothing is added. */
static long long
frames_add_open(Frames *self, const Records *records)
{
    Growing *slab = &self->slab;
    size_t length;
    uint32_t bits = records_layout(records, &length);
    if (!growing_ready(slab) || !fits_frame(length) || !note_frame(self))
        return -1;
    size_t padded = aligned(length), size = FRAME_HEADER + padded;
    PyObject *own = NULL; /* a long frame has a buffer of its own */
    if (size <= GATHERED_BYTES ? !growing_reserve(slab, size) : !growing_settle(slab))
        return -1;
    if (size > GATHERED_BYTES && (own = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)size)) == NULL)
        return -1;
    char *begin = own == NULL ? slab->gathered.at + slab->gathered.len : PyBytes_AsString(own);
    char *body = begin + FRAME_HEADER;
    records_write(records, bits, body);
    memset(body + length, 0, padded - length);
    uint64_t hash = body_hash(body, padded);
    Head head = make_head(self, length, hash, 0, records->greatest_us, records->count, bits);
    memcpy(begin, head.bytes, FRAME_HEADER);
    if (own == NULL)
        slab->gathered.len += size;
    else {
        int failed = PyList_Append(slab->settled, own) < 0;
        Py_DECREF(own);
        if (failed)
            return -1;
    }
    return count_frame(self, &head, padded, records->count, records->greatest_us, records->least_us);
}

static int
frames_init(PyObject *object, PyObject *args, PyObject *keywords)
{
    static char *names[] = {"base", "offset", "full_at", "salt", "index", NULL};
    Frames *self = (Frames *)object;
    PyObject *index;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "LLLIO!", names, &self->slab.base, &self->slab.offset,
                                     &self->slab.full_at, &self->salt, &PyTuple_Type, &index))
        return -1;
    for (int i = 0; i < 3; i++)
        if (PyTuple_Size(index) != 3 || !PyList_CheckExact(PyTuple_GetItem(index, i))) {
            PyErr_SetString(PyExc_TypeError, "the index is three lists");
            return -1;
        }
    if (self->headers == NULL)
        self->headers = XXH3_createState();
    if (self->headers == NULL || XXH3_64bits_reset(self->headers) == XXH_ERROR) {
        PyErr_NoMemory();
        return -1;
    }
    PyObject *before = self->index;
    Py_INCREF(index);
    self->index = index;
    Py_XDECREF(before);
    self->frames = self->zeros_end = 0;
    self->least_us = self->greatest_us = NO_TIMESTAMP;
    self->last_kind = self->sync_errno = 0;
    self->file.fd = -1;
    return growing_begin(&self->slab) ? 0 : -1;
}

static int
frames_traverse(PyObject *self, visitproc visit, void *arg)
{
    Py_VISIT(((Frames *)self)->index);
    return growing_traverse(self, visit, arg);
}

static int
frames_clear(PyObject *self)
{
    Py_CLEAR(((Frames *)self)->index);
    return growing_clear(self);
}

static void
frames_dealloc(PyObject *self)
{
    XXH3_freeState(((Frames *)self)->headers);
    growing_dealloc(self);
}

/* The bytes of the parts together, and the hash of these with their padding; raises otherwise. */
static int
hash_parts(PyObject *parts, size_t *length, uint64_t *hash)
{
    static const char zeros[8];
    XXH3_state_t state;
    XXH3_64bits_reset(&state);
    *length = 0;
    for (Py_ssize_t i = 0; i < PyList_Size(parts); i++) { /* code of a buffer may change the list meanwhile */
        Py_buffer part;
        if (PyObject_GetBuffer(PyList_GetItem(parts, i), &part, PyBUF_SIMPLE) < 0)
            return 0;
        XXH3_64bits_update(&state, part.buf, (size_t)part.len);
        *length += (size_t)part.len;
        PyBuffer_Release(&part);
    }
    XXH3_64bits_update(&state, zeros, aligned(*length) - *length);
    *hash = XXH3_64bits_digest(&state);
    return fits_frame(*length);
}

static PyObject *
frames_add_records(PyObject *object, PyObject *args)
{
    Frames *self = (Frames *)object;
    Py_ssize_t count;
    unsigned int bits;
    int codec;
    PyObject *parts, *pad = NULL, *head_bytes = NULL, *result = NULL;
    long long greatest, least;
    size_t length;
    uint64_t hash;
    if (!PyArg_ParseTuple(args, "nIO!LLi", &count, &bits, &PyList_Type, &parts, &greatest, &least, &codec) ||
        !growing_ready(&self->slab) || !hash_parts(parts, &length, &hash) ||
        !growing_settle(&self->slab) || !note_frame(self))
        return NULL;
    size_t padded = aligned(length);
    Head head = make_head(self, length, hash, codec, greatest, (uint64_t)count, bits);
    head_bytes = PyBytes_FromStringAndSize((const char *)head.bytes, FRAME_HEADER);
    pad = PyBytes_FromStringAndSize("\0\0\0\0\0\0\0", (Py_ssize_t)(padded - length));
    Py_ssize_t end = PyList_Size(self->slab.settled);
    if (head_bytes != NULL && pad != NULL && PyList_Append(self->slab.settled, head_bytes) == 0 &&
        PyList_SetSlice(self->slab.settled, end + 1, end + 1, parts) == 0 &&
        (padded == length || PyList_Append(self->slab.settled, pad) == 0)) /* otherwise the writer has failed */
        result = PyLong_FromLongLong(count_frame(self, &head, padded, (size_t)count, greatest, least));
    Py_XDECREF(head_bytes);
    Py_XDECREF(pad);
    return result;
}

static PyObject *
frames_headers_hash(PyObject *object, PyObject *Py_UNUSED(ignored))
{
    Frames *self = (Frames *)object;
    return growing_ready(&self->slab) ? PyLong_FromUnsignedLongLong(XXH3_64bits_digest(self->headers)) : NULL;
}

static PyObject *
frames_put(PyObject *object, PyObject *args)
{
    Frames *self = (Frames *)object;
    PyObject *frame;
    long long length;
    if (!PyArg_ParseTuple(args, "O!L", &PyList_Type, &frame, &length) || !growing_ready(&self->slab))
        return NULL;
    PyObject *head = PyList_Size(frame) ? PyList_GetItem(frame, 0) : NULL;
    if (head == NULL || !PyBytes_CheckExact(head)) {
        PyErr_SetString(PyExc_TypeError, "a frame begins with its header");
        return NULL;
    }
    if (!growing_settle(&self->slab))
        return NULL;
    Py_ssize_t end = PyList_Size(self->slab.settled);
    if (PyList_SetSlice(self->slab.settled, end, end, frame) < 0)
        return NULL;
    XXH3_64bits_update(self->headers, PyBytes_AsString(head), (size_t)Py_SIZE(head));
    self->slab.offset += length;
    Py_RETURN_NONE;
}

static PyObject *
frames_attach(PyObject *object, PyObject *args)
{
    Presence file;
    const char *name;
    if (!PyArg_ParseTuple(args, "iisKK", &file.fd, &file.directory, &name, &file.inode, &file.device))
        return NULL;
    size_t length = strlen(name);
    if (length >= sizeof file.name) {
        PyErr_SetString(PyExc_ValueError, "the name is longer than a slab's");
        return NULL;
    }
    memcpy(file.name, name, length + 1);
    ((Frames *)object)->file = file;
    Py_RETURN_NONE;
}

static PyMethodDef frames_methods[] = {
    {"add_records", frames_add_records, METH_VARARGS,
     "add_records(records, columns, parts, greatest_us, least_us, codec): adds a frame. Its address."},
    {"headers_hash", frames_headers_hash, METH_NOARGS, "headers_hash(): XXH3 of the headers of all frames."},
    {"put", frames_put, METH_VARARGS, "put(frame, length): adds the buffers of a frame of another kind."},
    {"attach", frames_attach, METH_VARARGS,
     "attach(fd, directory, name, inode, device): the file, which compiled code may write and sync."},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef frames_members[] = {
    GROWING_MEMBERS,
    {"index", T_OBJECT_EX, offsetof(Frames, index), READONLY, NULL},
    {"frames", T_LONGLONG, offsetof(Frames, frames), 0, NULL},
    {"least_us", T_LONGLONG, offsetof(Frames, least_us), 0, NULL},
    {"greatest_us", T_LONGLONG, offsetof(Frames, greatest_us), 0, NULL},
    {"last_kind", T_INT, offsetof(Frames, last_kind), 0, NULL},
    {"zeros_end", T_LONGLONG, offsetof(Frames, zeros_end), 0, NULL},
    {"sync_errno", T_INT, offsetof(Frames, sync_errno), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyType_Slot frames_slots[] = {
    {Py_tp_doc, "The frames of a slab that grows: see inlet.PythonFrames."},
    {Py_tp_init, frames_init},
    {Py_tp_traverse, frames_traverse},
    {Py_tp_clear, frames_clear},
    {Py_tp_dealloc, frames_dealloc},
    {Py_tp_methods, frames_methods},
    {Py_tp_members, frames_members},
    {Py_tp_getset, growing_properties},
    {0, NULL},
};

static PyType_Spec frames_spec = {
    "aolog.format.native._speed.Frames", sizeof(Frames), 0,
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC, frames_slots,
};

#endif

#endif
