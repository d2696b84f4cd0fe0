/* Inlet: the base class of Writer: its open frame (_open.h), `append` (_append.h), `flush` and `sync` (_flush.h), and
 * beside it `body`, of many records at once (_body.h), and `Door` (_door.h). Each does what its Python twin in inlet.py does.
 *
 * It knows no policies. What it cannot do alone, it leaves to a method of the writer, before it has changed anything.
 * It holds the interpreter's lock and calls no Python code while it changes something, so each call is atomic for
 * other threads and for signal handlers. Only a write and a sync are without it: during a write the writer's lock is
 * held and the inlet is shut, during a sync the device is held.
 */
#include "_inlet.h"

#include "_append.h"
#include "_body.h"
#include "_door.h"
#include "_flush.h"

static int
inlet_traverse(PyObject *self, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(self));
    Inlet *inlet = (Inlet *)self;
    Py_VISIT(inlet->each);
    Py_VISIT(inlet->flushed);
    Py_VISIT(inlet->lock);
    Py_VISIT(inlet->device);
    Py_VISIT(inlet->turn);
    Py_VISIT(inlet->syncing);
    return 0;
}

static int
inlet_clear(PyObject *self)
{
    Inlet *inlet = (Inlet *)self;
    Py_CLEAR(inlet->each);
    Py_CLEAR(inlet->flushed);
    Py_CLEAR(inlet->lock);
    Py_CLEAR(inlet->device);
    Py_CLEAR(inlet->turn);
    Py_CLEAR(inlet->syncing);
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
     "_prepare(lock, device, turn, syncing, record_max, limit, most, syncs): what does not change while the writer\n"
     "is open."},
    {"_admit_flush", (PyCFunction)(void (*)(void))inlet_admit_flush, METH_FASTCALL,
     "_admit_flush(frames, for_ns): `flush` and `sync` do all themselves for so long."},
    {"_write_out", inlet_write_out, METH_NOARGS, "_write_out(): see PythonInlet._write_out."},
    {"flush", inlet_flush, METH_NOARGS,
     "flush($self)\n--\n\n"
     "Everything appended survives a crash of the process, not of the machine, on return. The end\n"
     "address. Raises StorageFull, StorageFailed: nothing is lost, call again; SlabLost."},
    {"sync", inlet_sync, METH_NOARGS,
     "sync($self)\n--\n\n"
     "Everything appended survives power loss on return. The durable address. Concurrent callers\n"
     "share one frame, one write, one fdatasync. Raises as `flush`, and SyncFailed: see `durable`."},
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
    {Py_tp_doc, "The open frame, with `append`, `flush` and `sync`: see inlet.PythonInlet."},
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
    if (append_prepare() < 0 || flush_prepare() < 0)
        return -1;
    lock_type = add_type(module, &lock_spec, "Lock");
    inlet_type = add_type(module, &inlet_spec, "Inlet");
    PyTypeObject *door = add_type(module, &door_spec, "Door");
    if (inlet_type == NULL || lock_type == NULL || door == NULL)
        return -1;
    Py_DECREF(door);
#if HASHES
    wide_hash = aolog_wide_hash();
    frames_type = add_type(module, &frames_spec, "Frames");
    payloads_type = add_type(module, &payloads_spec, "Payloads");
    if (frames_type == NULL || payloads_type == NULL)
        return -1;
#endif
    return 0;
}
