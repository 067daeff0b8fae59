/* How many multiply-adds a core can do, nothing read: twelve sums in registers, which no step waits
   for. kernels.py compiles this; each function returns the multiply-adds of `rounds` rounds. */

#include <immintrin.h>

#define SUMS 12

__attribute__((target("avx512f,avx512vnni"))) double int8_avx512(long rounds)
{
    __m512i sums[SUMS] = {0}, x = _mm512_set1_epi8(3), y = _mm512_set1_epi8(5);
    for (long i = 0; i < rounds; i++)
        for (int s = 0; s < SUMS; s++)
            __asm__ volatile("vpdpbusd %2, %1, %0" : "+v"(sums[s]) : "v"(x), "v"(y));
    return 64.0 * SUMS * rounds;
}

/* Pairs of 16-bit codes, as AVX2 multiplies int8 rows. */
__attribute__((target("avx2"))) double int8_avx2(long rounds)
{
    __m256i sums[SUMS] = {0}, x = _mm256_set1_epi16(3), y = _mm256_set1_epi16(5), pairs;
    for (long i = 0; i < rounds; i++)
        for (int s = 0; s < SUMS; s++)
            __asm__ volatile("vpmaddwd %3, %2, %1\n\tvpaddd %1, %0, %0"
                             : "+x"(sums[s]), "=&x"(pairs)
                             : "x"(x), "x"(y));
    return 16.0 * SUMS * rounds;
}

__attribute__((target("avx2,fma"))) double f32_avx2(long rounds)
{
    __m256 sums[SUMS] = {0}, x = _mm256_set1_ps(3), y = _mm256_set1_ps(5);
    for (long i = 0; i < rounds; i++)
        for (int s = 0; s < SUMS; s++)
            __asm__ volatile("vfmadd231ps %2, %1, %0" : "+x"(sums[s]) : "x"(x), "x"(y));
    return 8.0 * SUMS * rounds;
}
