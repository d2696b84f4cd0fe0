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

#include <stdlib.h>
#include <unistd.h>

#define UNLOCKED_BYTES (16 << 10) /* from here on the lock is released: hashing takes microseconds */

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
    long long offset, salt, indexed, greatest_us, until;
    int with_headers;
    Chunk chunk;
    if (!PyArg_ParseTuple(args, "SnLLLLpL", &bytes, &at, &offset, &salt, &indexed, &greatest_us, &with_headers,
                          &until) ||
        !chunk_take(&chunk, bytes, at, offset, salt))
        return NULL;
    Survey survey = {.ordinal = -1, .durable = -1, .indexed = indexed, .greatest_us = greatest_us, .until = until};
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

/* The classes of stretch.py's results: NamedTuples, whose own calls take longer than all the rest. */
typedef struct {
    PyObject *stretch, *columns, *binary, *headers;
} Classes;

/* Where the parts of a stretch are: in its buffer, or in the chunk. A view of all of it. */
typedef struct Source {
    PyObject *view;
    const char *begin;
    const Classes *classes;
    const struct Source *values; /* where the data of values are, if not here; or NULL */
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

static newfunc make_tuple; /* of tuple itself */

/* An instance of a NamedTuple; takes the fields, NULL after an error. */
static PyObject *
instance(PyObject *kind, PyObject *fields)
{
    PyObject *args = fields == NULL ? NULL : PyTuple_Pack(1, fields);
    PyObject *made = args == NULL ? NULL : make_tuple((PyTypeObject *)kind, args, NULL);
    Py_XDECREF(args);
    Py_XDECREF(fields);
    return made;
}

/* None without the column. data: where its data are. */
static PyObject *
part_with(const Source *source, const Source *data, const Part *part, size_t count)
{
    if (part->offsets == NULL)
        return Py_NewRef(Py_None);
    PyObject *fields =
        Py_BuildValue("NNN", slice_or_none(source, part->bits, (count + 7) / 8),
                      slice(source, part->offsets, 4 * (count + 1)), slice(data, part->data, part->size));
    return instance(source->classes->binary, fields);
}

static PyObject *
part_of(const Source *source, const Part *part, size_t count)
{
    return part_with(source, source, part, count);
}

static PyObject *
columns_of(const Source *source, const Plain *frame, size_t count)
{
    PyObject *headers = Py_None, *topic = Py_None;
    if (frame->pairs == NULL)
        Py_INCREF(headers);
    else
        headers = instance(source->classes->headers,
                           Py_BuildValue("NNN", slice(source, frame->pairs, 4 * (count + 1)),
                                         part_of(source, &frame->names, frame->entries),
                                         part_of(source, &frame->contents, frame->entries)));
    if (frame->topic == NULL)
        Py_INCREF(topic);
    else
        topic = PyUnicode_DecodeUTF8(frame->topic, (Py_ssize_t)frame->topic_len, "strict");
    PyObject *fields = Py_BuildValue("nNNNNNNN", (Py_ssize_t)count,
                                     slice_or_none(source, frame->columns ? NULL : frame->body, frame->size),
                                     part_with(source, source->values ? source->values : source, &frame->values, count),
                                     slice_or_none(source, frame->stamps, 8 * count),
                                     part_of(source, &frame->keys, count), topic,
                                     part_of(source, &frame->topics, count), headers);
    return instance(source->classes->columns, fields);
}

/* addresses: NULL for a frame alone. */
static PyObject *
stretch_of(const Stretch *stretch, const Chunk *chunk, const Source *source, const Plain *frame, const char *addresses)
{
    size_t count = stretch->records;
    PyObject *fields = Py_BuildValue("LLnnLLNN", (long long)(chunk->offset + stretch->begin),
                                     (long long)(chunk->offset + stretch->end), (Py_ssize_t)stretch->frames,
                                     (Py_ssize_t)count, (long long)stretch->ordinal, (long long)stretch->greatest_us,
                                     slice_or_none(source, addresses, 8 * count), columns_of(source, frame, count));
    return instance(source->classes->stretch, fields);
}

static Part
part_at(const Places *places, const Place *at)
{
    Part part = {NULL, NULL, NULL, at->size};
    if (at->offsets) {
        part.bits = at->bits ? places->buffer + at->bits : NULL;
        part.offsets = places->buffer + at->offsets;
        part.data = data_at(places, at);
    }
    return part;
}

/* Several frames, whose columns are in a buffer of their own; their values may be in the chunk. */
static PyObject *
gathered(const Stretch *stretch, const Chunk *chunk, const Places *places, PyObject *buffer, const Source *in_chunk)
{
    Plain all = {
        .columns = VALUES,
        .stamps = chunk->is_format_1 ? NULL : places->buffer + places->stamps,
        .topic = stretch->topics.is_used ? NULL : stretch->topic,
        .topic_len = stretch->topic_len,
        .pairs = places->pairs ? places->buffer + places->pairs : NULL,
        .entries = (uint32_t)stretch->entries,
        .values = part_at(places, &places->values),
        .keys = part_at(places, &places->keys),
        .topics = part_at(places, &places->topics),
        .names = part_at(places, &places->names),
        .contents = part_at(places, &places->contents),
    };
    const Source *values = places->values.own == NULL ? NULL : in_chunk;
    Source source = {PyMemoryView_FromObject(buffer), places->buffer, in_chunk->classes, values};
    if (source.view == NULL)
        return NULL;
    PyObject *made = stretch_of(stretch, chunk, &source, &all, places->buffer + places->addresses);
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

/* The stretches of a chunk, and of those that are gathered where their columns are. */
typedef struct {
    Stretch *all;
    Places *places; /* `buffer`: NULL for a frame alone */
    size_t count;
} Stretches;

/* Measures the stretches; false if there is no memory. */
static int
measure(const Chunk *chunk, Stretches *found)
{
    Plain frame;
    size_t room = 0;
    for (size_t at = 0; at < chunk->size && find_plain(chunk, at, 1, &frame); at += frame.length) {
        if (found->count && stretch_add(&found->all[found->count - 1], &frame, chunk))
            continue;
        if (found->count == room) {
            room = 2 * room + 8;
            Stretch *more = realloc(found->all, room * sizeof *more);
            if (more == NULL)
                return 0;
            found->all = more;
        }
        memset(&found->all[found->count], 0, sizeof *found->all);
        if (!stretch_add(&found->all[found->count], &frame, chunk))
            break;
        found->count++;
    }
    found->places = calloc(found->count + 1, sizeof *found->places);
    return found->places != NULL;
}

/* A list of them. is_own: nobody else has seen the chunk, which may be changed. */
static PyObject *
listed(const Stretches *found, const Chunk *chunk, const Source *source, uint64_t base, int is_own)
{
    PyObject *list = PyList_New((Py_ssize_t)found->count); /* of buffers first, which become stretches */
    size_t gathered_bytes = 0;
    for (size_t i = 0; list != NULL && i < found->count; i++) {
        Places *places = &found->places[i];
        if (found->all[i].frames == 1)
            continue;
        place_all(places, &found->all[i], is_own);
        PyObject *buffer = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)places->end);
        if (buffer == NULL)
            Py_CLEAR(list);
        else {
            places->buffer = PyBytes_AsString(buffer);
            PyList_SetItem(list, (Py_ssize_t)i, buffer);
            gathered_bytes += places->end;
        }
    }
    if (list == NULL)
        return NULL;
    PyThreadState *state = unlock(gathered_bytes);
    for (size_t i = 0; i < found->count; i++)
        if (found->places[i].buffer != NULL)
            fill_all(&found->places[i], &found->all[i], chunk, base);
    lock(state);
    for (size_t i = 0; list != NULL && i < found->count; i++) {
        const Stretch *stretch = &found->all[i];
        PyObject *buffer = PyList_GetItem(list, (Py_ssize_t)i);
        PyObject *made = buffer == NULL ? alone(stretch, chunk, source)
                                        : gathered(stretch, chunk, &found->places[i], buffer, source);
        if (made == NULL)
            Py_CLEAR(list);
        else
            PyList_SetItem(list, (Py_ssize_t)i, made);
    }
    return list;
}

