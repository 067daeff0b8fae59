/* Products of the units of a query with the rows of a document, and their maxima.

   The units are taken in stages of 4. A tile (the rows of a document, or as many as fit a few
   kilobytes) is packed once, and every stage of every query meets it while it is in the cache.
   A row's product is the same whatever stands beside it: a block short of rows repeats its last
   one (a maximum does not mind).

   f32: 3 rows times 4 units, 12 sums in registers, each added up at the end of a row.

   int8 rows meet a query of 16-bit codes; sums of integers are the same in any order, so every
   instruction set gives the same ones. AVX2 multiplies pairs of int16 (`madd`), as above. VNNI
   multiplies four unsigned bytes with four signed ones in each of 16 lanes: packing a row adds 128
   to its codes, the sums start from what that adds to them, and a 16-bit code is two signed digits
   of 8 bits. Its lanes are units: a piece of a row, repeated, meets as many bytes of each unit, so
   that only 4 lanes of a unit are left to be added up, those of 4 rows together (a last stage of one
   or two units has more lanes for each). ARM's dot product multiplies signed bytes with signed ones:
   rows stay as they lie, and a code is two digits as well.

   Rows of int4 have two codes a byte, 8 more than they stand for, that of an even column in the low
   four bits. Packing a row makes int8 of them; from there on they are int8.

   Rows may be what is left of vectors without a mean: then the product of a unit with the mean,
   times the share that a row has of it, is added to the row's own product, in one rounding. */

#include "arrays.h"
#include <math.h>

#if defined(__x86_64__) && defined(__GNUC__)
#define WITH_X86 1
#include <cpuid.h>
#include <immintrin.h>
#define AVX2 __attribute__((target("avx2,fma,f16c")))
#define AVX512 __attribute__((target("avx2,fma,f16c,avx512f,avx512bw,avx512vnni")))
#endif

#if defined(__aarch64__) && defined(__AARCH64EL__) && defined(__GNUC__)
#define WITH_ARM 1
#include <arm_neon.h>
#if defined(__ARM_FEATURE_DOTPROD) /* every processor this is compiled for has it */
#define DOT
#elif defined(__clang__)
#define DOT __attribute__((target("dotprod")))
#else
#define DOT __attribute__((target("arch=armv8.2-a+dotprod")))
#endif
#ifdef __linux__
#include <sys/auxv.h>
#ifndef HWCAP_ASIMDDP
#define HWCAP_ASIMDDP (1 << 20)
#endif
#endif
#endif

#ifdef __GNUC__
#define INLINE __attribute__((always_inline)) inline
#endif

enum { STAGE = 4, ROWS = 3, LANES = 8, CODES = 16, REGISTER = 64 };
enum { MAX_WIDTH = 65536, TILE = 32768, BLOCKS = 24 };
/* The largest 16-bit code: 127 * 256 + 127, of two signed digits. */
enum { MAX_CODE = 32639, MAX_DIGIT = 127 };
enum { PORTABLE, WITH_256, WITH_512, WITH_DOT = 1 }; /* what a caller lets us use */

/* Rows as the products read them. */
typedef struct {
    const char *rows;
    Py_ssize_t stride, count;
    const float *scales, *shares; /* shares: of the mean, 0 where there is none */
} Tile;

/* One query, ready for its products. Units stand in falling order of what they can add to a score;
   `place[i]` is where unit i stands. */
