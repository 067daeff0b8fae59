/* Ragged importance-weighted MaxSim (eq:phrase_score); reference.py says what is computed.

   A block of 3 document rows meets all query units, 4 at a time, so that every row comes from
   memory once and 12 sums stay in registers. A row's product is the same at every place of a
   block, a last block short of rows repeats its last one (a maximum does not mind), and weighted
   maxima are added in the order of the query units: a document scores the same to the last bit
   whatever stands beside it.

   The query is copied once into chunks of one register (8 f32 or 16 int16, 32 int16 with AVX-512),
   padded with zeros. Whole f32 and int8 rows are read where they lie; all others go through a
   scratch of 3 rows, so that no read passes the end of a row.

   int8 rows meet a query of int16 codes. The product of two pairs (`madd`) is exact, no slower
   than the two saturating steps that 8-bit codes would take, and the query is 256 times finer.
   AVX-512 VNNI multiplies and adds in one step, twice as many at a time; sums of integers are the
   same in any order, so its scores are those of AVX2 to the last bit. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

#if defined(__x86_64__) && defined(__GNUC__)
#define WITH_AVX2 1
#include <cpuid.h>
#include <immintrin.h>
#define AVX2 __attribute__((target("avx2,fma,f16c")))
#define AVX512 __attribute__((target("avx2,fma,f16c,avx512f,avx512bw,avx512vnni")))
#endif

enum { ROWS = 3, UNITS = 4, LANES = 8, CODES = 16, AHEAD = 12, MAX_WIDTH = 65536 };
enum { PORTABLE, WITH_256, WITH_512 }; /* what a caller lets us use */

/* What is the same for all documents. */
typedef struct Plan {
    Py_ssize_t units, groups;  /* query units; groups of 4 of them */
    Py_ssize_t width, chunks;  /* columns; chunks of a row */
    Py_ssize_t chunk;          /* bytes of a chunk of the query */
    void *query;               /* [groups][chunks][4][8 f32], or as the block functions say */
    float *steps;              /* [4 * groups] what one step of a unit's int16 codes is worth */
    float *best;               /* [4 * groups] maxima of the present document */
    char *scratch;             /* [3][chunks] */
    void *memory;              /* in which the four above lie */
    void (*pack)(void *to, const char *row, Py_ssize_t width);  /* NULL: rows where they lie */
    void (*block)(const struct Plan *, const void *const rows[ROWS], const float scales[ROWS]);
} Plan;

typedef struct {
    const char *vectors, *scales, *starts, *ends, *weights; /* no weights: maxima are wanted */
    char *scores;
    Py_ssize_t rows, stride, bytes, count;  /* of vectors; bytes of a row that are read */
    char scale_kind;                        /* 'f', 'e', or 0 for no scales */
} Documents;

