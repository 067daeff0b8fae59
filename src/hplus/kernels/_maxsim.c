/* Ragged importance-weighted MaxSim (eq:phrase_score); reference.py says what is computed.

   `score` gives the scores of documents, `scan` the best k of them. Both meet a document in the
   same way (products.h), and weighted maxima are added in the order of the query's units: a
   document scores the same to the last bit whatever stands beside it.

   `scan` leaves a document as soon as it cannot come to the k-th place. The units that can add most
   come first; after every stage, what the others could add at most (the lengths of query and
   document vectors bound a similarity) decides. With VNNI or ARM's dot product a first pass uses
   queries of 8-bit codes, whose error has a bound too, and only what may be among the best is scored
   by whole queries. All bounds leave room for rounding, and equal scores are never left out. What
   other views give a document may be counted before its first unit is met: then documents are ranked
   by the sum. */

#include "products.h"

enum { AHEAD = 64 }; /* rows to fetch ahead */
/* A first pass pays from so many units on, and if one document in so many is wanted. */
enum { COARSE_UNITS = 2, COARSE_SHARE = 8 };

typedef struct {
    const char *vectors, *scales, *starts, *ends;
    Py_ssize_t rows, stride, bytes, count; /* bytes of a row that are read */
    char scale_kind;                       /* 'f', 'e', or 0 for no scales */
    const float *mean;  /* a row is its numbers times its scale plus its share of this; or NULL */
    const char *shares; /* f32; NULL: 1 for every row whose scale is not 0 */
} Documents;

/* How the rows of an array of vectors meet a query. */
typedef struct {
    int int8, vnni, dot;    /* vnni, dot: codes of the query in digits of 8 bits */
    int apart;              /* units one after another, not in fours */
    Py_ssize_t width, columns, number;                         /* bytes of a packed number */
    void (*pack)(char *to, Py_ssize_t row, const char *from, Py_ssize_t stride, Py_ssize_t count,
                 Py_ssize_t width); /* NULL: rows where they lie */
    void (*halves)(float *to, const char *from, Py_ssize_t count);
    void (*block)(const Plan *, Py_ssize_t stage, const Tile *);
} Layout;

/* Goes through documents, a tile at a time, and fetches rows that come later. */
typedef struct {
    const Documents *documents;
    const Layout *layout;
    Py_ssize_t room; /* rows of a tile */
    char *packed;
    float *scales, *shares;
    void *memory;
    Py_ssize_t later;         /* the document that is being fetched, */
    int64_t later_at, later_end; /* and the rows of it to come */
} Reader;

/* Two codes a byte. */
static int is_int4(const Py_buffer *vectors)
{
    return vectors->itemsize == 1 && strchr(vectors->format, 'B') != NULL;
}

static Py_ssize_t columns_of(const Py_buffer *vectors)
{
    return vectors->shape[1] * (is_int4(vectors) ? 2 : 1);
}

static Layout layout_of(const Py_buffer *vectors, Py_ssize_t width, int most)
{
    const int int8 = vectors->itemsize == 1, f16 = vectors->itemsize == 2, int4 = is_int4(vectors);
    const int use = most < level ? most : level;
    const int aligned = ((uintptr_t)vectors->buf | (uintptr_t)vectors->strides[0]) % 4 == 0;
    Layout layout = {.int8 = int8, .width = width, .number = int8 ? 2 : 4};
    Py_ssize_t chunk = int8 ? CODES : LANES;
    layout.apart = int8 && use == PORTABLE;
    layout.block = int8 ? block_int8 : block_f32;
    layout.pack = int4 ? widen_int4 : int8 ? widen_int8 : f16 ? widen_f16 : copy_f32;
    layout.halves = halves;
#ifdef WITH_X86
    if (use >= WITH_256) {
        layout.block = int8 ? block_int8_avx2 : block_f32_avx2;
        layout.pack = int4 ? split_int4_avx2 : int8 ? copy_rows : f16 ? widen_f16_avx2 : copy_f32;
        layout.halves = halves_avx2;
        layout.number = int8 ? 1 : 4;
    }
    if (int8 && use == WITH_512) {
        layout.vnni = 1, chunk = REGISTER;
        layout.block = block_vnni, layout.pack = int4 ? shift_int4 : shift_int8;
    }
#endif
#ifdef WITH_ARM
    if (int8 && use == WITH_DOT) {
        layout.dot = 1, layout.number = 1;
        layout.block = block_dot, layout.pack = int4 ? split_int4 : copy_rows;
    }
    const int bytes_as_they_lie = layout.dot, unaligned = 0;
#else
    const int bytes_as_they_lie = use == WITH_256, unaligned = use > PORTABLE;
#endif
    layout.columns = (width + chunk - 1) / chunk * chunk;
    const int as_they_lie = int4 ? 0 : int8 ? bytes_as_they_lie : !f16 && (aligned || unaligned);
    if (as_they_lie && layout.columns == width)
        layout.pack = NULL;
    return layout;
}

/* One unit of a query as codes of at most `limit`; returns what a step of them is worth. */
static float quantise(int16_t *codes, const float *from, Py_ssize_t width, double limit)
{
    float most = 0;
    for (Py_ssize_t k = 0; k < width; k++)
        most = fabsf(from[k]) > most ? fabsf(from[k]) : most;
    const float step = (float)(most / limit);
    const double steps = step > 0 ? 1 / (double)step : 0;
    for (Py_ssize_t k = 0; k < width; k++) {
        double code = rint((double)from[k] * steps);
        code = code > limit ? limit : code < -limit ? -limit : code == code ? code : 0;
        codes[k] = (int16_t)code;
    }
    return step;
}

