/* Inlet: the open frame of a writer, and the fast path of `append`. Frames: the frames of a slab that grows;
 * of format 1: Payloads. `body`: many records at once. Each does what its Python twin in inlet.py does.
 *
 * It decides nothing: what is not plain, exceeds a limit or finds the inlet shut goes to Python. It knows no
 * files, locks or policies. It holds the interpreter's lock and calls no Python code while it changes something,
 * so each call is atomic for other threads and for signal handlers.
 *
 * Frames exist only if the build found the system's xxhash.h; otherwise Python makes the frames.
 */
#include "_inlet.h"

#include "_records.h"

#include <limits.h>
#include <stddef.h>
#include <structmember.h>
#include <time.h>
#include <unistd.h>

#define HASHES 0
#if __has_include(<xxhash.h>) && !defined(AOLOG_WITHOUT_XXHASH)
#define XXH_INLINE_ALL
#include <xxhash.h>
#if XXH_VERSION_NUMBER >= 800 /* before that, xxh3 was not final */
#undef HASHES
#define HASHES 1
#endif
#endif

#define FRAME_HEADER 40
#define NO_TIMESTAMP INT64_MIN
#define BODY_MAX (UINT32_MAX - (size_t)FRAME_HEADER - 8) /* frame.BODY_LEN_MAX */

static PyObject *append_name, *flush_name; /* "_append", "_flush": interned; never released */
static PyObject *keyword_names[4]; /* key, headers, timestamp, topic: interned; never released */

static int64_t
now_us(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

#if HASHES
static long long
now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (long long)now.tv_sec * 1000000000 + now.tv_nsec;
}
#endif

/* --- Frames --------------------------------------------------------------------------------- */

#if HASHES

#define KIND_RECORDS 1
#define FLAG_DURABLE 1
#define CODEC_SHIFT 4
#define INDEX_SPACING (16 << 10) /* slab.INDEX_SPACING */
#define ORDINALS_FULL (UINT32_MAX - (1u << 30)) /* active_slab: no further frame after it */

typedef struct {
    PyObject_HEAD
    PyObject *pending; /* a list: buffers that are not written, in order */
    PyObject *index;   /* slab.Index: three lists */
    long long base, offset, written, full_at, durable;
    long long records, frames, flushed_records, least_us, greatest_us;
    unsigned int salt;
    int last_kind;
    XXH3_state_t *headers; /* of all frames */
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
    int flags = codec << CODEC_SHIFT | (self->durable == self->base + self->offset ? FLAG_DURABLE : 0);
    uint32_t seed = self->salt ^ (uint32_t)(self->offset >> 3);
    at[0] = 0xA0;
    at[1] = 0xF2;
    at[2] = KIND_RECORDS;
    at[3] = (uint8_t)flags;
    put_le(at + 4, body_len, 4);
    put_le(at + 8, body_hash, 8);
    put_le(at + 16, (uint64_t)stamp, 8);
    put_le(at + 24, (uint64_t)self->records, 4);
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
    if (entries && self->offset - PyLong_AsLongLong(PyList_GetItem(offsets, entries - 1)) < INDEX_SPACING)
        return 1;
    long long entry[3] = {self->offset, self->records, self->greatest_us};
    for (int i = 0; i < 3; i++) {
        PyObject *number = PyLong_FromLongLong(entry[i]);
        int failed = number == NULL || PyList_Append(PyTuple_GetItem(self->index, i), number) < 0;
        Py_XDECREF(number);
        if (failed)
            return 0; /* columns of different lengths: the writer has failed */
    }
    return 1;
}

/* Counts a frame that is in `pending`. Returns its address. */
static long long
count_frame(Frames *self, const Head *head, size_t padded, size_t count, int64_t greatest, int64_t least)
{
    long long address = self->base + self->offset;
    XXH3_64bits_update(self->headers, head->bytes, FRAME_HEADER);
    if (greatest > self->greatest_us)
        self->greatest_us = greatest;
    if (!self->records || least < self->least_us)
        self->least_us = least;
    self->frames++;
    self->last_kind = KIND_RECORDS;
    if (self->records > (long long)ORDINALS_FULL)
        self->full_at = 0;
    self->records += (long long)count;
    self->offset += FRAME_HEADER + (long long)padded;
    return address;
}

