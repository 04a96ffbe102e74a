/* From text to ids: the six steps of text.h, each stretch of text going down one level at a time.
 */
#include "text/text_int.h"

/* What a stretch of text still has before it. */
enum level {
    LEVEL_RAW,        // Added tokens that match raw text, then normalisation
    LEVEL_NORMALIZED, // Added tokens that match normalised text
    LEVEL_PIECES,     // Splitting and merging
};

struct job {
    struct text *t;
    unsigned flags;
    struct text_ids *out;
};

/* Splits s by the steps from `step` on; what comes out of the last is merged into tokens. */
static void encode_pieces(const struct job *job, int step, const char *s, size_t n)
{
    struct text *t = job->t;
    if (step == t->n_steps) {
        text_bpe_encode(&t->bpe, s, n, job->out);
        return;
    }
    if (t->step[step] == STEP_PREFIX) {
        buf_clear(&t->spaced);
        if (s[0] != ' ')
            buf_putc(&t->spaced, ' ');
        buf_put(&t->spaced, s, n);
        encode_pieces(job, step + 1, t->spaced.data, t->spaced.len);
        return;
    }
    for (size_t at = 0; at < n;) {
        size_t len = text_scan(t->step[step], t->classes, s + at, n - at);
        encode_pieces(job, step + 1, s + at, len);
        at += len;
    }
}

/* Start of the code point that ends at `end`. */
static size_t code_before(const char *s, size_t end)
{
    do
        end--;
    while (((unsigned char)s[end] & 0xC0) == 0x80);
    return end;
}

static bool is_class(const struct text *t, const char *s, size_t n, size_t at, unsigned class)
{
    size_t len;
    return (text_class_at(t->classes, s + at, n - at, &len) & class) != 0;
}

static bool touches_word(const struct text *t, const char *s, size_t n, struct text_match m)
{
    return (m.lo > 0 && is_class(t, s, n, code_before(s, m.lo), CLASS_WORD)) ||
           (m.hi < n && is_class(t, s, n, m.hi, CLASS_WORD));
}

/* Takes white space beside the match into it, but not what an earlier match took. */
static void absorb_spaces(const struct text *t, const char *s, size_t n, size_t done,
                          struct text_match *m)
{
    const struct text_added *a = &t->added[m->added];
    if (a->lstrip) {
        size_t lo = m->lo;
        while (lo > 0 && is_class(t, s, n, code_before(s, lo), CLASS_SPACE))
            lo = code_before(s, lo);
        m->lo = MAX(lo, done);
    }
    while (a->rstrip && m->hi < n && is_class(t, s, n, m->hi, CLASS_SPACE)) {
        size_t len;
        text_class_at(t->classes, s + m->hi, n - m->hi, &len);
        m->hi += len;
    }
}

/* Cuts added tokens out of s and sends what lies between them one level down. A match that does not
   count (no word of its own, or special in plain text) still hides what starts inside it. */
static void encode_stretch(const struct job *job, enum level level, const char *s, size_t n)
{
    struct text *t = job->t;
    if (level == LEVEL_PIECES) {
        encode_pieces(job, 0, s, n);
        return;
    }
    if (level == LEVEL_NORMALIZED && t->nfc) {
        buf_clear(&t->normal);
        text_nfc(&t->work, t->classes, s, n, &t->normal);
        s = t->normal.data;
        n = t->normal.len;
    }
    const struct text_set *set = level == LEVEL_RAW ? &t->raw : &t->normalized;
    size_t done = 0;
    struct text_match m = {0};
    for (size_t from = 0; text_set_find(set, s, n, from, &m);) {
        const struct text_added *a = &t->added[m.added];
        from = m.hi;
        if (a->special && (job->flags & TEXT_PLAIN))
            continue;
        if (a->single_word && touches_word(t, s, n, m))
            continue;
        absorb_spaces(t, s, n, done, &m);
        if (done < m.lo)
            encode_stretch(job, level + 1, s + done, m.lo - done);
        if (m.lo < m.hi) // Else an earlier match took it, as white space beside it.
            text_ids_push(job->out, a->id);
        done = m.hi;
    }
    if (done < n)
        encode_stretch(job, level + 1, s + done, n - done);
}

static void push_all(struct text_ids *out, const struct text_ids *ids)
{
    for (size_t i = 0; i < ids->n; i++)
        text_ids_push(out, ids->id[i]);
}

void text_encode(struct text *t, const char *s, size_t n, unsigned flags, struct text_ids *out)
{
    ASSERT(n <= TEXT_MAX);
    struct job job = {t, flags, out};
    if (utf8_valid(s, n) < n) {
        buf_clear(&t->valid);
        buf_utf8_lossy(&t->valid, s, n);
        s = t->valid.data;
        n = t->valid.len;
    }
    if (flags & TEXT_WRAP)
        push_all(out, &t->prefix);
    if (n > 0)
        encode_stretch(&job, LEVEL_RAW, s, n);
    if (flags & TEXT_WRAP)
        push_all(out, &t->suffix);
}
