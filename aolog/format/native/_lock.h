/* Lock: a re-entrant lock that compiled code takes without a call; its Python twin is threading.RLock.
 *
 * Only for _inlet.c. All but waiting happens under the interpreter's lock, and is atomic by that. A thread that
 * waits does so at the gate. `release` opens it and hands the lock on to the thread that comes through. Otherwise one
 * that flushes all the time would keep it: it has the lock whenever another one gets the interpreter's.
 */
#ifndef AOLOG_LOCK_H
#define AOLOG_LOCK_H

#define PY_SSIZE_T_CLEAN
#ifndef Py_LIMITED_API
#define Py_LIMITED_API 0x030B0000
#endif
#include <Python.h>

#include <limits.h>

#define HANDED_ON ULONG_MAX /* as an owner: the gate is open, and the thread that comes through has the lock */
#define GATE_US 1000000     /* a daemon thread may come through, and stop for ever with the interpreter */

typedef struct {
    PyObject_HEAD
    unsigned long owner; /* the thread that has it; 0: none; HANDED_ON */
    long depth;          /* how often that thread has taken it */
    long waiting;        /* threads at the gate */
    PyThread_type_lock gate;
} Lock;

static PyTypeObject *lock_type; /* never released */

/* Takes it if no thread has it, nor waits for it. */
static inline int
lock_try(Lock *self)
{
    if (self->owner || self->waiting)
        return 0;
    self->owner = PyThread_get_thread_ident();
    self->depth = 1;
    return 1;
}

/* Of the thread that has it. */
static inline void
lock_release(Lock *self)
{
    if (--self->depth)
        return;
    self->owner = self->waiting ? HANDED_ON : 0;
    if (self->waiting)
        PyThread_release_lock(self->gate);
}

/* Waits until this thread has it. -1 if a signal handler raised; never if it may not be interrupted. */
static int
lock_wait(Lock *self, int may_interrupt)
{
    unsigned long me = PyThread_get_thread_ident();
    while (self->owner && self->owner != me) {
        PyLockStatus status;
        self->waiting++;
        Py_BEGIN_ALLOW_THREADS
        status = PyThread_acquire_lock_timed(self->gate, GATE_US, may_interrupt);
        Py_END_ALLOW_THREADS
        self->waiting--;
        if (status == PY_LOCK_INTR && Py_MakePendingCalls() < 0)
            return -1;
        if (status != PY_LOCK_INTR && self->owner == HANDED_ON)
            self->owner = 0; /* to this thread; or, after GATE_US, nobody else wants it */
    }
    self->owner = me;
    self->depth++;
    return 0;
}

static PyObject *
lock_acquire(PyObject *self, PyObject *Py_UNUSED(ignored))
{
    if (lock_wait((Lock *)self, 1) < 0)
        return NULL;
    Py_RETURN_TRUE;
}

static int
lock_is_mine(const Lock *self)
{
    return self->owner == PyThread_get_thread_ident();
}

static PyObject *
lock_is_owned(PyObject *self, PyObject *Py_UNUSED(ignored))
{
    return PyBool_FromLong(lock_is_mine((Lock *)self));
}

/* Whether this thread has it; raises otherwise. */
static int
lock_must_be_mine(const Lock *self)
{
    if (lock_is_mine(self))
        return 1;
    PyErr_SetString(PyExc_RuntimeError, "another thread has the lock, or none");
    return 0;
}

static PyObject *
lock_give(PyObject *self, PyObject *Py_UNUSED(ignored))
{
    if (!lock_must_be_mine((Lock *)self))
        return NULL;
    lock_release((Lock *)self);
    Py_RETURN_NONE;
}

static PyObject *
lock_exit(PyObject *self, PyObject *const *Py_UNUSED(args), Py_ssize_t Py_UNUSED(count))
{
    return lock_give(self, NULL);
}

static PyObject *
lock_release_save(PyObject *object, PyObject *Py_UNUSED(ignored))
{
    Lock *self = (Lock *)object;
    if (!lock_must_be_mine(self))
        return NULL;
    PyObject *depth = PyLong_FromLong(self->depth);
    if (depth != NULL) {
        self->depth = 1;
        lock_release(self);
    }
    return depth;
}

static PyObject *
lock_acquire_restore(PyObject *object, PyObject *saved)
{
    Lock *self = (Lock *)object;
    long depth = PyLong_AsLong(saved);
    if (depth == -1 && PyErr_Occurred())
        return NULL;
    lock_wait(self, 0);
    self->depth = depth;
    Py_RETURN_NONE;
}

static PyObject *
lock_new(PyTypeObject *type, PyObject *Py_UNUSED(args), PyObject *Py_UNUSED(keywords))
{
    Lock *self = (Lock *)((allocfunc)PyType_GetSlot(type, Py_tp_alloc))(type, 0);
    if (self == NULL)
        return NULL;
    self->gate = PyThread_allocate_lock();
    if (self->gate == NULL) {
        Py_DECREF((PyObject *)self);
        return PyErr_NoMemory();
    }
    PyThread_acquire_lock(self->gate, NOWAIT_LOCK);
    return (PyObject *)self;
}

static void
lock_dealloc(PyObject *object)
{
    PyTypeObject *type = Py_TYPE(object);
    PyThread_type_lock gate = ((Lock *)object)->gate;
    if (gate != NULL) {
        PyThread_acquire_lock(gate, NOWAIT_LOCK);
        PyThread_release_lock(gate);
        PyThread_free_lock(gate);
    }
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(object);
    Py_DECREF(type);
}

static PyMethodDef lock_methods[] = {
    {"acquire", lock_acquire, METH_NOARGS, "acquire(): waits until this thread has it."},
    {"release", lock_give, METH_NOARGS, "release(): as often as it was acquired. Raises RuntimeError."},
    {"__enter__", lock_acquire, METH_NOARGS, NULL},
    {"__exit__", (PyCFunction)(void (*)(void))lock_exit, METH_FASTCALL, NULL},
    {"_is_owned", lock_is_owned, METH_NOARGS, "_is_owned(): whether this thread has it. For threading.Condition."},
    {"_release_save", lock_release_save, METH_NOARGS, "For threading.Condition."},
    {"_acquire_restore", lock_acquire_restore, METH_O, "For threading.Condition."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot lock_slots[] = {
    {Py_tp_doc, "A re-entrant lock: as threading.RLock, but acquire has no arguments."},
    {Py_tp_new, lock_new},
    {Py_tp_dealloc, lock_dealloc},
    {Py_tp_methods, lock_methods},
    {0, NULL},
};

static PyType_Spec lock_spec = {
    "aolog.format.native._speed.Lock", sizeof(Lock), 0, Py_TPFLAGS_DEFAULT, lock_slots,
};

#endif
