/* The parts of `_inlet.c` that `_speed.c` adds to its module. */
#ifndef AOLOG_INLET_H
#define AOLOG_INLET_H

#define PY_SSIZE_T_CLEAN
#ifndef Py_LIMITED_API
#define Py_LIMITED_API 0x030B0000
#endif
#include <Python.h>

/* Adds the types to the module; -1 on an error. */
int aolog_inlet_begin(PyObject *module);

PyObject *aolog_body(PyObject *module, PyObject *const *args, Py_ssize_t count);

#endif
