/* Walk: the intact plain frames of a chunk, verified, counted (_survey.h) or gathered as columns (_gather.h); the
 * Python twins are in aolog/format/stretch.py.
 *
 * It decides nothing: it stops at the first byte that is not a plain frame's (_plain.h), and Python goes on there.
 * A chunk is `bytes`, which nobody changes. A long one is read without the interpreter's lock.
 */
#include "_walk.h"

#include "_hash.h"

#if HASHES
#include "_gather.h"
#include "_survey.h"

#define UNLOCKED_BYTES (16 << 10) /* from here on the lock is released: hashing takes microseconds */
#define STRETCHES_MAX 64          /* of one call */

/* Fills the chunk from the arguments (chunk, at, offset, salt); false and an exception on an error. salt: -1 for
 * format 1. */
static int
chunk_take(Chunk *chunk, PyObject *bytes, Py_ssize_t at, long long offset, long long salt)
{
    Py_ssize_t size;
    char *begin;
    if (PyBytes_AsStringAndSize(bytes, &begin, &size) < 0)
        return 0;
    if (at < 0 || at > size || offset < 0) {
        PyErr_SetString(PyExc_ValueError, "the walk begins in the chunk, and its slab at 0");
        return 0;
    }
    chunk->bytes = begin + at;
    chunk->size = (size_t)(size - at);
    chunk->offset = (uint64_t)offset;
    chunk->salt = (uint32_t)salt;
    chunk->is_format_1 = salt < 0;
    return 1;
}

static PyThreadState *
unlock(size_t size)
{
    return size >= UNLOCKED_BYTES ? PyEval_SaveThread() : NULL;
}

static void
lock(PyThreadState *state)
{
    if (state != NULL)
        PyEval_RestoreThread(state);
}

/* --- survey --------------------------------------------------------------------------------- */

/* A list of the points. */
static PyObject *
points_of(const Point *points, size_t count)
{
    PyObject *list = PyList_New((Py_ssize_t)count);
    for (size_t i = 0; list != NULL && i < count; i++) {
        PyObject *point = Py_BuildValue("LLL", (long long)points[i].offset, (long long)points[i].ordinal,
                                       (long long)points[i].greatest_us);
        if (point == NULL)
            Py_CLEAR(list);
        else
            PyList_SetItem(list, (Py_ssize_t)i, point);
    }
    return list;
}

static PyObject *
walk_survey(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *bytes;
    Py_ssize_t at;
    long long offset, salt, indexed, greatest_us;
    int with_headers;
    Chunk chunk;
    if (!PyArg_ParseTuple(args, "SnLLLLp", &bytes, &at, &offset, &salt, &indexed, &greatest_us, &with_headers) ||
        !chunk_take(&chunk, bytes, at, offset, salt))
        return NULL;
    Survey survey = {.ordinal = -1, .durable = -1, .indexed = indexed, .greatest_us = greatest_us};
    survey.least_us = NO_TIMESTAMP;
    Point *points = PyMem_Malloc((chunk.size / INDEX_SPACING + 2) * sizeof *points);
    if (points == NULL)
        return PyErr_NoMemory();
    PyThreadState *state = unlock(chunk.size);
    survey_frames(&chunk, &survey, points);
    lock(state);
    PyObject *found = NULL, *listed = points_of(points, survey.points);
    PyMem_Free(points);
    if (listed == NULL)
        return NULL;
    size_t header_len = chunk.is_format_1 ? KEPT_HEADER : FRAME_HEADER;
    size_t kept = with_headers ? (size_t)survey.frames * header_len : 0;
    PyObject *headers = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)kept);
    if (headers != NULL) {
        if (with_headers)
            copy_headers(&chunk, survey.end, PyBytes_AsString(headers));
        found = Py_BuildValue("LLLLLLLLLOO", offset + (long long)survey.end, survey.frames, survey.batches,
                              survey.records, survey.before, survey.ordinal, survey.durable, survey.least_us,
                              survey.greatest_us, listed, headers);
        Py_DECREF(headers);
    }
    Py_DECREF(listed);
    return found;
}

/* --- gather --------------------------------------------------------------------------------- */

/* Where the parts of a stretch are: in its buffer, or in the chunk. A view of all of it. */
typedef struct {
    PyObject *view;
    const char *begin;
} Source;

static PyObject *
slice(const Source *source, const char *at, size_t length)
{
    Py_ssize_t begin = at - source->begin;
    return PySequence_GetSlice(source->view, begin, begin + (Py_ssize_t)length);
}

static PyObject *
slice_or_none(const Source *source, const char *at, size_t length)
{
    return at == NULL ? Py_NewRef(Py_None) : slice(source, at, length);
}

/* (validity, offsets, data), None without the column. */
static PyObject *
part_of(const Source *source, const Part *part, size_t count)
{
    if (part->offsets == NULL)
        return Py_NewRef(Py_None);
    return Py_BuildValue("NNN", slice_or_none(source, part->bits, (count + 7) / 8),
                         slice(source, part->offsets, 4 * (count + 1)), slice(source, part->data, part->size));
}

