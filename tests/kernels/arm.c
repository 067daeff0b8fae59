/* The kernel of ARM's dot product against portable C, to the last bit, in one process: scores of
   random ragged documents, and what a scan finds against a sort of them. test_arm.py compiles this
   for ARM and runs it; nothing of Python is linked, so memory is the C library's. */

#include "_maxsim.c"
#include <stdio.h>
#include <stdlib.h>

void *PyMem_RawCalloc(size_t count, size_t size) { return calloc(count ? count : 1, size); }
void *PyMem_RawRealloc(void *memory, size_t size) { return realloc(memory, size); }
void PyMem_RawFree(void *memory) { free(memory); }

enum { DOCUMENTS = 60, MOST_ROWS = 20, MOST_UNITS = 9, WIDEST = 384 };
static signed char rows[DOCUMENTS * MOST_ROWS * WIDEST];
static float query[MOST_UNITS * WIDEST], weights[MOST_UNITS], scores[2][DOCUMENTS];
static float scales[DOCUMENTS * MOST_ROWS], shares[DOCUMENTS * MOST_ROWS], mean[WIDEST];
static int64_t starts[DOCUMENTS], ends[DOCUMENTS];
static double base[DOCUMENTS];
static uint32_t state = 1;

static uint32_t number_below(uint32_t most)
{
    state = state * 1664525u + 1013904223u;
    return (uint32_t)((uint64_t)state * most >> 32);
}

static float real(void) { return (float)number_below(2000001) / 1000000 - 1; }

static int descending(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return x < y ? 1 : x > y ? -1 : 0;
}

/* Documents of `width` columns in rows of `bytes` bytes, of int8 or of int4; returns what went
   wrong. */
static const char *compare(Py_ssize_t width, Py_ssize_t bytes, Py_ssize_t units, int extreme,
                           int centred, int int4)
{
    Py_ssize_t shape[2] = {0, bytes}, strides[2] = {bytes, 1};
    char format[2] = {int4 ? 'B' : 'b', 0};
    for (int j = 0; j < DOCUMENTS; j++) {
        starts[j] = shape[0], shape[0] += number_below(MOST_ROWS + 1), ends[j] = shape[0];
        base[j] = real();
    }
    for (Py_ssize_t k = 0; k < shape[0] * bytes; k++)
        rows[k] = (signed char)(extreme ? (number_below(2) ? 127 : -127)
                                        : (int)number_below(255) - 127);
    for (Py_ssize_t u = 0; u < shape[0]; u++)
        scales[u] = real() / 127, shares[u] = number_below(2) ? 1 : real();
    for (Py_ssize_t k = 0; k < width; k++)
        mean[k] = real();
    for (Py_ssize_t k = 0; k < units * width; k++)
        query[k] = extreme ? (number_below(2) ? 1 : -1) : real();
    for (Py_ssize_t i = 0; i < units; i++)
        weights[i] = real();
    const Py_buffer vectors = {.buf = rows, .format = format, .itemsize = 1, .ndim = 2, .shape = shape,
                               .strides = strides};
    const Documents documents = {
        .vectors = (const char *)rows, .scales = (const char *)scales,
        .starts = (const char *)starts, .ends = (const char *)ends, .rows = shape[0],
        .stride = bytes, .bytes = int4 ? (width + 1) / 2 : width, .count = DOCUMENTS, .scale_kind = 'f',
        .mean = centred ? mean : NULL, .shares = centred ? (const char *)shares : NULL};
    Lengths longest = {0, 0};
    for (Py_ssize_t u = 0; u < shape[0]; u++) {
        double squares[2] = {0, 0}; /* without the mean, and with it */
        for (Py_ssize_t k = 0; k < width; k++) {
            const signed char *row = rows + u * bytes;
            const double own = (double)scales[u] * (int4 ? code_at((const char *)row, k) : row[k]);
            const double whole = own + (centred ? (double)shares[u] * mean[k] : 0);
            squares[0] += own * own, squares[1] += whole * whole;
        }
        longest.rest = fmax(longest.rest, sqrt(squares[0]));
        longest.whole = fmax(longest.whole, sqrt(squares[1]));
    }
    for (int use = 0; use < 2; use++) {
        const Layout layout = layout_of(&vectors, width, use);
        Reader reader;
        Plan plan = {0};
        if (layout.dot != use)
            return "the wrong kernel was chosen";
        if (prepare(&plan, &layout, query, weights, documents.mean, units, longest, 2) < 0 ||
            open_reader(&reader, &documents, &layout) < 0)
            return "no memory";
        if (run(&plan, &reader, 1, (char *)scores[use]) != DOCUMENTS)
            return "a document is missing";
        PyMem_RawFree(plan.memory), PyMem_RawFree(reader.memory);
    }
    if (memcmp(scores[0], scores[1], sizeof scores[0]))
        return "scores differ";
    const Layout layout = layout_of(&vectors, width, WITH_DOT);
    for (int k = 1; k <= DOCUMENTS; k += 13)
        for (int coarse = 0; coarse < 2; coarse++) {
            double sorted[DOCUMENTS];
            Reader reader;
            Scan scan = {.k = k, .least = -INFINITY, .coarse = coarse, .base = (char *)base};
            scan.heap = PyMem_RawCalloc((size_t)k, sizeof(double));
            if (prepare(&scan.plan, &layout, query, weights, documents.mean, units, longest,
                        2 - coarse) < 0 ||
                prepare(&scan.whole, &layout, query, weights, documents.mean, units, longest,
                        2) < 0 ||
                open_reader(&reader, &documents, &layout) < 0)
                return "no memory";
            if (scan_all(&scan, 1, &reader) != DOCUMENTS)
                return "a scan has stopped";
            for (int j = 0; j < DOCUMENTS; j++)
                sorted[j] = base[j] + scores[0][j];
            qsort(sorted, DOCUMENTS, sizeof *sorted, descending);
            Py_ssize_t found = 0;
            for (int j = 0; j < DOCUMENTS; j++)
                if (base[j] + scores[0][j] >= sorted[k - 1] &&
                    (found == scan.count || scan.found[found].document != j ||
                     scan.found[found++].score != scores[0][j]))
                    return "a scan finds others";
            if (found != scan.count)
                return "a scan finds more";
            PyMem_RawFree(scan.plan.memory), PyMem_RawFree(scan.whole.memory);
            PyMem_RawFree(scan.heap), PyMem_RawFree(scan.found), PyMem_RawFree(reader.memory);
        }
    return NULL;
}

int main(void)
{
    const Py_ssize_t widths[][2] = {{1, 1},   {5, 9},    {16, 16},   {31, 31},
                                    {64, 64}, {70, 128}, {128, 128}, {384, 384}};
    level = highest_level();
    if (level != WITH_DOT)
        return puts("this processor has no dot product"), 2;
    for (int w = 0; w < 8; w++)
        for (Py_ssize_t units = 1; units <= MOST_UNITS; units += 1 + units / 4)
            for (int kind = 0; kind < 8; kind++) {
                const int extreme = kind % 2, centred = kind / 2 % 2, int4 = kind / 4;
                const Py_ssize_t bytes = int4 ? (widths[w][1] + 1) / 2 : widths[w][1];
                const char *wrong = compare(widths[w][0], bytes, units, extreme, centred, int4);
                if (wrong)
                    return printf("%s: width %zd, %zd units, extreme %d, mean %d, int4 %d\n", wrong,
                                  widths[w][0], units, extreme, centred, int4), 1;
            }
    return puts("equal"), 0;
}