/* f16 -> f32 for every bit pattern: the exponent is moved by a product with 2^112. */
static inline float half(const char *from)
{
    uint16_t h;
    float value;
    memcpy(&h, from, sizeof h);
    uint32_t bits = (uint32_t)(h & 0x7fff) << 13;
    memcpy(&value, &bits, sizeof value);
    value *= 5.192296858534828e33f;
    memcpy(&bits, &value, sizeof value);
    bits |= (h & 0x7fff) >= 0x7c00 ? 0x7f800000u : 0u; /* infinity and NaN */
    bits |= (uint32_t)(h & 0x8000) << 16;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static void copy_f32(void *to, const char *row, Py_ssize_t width)
{
    memcpy(to, row, (size_t)width * sizeof(float));
}

static void widen_f16(void *to, const char *row, Py_ssize_t width)
{
    for (Py_ssize_t k = 0; k < width; k++)
        ((float *)to)[k] = half(row + 2 * k);
}

static void widen_int8(void *to, const char *row, Py_ssize_t width)
{
    for (Py_ssize_t k = 0; k < width; k++)
        ((int16_t *)to)[k] = (signed char)row[k];
}

/* Four lanes in a register of any processor, where the compiler has such a type. */
#ifdef __GNUC__
typedef float Four __attribute__((vector_size(16)));
#else
typedef struct { float at[4]; } Four;
#endif

static inline void multiply_add(Four *sum, const float *x, const float *y)
{
#ifdef __GNUC__
    Four a, b;
    memcpy(&a, x, sizeof a);
    memcpy(&b, y, sizeof b);
    *sum += a * b;
#else
    for (int l = 0; l < 4; l++)
        sum->at[l] += x[l] * y[l];
#endif
}

static void block_f32(const Plan *plan, const void *const rows[ROWS], const float scales[ROWS])
{
    for (Py_ssize_t g = 0; g < plan->groups; g++)
        for (int u = 0; u < ROWS; u++) {
            const float *row = rows[u];
            const float *x = (const float *)plan->query + g * plan->chunks * UNITS * LANES;
            Four sums[UNITS][2];
            memset(sums, 0, sizeof sums);
            for (Py_ssize_t c = 0; c < plan->chunks; c++, x += UNITS * LANES, row += LANES)
                for (int i = 0; i < UNITS; i++)
                    for (int h = 0; h < 2; h++)
                        multiply_add(&sums[i][h], x + i * LANES + 4 * h, row + 4 * h);
            for (int i = 0; i < UNITS; i++) {
                float s[LANES], *best = plan->best + g * UNITS + i;
                memcpy(s, sums[i], sizeof s);
                float found = ((s[0] + s[1]) + (s[2] + s[3])) + ((s[4] + s[5]) + (s[6] + s[7]));
                found *= scales[u];
                *best = found > *best ? found : *best;
            }
        }
}

/* rows: int16_t [chunks][16]; query: int16_t [units][chunks][16] */
static void block_int8(const Plan *plan, const void *const rows[ROWS], const float scales[ROWS])
{
    const Py_ssize_t width = plan->chunks * CODES;
    for (Py_ssize_t i = 0; i < plan->units; i++)
        for (int u = 0; u < ROWS; u++) {
            const int16_t *row = rows[u], *x = (const int16_t *)plan->query + i * width;
            int32_t sum = 0;
            for (Py_ssize_t k = 0; k < width; k++)
                sum += x[k] * row[k];
            const float found = (float)sum * plan->steps[i] * scales[u];
            plan->best[i] = found > plan->best[i] ? found : plan->best[i];
        }
}

#ifdef WITH_AVX2

static void copy_int8(void *to, const char *row, Py_ssize_t width)
{
    memcpy(to, row, (size_t)width);
}

AVX2 static void widen_f16_avx2(void *to, const char *row, Py_ssize_t width)
{
    Py_ssize_t k = 0;
    for (; k + LANES <= width; k += LANES) {
        const __m128i halves = _mm_loadu_si128((const __m128i *)(row + 2 * k));
        _mm256_storeu_ps((float *)to + k, _mm256_cvtph_ps(halves));
    }
    widen_f16((float *)to + k, row + 2 * k, width - k);
}

/* The sums of four registers, in the order of `block_f32`. */
AVX2 static inline __m128 totals_f32(const __m256 v[UNITS])
{
    __m256 s = _mm256_hadd_ps(_mm256_hadd_ps(v[0], v[1]), _mm256_hadd_ps(v[2], v[3]));
    return _mm_add_ps(_mm256_castps256_ps128(s), _mm256_extractf128_ps(s, 1));
}

AVX2 static inline __m128 totals_int8(const __m256i v[UNITS])
{
    __m256i s = _mm256_hadd_epi32(_mm256_hadd_epi32(v[0], v[1]), _mm256_hadd_epi32(v[2], v[3]));
    s = _mm256_add_epi32(s, _mm256_permute2x128_si256(s, s, 1));
    return _mm_cvtepi32_ps(_mm256_castsi256_si128(s));
}

/* sum += madd(row, *unit). 12 sums, 3 rows and the pairs fill all 16 registers, which compilers
   left to themselves overdraw: GCC by adding late, Clang by loading the unit first. */
AVX2 static inline void multiply_add_int8(__m256i *sum, __m256i row, const __m256i *unit)
{
    __m256i pairs;
    __asm__("vpmaddwd %[unit], %[row], %[pairs]\n\tvpaddd %[pairs], %[sum], %[sum]"
            : [sum] "+x"(*sum), [pairs] "=&x"(pairs)
            : [row] "x"(row), [unit] "m"(*unit));
}

AVX2 static void
block_f32_avx2(const Plan *plan, const void *const rows[ROWS], const float scales[ROWS])
{
    const float *x = plan->query;
    for (Py_ssize_t g = 0; g < plan->groups; g++) {
        __m256 sums[ROWS][UNITS];
        for (int u = 0; u < ROWS; u++)
            for (int i = 0; i < UNITS; i++)
                sums[u][i] = _mm256_setzero_ps();
        for (Py_ssize_t c = 0; c < plan->chunks; c++, x += UNITS * LANES) {
            __m256 row[ROWS];
            for (int u = 0; u < ROWS; u++)
                row[u] = _mm256_loadu_ps((const float *)rows[u] + c * LANES);
            for (int i = 0; i < UNITS; i++) {
                const __m256 unit = _mm256_load_ps(x + i * LANES);
                for (int u = 0; u < ROWS; u++)
                    sums[u][i] = _mm256_fmadd_ps(unit, row[u], sums[u][i]);
            }
        }
        __m128 best = _mm_loadu_ps(plan->best + g * UNITS);
        for (int u = 0; u < ROWS; u++) /* a NaN is passed over, as by C's `>` */
            best = _mm_max_ps(_mm_mul_ps(totals_f32(sums[u]), _mm_set1_ps(scales[u])), best);
        _mm_storeu_ps(plan->best + g * UNITS, best);
    }
}

/* rows: int8 as they lie; query: int16_t [groups][chunks][4][16] */
AVX2 static void
block_int8_avx2(const Plan *plan, const void *const rows[ROWS], const float scales[ROWS])
{
    const __m256i *x = plan->query;
    for (Py_ssize_t g = 0; g < plan->groups; g++) {
        __m256i sums[ROWS][UNITS];
        for (int u = 0; u < ROWS; u++)
            for (int i = 0; i < UNITS; i++)
                sums[u][i] = _mm256_setzero_si256();
        for (Py_ssize_t c = 0; c < plan->chunks; c++, x += UNITS) {
            __m256i row[ROWS];
            for (int u = 0; u < ROWS; u++)
                row[u] = _mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i *)rows[u] + c));
            for (int i = 0; i < UNITS; i++)
                for (int u = 0; u < ROWS; u++)
                    multiply_add_int8(&sums[u][i], row[u], x + i);
        }
        const __m128 steps = _mm_loadu_ps(plan->steps + g * UNITS);
        __m128 best = _mm_loadu_ps(plan->best + g * UNITS);
        for (int u = 0; u < ROWS; u++) {
            const __m128 found = _mm_mul_ps(totals_int8(sums[u]), steps);
            best = _mm_max_ps(_mm_mul_ps(found, _mm_set1_ps(scales[u])), best);
        }
        _mm_storeu_ps(plan->best + g * UNITS, best);
    }
}