typedef struct Plan {
    Py_ssize_t units, stages;
    Py_ssize_t columns;     /* of a packed row, whole registers */
    Py_ssize_t stage_bytes; /* of the query */
    int digits;             /* of 8 bits: 1 for a coarse query, 2 for a whole one */
    char *query;            /* [stages], each as its block function says */
    int32_t *from;          /* VNNI: what the sums start from, [stages][digits][16] */
    float *steps;           /* [4 * stages] what one step of a unit's codes is worth */
    float *means;           /* [4 * stages] products with the mean, in steps; 0 without one */
    float *best;            /* [4 * stages] maxima of the present document, in steps */
    float *weights;         /* [4 * stages], 0 where there is no unit */
    double *above;          /* [stages] what a score can be above the sum of the first stages */
    double below;           /* what it can be below the sum of all */
    double reach;           /* the most that a score can be */
    Py_ssize_t *place;      /* [units] */
    void *memory;           /* in which all of these lie */
    void (*block)(const struct Plan *, Py_ssize_t stage, const Tile *);
} Plan;

/* Packing: `count` rows, `stride` bytes apart, to rows of `row` bytes. */

static void copy_rows(char *to, Py_ssize_t row, const char *from, Py_ssize_t stride,
                      Py_ssize_t count, Py_ssize_t bytes)
{
    for (; count--; to += row, from += stride)
        memcpy(to, from, (size_t)bytes);
}

static void copy_f32(char *to, Py_ssize_t row, const char *from, Py_ssize_t stride,
                     Py_ssize_t count, Py_ssize_t width)
{
    copy_rows(to, row, from, stride, count, width * (Py_ssize_t)sizeof(float));
}

static void widen_f16(char *to, Py_ssize_t row, const char *from, Py_ssize_t stride,
                      Py_ssize_t count, Py_ssize_t width)
{
    for (; count--; to += row, from += stride)
        halves((float *)to, from, width);
}

static void widen_int8(char *to, Py_ssize_t row, const char *from, Py_ssize_t stride,
                       Py_ssize_t count, Py_ssize_t width)
{
    for (; count--; to += row, from += stride)
        for (Py_ssize_t k = 0; k < width; k++)
            ((int16_t *)to)[k] = (signed char)from[k];
}

/* Code k of a row of int4. */
static inline int code_at(const char *row, Py_ssize_t k)
{
    return (((unsigned char)row[k / 2] >> k % 2 * 4) & 15) - 8;
}

static void widen_int4(char *to, Py_ssize_t row, const char *from, Py_ssize_t stride,
                       Py_ssize_t count, Py_ssize_t width)
{
    for (; count--; to += row, from += stride) {
        int16_t *codes = (int16_t *)to;
        for (Py_ssize_t b = 0; b < width / 2; b++) { /* pairs, which compilers vectorise */
            codes[2 * b] = (int16_t)(((unsigned char)from[b] & 15) - 8);
            codes[2 * b + 1] = (int16_t)(((unsigned char)from[b] >> 4) - 8);
        }
        if (width % 2)
            codes[width - 1] = (int16_t)code_at(from, width - 1);
    }
}

/* To int8. */
static void split_int4(char *to, Py_ssize_t row, const char *from, Py_ssize_t stride,
                       Py_ssize_t count, Py_ssize_t width)
{
    for (; count--; to += row, from += stride) {
        for (Py_ssize_t b = 0; b < width / 2; b++) {
            to[2 * b] = (char)(signed char)(((unsigned char)from[b] & 15) - 8);
            to[2 * b + 1] = (char)(signed char)(((unsigned char)from[b] >> 4) - 8);
        }
        if (width % 2)
            to[width - 1] = (char)(signed char)code_at(from, width - 1);
    }
}

static inline Py_ssize_t units_of(const Plan *plan, Py_ssize_t stage)
{
    const Py_ssize_t left = plan->units - stage * STAGE;
    return left < STAGE ? left : STAGE;
}

static inline float larger(float found, float best) { return found > best ? found : best; }

