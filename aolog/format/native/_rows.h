/* What `_speed.c` takes into its module from `_rows.c` and `_export.c`. */
#ifndef AOLOG_ROWS_H
#define AOLOG_ROWS_H

#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030B0000
#include <Python.h>

extern PyType_Spec aolog_rows_spec;

PyObject *aolog_export(PyObject *module, PyObject *node);

/* Called before the first row is made. -1 and ImportError if rows can't be made here. */
int aolog_rows_begin(PyObject *module);

#endif