/* rows: int8 as they lie; query: int16_t [groups][chunks][4][32] */
AVX512 static void
block_int8_avx512(const Plan *plan, const void *const rows[ROWS], const float scales[ROWS])
{
    const __m512i *x = plan->query;
    for (Py_ssize_t g = 0; g < plan->groups; g++) {
        __m512i sums[ROWS][UNITS];
        for (int u = 0; u < ROWS; u++)
            for (int i = 0; i < UNITS; i++)
                sums[u][i] = _mm512_setzero_si512();
        for (Py_ssize_t c = 0; c < plan->chunks; c++, x += UNITS) {
            __m512i row[ROWS];
            for (int u = 0; u < ROWS; u++)
                row[u] = _mm512_cvtepi8_epi16(_mm256_loadu_si256((const __m256i *)rows[u] + c));
            for (int i = 0; i < UNITS; i++)
                for (int u = 0; u < ROWS; u++)
                    sums[u][i] = _mm512_dpwssd_epi32(sums[u][i], row[u], x[i]);
        }
        const __m128 steps = _mm_loadu_ps(plan->steps + g * UNITS);
        __m128 best = _mm_loadu_ps(plan->best + g * UNITS);
        for (int u = 0; u < ROWS; u++) {
            __m256i halves[UNITS];
            for (int i = 0; i < UNITS; i++)
                halves[i] = _mm256_add_epi32(_mm512_castsi512_si256(sums[u][i]),
                                             _mm512_extracti64x4_epi64(sums[u][i], 1));
            const __m128 found = _mm_mul_ps(totals_int8(halves), steps);
            best = _mm_max_ps(_mm_mul_ps(found, _mm_set1_ps(scales[u])), best);
        }
        _mm_storeu_ps(plan->best + g * UNITS, best);
    }
}

#endif

static int level; /* set once, when the module is made: asking the processor is slow */

static int highest_level(void)
{
#ifdef WITH_AVX2
    unsigned a, b, c, d;
    if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma") ||
        !__get_cpuid(1, &a, &b, &c, &d) || !(c & bit_F16C))
        return PORTABLE;
    return __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vnni") ? WITH_512
                                                                                       : WITH_256;
