/* Inlet: the open frame of a writer, and the fast paths of `append` and `flush`. `body`: many records at once. Each
 * does what its Python twin in inlet.py does. The frames of a slab: _frames.h, of format 1: _payloads.h.
 *
 * It decides nothing: what is not plain, exceeds a limit, fails or finds the inlet shut goes to Python. It knows
 * no policies. It holds the interpreter's lock and calls no Python code while it changes something, so each call
 * is atomic for other threads and for signal handlers; only a write is without it, and then the inlet is shut and
 * the writer's lock is held.
 */
#include "_inlet.h"

#include "_frames.h"
#include "_layout.h"

#include <limits.h>
#include <time.h>
#include <unistd.h>

#if HASHES
#include "_payloads.h"
#endif

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

/* --- Inlet ---------------------------------------------------------------------------------- */

typedef struct {
    PyObject_HEAD
    Records records;      /* of the open frame */
    long long first;      /* address of the first record */
    long long size;       /* bytes of the records, as validate.py counts */
    long long limit;      /* a record joins if `size` stays below it; 0: the inlet is shut */
    long long most;       /* a record joins if the number of records stays below it */
    long long record_max; /* greatest size of a record, without the offset of its value */
    long long limit_after_flush, most_after_flush; /* `limit` and `most` when no frame waits in memory */
    PyObject *each;       /* Frames or Payloads: each record becomes a frame of it at once; or NULL */
    int format_1;         /* `each` is Payloads */
    PyObject *flushed;    /* Frames: `flush` writes them itself; or NULL */
    int fd;               /* of the file of `flushed` */
    long long until_ns;   /* by the monotonic clock: from then on `_flush` has something else to do */
    PyObject *is_locked, *acquire, *release; /* methods of the writer's lock */
} Inlet;

/* Calls `_append` with the same arguments. */
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

#if HASHES

/* As `inlet_take`, of a measured record: it becomes a frame of format 1. */
static PyObject *
take_payload(Inlet *self, const Record *record, PyObject *value)
{
    Payloads *slab = (Payloads *)self->each;
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
    long long before = frames->offset;
    if (before >= frames->full_at)
        return NULL;
    records_begin(&self->records, now_us());
    if (!records_add(&self->records, record))
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
    Py_CLEAR(((Inlet *)object)->flushed);
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
    PyObject *slab = count == 3 ? args[2] : NULL, *each = NULL, *before = self->each;
    if (!numbers_from(args, slab == NULL ? count : 2, 2, numbers, "_admit takes two numbers, and frames"))
        return NULL;
#if HASHES
    self->format_1 = slab != NULL && PyObject_TypeCheck(slab, payloads_type);
    if (self->format_1 || (slab != NULL && PyObject_TypeCheck(slab, frames_type)))
        each = slab;
#endif
    Py_XINCREF(each);
    self->each = each;
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
    inlet_shut(object, NULL);
    self->size = 0; /* only now: `_end` never goes back */
    records_begin(&self->records, 0);
    return address;
}

/* --- flush ---------------------------------------------------------------------------------- */

static PyObject *
inlet_prepare(PyObject *object, PyObject *const *args, Py_ssize_t count)
{
    Inlet *self = (Inlet *)object;
    PyObject **methods[3] = {&self->is_locked, &self->acquire, &self->release};
    const char *names[3] = {"_is_owned", "acquire", "release"};
    long long numbers[3];
    if (count < 1 || !numbers_from(args + 1, count - 1, 3, numbers, "_prepare takes a lock and three numbers"))
        return NULL;
    for (int i = 0; i < 3; i++) {
        PyObject *method = PyObject_GetAttrString(args[0], names[i]), *before = *methods[i];
        if (method == NULL)
            return NULL;
        *methods[i] = method;
        Py_XDECREF(before);
    }
    self->record_max = numbers[0];
    self->limit_after_flush = numbers[1];
    self->most_after_flush = numbers[2];
    Py_RETURN_NONE;
}

