/* Door: `send(topic, value, key, headers)` of a program that keeps its records until they are flushed; the Python twin is
 * inlet.PythonDoor.
 *
 * Only for _inlet.c. A plain record joins the open frame and the list of those that are kept; anything else goes to
 * Python with the same arguments.
 */
#ifndef AOLOG_DOOR_H
#define AOLOG_DOOR_H

#include "_append.h"

#define KEPT_OVERHEAD 100 /* bytes of a record that is kept, besides its value and its key */

static PyTypeObject *inlet_type; /* never released */

typedef struct {
    PyObject_HEAD
    PyObject *inlet, *kept, *otherwise, *wake;
    long long room; /* bytes of records that may still be kept */
    char is_open, waits;
} Door;

/* The four arguments; false if Python has to look at them. */
static int
door_arguments(PyObject *const *args, Py_ssize_t count, PyObject *names, PyObject *given[4])
{
    Py_ssize_t named = names == NULL ? 0 : PyTuple_Size(names);
    if (count < 2 || count > 4)
        return 0;
    for (Py_ssize_t i = 0; i < count; i++)
        given[i] = args[i];
    for (Py_ssize_t i = 0; i < named; i++) {
        PyObject *name = PyTuple_GetItem(names, i);
        Py_ssize_t k = name == keyword_names[0] ? 2 : name == keyword_names[1] ? 3 : 0;
        if (k == 0 || given[k] != NULL)
            return 0;
        given[k] = args[count + i];
    }
    return PyUnicode_CheckExact(given[0]) &&
           (given[3] == NULL || (PyTuple_CheckExact(given[3]) && Py_SIZE(given[3]) == 0));
}

/* Of a value or a key that joined: bytes, None, or NULL. */
static inline Py_ssize_t
kept_bytes(PyObject *object)
{
    return object != NULL && PyBytes_CheckExact(object) ? Py_SIZE(object) : 0;
}

static PyObject *
door_send(PyObject *object, PyObject *const *args, Py_ssize_t count, PyObject *names)
{
    Door *self = (Door *)object;
    PyObject *given[4] = {NULL, NULL, NULL, NULL}, *address = NULL;
    if (self->otherwise == NULL) {
        PyErr_SetString(PyExc_ValueError, "not initialized");
        return NULL;
    }
    if (self->is_open && self->room > 0 && door_arguments(args, count, names, given)) {
        PyObject *fields[5] = {given[1], given[2], NULL, NULL, given[0]};
        address = inlet_take((Inlet *)self->inlet, fields);
    }
    if (address == NULL)
        return PyErr_Occurred() ? NULL : call_with(self->otherwise, args, count, names);
    Py_DECREF(address);
    self->room -= kept_bytes(given[1]) + kept_bytes(given[2]) + KEPT_OVERHEAD;
    PyObject *key = given[2] == NULL ? Py_None : given[2];
    PyObject *record = PyTuple_Pack(3, given[0], given[1], key);
    int failed = record == NULL || PyList_Append(self->kept, record) < 0;
    Py_XDECREF(record);
    if (failed)
        return NULL;
    return self->waits ? PyObject_CallNoArgs(self->wake) : Py_NewRef(Py_None);
}

static int
door_init(PyObject *object, PyObject *args, PyObject *keywords)
{
    static char *names[] = {"inlet", "kept", "otherwise", "wake", NULL};
    Door *self = (Door *)object;
    PyObject *inlet, *kept, *otherwise, *wake;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "O!O!OO", names, inlet_type, &inlet, &PyList_Type, &kept,
                                     &otherwise, &wake))
        return -1;
    if (self->inlet != NULL) {
        PyErr_SetString(PyExc_ValueError, "a door is made once");
        return -1;
    }
    self->inlet = Py_NewRef(inlet);
    self->kept = Py_NewRef(kept);
    self->otherwise = Py_NewRef(otherwise);
    self->wake = Py_NewRef(wake);
    return 0;
}

static int
door_traverse(PyObject *object, visitproc visit, void *arg)
{
    Door *self = (Door *)object;
    Py_VISIT(Py_TYPE(object));
    Py_VISIT(self->inlet);
    Py_VISIT(self->kept);
    Py_VISIT(self->otherwise);
    Py_VISIT(self->wake);
    return 0;
}

static int
door_clear(PyObject *object)
{
    Door *self = (Door *)object;
    self->is_open = 0; /* nothing is used after this */
    Py_CLEAR(self->inlet);
    Py_CLEAR(self->kept);
    Py_CLEAR(self->otherwise);
    Py_CLEAR(self->wake);
    return 0;
}

static void
door_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    door_clear(self);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
    Py_DECREF(type);
}

static PyMethodDef door_methods[] = {
    {"send", (PyCFunction)(void (*)(void))door_send, METH_FASTCALL | METH_KEYWORDS,
     "send($self, topic, value, key=None, headers=())\n--\n\n"
     "A plain record joins the open frame and is kept; everything else goes to `otherwise`."},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef door_members[] = {
    {"is_open", T_BOOL, offsetof(Door, is_open), 0, NULL},
    {"waits", T_BOOL, offsetof(Door, waits), 0, NULL},
    {"room", T_LONGLONG, offsetof(Door, room), 0, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyType_Slot door_slots[] = {
    {Py_tp_doc, "Records on their way into an open frame, which are kept: see inlet.PythonDoor."},
    {Py_tp_init, door_init},
    {Py_tp_traverse, door_traverse},
    {Py_tp_clear, door_clear},
    {Py_tp_dealloc, door_dealloc},
    {Py_tp_methods, door_methods},
    {Py_tp_members, door_members},
    {0, NULL},
};

static PyType_Spec door_spec = {
    "aolog.format.native._speed.Door", sizeof(Door), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC, door_slots,
};

#endif