/* As `listed`, and frees what was measured. measured: false if there was no memory for it. */
static PyObject *
listed_and_freed(Stretches *found, const Chunk *chunk, const Source *source, uint64_t base, int is_own, int measured)
{
    PyObject *list = measured ? listed(found, chunk, source, base, is_own) : PyErr_NoMemory();
    free(found->all);
    free(found->places);
    return list;
}

/* Reads the chunk; fewer bytes at the end of the file, none after an error or a signal. Returns their number. */
static size_t
read_all(int fd, const Chunk *chunk)
{
    size_t done = 0;
    while (done < chunk->size) {
        ssize_t got = pread(fd, (char *)chunk->bytes + done, chunk->size - done, (off_t)(chunk->offset + done));
        if (got <= 0)
            return got < 0 ? 0 : done;
        done += (size_t)got;
    }
    return done;
}

#define CLASSES "(O!O!O!O!)"
#define CLASSES_INTO(classes)                                                                               \
    &PyType_Type, &(classes).stretch, &PyType_Type, &(classes).columns, &PyType_Type, &(classes).binary, \
        &PyType_Type, &(classes).headers

static PyObject *
walk_gather(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *bytes, *view;
    Py_ssize_t at, most;
    long long offset, salt, base;
    Chunk chunk;
    Classes classes;
    if (!PyArg_ParseTuple(args, "SOnLLLn" CLASSES, &bytes, &view, &at, &offset, &salt, &base, &most,
                          CLASSES_INTO(classes)) ||
        !chunk_take(&chunk, bytes, at, offset, salt))
        return NULL;
    chunk.most = most > 0 ? (size_t)most : 0;
    Source source = {view, chunk.bytes - at, &classes, NULL};
    Stretches found = {NULL, NULL, 0};
    PyThreadState *state = unlock(chunk.size);
    int measured = measure(&chunk, &found);
    lock(state);
    return listed_and_freed(&found, &chunk, &source, (uint64_t)base, 0, measured);
}