/* Where number k of the unit at `place` lies in the query of a plan; in bytes, digit by digit,
   where the layout has digits. */
static char *at(const Plan *plan, const Layout *layout, Py_ssize_t place, Py_ssize_t k, int digit)
{
    const Py_ssize_t stage = place / STAGE, i = place % STAGE;
    char *query = plan->query + stage * plan->stage_bytes;
    if (layout->vnni) {
        const Py_ssize_t units = units_of(plan, stage);
        const Py_ssize_t piece = units > 2 ? 16 : units > 1 ? 32 : 64;
        return query + (k / piece * plan->digits + digit) * REGISTER + i * piece + k % piece;
    }
    if (layout->dot)
        return query + ((k / CODES * STAGE + i) * plan->digits + digit) * CODES + k % CODES;
    const Py_ssize_t number = layout->int8 ? 2 : 4, chunk = layout->int8 ? CODES : LANES;
    if (layout->apart)
        return query + (i * plan->columns + k) * number;
    return query + ((k / chunk * STAGE + i) * chunk + k % chunk) * number;
}

/* Codes of the unit at `place`, in one or two signed digits where the layout has digits. */
static void put(Plan *plan, const Layout *layout, Py_ssize_t place, const int16_t *codes)
{
    int32_t sums[2] = {0, 0};
    for (Py_ssize_t k = 0; k < layout->width; k++) {
        if (!layout->vnni && !layout->dot) {
            memcpy(at(plan, layout, place, k, 0), codes + k, sizeof *codes);
            continue;
        }
        const int low = (codes[k] + 32768 + 128) % 256 - 128; /* -128 ... 127 */
        const int digits[2] = {plan->digits == 1 ? codes[k] : (codes[k] - low) / 256, low};
        for (int d = 0; d < plan->digits; d++) {
            *at(plan, layout, place, k, d) = (char)(signed char)digits[d];
            sums[d] += digits[d];
        }
    }
    if (layout->vnni) {
        const Py_ssize_t stage = place / STAGE, units = units_of(plan, stage);
        const int lanes = units > 2 ? 4 : units > 1 ? 8 : 16;
        for (int d = 0; d < plan->digits; d++)
            plan->from[(stage * plan->digits + d) * 16 + place % STAGE * lanes] = -128 * sums[d];
    }
}

typedef struct {
    double reach;
    Py_ssize_t unit;
} Reach;

static int further(const void *a, const void *b)
{
    const Reach *x = a, *y = b;
    if (x->reach != y->reach)
        return x->reach < y->reach ? 1 : -1;
    return x->unit < y->unit ? -1 : 1;
}

/* The largest lengths of the documents' vectors: whole, and of what they are without the mean. */
typedef struct {
    double whole, rest;
} Lengths;

/* A query for a layout; no weights: maxima are wanted. Whole vectors bound a similarity, the rest
   what rounding the query can change. -1: no memory. */