/* A row's own product and its share of the mean's, as an instruction would add them. */
static inline float with_mean(float own, float share, float mean)
{
    return share == 0 ? own : fmaf(share, mean, own);
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

/* query: float [chunks][4][8] */
static void block_f32(const Plan *plan, Py_ssize_t stage, const Tile *tile)
{
    for (Py_ssize_t u = 0; u < tile->count; u++) {
        const float *row = (const float *)(tile->rows + u * tile->stride);
        const float *x = (const float *)(plan->query + stage * plan->stage_bytes);
        Four sums[STAGE][2];
        memset(sums, 0, sizeof sums);
        for (Py_ssize_t k = 0; k < plan->columns; k += LANES, x += STAGE * LANES)
            for (int i = 0; i < STAGE; i++)
                for (int h = 0; h < 2; h++)
                    multiply_add(&sums[i][h], x + i * LANES + 4 * h, row + k + 4 * h);
        for (int i = 0; i < STAGE; i++) {
            float s[LANES], *best = plan->best + stage * STAGE + i;
            memcpy(s, sums[i], sizeof s);
            float found = ((s[0] + s[1]) + (s[2] + s[3])) + ((s[4] + s[5]) + (s[6] + s[7]));
            found *= tile->scales[u];
            *best = larger(with_mean(found, tile->shares[u], plan->means[stage * STAGE + i]), *best);
        }
    }
}

/* rows: int16_t [columns]; query: int16_t [4][columns] */
static void block_int8(const Plan *plan, Py_ssize_t stage, const Tile *tile)
{
    const int16_t *query = (const int16_t *)(plan->query + stage * plan->stage_bytes);
    for (Py_ssize_t i = 0; i < units_of(plan, stage); i++)
        for (Py_ssize_t u = 0; u < tile->count; u++) {
            const int16_t *x = query + i * plan->columns;
            const int16_t *row = (const int16_t *)(tile->rows + u * tile->stride);
            float *best = plan->best + stage * STAGE + i;
            int32_t sum = 0;
            for (Py_ssize_t k = 0; k < plan->columns; k++)
                sum += x[k] * row[k];
            const float found = (float)sum * tile->scales[u];
            *best = larger(with_mean(found, tile->shares[u], plan->means[stage * STAGE + i]), *best);
        }
}

/* Row u of a tile, or its last one. */
static inline Py_ssize_t row_at(const Tile *tile, Py_ssize_t u)
{
    return u < tile->count ? u : tile->count - 1;
}

#ifdef WITH_ARM

/* Two rows at a time: with four units of two digits each, 16 sums. */
DOT static INLINE void tile_dot(const Plan *plan, Py_ssize_t stage, const Tile *tile, int digits)
{
    float *to = plan->best + stage * STAGE;
    float32x4_t best = vld1q_f32(to);
    const float32x4_t means = vld1q_f32(plan->means + stage * STAGE);
    for (Py_ssize_t first = 0; first < tile->count; first += 2) {
        const int8_t *x = (const int8_t *)(plan->query + stage * plan->stage_bytes), *rows[2];
        int32x4_t sums[2][2][STAGE];
        for (int u = 0; u < 2; u++) {
            rows[u] = (const int8_t *)tile->rows + row_at(tile, first + u) * tile->stride;
            for (int i = 0; i < STAGE; i++)
                sums[u][0][i] = sums[u][1][i] = vdupq_n_s32(0);
        }
        for (Py_ssize_t k = 0; k < plan->columns; k += CODES) {
            const int8x16_t row[2] = {vld1q_s8(rows[0] + k), vld1q_s8(rows[1] + k)};
            for (int i = 0; i < STAGE; i++)
                for (int d = 0; d < digits; d++, x += CODES)
                    for (int u = 0; u < 2; u++)
                        sums[u][d][i] = vdotq_s32(sums[u][d][i], row[u], vld1q_s8(x));
        }
        for (int u = 0; u < 2; u++) {
            int32x4_t *v = sums[u][0];
            for (int i = 0; i < STAGE && digits == 2; i++)
                v[i] = vaddq_s32(vshlq_n_s32(v[i], 8), sums[u][1][i]);
            const int32x4_t totals = vpaddq_s32(vpaddq_s32(v[0], v[1]), vpaddq_s32(v[2], v[3]));
            const Py_ssize_t row = row_at(tile, first + u);
            const float32x4_t own = vmulq_n_f32(vcvtq_f32_s32(totals), tile->scales[row]);
            const float32x4_t found = vfmaq_n_f32(own, means, tile->shares[row]);
            best = vbslq_f32(vcgtq_f32(found, best), found, best); /* a NaN is passed over */
        }
    }
    vst1q_f32(to, best);
}

/* rows: int8 as they lie; query: int8_t [chunks][4][digits][16] */
DOT static void block_dot(const Plan *plan, Py_ssize_t stage, const Tile *tile)
{
    plan->digits == 1 ? tile_dot(plan, stage, tile, 1) : tile_dot(plan, stage, tile, 2);
}

#endif

#ifdef WITH_X86

AVX2 static void halves_avx2(float *to, const char *from, Py_ssize_t count)
{
    Py_ssize_t k = 0;
    for (; k + LANES <= count; k += LANES) {
        const __m128i halves = _mm_loadu_si128((const __m128i *)(from + 2 * k));
        _mm256_storeu_ps(to + k, _mm256_cvtph_ps(halves));
    }
    for (; k < count; k++) {
        uint16_t bits;
        memcpy(&bits, from + 2 * k, sizeof bits);
        to[k] = _cvtsh_ss(bits);
    }
}

AVX2 static void widen_f16_avx2(char *to, Py_ssize_t row, const char *from, Py_ssize_t stride,
                                Py_ssize_t count, Py_ssize_t width)
{
    for (; count--; to += row, from += stride)
        halves_avx2((float *)to, from, width);
}

/* Codes + 128, as VNNI wants them. */
AVX512 static void shift_int8(char *to, Py_ssize_t row, const char *from, Py_ssize_t stride,
                              Py_ssize_t count, Py_ssize_t width)
{
    const __m512i sign = _mm512_set1_epi8((char)-128);
    const Py_ssize_t whole = width / REGISTER * REGISTER;
    const __mmask64 rest = ((__mmask64)1 << (width - whole)) - 1;
    for (; count--; to += row, from += stride) {
        for (Py_ssize_t k = 0; k < whole; k += REGISTER) {
            const __m512i codes = _mm512_loadu_si512(from + k);
            _mm512_store_si512(to + k, _mm512_xor_si512(codes, sign));
        }
        if (rest) {
            const __m512i codes = _mm512_maskz_loadu_epi8(rest, from + whole);
            _mm512_store_si512(to + whole, _mm512_xor_si512(codes, sign));
        }
    }
}

/* int4 to int8: a byte becomes 16 bits, whose halves get one code each. */
AVX2 static void split_int4_avx2(char *to, Py_ssize_t row, const char *from, Py_ssize_t stride,
                                 Py_ssize_t count, Py_ssize_t width)
{
    const __m256i low = _mm256_set1_epi8(15), eight = _mm256_set1_epi8(8);
    const Py_ssize_t whole = width / 32 * 32;
    for (; count--; to += row, from += stride) {
        for (Py_ssize_t k = 0; k < whole; k += 32) {
            const __m128i bytes = _mm_loadu_si128((const __m128i *)(from + k / 2));
            const __m256i pairs = _mm256_cvtepu8_epi16(bytes);
            const __m256i codes = _mm256_or_si256(pairs, _mm256_slli_epi16(pairs, 4));
            const __m256i split = _mm256_sub_epi8(_mm256_and_si256(codes, low), eight);
            _mm256_storeu_si256((__m256i *)(to + k), split);
        }
        for (Py_ssize_t k = whole; k < width; k++)
            to[k] = (char)(signed char)code_at(from, k);
    }
}

/* The same, as VNNI wants them. */
AVX512 static void shift_int4(char *to, Py_ssize_t row, const char *from, Py_ssize_t stride,
                              Py_ssize_t count, Py_ssize_t width)
{
    const __m512i low = _mm512_set1_epi8(15), more = _mm512_set1_epi8(128 - 8);
    const Py_ssize_t whole = width / REGISTER * REGISTER;
    for (; count--; to += row, from += stride) {
        for (Py_ssize_t k = 0; k < whole; k += REGISTER) {
            const __m256i bytes = _mm256_loadu_si256((const __m256i *)(from + k / 2));
            const __m512i pairs = _mm512_cvtepu8_epi16(bytes);
            const __m512i codes = _mm512_or_si512(pairs, _mm512_slli_epi16(pairs, 4));
            _mm512_store_si512(to + k, _mm512_add_epi8(_mm512_and_si512(codes, low), more));
        }
        for (Py_ssize_t k = whole; k < width; k++)
            to[k] = (char)(code_at(from, k) + 128);
    }
}

/* The sums of four registers, in the order of `block_f32`. */
AVX2 static inline __m128 totals_f32(const __m256 v[STAGE])
{
    __m256 s = _mm256_hadd_ps(_mm256_hadd_ps(v[0], v[1]), _mm256_hadd_ps(v[2], v[3]));
    return _mm_add_ps(_mm256_castps256_ps128(s), _mm256_extractf128_ps(s, 1));
}

AVX2 static inline __m128 totals_int8(const __m256i v[STAGE])
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

/* The sums of row u, scaled, with its share of the mean's products. */
AVX2 static inline __m128 found_avx2(__m128 sums, const Tile *tile, Py_ssize_t u, __m128 means)
{
    const Py_ssize_t row = row_at(tile, u);
    const __m128 own = _mm_mul_ps(sums, _mm_set1_ps(tile->scales[row]));
    return _mm_fmadd_ps(_mm_set1_ps(tile->shares[row]), means, own);
}

AVX2 static void block_f32_avx2(const Plan *plan, Py_ssize_t stage, const Tile *tile)
{
    float *to = plan->best + stage * STAGE;
    __m128 best = _mm_loadu_ps(to);
    const __m128 means = _mm_loadu_ps(plan->means + stage * STAGE);
    for (Py_ssize_t first = 0; first < tile->count; first += ROWS) {
        const float *x = (const float *)(plan->query + stage * plan->stage_bytes), *rows[ROWS];
        __m256 sums[ROWS][STAGE];
        for (int u = 0; u < ROWS; u++) {
            rows[u] = (const float *)(tile->rows + row_at(tile, first + u) * tile->stride);
            for (int i = 0; i < STAGE; i++)
                sums[u][i] = _mm256_setzero_ps();
        }
        for (Py_ssize_t k = 0; k < plan->columns; k += LANES, x += STAGE * LANES) {
            __m256 row[ROWS];
            for (int u = 0; u < ROWS; u++)
                row[u] = _mm256_loadu_ps(rows[u] + k);
            for (int i = 0; i < STAGE; i++) {
                const __m256 unit = _mm256_load_ps(x + i * LANES);
                for (int u = 0; u < ROWS; u++)
                    sums[u][i] = _mm256_fmadd_ps(unit, row[u], sums[u][i]);
            }
        }
        for (int u = 0; u < ROWS; u++) /* a NaN is passed over, as by C's `>` */
            best = _mm_max_ps(found_avx2(totals_f32(sums[u]), tile, first + u, means), best);
    }
    _mm_storeu_ps(to, best);
}

/* rows: int8 as they lie; query: int16_t [chunks][4][16] */
AVX2 static void block_int8_avx2(const Plan *plan, Py_ssize_t stage, const Tile *tile)
{
    float *to = plan->best + stage * STAGE;
    __m128 best = _mm_loadu_ps(to);
    const __m128 means = _mm_loadu_ps(plan->means + stage * STAGE);
    for (Py_ssize_t first = 0; first < tile->count; first += ROWS) {
        const __m256i *x = (const __m256i *)(plan->query + stage * plan->stage_bytes);
        const char *rows[ROWS];
        __m256i sums[ROWS][STAGE];
        for (int u = 0; u < ROWS; u++) {
            rows[u] = tile->rows + row_at(tile, first + u) * tile->stride;
            for (int i = 0; i < STAGE; i++)
                sums[u][i] = _mm256_setzero_si256();
        }
        for (Py_ssize_t k = 0; k < plan->columns; k += CODES, x += STAGE) {
            __m256i row[ROWS];
            for (int u = 0; u < ROWS; u++)
                row[u] = _mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i *)(rows[u] + k)));
            for (int i = 0; i < STAGE; i++)
                for (int u = 0; u < ROWS; u++)
                    multiply_add_int8(&sums[u][i], row[u], x + i);
        }
        for (int u = 0; u < ROWS; u++)
            best = _mm_max_ps(found_avx2(totals_int8(sums[u]), tile, first + u, means), best);
    }
    _mm_storeu_ps(to, best);
}