static PyObject *
walk_read(PyObject *Py_UNUSED(module), PyObject *args)
{
    int fd, measured;
    Py_ssize_t size, most;
    long long offset, salt, base;
    Chunk chunk;
    Classes classes;
    if (!PyArg_ParseTuple(args, "inLLLn" CLASSES, &fd, &size, &offset, &salt, &base, &most, CLASSES_INTO(classes)))
        return NULL;
    chunk.most = most > 0 ? (size_t)most : 0;
    PyObject *bytes = PyBytes_FromStringAndSize(NULL, size);
    if (bytes == NULL || !chunk_take(&chunk, bytes, 0, offset, salt)) {
        Py_XDECREF(bytes);
        return NULL;
    }
    Stretches found = {NULL, NULL, 0};
    PyThreadState *state = PyEval_SaveThread();
    chunk.size = read_all(fd, &chunk);
    measured = measure(&chunk, &found);
    PyEval_RestoreThread(state);
    if (chunk.size < (size_t)size) { /* at the end of the file; a copy would take new memory */
        ((char *)chunk.bytes)[chunk.size] = 0;
        Py_SET_SIZE((PyVarObject *)bytes, (Py_ssize_t)chunk.size);
    }
    Source source = {PyMemoryView_FromObject(bytes), chunk.bytes, &classes, NULL};
    PyObject *list = listed_and_freed(&found, &chunk, &source, (uint64_t)base, 1, measured && source.view != NULL);
    PyObject *made = list == NULL ? NULL : PyTuple_Pack(2, bytes, list);
    Py_XDECREF(list);
    Py_XDECREF(source.view);
    Py_DECREF(bytes);
    return made;
}

static PyMethodDef walk_methods[] = {
    {"survey", walk_survey, METH_VARARGS,
     "survey(chunk, at, offset, salt, indexed, greatest_us, with_headers, until): see stretch.python_survey."},
    {"gather", walk_gather, METH_VARARGS, "gather(chunk, view, at, offset, salt, base, most, classes): see stretch.python_gather."},
    {"read_gather", walk_read, METH_VARARGS,
     "read_gather(fd, size, offset, salt, base, most, classes): (bytes of the file, as gather); see stretch.read_gather."},
    {NULL, NULL, 0, NULL},
};
#endif

int
aolog_walk_begin(PyObject *module)
{
#if HASHES
    wide_hash = aolog_wide_hash();
    make_tuple = (newfunc)PyType_GetSlot(&PyTuple_Type, Py_tp_new);
    return PyModule_AddFunctions(module, walk_methods);
#else
    (void)module;
    return 0;
#endif
}
