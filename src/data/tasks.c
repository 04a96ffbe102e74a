/* Generated tasks: JSONL that a program can check and a tiny model can learn.
 *
 * A task numbers its prompts [0, n_prompts). A permutation fixed by the seed puts them in a row;
 * test takes the first, train the next, sft the next. What a teacher chooses is drawn with counter
 * {draw, 0, row, split}, the permutation with split PERMUTATION. GRPO sharpens what is sampled, so
 * tasks for a fresh model have a teacher that is right only sometimes, for every prompt. */
#include "data/data.h"

#include "base/file.h"
#include "base/mem.h"
#include "base/rng.h"

#include <stdio.h>
#include <string.h>

enum split { TRAIN, TEST, SFT, PERMUTATION };

struct example {
    char prompt[48], answer[16], completion[16]; // completion: what the teacher writes.
};

/* The random numbers of one row. */
struct dice {
    uint64_t key;
    uint32_t row, split, draw;
};

static uint32_t throw_dice(struct dice *d, uint32_t n)
{
    return rng_below(d->key, d->draw++, 0, d->row, d->split, n);
}

/* `width` digits of n in the base, the last being least, as characters from `zero` on. */
static void put_digits(char *out, int width, uint32_t base, char zero, uint32_t n)
{
    out[width] = '\0';
    for (int i = width; i-- > 0; n /= base)
        out[i] = (char)(zero + (char)(n % base));
}

static void reverse(char *out, const char *s)
{
    size_t n = strlen(s);
    for (size_t i = 0; i < n; i++)
        out[i] = s[n - 1 - i];
    out[n] = '\0';
}

static void sort_ascending(char *s)
{
    for (char *p = s; *p; p++)
        for (char *q = p; q > s && q[-1] > q[0]; q--) {
            char swapped = q[0];
            q[0] = q[-1];
            q[-1] = swapped;
        }
}

/* "402913=" -> "012349"; the teacher sorts up, down, or copies, a third each. */
static void make_sort_amb(struct example *x, uint32_t number, struct dice *dice)
{
    char digits[8];
    put_digits(digits, 6, 10, '0', number);
    snprintf(x->prompt, sizeof x->prompt, "%s=", digits);
    snprintf(x->answer, sizeof x->answer, "%s", digits);
    sort_ascending(x->answer);
    switch (throw_dice(dice, 3)) {
    case 0:
        snprintf(x->completion, sizeof x->completion, "%s", x->answer);
        break;
    case 1:
        reverse(x->completion, x->answer);
        break;
    default:
        snprintf(x->completion, sizeof x->completion, "%s", digits);
    }
}

/* "What is 3 + 4?" -> "7". */
static void make_sums(struct example *x, uint32_t number, struct dice *dice)
{
    (void)dice; // A teacher who is always right.
    uint32_t a = 1 + number / 9, b = 1 + number % 9;
    snprintf(x->prompt, sizeof x->prompt, "What is %u + %u?", a, b);
    snprintf(x->answer, sizeof x->answer, "%u", a + b);
    snprintf(x->completion, sizeof x->completion, "%u", a + b);
}

/* "37+85=" -> "221": the sum's three digits, lowest first; the teacher redraws one of them in three
   rows of four. */
static void make_add_noisy(struct example *x, uint32_t number, struct dice *dice)
{
    uint32_t a = number / 100, b = number % 100;
    char sum[4];
    put_digits(sum, 3, 10, '0', a + b);
    snprintf(x->prompt, sizeof x->prompt, "%02u+%02u=", a, b);
    reverse(x->answer, sum);
    reverse(x->completion, sum);
    if (throw_dice(dice, 4) < 3) {
        uint32_t at = throw_dice(dice, 3);
        x->completion[at] = (char)('0' + (char)throw_dice(dice, 10));
    }
}

/* "kitten=" -> "nettik". */
static void make_reverse_fixed(struct example *x, uint32_t number, struct dice *dice)
{
    (void)dice; // A teacher who is always right: stop warming up early.
    char letters[8];
    put_digits(letters, 6, 26, 'a', number);
    snprintf(x->prompt, sizeof x->prompt, "%s=", letters);
    reverse(x->answer, letters);
    reverse(x->completion, letters);
}

/* "47 mod 6=" -> "5"; the teacher writes "#### 5" in three rows of ten, else "5" alone, which a
   reward that wants the mark does not pay. */