static int prepare(Plan *plan, const Layout *layout, const float *query, const float *weights,
                   const float *mean, Py_ssize_t units, Lengths longest, int digits)
{
    const Py_ssize_t width = layout->width, in_digits = layout->vnni || layout->dot;
    const Py_ssize_t number = in_digits ? digits : layout->int8 ? 2 : 4;
    const double room = width ? (double)(INT32_MAX / (128 * (int32_t)width)) : MAX_CODE;
    const double limit = room < MAX_CODE ? room : MAX_CODE;
    plan->units = units, plan->digits = digits;
    plan->stages = units / STAGE + (units % STAGE > 0);
    plan->columns = layout->columns, plan->block = layout->block;
    plan->stage_bytes = STAGE * plan->columns * number;
    const Py_ssize_t each = plan->stage_bytes + digits * REGISTER + STAGE * 4 * 4 + 8 +
                            STAGE * (Py_ssize_t)(sizeof(Reach) + sizeof(Py_ssize_t));
    if (plan->stages > (PY_SSIZE_T_MAX / 2 - 4 * MAX_WIDTH) / each)
        return -1;
    const size_t size = (size_t)(plan->stages * each + 4 * width + REGISTER);
    if (!(plan->memory = PyMem_RawCalloc(1, size)))
        return -1;
    char *free = (char *)plan->memory + REGISTER - (uintptr_t)plan->memory % REGISTER;
    const Py_ssize_t places = plan->stages * STAGE;
    plan->query = free, free += plan->stages * plan->stage_bytes;
    plan->from = (int32_t *)free, free += plan->stages * digits * REGISTER;
    plan->above = (double *)free, free += plan->stages * 8;
    Reach *reach = (Reach *)free;
    free += places * (Py_ssize_t)sizeof(Reach);
    plan->place = (Py_ssize_t *)free, free += places * (Py_ssize_t)sizeof(Py_ssize_t);
    plan->steps = (float *)free, free += places * 4;
    plan->means = (float *)free, free += places * 4;
    plan->best = (float *)free, free += places * 4;
    plan->weights = (float *)free, free += places * 4;
    int16_t *codes = (int16_t *)free, *coarse = codes + width;

    for (Py_ssize_t i = 0; i < units; i++) {
        double square = 0;
        for (Py_ssize_t k = 0; weights && k < width; k++)
            square += (double)query[i * width + k] * query[i * width + k];
        reach[i] = (Reach){weights ? fabs(weights[i]) * sqrt(square) : 0, i};
        if (!(reach[i].reach < INFINITY))
            reach[i].reach = INFINITY; /* so that NaN has a place too */
    }
    qsort(reach, (size_t)units, sizeof *reach, further);
    double most = 0, error = 0, sums = 0; /* sums: of what is added up, mean and rest apart */
    for (Py_ssize_t place = 0; place < units; place++) {
        const Py_ssize_t i = reach[place].unit;
        const float *from = query + i * width;
        double square = 0, off = 0, met = 0; /* met: the product with the mean */
        plan->place[i] = place;
        plan->weights[place] = weights ? weights[i] : 1;
        plan->steps[place] = 1;
        if (layout->int8) {
            const float step = plan->steps[place] = quantise(codes, from, width, limit);
            if (in_digits && digits == 1) {
                const float wide = plan->steps[place] = quantise(coarse, from, width, MAX_DIGIT);
                for (Py_ssize_t k = 0; k < width; k++) {
                    const double own = (double)step * codes[k] - (double)wide * coarse[k];
                    off += own * own;
                }
            }
            put(plan, layout, place, in_digits && digits == 1 ? coarse : codes);
            for (Py_ssize_t k = 0; k < width; k++) {
                square += (double)step * codes[k] * step * codes[k];
                met += mean ? (double)step * codes[k] * mean[k] : 0;
            }
        } else
            for (Py_ssize_t k = 0; k < width; k++) {
                memcpy(at(plan, layout, place, k, 0), from + k, sizeof *from);
                square += (double)from[k] * from[k];
                met += mean ? (double)from[k] * mean[k] : 0;
            }
        plan->means[place] = plan->steps[place] > 0 ? (float)(met / plan->steps[place]) : 0;
        const double weight = fabs(plan->weights[place]);
        reach[place].reach = weight * longest.whole * sqrt(square); /* now in order of places */
        most += reach[place].reach;
        sums += weight * (longest.whole > longest.rest ? longest.whole : longest.rest) *
                sqrt(square);
        error += weight * longest.rest * sqrt(off);
        if (place % STAGE == STAGE - 1 || place == units - 1)
            plan->above[place / STAGE] = error - most;
    }
    /* Sums of r products and of weighted maxima, in f32 at worst, of what is `sums` at most. */
    const double slack = sums * (double)(width + units + 16) / (1 << 23);
    for (Py_ssize_t stage = 0; stage < plan->stages; stage++)
        plan->above[stage] += most + slack;
    plan->below = error + slack;
    plan->reach = most + slack;
    return 0;
}

static int open_reader(Reader *reader, const Documents *documents, const Layout *layout)
{
    const Py_ssize_t row = layout->columns * layout->number;
    const Py_ssize_t fit = row ? TILE / row / BLOCKS : 16;
    *reader = (Reader){.documents = documents, .layout = layout};
    reader->room = BLOCKS * (fit < 1 ? 1 : fit);
    const Py_ssize_t packed = layout->pack ? reader->room * row : 0;
    reader->memory = PyMem_RawCalloc(1, (size_t)(packed + reader->room * 8 + REGISTER));
    if (!reader->memory)
        return -1;
    reader->packed = (char *)reader->memory + REGISTER - (uintptr_t)reader->memory % REGISTER;
    reader->scales = (float *)(reader->packed + packed);
    reader->shares = reader->scales + reader->room;
    for (Py_ssize_t u = 0; u < reader->room; u++)
        reader->scales[u] = 1; /* where there are none */
    return 0;
}

static inline int64_t number(const char *numbers, Py_ssize_t j)
{
    int64_t found;
    memcpy(&found, numbers + 8 * j, sizeof found);
    return found;
}

/* Ask for the next `count` rows that will be read; where rows are packed, one after another, the
   processor sees a document coming that follows the one before. A row that is not there does no
   harm. */
static inline void fetch(Reader *reader, Py_ssize_t count)
{
#ifdef __GNUC__
    const Documents *documents = reader->documents;
    const uint64_t size = documents->scale_kind == 'e' ? 2 : 4;
    while (count > 0) {
        if (reader->later_at >= reader->later_end) {
            if (reader->later + 1 >= documents->count)
                return;
            const int64_t before = reader->later_end;
            reader->later_at = number(documents->starts, ++reader->later);
            reader->later_end = number(documents->ends, reader->later);
            if (reader->later_at == before && reader->layout->pack) {
                const uint64_t rows = (uint64_t)reader->later_end - (uint64_t)before;
                reader->later_at = reader->later_end;
                count -= rows < (uint64_t)count ? (Py_ssize_t)rows : count;
            } else
                __builtin_prefetch((const void *)((uintptr_t)documents->scales +
                                                  (uintptr_t)((uint64_t)reader->later_at * size)));
            continue;
        }
        const uint64_t row = (uint64_t)reader->later_at++;
        const uintptr_t from = (uintptr_t)documents->vectors + (uintptr_t)(row * documents->stride);
        for (Py_ssize_t k = 0; k < documents->bytes; k += 64)
            __builtin_prefetch((const void *)(from + k));
        count--;
    }
#else
    (void)reader, (void)count;
#endif
}

/* From now on rows are read from document j. */
static void begin(Reader *reader, Py_ssize_t j)
{
    reader->later = j - 1, reader->later_at = reader->later_end = 0;
    fetch(reader, AHEAD);
}