/* Whether it was initialized; raises otherwise. */
static int
frames_ready(Frames *self)
{
    if (self->pending != NULL && self->headers != NULL)
        return 1;
    PyErr_SetString(PyExc_ValueError, "not initialized");
    return 0;
}

/* Adds the records as one frame. Returns its address; -1 on an error, and nothing is added. */
static long long
frames_add_open(Frames *self, const Records *records)
{
    size_t length, padded;
    if (!frames_ready(self))
        return -1;
    uint32_t bits = records_layout(records, &length);
    if (length > BODY_MAX) {
        PyErr_SetString(PyExc_OverflowError, "the body exceeds a frame");
        return -1;
    }
    padded = aligned(length);
    if (!note_frame(self))
        return -1;
    PyObject *frame = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)(FRAME_HEADER + padded));
    if (frame == NULL)
        return -1;
    char *begin = PyBytes_AsString(frame), *body = begin + FRAME_HEADER;
    records_write(records, bits, body);
    memset(body + length, 0, padded - length);
    uint64_t hash = XXH3_64bits(body, padded);
    Head head = make_head(self, length, hash, 0, records->greatest_us, records->count, bits);
    memcpy(begin, head.bytes, FRAME_HEADER);
    int failed = PyList_Append(self->pending, frame) < 0;
    Py_DECREF(frame);
    if (failed)
        return -1;
    return count_frame(self, &head, padded, records->count, records->greatest_us, records->least_us);
}

static PyObject *
frames_new(PyTypeObject *type, PyObject *Py_UNUSED(args), PyObject *Py_UNUSED(keywords))
{
    Frames *self = (Frames *)((allocfunc)PyType_GetSlot(type, Py_tp_alloc))(type, 0);
    return (PyObject *)self;
}

static int
frames_init(PyObject *object, PyObject *args, PyObject *keywords)
{
    static char *names[] = {"base", "offset", "full_at", "salt", "index", NULL};
    Frames *self = (Frames *)object;
    PyObject *index;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "LLLIO!", names, &self->base, &self->offset, &self->full_at,
                                     &self->salt, &PyTuple_Type, &index))
        return -1;
    for (int i = 0; i < 3; i++)
        if (PyTuple_Size(index) != 3 || !PyList_CheckExact(PyTuple_GetItem(index, i))) {
            PyErr_SetString(PyExc_TypeError, "the index is three lists");
            return -1;
        }
    PyObject *pending = PyList_New(0), *before = self->pending;
    if (pending == NULL)
        return -1;
    self->pending = pending;
    Py_XDECREF(before);
    before = self->index;
    Py_INCREF(index);
    self->index = index;
    Py_XDECREF(before);
    self->written = self->offset;
    self->durable = -1;
    self->records = self->frames = self->flushed_records = 0;
    self->least_us = self->greatest_us = NO_TIMESTAMP;
    self->last_kind = 0;
    if (self->headers == NULL)
        self->headers = XXH3_createState();
    if (self->headers == NULL || XXH3_64bits_reset(self->headers) == XXH_ERROR) {
        PyErr_NoMemory();
        return -1;
    }
    return 0;
}

static int
frames_traverse(PyObject *self, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(((Frames *)self)->pending);
    Py_VISIT(((Frames *)self)->index);
    return 0;
}

static int
frames_clear(PyObject *self)
{
    Py_CLEAR(((Frames *)self)->pending);
    Py_CLEAR(((Frames *)self)->index);
    return 0;
}

static void
frames_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    frames_clear(self);
    XXH3_freeState(((Frames *)self)->headers);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
    Py_DECREF(type);
}