static PyObject *
inlet_admit_flush(PyObject *object, PyObject *const *args, Py_ssize_t count)
{
#if HASHES
    Inlet *self = (Inlet *)object;
    long long numbers[2];
    if (count < 1 || !numbers_from(args + 1, count - 1, 2, numbers, "_admit_flush takes frames and two numbers"))
        return NULL;
    if (self->release != NULL && PyObject_TypeCheck(args[0], frames_type)) {
        PyObject *before = self->flushed;
        Py_INCREF(args[0]);
        self->flushed = args[0];
        Py_XDECREF(before);
    }
    self->fd = (int)numbers[0];
    self->until_ns = now_ns() + numbers[1];
#endif
    Py_RETURN_NONE;
}

#if HASHES

/* The open frame joins the frames, and they are written. The address after them; -1 if `_flush` has to do what is
 * left. The caller holds the lock, and nothing joins meanwhile. */
static long long
write_out(Inlet *self)
{
    Frames *frames = (Frames *)self->flushed;
    long long end = -1;
    if (frames == NULL || now_ns() >= self->until_ns)
        return -1;
    Py_INCREF((PyObject *)frames);
    self->limit = 0;
    if (self->records.count) {
        if (self->first != frames->base + frames->offset)
            goto done;
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
    if (self->flushed == (PyObject *)frames && frames->offset < frames->full_at)
        admit(self, self->limit_after_flush, self->most_after_flush);
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
    if (self->flushed != NULL) {
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
    Py_VISIT(inlet->flushed);
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
    Py_CLEAR(inlet->flushed);
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
     "_admit(limit, most[, frames]): records join from now on."},
    {"_shut", inlet_shut, METH_NOARGS, "_shut(): no record joins from now on."},
    {"_put", (PyCFunction)(void (*)(void))inlet_put, METH_FASTCALL,
     "_put(value, key, headers, timestamp, topic, size): takes a checked record. Its address."},
    {"_cut", (PyCFunction)(void (*)(void))inlet_cut, METH_FASTCALL,
     "_cut(frames, pack): the records become a frame. Its address, None if there are none."},
    {"_join", (PyCFunction)(void (*)(void))inlet_join, METH_FASTCALL,
     "_join(value, key, headers, timestamp, topic): as `append`, if that would not call `_append`; otherwise None,\n"
     "and nothing has changed. Never waits."},
    {"_prepare", (PyCFunction)(void (*)(void))inlet_prepare, METH_FASTCALL,
     "_prepare(lock, record_max, limit, most): what does not change while the writer is open."},
    {"_admit_flush", (PyCFunction)(void (*)(void))inlet_admit_flush, METH_FASTCALL,
     "_admit_flush(frames, fd, for_ns): `flush` writes the open frame itself for so long."},
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

/* As `record_measure`, of the i-th entries of the five columns. */
static int
measure_row(Record *record, PyObject *const *columns, Py_ssize_t i)
{
    return record_measure(record, PyList_GetItem(columns[0], i), entry(columns[1], i), entry(columns[2], i),
                          entry(columns[3], i), entry(columns[4], i));
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
        if (!measure_row(&record, args, i))
            Py_RETURN_NONE;
        size += record.size;
        if (record.size > longest)
            longest = record.size;
        if (size > UINT32_MAX) /* more than a frame holds */
            return Py_BuildValue("nnO", (Py_ssize_t)size, (Py_ssize_t)longest, Py_None);
    }
    records_begin(&records, now);
    int ok = bytes_reserve(&records.values.data, size) &&
             bytes_reserve(&records.values.ends, (size_t)rows * sizeof(uint32_t));
    for (Py_ssize_t i = 0; ok && i < rows; i++)
        ok = measure_row(&record, args, i) && records_add(&records, &record);
    PyObject *body = ok ? records_body(&records) : PyErr_NoMemory();
    records_free(&records);
    return body == NULL ? NULL : Py_BuildValue("nnN", (Py_ssize_t)size, (Py_ssize_t)longest, body);
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