/* Rows from `start`, all that are left of a document or as many as there is room for. */
static Tile next_tile(Reader *reader, int64_t start, int64_t end)
{
    const Documents *documents = reader->documents;
    const Layout *layout = reader->layout;
    const Py_ssize_t stride = documents->stride, room = reader->room;
    const Py_ssize_t count = end - start < room ? (Py_ssize_t)(end - start) : room;
    const Py_ssize_t row = layout->columns * layout->number;
    Tile tile = {documents->vectors + start * stride, stride, count, reader->scales,
                 reader->shares};
    fetch(reader, count);
    if (documents->scale_kind == 'e')
        layout->halves(reader->scales, documents->scales + 2 * start, count);
    else if (documents->scale_kind == 'f')
        memcpy(reader->scales, documents->scales + 4 * start, (size_t)count * sizeof(float));
    if (documents->shares)
        memcpy(reader->shares, documents->shares + 4 * start, (size_t)count * sizeof(float));
    else if (documents->mean)
        for (Py_ssize_t u = 0; u < count; u++)
            reader->shares[u] = reader->scales[u] != 0;
    for (Py_ssize_t u = count; u % 4; u++) {
        reader->scales[u] = reader->scales[count - 1];
        reader->shares[u] = reader->shares[count - 1];
    }
    if (layout->pack) {
        layout->pack(reader->packed, row, tile.rows, stride, count, layout->width);
        tile.rows = reader->packed, tile.stride = row;
    }
    return tile;
}

static inline int bad_rows(const Documents *documents, int64_t start, int64_t end)
{
    return start < 0 || start > end || end > documents->rows;
}

static inline void forget(Plan *plan, int empty)
{
    for (Py_ssize_t i = 0; i < plan->stages * STAGE; i++)
        plan->best[i] = empty ? 0 : -INFINITY;
}

/* The score of the document whose maxima a plan has. */
static float score_of(const Plan *plan)
{
    double sum = 0;
    for (Py_ssize_t i = 0; i < plan->units; i++) {
        const Py_ssize_t place = plan->place[i];
        sum += (double)plan->weights[place] * (plan->best[place] * plan->steps[place]);
    }
    return (float)sum;
}

/* The maxima of a document. */
static void meet(Plan *plan, Reader *reader, int64_t start, int64_t end)
{
    forget(plan, start == end);
    while (start < end) {
        const Tile tile = next_tile(reader, start, end);
        for (Py_ssize_t stage = 0; stage < plan->stages; stage++)
            plan->block(plan, stage, &tile);
        start += tile.count;
    }
}

/* Scores of all documents, or the maxima of each; returns the first document whose rows are not
   there, or `count`. */
static Py_ssize_t run(Plan *plan, Reader *reader, int weighted, char *scores)
{
    const Documents *documents = reader->documents;
    begin(reader, 0);
    for (Py_ssize_t j = 0; j < documents->count; j++) {
        const int64_t start = number(documents->starts, j), end = number(documents->ends, j);
        if (bad_rows(documents, start, end))
            return j;
        meet(plan, reader, start, end);
        if (weighted) {
            const float score = score_of(plan);
            memcpy(scores + 4 * j, &score, sizeof score);
        } else
            for (Py_ssize_t i = 0; i < plan->units; i++) {
                const float value = plan->best[plan->place[i]] * plan->steps[plan->place[i]];
                memcpy(scores + 4 * (j * plan->units + i), &value, sizeof value);
            }
    }
    return documents->count;
}

typedef struct {
    int64_t document;
    float score;
    double rank; /* base and score; after a coarse pass the most that it may be */
} Found;

/* One query of a scan: the k largest ranks (or what they are at least), the smallest of them on
   top, and the documents that may be among the best k. */
typedef struct {
    Plan plan, whole; /* whole: only if the plan is coarse */
    int coarse, left; /* left: this query is done with the present document */
    double sum;       /* of the base and the stages that it has met */
    const char *base; /* f64 [documents], or NULL for 0 */
    double *heap, least;
    Py_ssize_t k, held;
    Found *found;
    Py_ssize_t count, room;
} Scan;

static inline double base_of(const Scan *scan, int64_t document)
{
    double base = 0;
    if (scan->base)
        memcpy(&base, scan->base + 8 * document, sizeof base);
    return base;
}

/* Of the k largest ranks so far the smallest; what is below it is not among the best k. */
static inline double threshold(const Scan *scan)
{
    return scan->held == scan->k && scan->heap[0] > scan->least ? scan->heap[0] : scan->least;
}

static void hold(Scan *scan, double rank)
{
    double *heap = scan->heap;
    Py_ssize_t i;
    if (!(rank > -INFINITY))
        rank = -INFINITY;
    if (scan->held < scan->k) { /* from the last place up */
        for (i = scan->held++; i > 0 && heap[(i - 1) / 2] > rank; i = (i - 1) / 2)
            heap[i] = heap[(i - 1) / 2];
    } else { /* from the first place down */
        if (!(rank > heap[0]))
            return;
        for (i = 0; 2 * i + 1 < scan->k;) {
            Py_ssize_t child = 2 * i + 1;
            child += child + 1 < scan->k && heap[child + 1] < heap[child];
            if (!(heap[child] < rank))
                break;
            heap[i] = heap[child];
            i = child;
        }
    }
    heap[i] = rank;
}

static int keep(Scan *scan, int64_t document, float score, double rank)
{
    if (scan->count == scan->room) {
        const Py_ssize_t room = 2 * scan->room + 64;
        Found *found = PyMem_RawRealloc(scan->found, (size_t)room * sizeof *found);
        if (!found)
            return -1;
        scan->found = found, scan->room = room;
    }
    scan->found[scan->count++] = (Found){document, score, rank};
    return 0;
}

