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

#endif