#else
    return PORTABLE;
#endif
}

/* One unit of the query as int16 codes in chunks of `codes`, `apart` chunks apart. The largest number of the unit
   becomes the largest code with which no sum over the columns leaves int32, whatever the
   document's codes are. */
static float
quantise(int16_t *to, Py_ssize_t codes, Py_ssize_t apart, const char *from, Py_ssize_t width)
{
    const double room = width ? (double)(INT32_MAX / (128 * (int32_t)width)) : INT16_MAX;
    const double limit = room < INT16_MAX ? room : INT16_MAX;
    float x, most = 0;
    for (Py_ssize_t k = 0; k < width; k++) {
        memcpy(&x, from + 4 * k, sizeof x);
        most = fabsf(x) > most ? fabsf(x) : most;
    }
    const float step = (float)(most / limit);
    for (Py_ssize_t k = 0; k < width; k++) {
        memcpy(&x, from + 4 * k, sizeof x);
        double code = step > 0 ? rint((double)x / step) : 0;
        code = code > limit ? limit : code < -limit ? -limit : code == code ? code : 0;
        to[k / codes * apart * codes + k % codes] = (int16_t)code;
    }
    return step;
}

/* Choose the functions for the type of `vectors` and copy the query for them; -1: no memory. */
static int prepare(Plan *plan, const Py_buffer *query, const Py_buffer *vectors, int most)
{
    const int int8 = vectors->itemsize == 1, f16 = vectors->itemsize == 2;
    const int use = most < level ? most : level, wide = int8 && use == WITH_512;
    const int lanes = wide ? 2 * CODES : int8 ? CODES : LANES;
    const int aligned = ((uintptr_t)vectors->buf | (uintptr_t)vectors->strides[0]) % 4 == 0;
    const int whole = query->shape[1] % lanes == 0;
    Py_ssize_t together = int8 ? 1 : UNITS; /* units between whose chunks a chunk stands */
    plan->block = int8 ? block_int8 : block_f32;
    plan->pack = int8 ? widen_int8 : f16 ? widen_f16 : whole && aligned ? NULL : copy_f32;
#ifdef WITH_AVX2
    if (use >= WITH_256) {
        together = UNITS;
        plan->block = wide ? block_int8_avx512 : int8 ? block_int8_avx2 : block_f32_avx2;
        plan->pack = f16 ? widen_f16_avx2 : whole ? NULL : int8 ? copy_int8 : copy_f32;
    }
#endif
    plan->units = query->shape[0];
    plan->groups = plan->units / UNITS + (plan->units % UNITS > 0);
    plan->width = query->shape[1];
    plan->chunks = plan->width / lanes + !whole;
    plan->chunk = lanes * (int8 ? (Py_ssize_t)sizeof(int16_t) : (Py_ssize_t)sizeof(float));
    const Py_ssize_t row = plan->chunks * plan->chunk, four = UNITS * (Py_ssize_t)sizeof(float);
    if (plan->groups > PY_SSIZE_T_MAX / 2 / (UNITS * row + 2 * four))
        return -1;
    const Py_ssize_t size = plan->groups * (UNITS * row + 2 * four) + ROWS * row;
    if (!(plan->memory = PyMem_Calloc(1, (size_t)(size + plan->chunk))))
        return -1;
    char *at = (char *)plan->memory + plan->chunk - (uintptr_t)plan->memory % (size_t)plan->chunk;
    plan->query = at;
    plan->scratch = at += plan->groups * UNITS * row;
    plan->steps = (float *)(at += ROWS * row);
    plan->best = (float *)(at + plan->groups * four);
    for (Py_ssize_t i = 0; i < plan->units; i++) {
        const char *from = (const char *)query->buf + i * plan->width * 4;
        char *to = (char *)plan->query +
                   (i / together * plan->chunks * together + i % together) * plan->chunk;
        if (int8)
            plan->steps[i] = quantise((int16_t *)to, lanes, together, from, plan->width);
        else
            for (Py_ssize_t k = 0, end = plan->width * 4; k < end; k += plan->chunk)
                memcpy(to + k * together, from + k, end - k < plan->chunk ? end - k : plan->chunk);
    }
    return 0;
}

static inline float scale_of(const Documents *documents, int64_t row)
{
    float scale = 1;
    if (documents->scale_kind == 'e')
        return half(documents->scales + 2 * row);
    if (documents->scale_kind == 'f')
        memcpy(&scale, documents->scales + 4 * row, sizeof scale);
    return scale;
}