/* What a document's stage adds; the query is done with a document that cannot be among the best. */
static void add_stage(Scan *scan, Py_ssize_t stage)
{
    const Plan *plan = &scan->plan;
    const Py_ssize_t first = stage * STAGE;
    float sum = 0;
    for (Py_ssize_t i = first; i < first + units_of(plan, stage); i++)
        sum += plan->weights[i] * (plan->best[i] * plan->steps[i]);
    scan->sum += sum;
    scan->left = scan->sum + plan->above[stage] < threshold(scan);
}

/* One document for all queries; those that its base leaves too low do not look at its rows. */
static int meet_all(Scan *scans, Py_ssize_t queries, Reader *reader, int64_t document,
                    int64_t start, int64_t end)
{
    int met = 0;
    for (Py_ssize_t q = 0; q < queries; q++) {
        Scan *scan = scans + q;
        forget(&scan->plan, start == end);
        scan->sum = base_of(scan, document);
        scan->left = scan->base && scan->sum + scan->plan.reach < threshold(scan);
        met |= !scan->left;
    }
    if (!met) {
        fetch(reader, (Py_ssize_t)(end - start));
        return 0;
    }
    while (start < end) {
        const Tile tile = next_tile(reader, start, end);
        start += tile.count;
        for (Py_ssize_t q = 0; q < queries; q++) {
            Scan *scan = scans + q;
            for (Py_ssize_t stage = 0; stage < scan->plan.stages && !scan->left; stage++) {
                scan->plan.block(&scan->plan, stage, &tile);
                if (start == end)
                    add_stage(scan, stage);
            }
        }
    }
    for (Py_ssize_t q = 0; q < queries; q++) {
        Scan *scan = scans + q;
        if (scan->left)
            continue;
        const float score = scan->coarse ? 0 : score_of(&scan->plan);
        const double rank = scan->coarse ? scan->sum + scan->plan.below
                                         : base_of(scan, document) + score;
        hold(scan, scan->coarse ? scan->sum - scan->plan.below : rank);
        if (keep(scan, document, score, rank) < 0)
            return -1;
    }
    return 0;
}

/* Whole scores of what a coarse pass has kept; then those of at least the k-th largest rank. */
static void settle(Scan *scan, Reader *reader)
{
    const Documents *documents = reader->documents;
    double least = threshold(scan);
    Py_ssize_t kept = 0;
    if (scan->coarse) {
        for (Py_ssize_t i = 0; i < scan->count; i++)
            if (!(scan->found[i].rank < least))
                scan->found[kept++] = scan->found[i];
        scan->count = kept, scan->held = 0;
        for (Py_ssize_t i = 0; i < scan->count; i++) {
            Found *found = scan->found + i;
            const int64_t j = found->document;
            reader->later = documents->count, reader->later_at = reader->later_end; /* fetch none */
            meet(&scan->whole, reader, number(documents->starts, j), number(documents->ends, j));
            found->score = score_of(&scan->whole);
            hold(scan, found->rank = base_of(scan, j) + found->score);
        }
        least = threshold(scan);
    }
    kept = 0;
    for (Py_ssize_t i = 0; i < scan->count; i++)
        if (!(scan->found[i].rank < least))
            scan->found[kept++] = scan->found[i];
    scan->count = kept;
}

/* Arrays of an entry point; what is the same in both is checked here. */
enum { QUERY, WEIGHTS, VECTORS, SCALES, STARTS, ENDS, MEAN, SHARES, COMMON };

static int look_at(PyObject **a, Py_buffer *v, Documents *documents)
{
    const int scaled = a[SCALES] != Py_None, weighted = a[WEIGHTS] != Py_None;
    const int centred = a[MEAN] != Py_None, shared = centred && a[SHARES] != Py_None;
    const char *f32 = "a contiguous f32 vector", *i64 = "a contiguous i64 vector";
    if (look(a[QUERY], v + QUERY, "query", "a contiguous f32 matrix", 2, "f!", 0) < 0 ||
        (weighted && look(a[WEIGHTS], v + WEIGHTS, "weights", f32, 1, "f!", 0) < 0) ||
        look(a[VECTORS], v + VECTORS, "vectors", "f32, f16, int8 or int4 rows", 2, "febB", 0) < 0 ||
        (scaled && look(a[SCALES], v + SCALES, "scales", "f32 or f16", 1, "fe", 0) < 0) ||
        look(a[STARTS], v + STARTS, "starts", i64, 1, "lq", 0) < 0 ||
        look(a[ENDS], v + ENDS, "ends", i64, 1, "lq", 0) < 0 ||
        (centred && look(a[MEAN], v + MEAN, "mean", f32, 1, "f!", 0) < 0) ||
        (shared && look(a[SHARES], v + SHARES, "shares", f32, 1, "f", 0) < 0))
        return -1;
    const Py_ssize_t width = v[QUERY].shape[1], columns = columns_of(v + VECTORS);
    const Py_ssize_t rows = v[VECTORS].shape[0], count = v[STARTS].shape[0];
    if (width > columns || width > MAX_WIDTH)
        PyErr_Format(PyExc_ValueError, "query of %zd columns, vectors of %zd", width, columns);
    else if (weighted && v[WEIGHTS].shape[0] != v[QUERY].shape[0])
        PyErr_Format(PyExc_ValueError, "%zd query units, but %zd weights", v[QUERY].shape[0],
                     v[WEIGHTS].shape[0]);
    else if (scaled && v[SCALES].shape[0] != rows)
        PyErr_Format(PyExc_ValueError, "%zd vectors, but %zd scales", rows, v[SCALES].shape[0]);
    else if (centred && v[MEAN].shape[0] < width)
        PyErr_Format(PyExc_ValueError, "query of %zd columns, mean of %zd", width,
                     v[MEAN].shape[0]);
    else if (shared && v[SHARES].shape[0] != rows)
        PyErr_Format(PyExc_ValueError, "%zd vectors, but %zd shares", rows, v[SHARES].shape[0]);
    else if (v[ENDS].shape[0] != count)
        PyErr_Format(PyExc_ValueError, "%zd starts, but %zd ends", count, v[ENDS].shape[0]);
    else {
        *documents = (Documents){
            .vectors = v[VECTORS].buf, .scales = v[SCALES].buf, .starts = v[STARTS].buf,
            .ends = v[ENDS].buf, .rows = rows, .stride = v[VECTORS].strides[0],
            .bytes = is_int4(v + VECTORS) ? (width + 1) / 2 : width * v[VECTORS].itemsize,
            .count = count,
            .scale_kind = !scaled ? 0 : v[SCALES].itemsize == 2 ? 'e' : 'f',
            .mean = v[MEAN].buf, .shares = v[SHARES].buf};
        return 0;
    }
    return -1;
}