/* 4 * lanes bytes of a row in every unit's lanes. */
AVX512 static INLINE __m512i repeated(const char *piece, int lanes)
{
    if (lanes == 4)
        return _mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i *)piece));
    if (lanes == 8)
        return _mm512_broadcast_i64x4(_mm256_loadu_si256((const __m256i *)piece));
    return _mm512_loadu_si512(piece);
}

/* In each 128 bits, [a, b, c, d]: of four rows the sums of their lanes there. */
AVX512 static INLINE __m512i four_totals(const __m512i v[4])
{
    const __m512i ab = _mm512_add_epi32(_mm512_unpacklo_epi32(v[0], v[1]),
                                        _mm512_unpackhi_epi32(v[0], v[1]));
    const __m512i cd = _mm512_add_epi32(_mm512_unpacklo_epi32(v[2], v[3]),
                                        _mm512_unpackhi_epi32(v[2], v[3]));
    return _mm512_add_epi32(_mm512_unpacklo_epi64(ab, cd), _mm512_unpackhi_epi64(ab, cd));
}

/* sum += products of four bytes, in place: GCC moves sums to other registers and back. */
AVX512 static INLINE void multiply_add_vnni(__m512i *sum, __m512i row, __m512i unit)
{
    __asm__("vpdpbusd %[unit], %[row], %[sum]"
            : [sum] "+v"(*sum)
            : [row] "v"(row), [unit] "v"(unit));
}

