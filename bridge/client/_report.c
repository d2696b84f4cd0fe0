/* The attributes and the call of delivery.Delivery, the count of answers in delivery.Answers, and the messages of a
 * Buffer (_queue.h). A program has one delivery for each message under way, often hundreds of thousands. The collector
 * of cycles visits each object of a Python class several times, which costs a third of a send; it does not know these.
 * They are in no cycle: nothing that they refer to refers to them.
 */
#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030B0000
#include <Python.h>

#include "_queue.h"

#include <stddef.h>
#include <structmember.h>

typedef struct {
    PyObject_HEAD
    Py_ssize_t answered;
} Answers;

static PyTypeObject *answers_type;

typedef struct {
    PyObject_HEAD
    PyObject *route;
    PyObject *message;
} Delivery;

static PyObject *
delivery_new(PyTypeObject *type, PyObject *args, PyObject *named)
{
    if (named != NULL || PyTuple_Size(args) != 1) {
        PyErr_SetString(PyExc_TypeError, "a delivery takes its route, by position");
        return NULL;
    }
    allocfunc allocate = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    Delivery *self = (Delivery *)allocate(type, 0);
    if (self == NULL)
        return NULL;
    self->route = Py_NewRef(PyTuple_GetItem(args, 0));
    self->message = Py_NewRef(Py_None);
    return (PyObject *)self;
}

/* librdkafka's client calls it with an error or None, and the message. */
static PyObject *
delivery_call(Delivery *self, PyObject *args, PyObject *named)
{
    if (named != NULL || PyTuple_Size(args) != 2) {
        PyErr_SetString(PyExc_TypeError, "a delivery takes an error and a message, by position");
        return NULL;
    }
    PyObject *message = PyTuple_GetItem(args, 1);
    if (self->route != NULL && PyObject_TypeCheck(self->route, answers_type))
        ((Answers *)self->route)->answered++;
    PyObject *result = PyTuple_GetItem(args, 0) == Py_None
                           ? Py_NewRef(Py_None)
                           : PyObject_CallMethod(self->route, "fail", "O", message);
    PyObject *before = self->message;
    self->message = Py_NewRef(message); /* also after an error: somebody may wait for it */
    Py_DECREF(before);
    return result;
}

static void
delivery_dealloc(Delivery *self)
{
    PyTypeObject *type = Py_TYPE((PyObject *)self);
    Py_XDECREF(self->route);
    Py_XDECREF(self->message);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
    Py_DECREF(type);
}

static PyMemberDef members[] = {
    {"_route", T_OBJECT_EX, offsetof(Delivery, route), 0, NULL},
    {"_message", T_OBJECT_EX, offsetof(Delivery, message), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyType_Slot slots[] = {
    {Py_tp_new, delivery_new},     {Py_tp_call, delivery_call}, {Py_tp_dealloc, delivery_dealloc},
    {Py_tp_members, members},    {0, NULL},
};

static PyType_Spec spec = {
    "bridge.client.delivery.Delivery", sizeof(Delivery), 0,
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, slots,
};

static PyMemberDef answers_members[] = {
    {"answered", T_PYSSIZET, offsetof(Answers, answered), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyType_Slot answers_slots[] = {{Py_tp_members, answers_members}, {0, NULL}};

static PyType_Spec answers_spec = {
    "bridge.client.delivery.Answers", sizeof(Answers), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE,
    answers_slots,
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "bridge.client._report", NULL, -1, NULL, NULL, NULL, NULL, NULL,
};

PyMODINIT_FUNC
PyInit__report(void)
{
    PyObject *module = PyModule_Create(&definition);
    if (module == NULL)
        return NULL;
    PyObject *type = PyType_FromSpec(&spec), *queue = PyType_FromSpec(&queue_spec);
    answers_type = (PyTypeObject *)PyType_FromSpec(&answers_spec); /* kept as long as the process */
    if (type == NULL || queue == NULL || answers_type == NULL ||
        pthread_atfork(NULL, NULL, after_fork_in_child) != 0 || PyModule_AddObjectRef(module, "Queue", queue) < 0 ||
        PyModule_AddObjectRef(module, "Delivery", type) < 0 ||
        PyModule_AddObjectRef(module, "Answers", (PyObject *)answers_type) < 0)
        Py_CLEAR(module);
    Py_XDECREF(type);
    Py_XDECREF(queue);
    return module;
}