static PyObject *not_there(Py_ssize_t document, const Documents *documents)
{
    return PyErr_Format(PyExc_ValueError, "rows of document %zd not in 0:%zd", document,
                        documents->rows);
}

/* score(query, weights or None, vectors, scales or None, starts, ends, mean or None,
   shares or None, scores, level)
   Without weights `scores` has the maxima of all units of the query for every document. */
static PyObject *score(PyObject *module, PyObject *args)
{
    (void)module;
    PyObject *a[COMMON + 1], *result = NULL;
    Py_buffer v[COMMON + 1] = {{0}};
    Documents documents;
    Reader reader = {0};
    Plan plan = {0};
    int most;
    if (!PyArg_ParseTuple(args, "OOOOOOOOOi", a, a + 1, a + 2, a + 3, a + 4, a + 5, a + 6, a + 7,
                          a + COMMON, &most))
        return NULL;
    if (look_at(a, v, &documents) < 0 ||
        look(a[COMMON], v + COMMON, "scores", "a contiguous f32 vector", 1, "f",
             PyBUF_WRITABLE) < 0)
        goto done;
    const int weighted = v[WEIGHTS].obj != NULL;
    const Py_ssize_t units = v[QUERY].shape[0], each = weighted ? 1 : units; /* scores */
    const Py_ssize_t room = v[COMMON].shape[0];
    const Layout layout = layout_of(v + VECTORS, v[QUERY].shape[1], most);
    if (each ? room % each || room / each != documents.count : room)
        PyErr_Format(PyExc_ValueError, "%zd documents, but %zd scores of %zd a document",
                     documents.count, room, each);
    else if (prepare(&plan, &layout, v[QUERY].buf, v[WEIGHTS].buf, documents.mean, units,
                     (Lengths){0, 0}, 2) < 0 ||
             open_reader(&reader, &documents, &layout) < 0)
        PyErr_NoMemory();
    else {
        Py_ssize_t reached;
        Py_BEGIN_ALLOW_THREADS
        reached = run(&plan, &reader, weighted, v[COMMON].buf);
        Py_END_ALLOW_THREADS
        result = reached == documents.count ? Py_NewRef(Py_None) : not_there(reached, &documents);
    }
done:
    PyMem_RawFree(plan.memory);
    PyMem_RawFree(reader.memory);
    for (int i = 0; i <= COMMON; i++)
        PyBuffer_Release(v + i);
    return result;
}

/* Goes through all documents; returns the first whose rows are not there, -1 without memory, or
   `count`. */
static Py_ssize_t scan_all(Scan *scans, Py_ssize_t queries, Reader *reader)
{
    const Documents *documents = reader->documents;
    begin(reader, 0);
    for (Py_ssize_t j = 0; j < documents->count; j++) {
        const int64_t start = number(documents->starts, j), end = number(documents->ends, j);
        if (bad_rows(documents, start, end))
            return j;
        if (meet_all(scans, queries, reader, j, start, end) < 0)
            return -1;
    }
    for (Py_ssize_t q = 0; q < queries; q++)
        settle(scans + q, reader);
    return documents->count;
}

/* Documents and scores as two strings of bytes, i64 and f32. */
static PyObject *pair(const Scan *scan)
{
    PyObject *documents = PyBytes_FromStringAndSize(NULL, scan->count * 8);
    PyObject *scores = PyBytes_FromStringAndSize(NULL, scan->count * 4);
    if (!documents || !scores) {
        Py_XDECREF(documents);
        Py_XDECREF(scores);
        return NULL;
    }
    for (Py_ssize_t i = 0; i < scan->count; i++) {
        memcpy(PyBytes_AS_STRING(documents) + 8 * i, &scan->found[i].document, 8);
        memcpy(PyBytes_AS_STRING(scores) + 4 * i, &scan->found[i].score, 4);
    }
    return Py_BuildValue("NN", documents, scores);
}

/* scan(query, weights, vectors, scales or None, starts, ends, mean or None, shares or None,
   offsets, k, least, base or None, longest whole, longest rest, level)
   For each query, the units offsets[i]:offsets[i + 1], documents in their order and scores; the
   best are those of the largest base[i] + score. */