/* `count` rows from `first`, a multiple of 4, against one stage, whose units have so many lanes and
   digits each. Rows that are not there repeat the last one, and so do their scales and shares. */
AVX512 static INLINE __m512 rows_vnni(const Plan *plan, Py_ssize_t stage, const Tile *tile,
                                      Py_ssize_t first, __m512 best, __m512 means, int count,
                                      int lanes, int digits)
{
    const __m512i *x = (const __m512i *)(plan->query + stage * plan->stage_bytes);
    const __m512i *from = (const __m512i *)plan->from + stage * plan->digits;
    const char *rows[8];
    __m512i sums[2][8];
    for (int u = 0; u < count; u++) {
        rows[u] = tile->rows + row_at(tile, first + u) * tile->stride;
        for (int d = 0; d < digits; d++)
            sums[d][u] = from[d];
    }
    for (Py_ssize_t k = 0; k < plan->columns; k += 4 * lanes, x += digits)
        for (int u = 0; u < count; u++) {
            const __m512i piece = repeated(rows[u] + k, lanes);
            for (int d = 0; d < digits; d++)
                multiply_add_vnni(&sums[d][u], piece, x[d]);
        }
    for (int u = 0; u < count; u += 4) {
        __m512i sum = four_totals(sums[0] + u);
        if (digits == 2)
            sum = _mm512_add_epi32(_mm512_slli_epi32(sum, 8), four_totals(sums[1] + u));
        if (lanes >= 8)
            sum = _mm512_add_epi32(sum, _mm512_shuffle_i32x4(sum, sum, 0xb1));
        if (lanes >= 16)
            sum = _mm512_add_epi32(sum, _mm512_shuffle_i32x4(sum, sum, 0x4e));
        const __m512 scale = _mm512_broadcast_f32x4(_mm_loadu_ps(tile->scales + first + u));
        const __m512 share = _mm512_broadcast_f32x4(_mm_loadu_ps(tile->shares + first + u));
        const __m512 own = _mm512_mul_ps(_mm512_cvtepi32_ps(sum), scale);
        best = _mm512_max_ps(_mm512_fmadd_ps(share, means, own), best);
    }
    return best;
}