static PyObject *
frames_add_records(PyObject *object, PyObject *args)
{
    Frames *self = (Frames *)object;
    Py_ssize_t count;
    unsigned int bits;
    int codec;
    PyObject *parts;
    long long greatest, least;
    if (!PyArg_ParseTuple(args, "nIO!LLi", &count, &bits, &PyList_Type, &parts, &greatest, &least, &codec) ||
        !frames_ready(self))
        return NULL;
    Py_ssize_t number = PyList_Size(parts);
    size_t length = 0;
    XXH3_state_t *state = number == 1 ? NULL : XXH3_createState();
    uint64_t hash = 0;
    PyObject *pad = NULL, *head_bytes = NULL, *result = NULL;
    if (number != 1 && (state == NULL || XXH3_64bits_reset(state) == XXH_ERROR)) {
        PyErr_NoMemory();
        goto done;
    }
    for (Py_ssize_t i = 0; i < number; i++) {
        Py_buffer part;
        if (PyObject_GetBuffer(PyList_GetItem(parts, i), &part, PyBUF_SIMPLE) < 0)
            goto done;
        length += (size_t)part.len;
        if (number == 1 && length % 8 == 0)
            hash = XXH3_64bits(part.buf, (size_t)part.len);
        else if (number == 1) {
            state = XXH3_createState();
            if (state == NULL || XXH3_64bits_reset(state) == XXH_ERROR) {
                PyBuffer_Release(&part);
                PyErr_NoMemory();
                goto done;
            }
        }
        if (state != NULL)
            XXH3_64bits_update(state, part.buf, (size_t)part.len);
        PyBuffer_Release(&part);
    }
    if (length > BODY_MAX) {
        PyErr_SetString(PyExc_OverflowError, "the body exceeds a frame");
        goto done;
    }
    size_t padded = aligned(length);
    if (state != NULL) {
        static const char zeros[8];
        XXH3_64bits_update(state, zeros, padded - length);
        hash = XXH3_64bits_digest(state);
    }
    if (!note_frame(self))
        goto done;
    Head head = make_head(self, length, hash, codec, greatest, (uint64_t)count, bits);
    head_bytes = PyBytes_FromStringAndSize((const char *)head.bytes, FRAME_HEADER);
    pad = PyBytes_FromStringAndSize("\0\0\0\0\0\0\0", (Py_ssize_t)(padded - length));
    Py_ssize_t end = PyList_Size(self->pending);
    if (head_bytes == NULL || pad == NULL || PyList_Append(self->pending, head_bytes) < 0 ||
        PyList_SetSlice(self->pending, end + 1, end + 1, parts) < 0 ||
        (padded > length && PyList_Append(self->pending, pad) < 0))
        goto done; /* the writer has failed */
    result = PyLong_FromLongLong(count_frame(self, &head, padded, (size_t)count, greatest, least));
done:
    XXH3_freeState(state);
    Py_XDECREF(head_bytes);
    Py_XDECREF(pad);
    return result;
}

static PyObject *
frames_headers_hash(PyObject *object, PyObject *Py_UNUSED(ignored))
{
    Frames *self = (Frames *)object;
    return frames_ready(self) ? PyLong_FromUnsignedLongLong(XXH3_64bits_digest(self->headers)) : NULL;
}

static PyObject *
frames_put(PyObject *object, PyObject *args)
{
    Frames *self = (Frames *)object;
    PyObject *frame;
    long long length;
    if (!PyArg_ParseTuple(args, "O!L", &PyList_Type, &frame, &length) || !frames_ready(self))
        return NULL;
    PyObject *head = PyList_Size(frame) ? PyList_GetItem(frame, 0) : NULL;
    if (head == NULL || !PyBytes_CheckExact(head)) {
        PyErr_SetString(PyExc_TypeError, "a frame begins with its header");
        return NULL;
    }
    Py_ssize_t end = PyList_Size(self->pending);
    if (PyList_SetSlice(self->pending, end, end, frame) < 0)
        return NULL;
    XXH3_64bits_update(self->headers, PyBytes_AsString(head), (size_t)Py_SIZE(head));
    self->offset += length;
    Py_RETURN_NONE;
}