/* Ask for a row that will soon be read; a row that is not there does no harm. */
static inline void fetch(const Documents *documents, uint64_t row)
{
#ifdef __GNUC__
    const uintptr_t at = (uintptr_t)documents->vectors + (uintptr_t)(row * documents->stride);
    for (Py_ssize_t k = 0; k < documents->bytes; k += 64)
        __builtin_prefetch((const void *)(at + k));
#else
    (void)documents, (void)row;
#endif
}

/* Scores of all documents; returns the first document whose rows are not there, or `count`. */
static Py_ssize_t run(const Plan *plan, const Documents *documents)
{
    const void *rows[ROWS];
    float scales[ROWS];
    for (Py_ssize_t j = 0; j < documents->count; j++) {
        int64_t start, end, next = 0;
        memcpy(&start, documents->starts + 8 * j, sizeof start);
        memcpy(&end, documents->ends + 8 * j, sizeof end);
        if (j + 1 < documents->count)
            memcpy(&next, documents->starts + 8 * (j + 1), sizeof next);
        if (start < 0 || start > end || end > documents->rows)
            return j;
        if (j + AHEAD < documents->count) { /* short documents lie anywhere */
            int64_t later;
            memcpy(&later, documents->starts + 8 * (j + AHEAD), sizeof later);
            fetch(documents, (uint64_t)later);
#ifdef __GNUC__
            __builtin_prefetch((const void *)((uintptr_t)documents->scales + 2 * (uintptr_t)later));
#endif
        }
        for (Py_ssize_t i = 0; i < plan->groups * UNITS; i++)
            plan->best[i] = start < end ? -INFINITY : 0;
        for (int64_t u = start; u < end; u += ROWS) {
            for (int k = 0; k < ROWS; k++) {
                const int64_t row = k < end - u ? u + k : end - 1, left = end - row;
                fetch(documents, (uint64_t)(AHEAD < left ? row : next - left) + AHEAD);
                rows[k] = documents->vectors + row * documents->stride;
                scales[k] = scale_of(documents, row);
                if (plan->pack) {
                    char *to = plan->scratch + k * plan->chunks * plan->chunk;
                    plan->pack(to, rows[k], plan->width);
                    rows[k] = to;
                }
            }
            plan->block(plan, rows, scales);
        }
        if (!documents->weights) {
            const Py_ssize_t size = plan->units * (Py_ssize_t)sizeof(float);
            memcpy(documents->scores + j * size, plan->best, (size_t)size);
            continue;
        }
        double sum = 0;
        for (Py_ssize_t i = 0; i < plan->units; i++) {
            float weight;
            memcpy(&weight, documents->weights + 4 * i, sizeof weight);
            sum += (double)weight * plan->best[i];
        }
        const float score = (float)sum;
        memcpy(documents->scores + 4 * j, &score, sizeof score);
    }
    return documents->count;
}

/* A view of an array that is `what`: `ndim` axes, one of the types `kinds` (struct's letters),
   contiguous, except that the rows of `vectors` may stand apart. */
static int look(PyObject *array, Py_buffer *view, const char *name, const char *what, int ndim,
                const char *kinds, int flags)
{
    if (PyObject_GetBuffer(array, view, PyBUF_FORMAT | PyBUF_STRIDES | flags) == 0) {
        const char *kind = view->format + (view->format[0] == '=' || view->format[0] == '@');
        const int size = *kind == 'b' ? 1 : *kind == 'e' ? 2 : *kind == 'f' ? 4 : 8;
        int fits = view->ndim == ndim && view->itemsize == size;
        fits = fits && *kind && strchr(kinds, *kind) && !kind[1];
        if (fits && view->len && view->shape[ndim - 1] > 1)
            fits = view->strides[ndim - 1] == size;
        if (fits && view->len && ndim == 2 && view->shape[0] > 1 && !strchr(kinds, 'b'))
            fits = view->strides[0] == view->shape[1] * size;
        if (fits)
            return 0;
    }
    PyErr_Format(PyExc_ValueError, "%s must be %s", name, what);
    return -1;
}

/* score(query, weights or None, vectors, scales or None, starts, ends, scores, level)
   Without weights `scores` has the maxima of all units of the query for every document. */