AVX512 static INLINE void tile_vnni(const Plan *plan, Py_ssize_t stage, const Tile *tile,
                                    int lanes, int digits)
{
    const __m512i firsts = _mm512_setr_epi32(0, lanes, lanes * 2 % 16, lanes * 3 % 16, 0, 0, 0, 0,
                                             0, 0, 0, 0, 0, 0, 0, 0);
    const __m512i lane = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    const __m512i unit = _mm512_srli_epi32(lane, lanes == 4 ? 2 : lanes == 8 ? 3 : 4);
    const __m512 means = _mm512_permutexvar_ps(
        unit, _mm512_broadcast_f32x4(_mm_loadu_ps(plan->means + stage * STAGE)));
    float *to = plan->best + stage * STAGE;
    __m512 best = _mm512_set1_ps(-INFINITY);
    Py_ssize_t u = 0;
    for (; u + 4 < tile->count; u += 8)
        best = rows_vnni(plan, stage, tile, u, best, means, 8, lanes, digits);
    if (u < tile->count)
        best = rows_vnni(plan, stage, tile, u, best, means, 4, lanes, digits);
    best = _mm512_max_ps(best, _mm512_shuffle_ps(best, best, 0xb1));
    best = _mm512_max_ps(best, _mm512_shuffle_ps(best, best, 0x4e));
    const __m128 found = _mm512_castps512_ps128(_mm512_permutexvar_ps(firsts, best));
    _mm_storeu_ps(to, _mm_max_ps(found, _mm_loadu_ps(to)));
}