static PyObject *scan(PyObject *module, PyObject *args)
{
    (void)module;
    enum { OFFSETS = COMMON, K, LEAST, BASE, ARRAYS };
    PyObject *a[ARRAYS], *result = NULL;
    Py_buffer v[ARRAYS] = {{0}};
    Documents documents;
    Reader reader = {0};
    Scan *scans = NULL;
    Py_ssize_t queries = 0;
    Lengths longest;
    int most;
    if (!PyArg_ParseTuple(args, "OOOOOOOOOOOOddi", a, a + 1, a + 2, a + 3, a + 4, a + 5, a + 6,
                          a + 7, a + OFFSETS, a + K, a + LEAST, a + BASE, &longest.whole,
                          &longest.rest, &most))
        return NULL;
    if (look_at(a, v, &documents) < 0 ||
        look(a[OFFSETS], v + OFFSETS, "offsets", "a contiguous i64 vector", 1, "lq", 0) < 0 ||
        look(a[K], v + K, "k", "a contiguous i64 vector", 1, "lq", 0) < 0 ||
        look(a[LEAST], v + LEAST, "least", "a contiguous f64 vector", 1, "d", 0) < 0 ||
        (a[BASE] != Py_None &&
         look(a[BASE], v + BASE, "base", "a contiguous f64 matrix", 2, "d", 0) < 0))
        goto done;
    const Py_ssize_t units = v[QUERY].shape[0], width = v[QUERY].shape[1];
    const Layout layout = layout_of(v + VECTORS, width, most);
    if (!v[WEIGHTS].obj || v[OFFSETS].shape[0] != v[K].shape[0] + 1 ||
        v[LEAST].shape[0] != v[K].shape[0]) {
        PyErr_SetString(PyExc_ValueError, "every query needs weights, offsets, k and least");
        goto done;
    }
    if (v[BASE].obj &&
        (v[BASE].shape[0] != v[K].shape[0] || v[BASE].shape[1] != documents.count)) {
        PyErr_Format(PyExc_ValueError, "base must be %zd x %zd, not %zd x %zd", v[K].shape[0],
                     documents.count, v[BASE].shape[0], v[BASE].shape[1]);
        goto done;
    }
    scans = PyMem_RawCalloc((size_t)v[K].shape[0] + 1, sizeof *scans);
    if (!scans || open_reader(&reader, &documents, &layout) < 0) {
        PyErr_NoMemory();
        goto done;
    }
    for (; queries < v[K].shape[0]; queries++) {
        Scan *own = scans + queries;
        const int64_t first = number(v[OFFSETS].buf, queries);
        const int64_t end = number(v[OFFSETS].buf, queries + 1);
        const int64_t k = number(v[K].buf, queries);
        if (first < 0 || first > end || end > units || k < 1) {
            PyErr_Format(PyExc_ValueError, "query %zd: units %lld:%lld of %zd, k = %lld", queries,
                         (long long)first, (long long)end, units, (long long)k);
            goto done;
        }
        const float *query = (const float *)v[QUERY].buf + first * width;
        const float *weights = (const float *)v[WEIGHTS].buf + first;
        own->k = k < documents.count ? (Py_ssize_t)k : documents.count;
        own->coarse = (layout.vnni || layout.dot) && end - first >= COARSE_UNITS &&
                      k <= documents.count / COARSE_SHARE;
        memcpy(&own->least, (const char *)v[LEAST].buf + 8 * queries, sizeof own->least);
        if (v[BASE].obj)
            own->base = (const char *)v[BASE].buf + 8 * queries * documents.count;
        own->heap = PyMem_RawCalloc((size_t)own->k + 1, sizeof(double));
        if (!own->heap ||
            prepare(&own->plan, &layout, query, weights, documents.mean, end - first, longest,
                    own->coarse ? 1 : 2) < 0 ||
            (own->coarse && prepare(&own->whole, &layout, query, weights, documents.mean,
                                    end - first, longest, 2) < 0)) {
            queries++; /* this one is to be freed, too */
            PyErr_NoMemory();
            goto done;
        }
    }
    Py_ssize_t reached;
    Py_BEGIN_ALLOW_THREADS
    reached = scan_all(scans, queries, &reader);
    Py_END_ALLOW_THREADS
    if (reached < 0)
        PyErr_NoMemory();
    else if (reached < documents.count)
        not_there(reached, &documents);
    else if ((result = PyList_New(queries)))
        for (Py_ssize_t q = 0; q < queries; q++) {
            PyObject *found = pair(scans + q);
            if (!found) {
                Py_CLEAR(result);
                break;
            }
            PyList_SET_ITEM(result, q, found);
        }
done:
    for (Py_ssize_t q = 0; q < queries; q++) {
        PyMem_RawFree(scans[q].plan.memory);
        PyMem_RawFree(scans[q].whole.memory);
        PyMem_RawFree(scans[q].heap);
        PyMem_RawFree(scans[q].found);
    }
    PyMem_RawFree(scans);
    PyMem_RawFree(reader.memory);
    for (int i = 0; i < ARRAYS; i++)
        PyBuffer_Release(v + i);
    return result;
}

/* <row, mean> in lanes that compilers turn into registers; in double, since a whole vector may be
   far shorter than the two parts that it is the sum of. */
static double along(const signed char *row, const float *mean, Py_ssize_t width)
{
    double sums[CODES] = {0}, sum = 0;
    Py_ssize_t k = 0;
    for (; k + CODES <= width; k += CODES)
        for (int l = 0; l < CODES; l++)
            sums[l] += (double)row[k + l] * mean[k + l];
    for (int l = 0; l < CODES; l++)
        sum += sums[l];
    for (; k < width; k++)
        sum += (double)row[k] * mean[k];
    return sum;
}

