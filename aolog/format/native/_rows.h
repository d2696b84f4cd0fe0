/* The parts of `_rows.c` and `_export.c` that `_speed.c` adds to its module. */
#ifndef AOLOG_ROWS_H
#define AOLOG_ROWS_H

#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030B0000
#include <Python.h>

extern PyType_Spec aolog_rows_spec, aolog_async_rows_spec;

PyObject *aolog_export(PyObject *module, PyObject *node);

/* Call it before making a row. -1 and ImportError if rows cannot be made with this Python. */
int aolog_rows_begin(void);

#endif