static PyMethodDef frames_methods[] = {
    {"add_records", frames_add_records, METH_VARARGS,
     "add_records(records, columns, parts, greatest_us, least_us, codec): adds a frame. Its address."},
    {"headers_hash", frames_headers_hash, METH_NOARGS, "headers_hash(): XXH3 of the headers of all frames."},
    {"put", frames_put, METH_VARARGS, "put(frame, length): adds the buffers of a frame of another kind."},
    {NULL, NULL, 0, NULL},
};

#define FIELD(name, kind, field) {name, kind, offsetof(Frames, field), 0, NULL}
static PyMemberDef frames_members[] = {
    {"pending", T_OBJECT_EX, offsetof(Frames, pending), READONLY, NULL},
    {"index", T_OBJECT_EX, offsetof(Frames, index), READONLY, NULL},
    FIELD("base", T_LONGLONG, base),
    FIELD("offset", T_LONGLONG, offset),
    FIELD("written", T_LONGLONG, written),
    FIELD("full_at", T_LONGLONG, full_at),
    FIELD("durable", T_LONGLONG, durable),
    FIELD("records", T_LONGLONG, records),
    FIELD("frames", T_LONGLONG, frames),
    FIELD("flushed_records", T_LONGLONG, flushed_records),
    FIELD("least_us", T_LONGLONG, least_us),
    FIELD("greatest_us", T_LONGLONG, greatest_us),
    FIELD("last_kind", T_INT, last_kind),
    {NULL, 0, 0, 0, NULL},
};
#undef FIELD

static PyType_Slot frames_slots[] = {
    {Py_tp_doc, "The frames of a slab that grows: see inlet.PythonFrames."},
    {Py_tp_new, frames_new},
    {Py_tp_init, frames_init},
    {Py_tp_traverse, frames_traverse},
    {Py_tp_clear, frames_clear},
    {Py_tp_dealloc, frames_dealloc},
    {Py_tp_methods, frames_methods},
    {Py_tp_members, frames_members},
    {0, NULL},
};

static PyType_Spec frames_spec = {
    "aolog.format.native._speed.Frames", sizeof(Frames), 0,
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC, frames_slots,
};

#include "_payloads.h"

#endif

/* --- Inlet ---------------------------------------------------------------------------------- */

typedef struct {
    PyObject_HEAD
    Records records;
    long long first;       /* address of the first record */
    long long size;        /* bytes of the records, as validate.py counts */
    long long limit;       /* a record joins if `size` stays below it; 0: the inlet is shut */
    long long most;        /* how many records may be in the frame */
    long long record_max;  /* bytes of a record without the offset of its value */
    PyObject *each;        /* Frames or Payloads: each record becomes a frame at once; or NULL */
    int format_1;          /* `each` is Payloads */
    PyObject *out;         /* Frames: `flush` writes them by itself; or NULL */
    int fd;                /* their file */
    long long until_ns;    /* and until when, by the monotonic clock */
    long long empty_limit, empty_most; /* `limit` and `most` after that */
    PyObject *is_locked, *acquire, *release; /* of the writer's lock */
} Inlet;

static PyObject *
inlet_pass_on(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *names)
{
    PyObject *append = PyObject_GetAttr(self, append_name);
    if (append == NULL)
        return NULL;
    PyObject *result = NULL, *keywords = NULL, *positional = PyTuple_New(count);
    Py_ssize_t named = names == NULL ? 0 : PyTuple_Size(names);
    if (positional == NULL)
        goto done;
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
    result = PyObject_Call(append, positional, keywords);
done:
    Py_DECREF(append);
    Py_XDECREF(positional);
    Py_XDECREF(keywords);
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
        (long long)self->records.count >= self->most)
        return NULL;