/* longest(vectors, scales or None, width, mean or None, shares or None): the largest length of a
   row's first columns with its share of the mean, and without. */
static PyObject *longest(PyObject *module, PyObject *args)
{
    (void)module;
    PyObject *vectors, *scales, *centre, *parts, *result = NULL;
    Py_buffer v = {0}, s = {0}, m = {0}, p = {0};
    Py_ssize_t width;
    char *split = NULL; /* a row of int4 as int8 */
    double mean_square = 0;
    Lengths most = {0, 0};
    if (!PyArg_ParseTuple(args, "OOnOO", &vectors, &scales, &width, &centre, &parts))
        return NULL;
    const char *f32 = "a contiguous f32 vector";
    if (look(vectors, &v, "vectors", "f32, f16, int8 or int4 rows", 2, "febB", 0) < 0 ||
        (scales != Py_None && look(scales, &s, "scales", "f32 or f16", 1, "fe", 0) < 0) ||
        (centre != Py_None && look(centre, &m, "mean", f32, 1, "f!", 0) < 0) ||
        (parts != Py_None && look(parts, &p, "shares", f32, 1, "f!", 0) < 0))
        goto done;
    if (width < 0 || width > columns_of(&v) || (s.obj && s.shape[0] != v.shape[0]) ||
        (m.obj && m.shape[0] < width) || (p.obj && p.shape[0] != v.shape[0])) {
        PyErr_Format(PyExc_ValueError, "%zd of %zd columns, %zd rows, %zd scales, a mean of %zd, "
                     "%zd shares", width, columns_of(&v), v.shape[0],
                     s.obj ? s.shape[0] : v.shape[0], m.obj ? m.shape[0] : width,
                     p.obj ? p.shape[0] : v.shape[0]);
        goto done;
    }
    if (is_int4(&v) && !(split = PyMem_RawMalloc((size_t)width + 1))) {
        PyErr_NoMemory();
        goto done;
    }
    const float *mean = m.buf, *shares = p.buf;
    Py_BEGIN_ALLOW_THREADS
    for (Py_ssize_t k = 0; mean && k < width; k++)
        mean_square += (double)mean[k] * mean[k];
    for (Py_ssize_t u = 0; u < v.shape[0]; u++) {
        const char *row = (const char *)v.buf + u * v.strides[0];
        double square = 0, met = 0; /* met: the product with the mean */
        if (split) {
            split_int4(split, 0, row, 0, 1, width);
            row = split;
        }
        if (v.itemsize == 1) {
            int64_t sum = 0;
            for (Py_ssize_t first = 0; first < width; first += 4096) {
                int32_t part = 0;
                for (Py_ssize_t k = first; k < width && k < first + 4096; k++)
                    part += (int16_t)(signed char)row[k] * (int16_t)(signed char)row[k];
                sum += part;
            }
            square = (double)sum;
            met = mean ? along((const signed char *)row, mean, width) : 0;
        } else
            for (Py_ssize_t k = 0; k < width; k++) {
                float x;
                if (v.itemsize == 2)
                    x = half(row + 2 * k);
                else
                    memcpy(&x, row + 4 * k, sizeof x);
                square += (double)x * x;
                met += mean ? (double)x * mean[k] : 0;
            }
        float scale = 1;
        if (s.obj && s.itemsize == 2)
            scale = half((const char *)s.buf + 2 * u);
        else if (s.obj)
            memcpy(&scale, (const char *)s.buf + 4 * u, sizeof scale);
        const double share = !mean ? 0 : shares ? shares[u] : scale != 0;
        const double more = share * (2 * scale * met + share * mean_square); /* in the square */
        square *= (double)scale * scale;
        const double whole = square + more, rest = square;
        most.rest = rest <= most.rest ? most.rest : rest; /* NaN stays, and bounds nothing */
        most.whole = whole <= most.whole ? most.whole : whole;
        if (most.rest != most.rest || most.whole != most.whole)
            break;
    }
    Py_END_ALLOW_THREADS
    result = Py_BuildValue("dd", sqrt(most.whole), sqrt(most.rest));
done:
    PyMem_RawFree(split);
    PyBuffer_Release(&v);
    PyBuffer_Release(&s);
    PyBuffer_Release(&m);
    PyBuffer_Release(&p);
    return result;
}

static int fill(PyObject *module)
{
    level = highest_level();
    if (PyModule_AddStringConstant(module, "SETS", SETS) < 0)
        return -1;
    return PyModule_AddIntConstant(module, "LEVEL", level);
}

static PyMethodDef methods[] = {{"score", score, METH_VARARGS, NULL},
                                {"scan", scan, METH_VARARGS, NULL},
                                {"longest", longest, METH_VARARGS, NULL},
                                {NULL, NULL, 0, NULL}};
static PyModuleDef_Slot slots[] = {{Py_mod_exec, (void *)fill},
#ifdef Py_mod_gil
                                   {Py_mod_gil, Py_MOD_GIL_NOT_USED},
#endif
                                   {0, NULL}};
static struct PyModuleDef definition = {
    .m_base = PyModuleDef_HEAD_INIT, .m_name = "_maxsim", .m_methods = methods, .m_slots = slots};

PyMODINIT_FUNC PyInit__maxsim(void) { return PyModuleDef_Init(&definition); }
