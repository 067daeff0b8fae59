/* The lexical lists of a query's tokens, added up (eq:lexical_score); lexical.py says how. */

#include "arrays.h"

static inline uint32_t document_at(const char *documents, Py_ssize_t size, int64_t i)
{
    uint16_t two;
    uint32_t four;
    if (size == 1)
        return (unsigned char)documents[i];
    if (size == 2) {
        memcpy(&two, documents + 2 * i, sizeof two);
        return two;
    }
    memcpy(&four, documents + 4 * i, sizeof four);
    return four;
}

/* Postings start:end; returns the first whose document is not there, or `end`. A product of f16 and
   a weight that was f32 is exact in f64, so a fused multiply-add gives the same sum. */
static int64_t add_list(double *sums, Py_ssize_t count, const char *documents, Py_ssize_t size,
                        const char *weights, int64_t start, int64_t end, double factor)
{
    for (int64_t i = start; i < end; i++) {
        const uint32_t document = document_at(documents, size, i);
        if (document >= (uint64_t)count)
            return i;
        sums[document] += factor * (double)half(weights + 2 * i);
    }
    return end;
}

/* add(sums, documents, weights, starts, ends, factors): list t is postings starts[t]:ends[t]. */
static PyObject *add(PyObject *module, PyObject *args)
{
    (void)module;
    enum { SUMS, DOCUMENTS, WEIGHTS, STARTS, ENDS, FACTORS, ARRAYS };
    PyObject *a[ARRAYS], *result = NULL;
    Py_buffer v[ARRAYS] = {{0}};
    if (!PyArg_ParseTuple(args, "OOOOOO", a, a + 1, a + 2, a + 3, a + 4, a + 5))
        return NULL;
    const char *i64 = "a contiguous i64 vector", *f64 = "a contiguous f64 vector";
    if (look(a[SUMS], v + SUMS, "sums", f64, 1, "d!", PyBUF_WRITABLE) < 0 ||
        look(a[DOCUMENTS], v + DOCUMENTS, "documents", "u8, u16 or u32", 1, "BHI", 0) < 0 ||
        look(a[WEIGHTS], v + WEIGHTS, "weights", "a contiguous f16 vector", 1, "e", 0) < 0 ||
        look(a[STARTS], v + STARTS, "starts", i64, 1, "lq", 0) < 0 ||
        look(a[ENDS], v + ENDS, "ends", i64, 1, "lq", 0) < 0 ||
        look(a[FACTORS], v + FACTORS, "factors", f64, 1, "d", 0) < 0)
        goto done;
    const Py_ssize_t postings = v[DOCUMENTS].shape[0], lists = v[STARTS].shape[0];
    const Py_ssize_t count = v[SUMS].shape[0];
    if (v[WEIGHTS].shape[0] != postings || v[ENDS].shape[0] != lists ||
        v[FACTORS].shape[0] != lists) {
        PyErr_Format(PyExc_ValueError,
                     "%zd documents, but %zd weights; %zd starts, but %zd ends and %zd factors",
                     postings, v[WEIGHTS].shape[0], lists, v[ENDS].shape[0], v[FACTORS].shape[0]);
        goto done;
    }
    for (Py_ssize_t t = 0; t < lists; t++) {
        int64_t start, end, reached;
        double factor;
        memcpy(&start, (const char *)v[STARTS].buf + 8 * t, sizeof start);
        memcpy(&end, (const char *)v[ENDS].buf + 8 * t, sizeof end);
        memcpy(&factor, (const char *)v[FACTORS].buf + 8 * t, sizeof factor);
        if (start < 0 || start > end || end > postings) {
            PyErr_Format(PyExc_ValueError, "list %zd not in 0:%zd", t, postings);
            goto done;
        }
        Py_BEGIN_ALLOW_THREADS
        reached = add_list(v[SUMS].buf, count, v[DOCUMENTS].buf, v[DOCUMENTS].itemsize,
                           v[WEIGHTS].buf, start, end, factor);
        Py_END_ALLOW_THREADS
        if (reached < end) {
            const uint32_t found =
                document_at(v[DOCUMENTS].buf, v[DOCUMENTS].itemsize, reached);
            PyErr_Format(PyExc_ValueError, "document %lu of %zd", (unsigned long)found, count);
            goto done;
        }
    }
    result = Py_NewRef(Py_None);
done:
    for (int i = 0; i < ARRAYS; i++)
        PyBuffer_Release(v + i);
    return result;
}

static PyMethodDef methods[] = {{"add", add, METH_VARARGS, NULL}, {NULL, NULL, 0, NULL}};
static PyModuleDef_Slot slots[] = {
#ifdef Py_mod_gil
    {Py_mod_gil, Py_MOD_GIL_NOT_USED},
#endif
    {0, NULL}};
static struct PyModuleDef definition = {
    .m_base = PyModuleDef_HEAD_INIT, .m_name = "_lexical", .m_methods = methods, .m_slots = slots};

PyMODINIT_FUNC PyInit__lexical(void) { return PyModuleDef_Init(&definition); }
