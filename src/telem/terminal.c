/* The terminal: one line a step, and a live line that the next one overwrites. */
#include "telem/telem_int.h"

#include <inttypes.h>
#include <math.h>

#define LIVE_NS       100000000 // least time between two live lines
#define TO_LINE_START "\r"
#define CLEAR_TO_END  "\033[K"

static const char *const phase_name[TELEM_PHASES_N] = {
#define PHASE_NAME(id, name, share) name,
    TELEM_PHASES(PHASE_NAME)};

/* Metrics on a step's line: name, label, format of the value. */
static const struct {
    const char *name, *format;
} shown[] = {
    {"loss", "  loss %.4f"},       {"completions/mean_length", "  length %.1f"},
    {"entropy", "  entropy %.3f"}, {"kl", "  kl %.4f"},
    {"eval/acc", "  eval %.3f"},
};

static void print(struct telem *t, const struct buf *text)
{
    t->o.print(t->o.ctx, buf_str(text), text->len);
}

static void remember(struct recent *r, double x)
{
    r->value[r->n++ % RECENT_MAX] = x;
}

static double mean(const struct recent *r)
{
    int64_t n = MIN(r->n, RECENT_MAX);
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += r->value[i];
    return sum / (double)n;
}

void telem_duration(struct buf *out, double seconds)
{
    int64_t s = (int64_t)(seconds + 0.5);
    if (seconds < 9.95)
        buf_printf(out, "%.1f s", seconds);
    else if (s < 60)
        buf_printf(out, "%" PRId64 " s", s);
    else if (s < 3600)
        buf_printf(out, "%" PRId64 "m%02" PRId64 "s", s / 60, s % 60);
    else
        buf_printf(out, "%" PRId64 "h%02" PRId64 "m", s / 3600, s % 3600 / 60);
}

/* Phases that took at least half a percent: "rollout 45% update 50% other 5%". */
static void put_split(const struct telem *t, struct buf *out)
{
    const char *space = "  ";
    for (int i = 0; i < TELEM_PHASES_N; i++) {
        double percent = 100 * t->done_s[i] / t->done_step_s;
        if (percent < 0.5)
            continue;
        buf_printf(out, "%s%s %.0f%%", space, phase_name[i], percent);
        space = " ";
    }
}

/* step 12/100  reward 0.531 +0.020  length 33.1  entropy 1.234  812 tok/s  rollout 45% ...  4.2 s
   left 6m10s. The reward's change is against the mean of up to ten steps before. */
static void put_line(const struct telem *t, int64_t step, const struct telem_record *metrics,
                     double tokens_per_s, struct buf *out)
{
    double value;
    if (t->o.steps > 0)
        buf_printf(out, "step %" PRId64 "/%" PRId64, step, t->o.steps);
    else
        buf_printf(out, "step %" PRId64, step);
    if (telem_get(metrics, "reward", &value)) {
        buf_printf(out, "  reward %.3f", value);
        if (t->rewards.n > 0)
            buf_printf(out, " %+.3f", value - mean(&t->rewards));
    }
    for (size_t i = 0; i < ARRAY_LEN(shown); i++) {
        if (telem_get(metrics, shown[i].name, &value) && isfinite(value))
            buf_printf(out, shown[i].format, value);
    }
    if (tokens_per_s > 0)
        buf_printf(out, "  %.0f tok/s", tokens_per_s);
    put_split(t, out);
    buf_puts(out, "  ");
    telem_duration(out, t->done_step_s);
    if (t->o.steps > step && t->seconds.n > 0) {
        buf_puts(out, "  left ");
        telem_duration(out, mean(&t->seconds) * (double)(t->o.steps - step));
    }
    buf_putc(out, '\n');
}

void telem_terminal_step(struct telem *t, int64_t step, const struct telem_record *metrics,
                         double tokens_per_s)
{
    double reward;
    if (step > 0) // before the first step there is only evaluation
        remember(&t->seconds, t->done_step_s);
    bool due = !t->printed || step % MAX(t->o.logging_steps, 1) == 0 || step == t->o.steps;
    if (t->o.print && due) {
        telem_progress_clear(t);
        buf_clear(&t->line);
        put_line(t, step, metrics, tokens_per_s, &t->line);
        print(t, &t->line);
        t->printed = true;
    }
    if (telem_get(metrics, "reward", &reward) && isfinite(reward))
        remember(&t->rewards, reward);
}

void telem_progress(struct telem *t, const char *fmt, ...)
{
    uint64_t now = telem_clock(t);
    if (!t->o.print || !t->o.live || (t->live_line && now - t->live_ns < LIVE_NS))
        return;
    struct buf text = {0};
    va_list ap;
    va_start(ap, fmt);
    buf_vprintf(&text, fmt, ap);
    va_end(ap);
    size_t room = (size_t)MAX(t->o.columns, 2) - 1; // The last column would start a new line.
    buf_clear(&t->line);
    buf_puts(&t->line, TO_LINE_START);
    buf_put(&t->line, buf_str(&text), MIN(text.len, room));
    buf_puts(&t->line, CLEAR_TO_END);
    print(t, &t->line);
    buf_release(&text);
    t->live_line = true;
    t->live_ns = now;
}

void telem_progress_clear(struct telem *t)
{
    if (!t->live_line)
        return;
    buf_clear(&t->line);
    buf_puts(&t->line, TO_LINE_START CLEAR_TO_END);
    print(t, &t->line);
    t->live_line = false;
}