/* rows: codes + 128; query: int8_t [pieces][digits][units][4 * lanes] */
AVX512 static void block_vnni(const Plan *plan, Py_ssize_t stage, const Tile *tile)
{
    const Py_ssize_t units = units_of(plan, stage);
    if (units > 2)
        plan->digits == 1 ? tile_vnni(plan, stage, tile, 4, 1) : tile_vnni(plan, stage, tile, 4, 2);
    else if (units > 1)
        plan->digits == 1 ? tile_vnni(plan, stage, tile, 8, 1) : tile_vnni(plan, stage, tile, 8, 2);
    else
        plan->digits == 1 ? tile_vnni(plan, stage, tile, 16, 1)
                          : tile_vnni(plan, stage, tile, 16, 2);
}

#endif

#ifdef WITH_ARM
#define SETS "dot product"
#else
#define SETS "AVX2, AVX512"
#endif

static int level; /* set once, when the module is made: asking the processor is slow */

static int highest_level(void)
{
#ifdef WITH_X86
    unsigned a, b, c, d;
    if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma") ||
        !__get_cpuid(1, &a, &b, &c, &d) || !(c & bit_F16C))
        return PORTABLE;
    return __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vnni") ? WITH_512
                                                                                       : WITH_256;
#elif defined(WITH_ARM) && defined(__ARM_FEATURE_DOTPROD)
    return WITH_DOT;
#elif defined(WITH_ARM) && defined(__linux__)
    return getauxval(AT_HWCAP) & HWCAP_ASIMDDP ? WITH_DOT : PORTABLE;
#else
    return PORTABLE;
#endif
}