static PyObject *score(PyObject *module, PyObject *args)
{
    (void)module;
    enum { QUERY, WEIGHTS, VECTORS, SCALES, STARTS, ENDS, SCORES, ARRAYS };
    PyObject *a[ARRAYS], *result = NULL;
    Py_buffer v[ARRAYS] = {{0}};
    Plan plan = {0};
    int most;
    if (!PyArg_ParseTuple(args, "OOOOOOOi", a, a + 1, a + 2, a + 3, a + 4, a + 5, a + 6, &most))
        return NULL;
    const int scaled = a[SCALES] != Py_None, weighted = a[WEIGHTS] != Py_None;
    const char *f32 = "a contiguous f32 vector", *i64 = "a contiguous i64 vector";
    if (look(a[QUERY], v + QUERY, "query", "a contiguous f32 matrix", 2, "f", 0) < 0 ||
        (weighted && look(a[WEIGHTS], v + WEIGHTS, "weights", f32, 1, "f", 0) < 0) ||
        look(a[VECTORS], v + VECTORS, "vectors", "f32, f16 or int8 rows", 2, "feb", 0) < 0 ||
        (scaled && look(a[SCALES], v + SCALES, "scales", "f32 or f16", 1, "fe", 0) < 0) ||
        look(a[STARTS], v + STARTS, "starts", i64, 1, "lq", 0) < 0 ||
        look(a[ENDS], v + ENDS, "ends", i64, 1, "lq", 0) < 0 ||
        look(a[SCORES], v + SCORES, "scores", f32, 1, "f", PyBUF_WRITABLE) < 0)
        goto done;
    const Py_ssize_t width = v[QUERY].shape[1], columns = v[VECTORS].shape[1];
    const Py_ssize_t rows = v[VECTORS].shape[0], count = v[STARTS].shape[0];
    const Py_ssize_t units = v[QUERY].shape[0], each = weighted ? 1 : units; /* scores */
    const Py_ssize_t room = v[SCORES].shape[0];
    if (width > columns || width > MAX_WIDTH)
        PyErr_Format(PyExc_ValueError, "query of %zd columns, vectors of %zd", width, columns);
    else if (weighted && v[WEIGHTS].shape[0] != units)
        PyErr_Format(PyExc_ValueError, "%zd query units, but %zd weights", units,
                     v[WEIGHTS].shape[0]);
    else if (scaled && v[SCALES].shape[0] != rows)
        PyErr_Format(PyExc_ValueError, "%zd vectors, but %zd scales", rows, v[SCALES].shape[0]);
    else if (v[ENDS].shape[0] != count || (each ? room % each || room / each != count : room))
        PyErr_Format(PyExc_ValueError, "%zd starts, but %zd ends and %zd scores of %zd a document",
                     count, v[ENDS].shape[0], room, each);
    else if (prepare(&plan, v + QUERY, v + VECTORS, most) < 0)
        PyErr_NoMemory();
    else {
        const Documents documents = {
            .vectors = v[VECTORS].buf, .scales = v[SCALES].buf, .starts = v[STARTS].buf,
            .ends = v[ENDS].buf, .weights = v[WEIGHTS].buf, .scores = v[SCORES].buf,
            .rows = rows, .stride = v[VECTORS].strides[0],
            .bytes = width * v[VECTORS].itemsize, .count = count,
            .scale_kind = !scaled ? 0 : v[SCALES].itemsize == 2 ? 'e' : 'f'};
        Py_ssize_t reached;
        Py_BEGIN_ALLOW_THREADS
        reached = run(&plan, &documents);
        Py_END_ALLOW_THREADS
        if (reached == count)
            result = Py_NewRef(Py_None);
        else
            PyErr_Format(PyExc_ValueError, "rows of document %zd not in 0:%zd", reached, rows);
    }
done:
    PyMem_Free(plan.memory);
    for (int k = 0; k < ARRAYS; k++)
        PyBuffer_Release(v + k);
    return result;
}

static int fill(PyObject *module)
{
    level = highest_level();
    return PyModule_AddIntConstant(module, "LEVEL", level);
}

static PyMethodDef methods[] = {{"score", score, METH_VARARGS, NULL}, {NULL, NULL, 0, NULL}};
static PyModuleDef_Slot slots[] = {{Py_mod_exec, (void *)fill},
#ifdef Py_mod_gil
                                   {Py_mod_gil, Py_MOD_GIL_NOT_USED},
#endif
                                   {0, NULL}};
static struct PyModuleDef definition = {
    .m_base = PyModuleDef_HEAD_INIT, .m_name = "_maxsim", .m_methods = methods, .m_slots = slots};

PyMODINIT_FUNC PyInit__maxsim(void) { return PyModuleDef_Init(&definition); }
