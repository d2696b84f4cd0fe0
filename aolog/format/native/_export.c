/* Arrow's C data interface, for `aolog.format.native._speed`: passes buffers to the importer of an array.
 *
 * It does not know the log's format or Arrow's types: an array is a length, buffers and children, and
 * the importer's schema gives their meaning. As with Arrow's `Array.from_buffers`, the caller makes
 * sure that buffers are as long as their type needs.
 */
#include "_rows.h" /* Python.h */

#include <stdint.h>
#include <stdlib.h>

#define BUFFERS_MAX 3

/* `struct ArrowArray`; the interface defines the layout. */
typedef struct Array {
    int64_t length;
    int64_t null_count; /* -1: not counted */
    int64_t offset;
    int64_t buffer_count;
    int64_t child_count;
    const void **buffers;
    struct Array **children;
    struct Array *dictionary;
    void (*release)(struct Array *); /* NULL: released, or moved elsewhere by the importer */
    void *private_data;
} Array;

/* What an array keeps alive, with the structs of its children. The importer may move each child out, but
 * only before the parent is released. */
typedef struct {
    Py_buffer views[BUFFERS_MAX];
    const void *buffers[BUFFERS_MAX];
    Array children[]; /* followed by a pointer to each */
} Kept;

/* Any thread may call it, with or without the interpreter's lock. */
static void
array_release(Array *array)
{
    Kept *kept = array->private_data;
    array->release = NULL;
    /* After the interpreter has ended, the memory need not be released. */
    if (!Py_IsInitialized())
        return;
    PyGILState_STATE state = PyGILState_Ensure();
    for (int64_t i = 0; i < array->child_count; i++)
        if (kept->children[i].release != NULL)
            kept->children[i].release(&kept->children[i]);
    for (int64_t i = 0; i < array->buffer_count; i++)
        PyBuffer_Release(&kept->views[i]);
    PyGILState_Release(state);
    free(kept);
}

/* Fills a zeroed array from (length, buffers, children). Keeps nothing on an error. */
static int
array_take(Array *array, PyObject *node)
{
    PyObject *buffers, *children;
    if (!PyTuple_Check(node) || PyTuple_Size(node) != 3 ||
        !PyTuple_Check(buffers = PyTuple_GetItem(node, 1)) ||
        !PyTuple_Check(children = PyTuple_GetItem(node, 2))) {
        PyErr_SetString(PyExc_TypeError, "an array is a tuple: length, buffers, children");
        return -1;
    }
    Py_ssize_t length = PyLong_AsSsize_t(PyTuple_GetItem(node, 0));
    if (length == -1 && PyErr_Occurred())
        return -1;
    Py_ssize_t buffer_count = PyTuple_Size(buffers), child_count = PyTuple_Size(children);
    if (length < 0 || buffer_count < 1 || buffer_count > BUFFERS_MAX) {
        PyErr_SetString(PyExc_ValueError, "length >= 0, and 1 to 3 buffers");
        return -1;
    }
    Kept *kept = calloc(1, sizeof *kept + (size_t)child_count * (sizeof(Array) + sizeof(Array *)));
    if (kept == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    Array **pointers = (Array **)(kept->children + child_count);
    array->length = length;
    array->buffers = kept->buffers;
    array->children = pointers;
    array->private_data = kept;
    array->release = array_release;
    int failed = Py_EnterRecursiveCall(" in an array's children");
    int entered = !failed;
    for (Py_ssize_t i = 0; !failed && i < buffer_count; i++) {
        PyObject *buffer = PyTuple_GetItem(buffers, i);
        array->buffer_count = i + 1; /* released on an error */
        if (buffer != Py_None) {
            failed = PyObject_GetBuffer(buffer, &kept->views[i], PyBUF_SIMPLE) < 0;
            kept->buffers[i] = kept->views[i].buf;
        }
    }
    for (Py_ssize_t i = 0; !failed && i < child_count; i++) {
        pointers[i] = &kept->children[i];
        array->child_count = i + 1;
        failed = array_take(pointers[i], PyTuple_GetItem(children, i)) < 0;
    }
    if (entered)
        Py_LeaveRecursiveCall();
    if (failed) {
        array_release(array);
        return -1;
    }
    array->null_count = kept->buffers[0] == NULL ? 0 : -1; /* the first is the validity */
    return 0;
}

static void
capsule_free(PyObject *capsule)
{
    Array *array = PyCapsule_GetPointer(capsule, NULL);
    if (array == NULL) {
        PyErr_Clear();
        return;
    }
    if (array->release != NULL)
        array->release(array);
    free(array);
}

PyObject *
aolog_export(PyObject *Py_UNUSED(module), PyObject *node)
{
    Array *array = calloc(1, sizeof *array);
    if (array == NULL)
        return PyErr_NoMemory();
    PyObject *capsule = NULL;
    if (array_take(array, node) == 0) {
        capsule = PyCapsule_New(array, NULL, capsule_free); /* no name: pyarrow expects none */
        if (capsule == NULL)
            array->release(array);
    }
    if (capsule == NULL)
        free(array);
    return capsule;
}
