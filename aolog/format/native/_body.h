/* The body of a frame of many records at once, of columns as `append_many` has them: `body_of` in inlet.py.
 *
 * Only for _inlet.c. It knows no limit of a record, and no frame.
 */
#ifndef AOLOG_BODY_H
#define AOLOG_BODY_H

#include "_layout.h"

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

/* Adds the rows to `records`. The bytes of all, and of the longest; what is over a frame's bound is not added.
 * false: a row is not plain, or there is no memory (with an exception). Runs no Python code: no list changes. */
static int
add_rows(Records *records, PyObject *const *columns, size_t *size, size_t *longest)
{
    Record record;
    Py_ssize_t rows = PyList_Size(columns[0]);
    size_t values = 0; /* bytes: counted first, so that gigabytes are refused before they are copied */
    for (Py_ssize_t i = 0; i < rows; i++) {
        PyObject *value = PyList_GetItem(columns[0], i);
        values += PyBytes_CheckExact(value) ? (size_t)Py_SIZE(value) : 0;
    }
    for (Py_ssize_t i = 0; i < rows; i++) {
        if (!measure_row(&record, columns, i))
            return 0;
        *size += record.size;
        if (record.size > *longest)
            *longest = record.size;
        if (values <= UINT32_MAX && *size <= UINT32_MAX && !records_add(records, &record)) {
            PyErr_NoMemory();
            return 0;
        }
    }
    return 1;
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
    Records records;
    memset(&records, 0, sizeof records);
    records_begin(&records, now);
    PyObject *made = NULL;
    if (add_rows(&records, args, &size, &longest)) {
        PyObject *body = size > UINT32_MAX ? Py_NewRef(Py_None) : records_body(&records);
        if (body != NULL)
            made = Py_BuildValue("nnN", (Py_ssize_t)size, (Py_ssize_t)longest, body);
    } else if (!PyErr_Occurred())
        made = Py_NewRef(Py_None); /* Python decides */
    records_free(&records);
    return made;
}

#endif
