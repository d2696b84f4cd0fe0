/* The parts of `_walk.c` that `_speed.c` adds to its module. */
#ifndef AOLOG_WALK_H
#define AOLOG_WALK_H

#define PY_SSIZE_T_CLEAN
#ifndef Py_LIMITED_API
#define Py_LIMITED_API 0x030B0000
#endif
#include <Python.h>

/* `survey` and `gather`, if the build found xxhash.h; -1 on an error. */
int aolog_walk_begin(PyObject *module);

#endif
