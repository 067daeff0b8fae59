/* Ward's method by chains of nearest neighbours; clustering.py says how. */

#include "arrays.h"

#include <math.h>

/* The n - 1 joins of n groups, in the order in which chains find them: pairs of groups, of which
   the first keeps the name, and what each join costs. costs[i * n + j] is what joining i and j would
   cost; it is used up, and so are the masses. Costs fall along a chain, so none is longer than n;
   numbers that are no costs (NaN, an asymmetric matrix) may break that, and then fewer than n - 1
   joins are returned. chain and left have room for n each. */
static Py_ssize_t chains(Py_ssize_t n, double *costs, double *masses, int64_t *pairs, double *heights,
                         Py_ssize_t *chain, Py_ssize_t *left)
{
    Py_ssize_t length = 0, count = n;
    for (Py_ssize_t k = 0; k < n; k++)
        left[k] = k;
    while (count > 1) {
        if (length == 0)
            chain[length++] = left[0];
        const Py_ssize_t end = chain[length - 1];
        const Py_ssize_t before = length > 1 ? chain[length - 2] : -1;
        const double *row = costs + end * n;
        Py_ssize_t nearest = before;
        double least = before < 0 ? INFINITY : row[before];
        for (Py_ssize_t t = 0; t < count; t++)
            if (row[left[t]] < least && left[t] != end) {
                nearest = left[t];
                least = row[nearest];
            }
        if (nearest != before) {
            if (length == n)
                break;
            chain[length++] = nearest;
            continue;
        }
        if (nearest < 0)
            break;
        length -= 2;
        const Py_ssize_t i = end < before ? end : before, j = end < before ? before : end;
        const double joined = masses[i] + masses[j];
        double *kept = costs + i * n;
        const double *gone = costs + j * n;
        pairs[2 * (n - count)] = i;
        pairs[2 * (n - count) + 1] = j;
        heights[n - count] = least;
        Py_ssize_t others = 0;
        for (Py_ssize_t t = 0; t < count; t++) {
            const Py_ssize_t k = left[t];
            if (k == j)
                continue;
            left[others++] = k;
            if (k == i)
                continue;
            const double a = (masses[i] + masses[k]) * kept[k];
            const double b = (masses[j] + masses[k]) * gone[k];
            kept[k] = (a + b - masses[k] * least) / (joined + masses[k]);
            costs[k * n + i] = kept[k];
        }
        masses[i] = joined;
        count = others;
    }
    return n - count;
}

/* ward(costs, masses, pairs, heights): fills pairs and heights. */
static PyObject *ward(PyObject *module, PyObject *args)
{
    (void)module;
    enum { COSTS, MASSES, PAIRS, HEIGHTS, ARRAYS };
    PyObject *a[ARRAYS], *result = NULL;
    Py_buffer v[ARRAYS] = {{0}};
    Py_ssize_t *room = NULL, found;
    if (!PyArg_ParseTuple(args, "OOOO", a, a + 1, a + 2, a + 3))
        return NULL;
    const char *f64 = "a contiguous f64 vector";
    if (look(a[COSTS], v + COSTS, "costs", "a contiguous f64 matrix", 2, "d!", PyBUF_WRITABLE) < 0 ||
        look(a[MASSES], v + MASSES, "masses", f64, 1, "d!", PyBUF_WRITABLE) < 0 ||
        look(a[PAIRS], v + PAIRS, "pairs", "a contiguous i64 matrix", 2, "lq!", PyBUF_WRITABLE) < 0 ||
        look(a[HEIGHTS], v + HEIGHTS, "heights", f64, 1, "d!", PyBUF_WRITABLE) < 0)
        goto done;
    const Py_ssize_t n = v[MASSES].shape[0];
    if (v[COSTS].shape[0] != n || v[COSTS].shape[1] != n || v[PAIRS].shape[0] != n - 1 ||
        v[PAIRS].shape[1] != 2 || v[HEIGHTS].shape[0] != n - 1) {
        PyErr_Format(PyExc_ValueError, "%zd masses, but %zd x %zd costs, %zd pairs, %zd heights", n,
                     v[COSTS].shape[0], v[COSTS].shape[1], v[PAIRS].shape[0], v[HEIGHTS].shape[0]);
        goto done;
    }
    for (Py_ssize_t i = 0; i < n; i++)
        if (!(((double *)v[MASSES].buf)[i] > 0)) {
            PyErr_Format(PyExc_ValueError, "mass %zd is not above 0", i);
            goto done;
        }
    room = PyMem_Malloc(2 * (size_t)n * sizeof *room);
    if (room == NULL) {
        PyErr_NoMemory();
        goto done;
    }
    Py_BEGIN_ALLOW_THREADS
    found = chains(n, v[COSTS].buf, v[MASSES].buf, v[PAIRS].buf, v[HEIGHTS].buf, room,
                   room + n);
    Py_END_ALLOW_THREADS
    if (found < n - 1)
        PyErr_SetString(PyExc_ValueError, "costs must be finite and symmetric");
    else
        result = Py_NewRef(Py_None);
done:
    PyMem_Free(room);
    for (int i = 0; i < ARRAYS; i++)
        PyBuffer_Release(v + i);
    return result;
}

static PyMethodDef methods[] = {{"ward", ward, METH_VARARGS, NULL}, {NULL, NULL, 0, NULL}};
static PyModuleDef_Slot slots[] = {
#ifdef Py_mod_gil
    {Py_mod_gil, Py_MOD_GIL_NOT_USED},
#endif
    {0, NULL}};
static struct PyModuleDef definition = {
    .m_base = PyModuleDef_HEAD_INIT, .m_name = "_ward", .m_methods = methods, .m_slots = slots};

PyMODINIT_FUNC PyInit__ward(void) { return PyModuleDef_Init(&definition); }