/* A stretch as it is returned. addresses: NULL for a frame alone. */
static PyObject *
stretch_of(const Stretch *stretch, const Chunk *chunk, const Source *source, const Plain *frame, const char *addresses)
{
    size_t count = stretch->records;
    PyObject *headers = Py_None, *topic = Py_None;
    if (frame->pairs == NULL)
        Py_INCREF(headers);
    else
        headers = Py_BuildValue("NNN", slice(source, frame->pairs, 4 * (count + 1)),
                                part_of(source, &frame->names, frame->entries),
                                part_of(source, &frame->contents, frame->entries));
    if (frame->topic == NULL)
        Py_INCREF(topic);
    else
        topic = PyUnicode_DecodeUTF8(frame->topic, (Py_ssize_t)frame->topic_len, "strict");
    return Py_BuildValue("LLnnLLN(nNNNNNNN)", (long long)(chunk->offset + stretch->begin),
                         (long long)(chunk->offset + stretch->end), (Py_ssize_t)stretch->frames, (Py_ssize_t)count,
                         (long long)stretch->ordinal, (long long)stretch->greatest_us,
                         slice_or_none(source, addresses, 8 * count), (Py_ssize_t)count,
                         slice_or_none(source, frame->columns ? NULL : frame->body, frame->size),
                         part_of(source, &frame->values, count), slice_or_none(source, frame->stamps, 8 * count),
                         part_of(source, &frame->keys, count), topic, part_of(source, &frame->topics, count), headers);
}

static Part
part_at(const Places *places, const Place *at)
{
    Part part = {NULL, NULL, NULL, at->size};
    if (at->offsets) {
        part.bits = at->bits ? places->buffer + at->bits : NULL;
        part.offsets = places->buffer + at->offsets;
        part.data = places->buffer + at->data;
    }
    return part;
}

/* Several frames, in a buffer of their own. */
static PyObject *
gathered(const Stretch *stretch, const Chunk *chunk, uint64_t base)
{
    Places places;
    place_all(&places, stretch);
    PyObject *buffer = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)places.end);
    Source source = {buffer == NULL ? NULL : PyMemoryView_FromObject(buffer), NULL};
    Py_XDECREF(buffer); /* the view has its own */
    if (source.view == NULL)
        return NULL;
    source.begin = places.buffer = PyBytes_AsString(buffer);
    PyThreadState *state = unlock(places.end);
    fill_all(&places, stretch, chunk, base);
    lock(state);
    Plain all = {
        .columns = VALUES,
        .stamps = chunk->is_format_1 ? NULL : places.buffer + places.stamps,
        .topic = stretch->topics.is_used ? NULL : stretch->topic,
        .topic_len = stretch->topic_len,
        .pairs = places.pairs ? places.buffer + places.pairs : NULL,
        .entries = (uint32_t)stretch->entries,
        .values = part_at(&places, &places.values),
        .keys = part_at(&places, &places.keys),
        .topics = part_at(&places, &places.topics),
        .names = part_at(&places, &places.names),
        .contents = part_at(&places, &places.contents),
    };
    PyObject *made = stretch_of(stretch, chunk, &source, &all, places.buffer + places.addresses);
    Py_DECREF(source.view);
    return made;
}

/* A frame alone, where it is in the chunk. */
static PyObject *
alone(const Stretch *stretch, const Chunk *chunk, const Source *source)
{
    Plain frame;
    find_plain(chunk, stretch->begin, 0, &frame);
    return stretch_of(stretch, chunk, source, &frame, NULL);
}

/* Measures stretches from `at` on; returns their number. */
static int
measure(const Chunk *chunk, Stretch *stretches)
{
    size_t at = 0;
    int count = 0;
    Plain frame;
    while (at < chunk->size && find_plain(chunk, at, 1, &frame)) {
        if (count == 0 || !stretch_add(&stretches[count - 1], &frame, chunk->is_format_1)) {
            if (count == STRETCHES_MAX)
                break;
            memset(&stretches[count], 0, sizeof *stretches);
            if (!stretch_add(&stretches[count], &frame, chunk->is_format_1))
                break;
            count++;
        }
        at += frame.length;
    }
    return count;
}

static PyObject *
walk_gather(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *bytes, *view;
    Py_ssize_t at;
    long long offset, salt, base;
    Chunk chunk;
    if (!PyArg_ParseTuple(args, "SOnLLL", &bytes, &view, &at, &offset, &salt, &base) ||
        !chunk_take(&chunk, bytes, at, offset, salt))
        return NULL;
    Stretch *stretches = PyMem_Malloc(STRETCHES_MAX * sizeof *stretches);
    if (stretches == NULL)
        return PyErr_NoMemory();
    PyThreadState *state = unlock(chunk.size);
    int count = measure(&chunk, stretches);
    lock(state);
    Source source = {view, chunk.bytes - at};
    PyObject *list = PyList_New(count);
    for (int i = 0; list != NULL && i < count; i++) {
        PyObject *made = stretches[i].frames == 1 ? alone(&stretches[i], &chunk, &source)
                                                  : gathered(&stretches[i], &chunk, (uint64_t)base);
        if (made == NULL)
            Py_CLEAR(list);
        else
            PyList_SetItem(list, i, made);
    }
    PyMem_Free(stretches);
    return list;
}

static PyMethodDef walk_methods[] = {
    {"survey", walk_survey, METH_VARARGS,
     "survey(chunk, at, offset, salt, indexed, greatest_us, with_headers): see stretch.python_survey."},
    {"gather", walk_gather, METH_VARARGS, "gather(chunk, view, at, offset, salt, base): see stretch.python_gather."},
    {NULL, NULL, 0, NULL},
};
#endif

int
aolog_walk_begin(PyObject *module)
{
#if HASHES
    wide_hash = aolog_wide_hash();
    return PyModule_AddFunctions(module, walk_methods);
#else
    (void)module;
    return 0;
#endif
}