#if HASHES
    if (self->each != NULL && self->format_1) {
        Payloads *slab = (Payloads *)self->each;
        long long length = PAYLOAD_HEADER + (long long)record.value_len;
        if (record.size != record.value_len + OFFSET || length >= self->limit ||
            !payloads_has_room(slab, record.value_len))
            return NULL;
        long long address = payloads_add(slab, fields[0]);
        if (address < 0)
            return NULL;
        self->limit -= length;
        self->most--;
        return PyLong_FromLongLong(address);
    }
    if (self->each != NULL) {
        Frames *frames = (Frames *)self->each;
        long long before = frames->offset;
        if (before >= frames->full_at)
            return NULL;
        records_begin(&self->records, now_us());
        if (!records_add(&self->records, &record))
            return PyErr_NoMemory();
        long long address = frames_add_open(frames, &self->records);
        records_begin(&self->records, 0);
        if (address < 0)
            return NULL;
        self->limit -= frames->offset - before;
        if (self->limit < 0)
            self->limit = 0;
        self->most--;
        return PyLong_FromLongLong(address);
    }
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

static PyObject *
inlet_shut(PyObject *object, PyObject *Py_UNUSED(ignored))
{
    ((Inlet *)object)->limit = 0;
    Py_CLEAR(((Inlet *)object)->out);
    Py_RETURN_NONE;
}

static PyObject *
inlet_begin(PyObject *object, PyObject *const *args, Py_ssize_t count)
{
    Inlet *self = (Inlet *)object;
    long long numbers[2];
    if (!numbers_from(args, count, 2, numbers, "_begin takes an address and a time"))
        return NULL;
    inlet_shut(object, NULL);
    self->size = 0;
    self->first = numbers[0];
    records_begin(&self->records, numbers[1]);
    Py_RETURN_NONE;
}

static PyObject *
inlet_admit(PyObject *object, PyObject *const *args, Py_ssize_t count)
{
    Inlet *self = (Inlet *)object;
    long long numbers[3];
    PyObject *each = NULL, *before = self->each;
    int makes_frames = count == 4;
    if (makes_frames)
        count = 3;
    if (!numbers_from(args, count, 3, numbers, "_admit takes three numbers, and frames"))
        return NULL;
#if HASHES
    self->format_1 = makes_frames && PyObject_TypeCheck(args[3], payloads_type);
    if (self->format_1 || (makes_frames && PyObject_TypeCheck(args[3], frames_type)))
        each = args[3];
#endif
    Py_XINCREF(each);
    self->each = each;
    self->limit = numbers[0] > 0 && (each != NULL || !makes_frames) ? numbers[0] : 0;
    self->most = numbers[1];
    self->record_max = numbers[2];
    if (self->first > 0 && self->most > LLONG_MAX - self->first)
        self->most = LLONG_MAX - self->first; /* addresses stay below 2^63 */
    Py_XDECREF(before);
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

/* (records, bits, body, greatest, least) */
static PyObject *
records_body(const Records *records)
{
    size_t length;
    uint32_t bits = records_layout(records, &length);
    if (length > BODY_MAX) {
        PyErr_SetString(PyExc_OverflowError, "the body exceeds a frame");
        return NULL;
    }
    PyObject *body = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)length);
    if (body == NULL)
        return NULL;
    records_write(records, bits, PyBytes_AsString(body));
    return Py_BuildValue("nINLL", (Py_ssize_t)records->count, bits, body, (long long)records->greatest_us,
                         (long long)records->least_us);
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
    inlet_shut(object, NULL);
    self->size = 0; /* only now: `_end` never goes back */
    records_begin(&self->records, 0);
    return address;
}

/* --- flush ---------------------------------------------------------------------------------- */

static PyObject *
inlet_guard(PyObject *object, PyObject *lock)
{
    Inlet *self = (Inlet *)object;
    PyObject **methods[3] = {&self->is_locked, &self->acquire, &self->release};
    const char *names[3] = {"_is_owned", "acquire", "release"};
    for (int i = 0; i < 3; i++) {
        PyObject *method = PyObject_GetAttrString(lock, names[i]), *before = *methods[i];
        if (method == NULL)
            return NULL;
        *methods[i] = method;
        Py_XDECREF(before);
    }
    Py_RETURN_NONE;
}

