/* Products of one vector with rows of int8, one after another; products.py says what is computed.

   The vector comes in codes of 16 bits, so that products are exact integers in any order and every
   version gives the same. Rows are read once and in order: the speed is that of memory. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <string.h>

#if defined(__x86_64__) && defined(__GNUC__)
#define WITH_X86 1
#include <immintrin.h>
#define AVX2 __attribute__((target("avx2")))
#define AVX512 __attribute__((target("avx2,avx512f,avx512bw,avx512vnni")))
#endif

enum { PORTABLE, WITH_256, WITH_512 }; /* what a caller lets us use */

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

#ifdef WITH_X86
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

/* Four rows at a time: their sums are added up together. */
AVX512 static Py_ssize_t run_avx512(const int16_t *codes, Py_ssize_t width, const char *rows,
                                    Py_ssize_t count, const char *places, Py_ssize_t wanted,
                                    char *out)
{
    const Py_ssize_t whole = width / 32 * 32;
    Py_ssize_t j = 0;
    for (; j + 4 <= wanted; j += 4) {
        const char *row[4];
        __m512i sums[4];
        for (int u = 0; u < 4; u++) {
            const int64_t place = place_at(places, j + u);
            if (place < 0 || place >= count)
                return j + u;
            row[u] = rows + place * width;
            sums[u] = _mm512_setzero_si512();
        }
        for (Py_ssize_t k = 0; k < whole; k += 32) {
            const __m512i x = _mm512_loadu_si512(codes + k);
            for (int u = 0; u < 4; u++) {
                const __m256i bytes = _mm256_loadu_si256((const __m256i *)(row[u] + k));
                sums[u] = _mm512_dpwssd_epi32(sums[u], _mm512_cvtepi8_epi16(bytes), x);
            }
        }
        const __m512i ab = _mm512_add_epi32(_mm512_unpacklo_epi32(sums[0], sums[1]),
                                            _mm512_unpackhi_epi32(sums[0], sums[1]));
        const __m512i cd = _mm512_add_epi32(_mm512_unpacklo_epi32(sums[2], sums[3]),
                                            _mm512_unpackhi_epi32(sums[2], sums[3]));
        const __m512i all = _mm512_add_epi32(_mm512_unpacklo_epi64(ab, cd),
                                             _mm512_unpackhi_epi64(ab, cd));
        const __m256i half = _mm256_add_epi32(_mm512_castsi512_si256(all),
                                              _mm512_extracti64x4_epi64(all, 1));
        int32_t totals[4];
        _mm_storeu_si128((__m128i *)totals, _mm_add_epi32(_mm256_castsi256_si128(half),
                                                          _mm256_extracti128_si256(half, 1)));
        for (int u = 0; u < 4; u++)
            for (Py_ssize_t k = whole; k < width; k++)
                totals[u] += codes[k] * (signed char)row[u][k];
        memcpy(out + 4 * j, totals, sizeof totals);
    }
    const Py_ssize_t rest = run(codes, width, rows, count, places + 8 * j, wanted - j, out + 4 * j);
    return j + rest;
}
#endif

/* products(codes i16[r], rows i8[n, r], places i64[m], out i32[m], level) */
static PyObject *products(PyObject *module, PyObject *args)
{
    (void)module;
    PyObject *a[4], *result = NULL;
    Py_buffer v[4] = {{0}};
    const char *kinds[4] = {"h", "b", "lq", "i"};
    const int axes[4] = {1, 2, 1, 1}, sizes[4] = {2, 1, 8, 4};
    int level;
    if (!PyArg_ParseTuple(args, "OOOOi", a, a + 1, a + 2, a + 3, &level))
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
    (void)level;
#ifdef WITH_X86
    if (level >= WITH_256 && __builtin_cpu_supports("avx2"))
        chosen = run_avx2;
    if (level >= WITH_512 && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512vnni"))
        chosen = run_avx512;
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
