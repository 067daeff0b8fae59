/* Products of one vector with rows of int8, one after another; products.py says what is computed.

   The vector comes in codes of 16 bits, so that products are exact integers in any order and every
   version gives the same. Rows are read once and in order: the speed is that of memory. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <string.h>

#if defined(__x86_64__) && defined(__GNUC__)
#define WITH_AVX2 1
#include <immintrin.h>
#define AVX2 __attribute__((target("avx2")))
#endif

/* Returns the first place that is not in 0:count, or `wanted`. */
typedef Py_ssize_t (*Run)(const int16_t *codes, Py_ssize_t width, const char *rows,
                          Py_ssize_t count, const char *places, Py_ssize_t wanted, char *out);

static inline int64_t place_at(const char *places, Py_ssize_t j)
{
    int64_t place;
    memcpy(&place, places + 8 * j, sizeof place);
    return place;
}

static Py_ssize_t run(const int16_t *codes, Py_ssize_t width, const char *rows, Py_ssize_t count,
                      const char *places, Py_ssize_t wanted, char *out)
{
    for (Py_ssize_t j = 0; j < wanted; j++) {
        const int64_t place = place_at(places, j);
        if (place < 0 || place >= count)
            return j;
        const signed char *row = (const signed char *)rows + place * width;
        int32_t sum = 0;
        for (Py_ssize_t k = 0; k < width; k++)
            sum += codes[k] * row[k];
        memcpy(out + 4 * j, &sum, sizeof sum);
    }
    return wanted;
}

#ifdef WITH_AVX2
/* Two sums, so that no step waits for the one before. */
AVX2 static Py_ssize_t run_avx2(const int16_t *codes, Py_ssize_t width, const char *rows,
                                Py_ssize_t count, const char *places, Py_ssize_t wanted, char *out)
{
    for (Py_ssize_t j = 0; j < wanted; j++) {
        const int64_t place = place_at(places, j);
        if (place < 0 || place >= count)
            return j;
        const char *row = rows + place * width;
        __m256i sums[2] = {_mm256_setzero_si256(), _mm256_setzero_si256()};
        Py_ssize_t k = 0;
        for (; k + 32 <= width; k += 32)
            for (int h = 0; h < 2; h++) {
                const __m128i half = _mm_loadu_si128((const __m128i *)(row + k + 16 * h));
                const __m256i x = _mm256_loadu_si256((const __m256i *)(codes + k + 16 * h));
                sums[h] = _mm256_add_epi32(sums[h],
                                           _mm256_madd_epi16(x, _mm256_cvtepi8_epi16(half)));
            }
        int32_t lanes[8], sum = 0;
        _mm256_storeu_si256((__m256i *)lanes, _mm256_add_epi32(sums[0], sums[1]));
        for (int l = 0; l < 8; l++)
            sum += lanes[l];
        for (; k < width; k++)
            sum += codes[k] * (signed char)row[k];
        memcpy(out + 4 * j, &sum, sizeof sum);
    }
    return wanted;
}
#endif

/* products(codes i16[r], rows i8[n, r], places i64[m], out i32[m], avx2) */
static PyObject *products(PyObject *module, PyObject *args)
{
    (void)module;
    PyObject *a[4], *result = NULL;
    Py_buffer v[4] = {{0}};
    const char *kinds[4] = {"h", "b", "lq", "i"};
    const int axes[4] = {1, 2, 1, 1}, sizes[4] = {2, 1, 8, 4};
    int avx2;
    if (!PyArg_ParseTuple(args, "OOOOp", a, a + 1, a + 2, a + 3, &avx2))
        return NULL;
    for (int k = 0; k < 4; k++) {
        const int flags = PyBUF_FORMAT | PyBUF_C_CONTIGUOUS | (k == 3 ? PyBUF_WRITABLE : 0);
        if (PyObject_GetBuffer(a[k], v + k, flags) < 0)
            goto done;
        const char *kind = v[k].format;
        if (v[k].ndim != axes[k] || v[k].itemsize != sizes[k] || !*kind || kind[1] ||
            !strchr(kinds[k], *kind)) {
            PyErr_Format(PyExc_ValueError, "argument %d has another type or shape", k + 1);
            goto done;
        }
    }
    const Py_ssize_t width = v[0].shape[0], count = v[1].shape[0], wanted = v[2].shape[0];
    if (v[1].shape[1] != width || v[3].shape[0] != wanted) {
        PyErr_Format(PyExc_ValueError, "%zd codes for rows of %zd, %zd places for %zd products",
                     width, v[1].shape[1], wanted, v[3].shape[0]);
        goto done;
    }
    Run chosen = run;
#ifdef WITH_AVX2
    if (avx2 && __builtin_cpu_supports("avx2"))
        chosen = run_avx2;
#endif
    Py_ssize_t reached;
    Py_BEGIN_ALLOW_THREADS
    reached = chosen(v[0].buf, width, v[1].buf, count, v[2].buf, wanted, v[3].buf);
    Py_END_ALLOW_THREADS
    if (reached == wanted)
        result = Py_NewRef(Py_None);
    else
        PyErr_Format(PyExc_ValueError, "place %zd is not in 0:%zd", reached, count);
done:
    for (int k = 0; k < 4; k++)
        PyBuffer_Release(v + k);
    return result;
}

static PyMethodDef methods[] = {{"products", products, METH_VARARGS, NULL}, {NULL, NULL, 0, NULL}};
static PyModuleDef_Slot slots[] = {
#ifdef Py_mod_gil
    {Py_mod_gil, Py_MOD_GIL_NOT_USED},
#endif
    {0, NULL}};
static struct PyModuleDef definition = {
    .m_base = PyModuleDef_HEAD_INIT, .m_name = "_products", .m_methods = methods, .m_slots = slots};

PyMODINIT_FUNC PyInit__products(void) { return PyModuleDef_Init(&definition); }