static PyObject *
inlet_admit_flush(PyObject *object, PyObject *const *args, Py_ssize_t count)
{
#if HASHES
    Inlet *self = (Inlet *)object;
    long long numbers[4];
    if (count < 1 || !numbers_from(args + 1, count - 1, 4, numbers, "_admit_flush takes frames and four numbers"))
        return NULL;
    if (self->release != NULL && PyObject_TypeCheck(args[0], frames_type)) {
        PyObject *before = self->out;
        Py_INCREF(args[0]);
        self->out = args[0];
        Py_XDECREF(before);
    }
    self->fd = (int)numbers[0];
    self->until_ns = now_ns() + numbers[1];
    self->empty_limit = numbers[2];
    self->empty_most = numbers[3];
#endif
    Py_RETURN_NONE;
}

#if HASHES

/* The open frame joins the frames, and they are written. The address after them; -1 if `_flush` has to do what is
 * left. The caller holds the lock, and nothing joins meanwhile. */
static long long
write_out(Inlet *self)
{
    Frames *frames = (Frames *)self->out;
    long long end = -1;
    if (frames == NULL || now_ns() >= self->until_ns)
        return -1;
    Py_INCREF((PyObject *)frames);
    self->limit = 0;
    if (self->records.count) {
        if (frames_add_open(frames, &self->records) < 0) {
            PyErr_Clear(); /* `_flush` meets it again */
            goto done;
        }
        records_begin(&self->records, NO_TIMESTAMP);
        self->size = 0;
    }
    self->first = frames->base + frames->offset;
    Py_ssize_t parts = PyList_Size(frames->pending);
    if (parts) {
        PyObject *part = PyList_GetItem(frames->pending, 0);
        Py_ssize_t written, length = PyBytes_CheckExact(part) ? Py_SIZE(part) : -1;
        if (parts != 1 || length != frames->offset - frames->written)
            goto done;
        Py_INCREF(part);
        Py_BEGIN_ALLOW_THREADS
        written = pwrite(self->fd, PyBytes_AsString(part), (size_t)length, (off_t)frames->written);
        Py_END_ALLOW_THREADS
        Py_DECREF(part);
        if (written != length)
            goto done;
        if (PyList_SetSlice(frames->pending, 0, 1, NULL) < 0) {
            PyErr_Clear();
            goto done;
        }
        frames->written = frames->offset;
        frames->flushed_records = frames->records;
    }
    end = frames->base + frames->offset;
    if (self->out == (PyObject *)frames && frames->offset < frames->full_at) {
        self->limit = self->empty_limit;
        self->most = self->empty_most;
    }
done:
    Py_DECREF((PyObject *)frames);
    return end;
}

#endif

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

#if HASHES

/* 1 if it holds the writer's lock now, 0 if this thread or another one held it before, -1 on an error. */
static int
try_lock(Inlet *self)
{
    PyObject *answer = PyObject_CallNoArgs(self->is_locked);
    if (answer == NULL)
        return -1;
    int held = answer == Py_True;
    Py_DECREF(answer);
    if (held)
        return 0;
    answer = PyObject_CallFunctionObjArgs(self->acquire, Py_False, NULL);
    held = answer == Py_True;
    Py_XDECREF(answer);
    return answer == NULL ? -1 : held;
}

#endif

static PyObject *
inlet_flush(PyObject *object, PyObject *Py_UNUSED(ignored))
{
#if HASHES
    Inlet *self = (Inlet *)object;
    if (self->out != NULL) {
        int locked = try_lock(self);
        if (locked < 0)
            return NULL;
        if (locked) {
            long long end = write_out(self);
            PyObject *released = PyObject_CallNoArgs(self->release);
            if (released == NULL)
                return NULL;
            Py_DECREF(released);
            if (end >= 0)
                return PyLong_FromLongLong(end);
        }
    }
#endif
    PyObject *flush = PyObject_GetAttr(object, flush_name), *result = flush == NULL ? NULL : PyObject_CallNoArgs(flush);
    Py_XDECREF(flush);
    return result;
}

static int
inlet_traverse(PyObject *self, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(self));
    Inlet *inlet = (Inlet *)self;
    Py_VISIT(inlet->each);
    Py_VISIT(inlet->out);
    Py_VISIT(inlet->is_locked);
    Py_VISIT(inlet->acquire);
    Py_VISIT(inlet->release);
    return 0;
}

