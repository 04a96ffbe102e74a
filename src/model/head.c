/* The head without logits: rows times VOCAB_CHUNK columns at a time, reduced to statistics at once.
 * Log-probabilities, entropies and draws come from the statistics; a draw computes the one chunk it
 * landed in again. NUMERICS section 5.
 */
#include "model/model.h"

#include "model/model_int.h"
#include "base/exact.h"

struct head_job {
    const struct model *m;
    const struct model_weights *w;
    const struct acts *a;
    int lo, hi;        // rows
    const int *target; // (N) or NULL
    float inv_temperature;
};

/* Logits of up to MODEL_LOGIT_ROWS rows over one chunk, in thread ith's block. */
static const float *chunk_logits(const struct model *m, const struct model_weights *w,
                                 const struct acts *a, int row, int rows, int chunk, int ith)
{
    int D = m->conf.D;
    m->kern->gemm(&(struct gemm){.a = a->f + (size_t)row * (size_t)D,
                                 .lda = (size_t)D,
                                 .b = w->head_fwd[chunk],
                                 .c = m->logits[ith],
                                 .ldc = VOCAB_CHUNK,
                                 .m = rows,
                                 .n = model_chunk_width(m, chunk),
                                 .k = D,
                                 .mode = GEMM_STORE,
                                 .scratch = m->scratch[ith]});
    return m->logits[ith];
}

static void chunk_rows(const struct head_job *j, int lo, int hi, int chunk, int ith)
{
    const struct model *m = j->m;
    int width = model_chunk_width(m, chunk), base = chunk * VOCAB_CHUNK;
    for (int row = lo; row < hi; row += MODEL_LOGIT_ROWS) {
        int rows = MIN(MODEL_LOGIT_ROWS, hi - row);
        const float *logits = chunk_logits(m, j->w, j->a, row, rows, chunk, ith);
        for (int i = 0; i < rows; i++) {
            int target = j->target ? j->target[row + i] - base : -1;
            if (target < 0 || target >= width)
                target = -1;
            j->a->stat[(size_t)(row + i) * (size_t)m->chunks + (size_t)chunk] =
                m->kern->chunk_stats(logits + (size_t)i * VOCAB_CHUNK, width, j->inv_temperature,
                                     target);
        }
    }
}

/* Many chunks: a thread takes chunks, so that each weight is read once. Few: it takes rows. */
static void head_share(void *ctx, int ith, int nth)
{
    const struct head_job *j = ctx;
    size_t lo, hi;
    if (j->m->chunks >= 4 * nth) {
        pool_split((size_t)j->m->chunks, 1, ith, nth, &lo, &hi);
        for (size_t c = lo; c < hi; c++)
            chunk_rows(j, j->lo, j->hi, (int)c, ith);
        return;
    }
    pool_split((size_t)(j->hi - j->lo), 1, ith, nth, &lo, &hi);
    for (int c = 0; c < j->m->chunks; c++)
        chunk_rows(j, j->lo + (int)lo, j->lo + (int)hi, c, ith);
}

void model_head(const struct model *m, const struct model_weights *w, const struct acts *a,
                int head_lo, int N, const int *target, float inv_temperature)
{
    struct head_job job = {.m = m,
                           .w = w,
                           .a = a,
                           .lo = head_lo,
                           .hi = N,
                           .target = target,
                           .inv_temperature = inv_temperature};
    if (head_lo < N)
        pool_run(m->pool, head_share, &job);
}

/* Largest z of a row and the sum of exp(z - max), chunks ascending. */
static double row_sum(const struct chunk_stat *stat, int chunks, double *max)
{
    double sum = 0;
    *max = stat[0].max;
    for (int c = 1; c < chunks; c++)
        *max = MAX(*max, (double)stat[c].max);
    for (int c = 0; c < chunks; c++)
        sum += stat[c].sum * exact_exp(stat[c].max - *max);
    return sum;
}

struct token_stat model_combine(const struct chunk_stat *stat, int chunks, int target)
{
    double max, sum = row_sum(stat, chunks, &max), moment = 0;
    for (int c = 0; c < chunks; c++) {
        double below = stat[c].max - max;
        moment += (stat[c].moment + below * stat[c].sum) * exact_exp(below);
    }
    double log_sum = exact_log(sum);
    float lse = (float)(max + log_sum);
    return (struct token_stat){
        .logprob = target < 0 ? 0 : stat[target / VOCAB_CHUNK].target - lse,
        .entropy = (float)(log_sum - moment / sum),
        .lse = lse,
    };
}

/* The first chunk whose running sum exceeds u, and what is left of u inside it. */
static int pick_chunk(const struct chunk_stat *stat, int chunks, double max, double u, double *left)
{
    double before = 0;
    int last = 0;
    *left = 0;
    for (int c = 0; c < chunks; c++) {
        double scale = exact_exp(stat[c].max - max), here = stat[c].sum * scale;
        if (here > 0) {
            last = c;
            *left = (u - before) / scale;
        }
        if (before + here > u)
            return c;
        before += here;
    }
    return last; // rounding left u at the very end
}

static int best_chunk(const struct chunk_stat *stat, int chunks)
{
    int best = 0;
    for (int c = 1; c < chunks; c++)
        if (stat[c].max > stat[best].max)
            best = c;
    return best;
}

struct drawn model_draw(const struct model *m, const struct model_weights *w, const struct acts *a,
                        int row, double uniform, float inv_temperature, bool greedy, int ith)
{
    const struct chunk_stat *stat = a->stat + (size_t)row * (size_t)m->chunks;
    double max, left = 0, sum = row_sum(stat, m->chunks, &max);
    int chunk = greedy ? best_chunk(stat, m->chunks)
                       : pick_chunk(stat, m->chunks, max, uniform * sum, &left);
    int width = model_chunk_width(m, chunk);
    const float *logits = chunk_logits(m, w, a, row, 1, chunk, ith);
    int at =
        greedy ? m->kern->argmax(logits, width)
               : m->kern->chunk_draw(logits, width, inv_temperature, stat[chunk].max, (float)left);
    float lse = (float)(max + exact_log(sum));
    return (struct drawn){.token = chunk * VOCAB_CHUNK + at,
                          .logprob = logits[at] * inv_temperature - lse};
}