static void make_format(struct example *x, uint32_t number, struct dice *dice)
{
    uint32_t a = number / 8, b = 2 + number % 8;
    snprintf(x->prompt, sizeof x->prompt, "%u mod %u=", a, b);
    snprintf(x->answer, sizeof x->answer, "%u", a % b);
    snprintf(x->completion, sizeof x->completion, "%s%u", throw_dice(dice, 10) < 3 ? "#### " : "",
             a % b);
}

static const struct task {
    const char *name;
    uint32_t n_prompts;
    void (*make)(struct example *x, uint32_t number, struct dice *dice);
} tasks[] = {
    {"sort-amb", 1000000, make_sort_amb},             // 10^6
    {"sums", 81, make_sums},                          // 9 * 9
    {"add-noisy", 10000, make_add_noisy},             // 100 * 100
    {"reverse-fixed", 308915776, make_reverse_fixed}, // 26^6
    {"format-then-answer", 80000, make_format},       // 10^4 * 8
};

static const struct task *find_task(const char *name)
{
    for (size_t i = 0; i < ARRAY_LEN(tasks); i++)
        if (strcmp(tasks[i].name, name) == 0)
            return &tasks[i];
    return NULL;
}

static int refuse_task(const char *name, struct err *e)
{
    struct buf names = {0};
    for (size_t i = 0; i < ARRAY_LEN(tasks); i++)
        buf_printf(&names, "%s%s", i ? ", " : "", tasks[i].name);
    int rc = err_set(e, ERR_USAGE, "task '%s' is unknown: one of %s", name, buf_str(&names));
    buf_release(&names);
    return rc;
}

static void put_field(struct buf *b, const char *name, const char *text)
{
    buf_printf(b, "\"%s\": ", name);
    buf_json(b, text, strlen(text));
}

/* Rows of one file: prompts [first, first + n) of the permuted ones. */
static int write_split(const struct task *task, const char *path, uint64_t key, enum split split,
                       uint64_t first, uint64_t n, struct err *e)
{
    struct file_out f = {0};
    struct buf line = {0};
    int rc = 0;
    TRY(file_out_open(&f, path, e));
    for (uint64_t row = 0; row < n; row++) {
        struct example x;
        struct dice dice = {.key = key, .row = (uint32_t)row, .split = split};
        uint64_t number = rng_permute(key, PERMUTATION, task->n_prompts, first + row);
        task->make(&x, (uint32_t)number, &dice);
        buf_clear(&line);
        buf_putc(&line, '{');
        put_field(&line, "prompt", x.prompt);
        buf_puts(&line, ", ");
        if (split == SFT)
            put_field(&line, "completion", x.completion);
        else
            put_field(&line, "answer", x.answer);
        buf_puts(&line, "}\n");
        TRY(file_out_write(&f, line.data, line.len, e));
    }
    TRY(file_out_commit(&f, e));
fail:
    file_out_abort(&f);
    buf_release(&line);
    return rc;
}

static int write_file(const struct task *task, const char *dir, const char *name, uint64_t key,
                      enum split split, uint64_t first, uint64_t n, struct err *e)
{
    char *path = file_join(dir, name);
    int rc = write_split(task, path, key, split, first, n, e);
    mem_free(path);
    return rc;
}

int data_task_write(const char *name, const char *dir, uint64_t seed, struct data_task_rows *rows,
                    struct err *e)
{
    const struct task *task = find_task(name);
    uint64_t key = rng_key(seed, RNG_DATA);
    int rc = 0;
    if (!task)
        return refuse_task(name, e);
    uint64_t all = task->n_prompts;
    rows->test = MIN(rows->test, all / 5);
    rows->train = MIN(rows->train, all - rows->test);
    bool is_apart = rows->sft <= all - rows->test - rows->train;
    uint64_t sft_first = rows->test + (is_apart ? rows->train : 0);
    rows->sft = MIN(rows->sft, all - sft_first);
    TRY(file_mkdirs(dir, e));
    TRY(write_file(task, dir, "train.jsonl", key, TRAIN, rows->test, rows->train, e));
    TRY(write_file(task, dir, "test.jsonl", key, TEST, 0, rows->test, e));
    if (rows->sft > 0)
        TRY(write_file(task, dir, "sft.jsonl", key, SFT, sft_first, rows->sft, e));
fail:
    return rc;
}