static int
inlet_clear(PyObject *self)
{
    Inlet *inlet = (Inlet *)self;
    Py_CLEAR(inlet->each);
    Py_CLEAR(inlet->out);
    Py_CLEAR(inlet->is_locked);
    Py_CLEAR(inlet->acquire);
    Py_CLEAR(inlet->release);
    return 0;
}

static void
inlet_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    inlet_clear(self);
    records_free(&((Inlet *)self)->records);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
    Py_DECREF(type);
}

static PyObject *
inlet_get_count(PyObject *self, void *Py_UNUSED(closure))
{
    return PyLong_FromSize_t(((Inlet *)self)->records.count);
}

static PyObject *
inlet_get_end(PyObject *object, void *Py_UNUSED(closure))
{
    Inlet *self = (Inlet *)object;
    return PyLong_FromLongLong(self->records.count ? self->first + (long long)self->records.count : 0);
}

static PyMethodDef inlet_methods[] = {
    {"_begin", (PyCFunction)(void (*)(void))inlet_begin, METH_FASTCALL,
     "_begin(first, now_us): an empty frame begins at this address."},
    {"_admit", (PyCFunction)(void (*)(void))inlet_admit, METH_FASTCALL,
     "_admit(limit, most, record_max[, frames]): records join from now on."},
    {"_shut", inlet_shut, METH_NOARGS, "_shut(): no record joins from now on."},
    {"_put", (PyCFunction)(void (*)(void))inlet_put, METH_FASTCALL,
     "_put(value, key, headers, timestamp, topic, size): takes a checked record. Its address."},
    {"_cut", (PyCFunction)(void (*)(void))inlet_cut, METH_FASTCALL,
     "_cut(frames, pack): the records become a frame. Its address, None if there are none."},
    {"_join", (PyCFunction)(void (*)(void))inlet_join, METH_FASTCALL,
     "_join(value, key, headers, timestamp, topic): as `append`, if that would not call `_append`; otherwise None,\n"
     "and nothing has changed. Never waits."},
    {"_guard", inlet_guard, METH_O, "_guard(lock): the writer's lock, a threading.RLock."},
    {"_admit_flush", (PyCFunction)(void (*)(void))inlet_admit_flush, METH_FASTCALL,
     "_admit_flush(frames, fd, for_ns, limit, most): `flush` writes them by itself for so long."},
    {"_write_out", inlet_write_out, METH_NOARGS, "_write_out(): see PythonInlet._write_out."},
    {"flush", inlet_flush, METH_NOARGS,
     "flush($self)\n--\n\n"
     "Everything appended survives a crash of the process, not of the machine, on return. The end\n"
     "address. Raises StorageFull, StorageFailed: nothing is lost, call again; SlabLost."},
    {"append", (PyCFunction)(void (*)(void))inlet_append, METH_FASTCALL | METH_KEYWORDS,
     "append($self, value, *, key=None, headers=(), timestamp=None, topic=None)\n--\n\n"
     "Appends a record; returns its address. The record is in memory on return. It survives a crash\n"
     "of the process after `flush`, and power loss after `sync`.\n\n"
     "timestamp: microseconds since the epoch; default: the time of the batch. Raises RecordRefused,\n"
     "RecordTooLarge, StorageFull and StorageFailed (the record is not appended; earlier records are\n"
     "kept, and the next call writes them), SyncFailed, LogClosed, Forked."},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef inlet_members[] = {
    {"_first", T_LONGLONG, offsetof(Inlet, first), READONLY, NULL},
    {"_size", T_LONGLONG, offsetof(Inlet, size), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyGetSetDef inlet_properties[] = {
    {"_count", inlet_get_count, NULL, NULL, NULL},
    {"_end", inlet_get_end, NULL, NULL, NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot inlet_slots[] = {
    {Py_tp_doc, "The open frame, and the fast path of `append`: see inlet.PythonInlet."},
    {Py_tp_traverse, inlet_traverse},
    {Py_tp_clear, inlet_clear},
    {Py_tp_dealloc, inlet_dealloc},
    {Py_tp_methods, inlet_methods},
    {Py_tp_members, inlet_members},
    {Py_tp_getset, inlet_properties},
    {0, NULL},
};

static PyType_Spec inlet_spec = {
    "aolog.format.native._speed.Inlet", sizeof(Inlet), 0,
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC, inlet_slots,
};

/* --- many records at once ------------------------------------------------------------------- */

/* The i-th entry of a column; NULL if there is no column. */
static PyObject *
entry(PyObject *column, Py_ssize_t i)
{
    return column == Py_None ? NULL : PyList_GetItem(column, i);
}

PyObject *
aolog_body(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t count)
{
    if (count != 6 || !PyList_CheckExact(args[0])) {
        PyErr_SetString(PyExc_TypeError, "body takes five columns, of which the first is a list, and a time");
        return NULL;
    }
    Py_ssize_t rows = PyList_Size(args[0]);
    for (int k = 1; k < 5; k++)
        if (args[k] != Py_None && (!PyList_CheckExact(args[k]) || PyList_Size(args[k]) != rows)) {
            PyErr_SetString(PyExc_TypeError, "each column is None, or a list with an entry a record");
            return NULL;
        }
    long long now = PyLong_AsLongLong(args[5]);
    if (now == -1 && PyErr_Occurred())
        return NULL;
    size_t size = 0, longest = 0;
    Record record;
    Records records;
    memset(&records, 0, sizeof records);
    for (Py_ssize_t i = 0; i < rows; i++) { /* no Python code runs: no list changes meanwhile */
        if (!record_measure(&record, PyList_GetItem(args[0], i), entry(args[1], i), entry(args[2], i),
                            entry(args[3], i), entry(args[4], i)))
            Py_RETURN_NONE;
        size += record.size;
        if (record.size > longest)
            longest = record.size;
        if (size > UINT32_MAX) /* more than a frame holds */
            break;
    }
    PyObject *body = NULL, *result = NULL;
    if (size <= UINT32_MAX) {
        records_begin(&records, now);
        int ok = bytes_reserve(&records.values.data, size) &&
                 bytes_reserve(&records.values.ends, (size_t)rows * sizeof(uint32_t));
        for (Py_ssize_t i = 0; ok && i < rows; i++) {
            record_measure(&record, PyList_GetItem(args[0], i), entry(args[1], i), entry(args[2], i),
                           entry(args[3], i), entry(args[4], i));
            ok = records_add(&records, &record);
        }
        body = ok ? records_body(&records) : PyErr_NoMemory();
        records_free(&records);
        if (body == NULL)
            return NULL;
    } else {
        Py_INCREF(Py_None);
        body = Py_None;
    }
    result = Py_BuildValue("nnN", (Py_ssize_t)size, (Py_ssize_t)longest, body);
    return result;
}

/* --- the module's part ---------------------------------------------------------------------- */

static PyTypeObject *
add_type(PyObject *module, PyType_Spec *spec, const char *name)
{
    PyObject *type = PyType_FromModuleAndSpec(module, spec, NULL);
    if (type != NULL && PyModule_AddObjectRef(module, name, type) < 0)
        Py_CLEAR(type);
    return (PyTypeObject *)type;
}

int
aolog_inlet_begin(PyObject *module)
{
    const char *names[4] = {"key", "headers", "timestamp", "topic"};
    append_name = PyUnicode_InternFromString("_append");
    flush_name = PyUnicode_InternFromString("_flush");
    if (append_name == NULL || flush_name == NULL)
        return -1;
    for (int k = 0; k < 4; k++)
        if ((keyword_names[k] = PyUnicode_InternFromString(names[k])) == NULL)
            return -1;
    PyTypeObject *inlet = add_type(module, &inlet_spec, "Inlet");
    if (inlet == NULL)
        return -1;
    Py_DECREF(inlet);
#if HASHES
    frames_type = add_type(module, &frames_spec, "Frames");
    payloads_type = add_type(module, &payloads_spec, "Payloads");
    if (frames_type == NULL || payloads_type == NULL)
        return -1;
#endif
    return 0;
}
