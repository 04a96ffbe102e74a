/* The update: AdamW against torch's, clipping, gradients that are not finite; the optimizer's state
 * on disk, whatever the number of devices; micro-batch limits.
 */
#include "engine.h"

#include "base/file.h"
#include "base/mem.h"
#include "tensor/tensor.h"

/* ---- AdamW ---- */

/* A float tensor of the golden file; the caller frees it. */
static float *golden(const struct tensor_set *set, const char *prefix, const char *name, int step,
                     size_t *n)
{
    char full[64];
    if (step >= 0)
        snprintf(full, sizeof full, "%s%s.%d", prefix, name, step);
    else
        snprintf(full, sizeof full, "%s%s", prefix, name);
    const struct tensor *t = tensor_find(set, full);
    assert_non_null(t);
    *n = t->n_elems;
    float *x = mem_alloc(*n * sizeof *x);
    tensor_to_float(t, 0, *n, x);
    return x;
}

/* Within the rounding of the factors: 1 - 0.95f errs by 1e-6 of itself, and a moment whose terms
   cancel by some times that. */
static void check_floats(const char *what, const float *got, const float *want, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!(fabsf(got[i] - want[i]) <= 1e-5f * fabsf(want[i]) + 1e-38f))
            fail_msg("%s %zu: %.9g, expected %.9g", what, i, (double)got[i], (double)want[i]);
}

static void read_state(struct device *d, enum device_state which, float *x, size_t lo, size_t n)
{
    struct err e = {0};
    struct device_floats f = {.state = which, .lo = lo, .hi = lo + n, .data = x};
    check_ok(device_state_read(d, &f, &e), e);
}

/* Three steps on the first n elements from `at`, which get the golden's gradients. `prefix` names
   the run with weight decay or the one without. */
static void check_adamw(struct device *d, const struct tensor_set *set, const char *prefix,
                        size_t at, float decay, size_t n)
{
    struct err e = {0};
    size_t count;
    float *hyper = golden(set, "", "hyper", -1, &count), *lr = golden(set, "", "lr", -1, &count);
    float *start = golden(set, "", "param", 0, &count);
    float *got = mem_alloc(n * sizeof *got), *zero = mem_calloc(n, sizeof *zero);
    for (int k = 0; k < 3; k++) {
        struct device_floats f = {
            .state = (enum device_state)k, .lo = at, .hi = at + n, .data = k ? zero : start};
        check_ok(device_state_write(d, &f, &e), e);
    }
    for (int step = 1; step <= 3; step++) {
        float *grad = golden(set, "", "grad", step, &count);
        struct device_slice s = {.lo = at, .hi = at + n, .data = grad};
        double master_sq, move_sq;
        struct device_apply a = {.lo = at,
                                 .master_sq = &master_sq,
                                 .move_sq = &move_sq,
                                 .hi = at + n,
                                 .adamw = {.lr = lr[step - 1],
                                           .beta1 = hyper[0],
                                           .beta2 = hyper[1],
                                           .eps = hyper[2],
                                           .decay = decay,
                                           .factor = hyper[4],
                                           .bias1 = (float)(1 - pow((double)hyper[0], step)),
                                           .bias2 = (float)(1 - pow((double)hyper[1], step))}};
        check_ok(device_grad_write(d, &s, &e), e);
        check_ok(device_apply(d, &a, &e), e);
        static const char *const name[] = {"param", "m", "v"};
        for (int k = 0; k < 3; k++) {
            float *want = golden(set, prefix, name[k], step, &count);
            read_state(d, (enum device_state)k, got, at, n);
            check_floats(name[k], got, want, n);
            mem_free(want);
        }
        mem_free(grad);
    }
    void *owned[] = {hyper, lr, start, got, zero};
    for (size_t i = 0; i < ARRAY_LEN(owned); i++)
        mem_free(owned[i]);
}

static void adamw_is_torchs(void **state)
{
    (void)state;
    enum { N = 77 };
    struct err e = {0};
    struct tensor_set *set;
    struct model_params p;
    struct device *d = engine_open("llama_tied", (struct engine_options){0});
    check_ok(tensor_open(&set, "tests/golden/adamw.safetensors", &e), e);
    model_params_init(&p, &d->conf.model);
    check_adamw(d, set, "", p.embed, 0.1f, N);
    check_adamw(d, set, "plain.", p.embed, 0, N);
    // A norm is not decayed, whatever the decay; it is narrower than the golden arrays.
    check_adamw(d, set, "plain.", p.final_norm, 0.1f, (size_t)d->conf.model.D);
    model_params_release(&p);
    tensor_close(set);
    device_close(d);
}

/* ---- the update ---- */

/* One leaf of one device with this gradient at element `at`, all else zero. */
static int apply_one(struct device *d, size_t at, float gradient, struct train_update *u,
                     struct err *e)
{
    struct train_tree tree = {.device = d};
    struct device_slice s = {.lo = at, .hi = at + 1, .data = &gradient};
    check_ok(train_tree_leaf(&tree, 0, &s.buffer, e), *e);
    check_ok(device_grad_write(d, &s, e), *e);
    check_ok(train_tree_fold(&tree, e), *e);
    int rc = train_apply(&tree, 1, u, e);
    assert_int_equal(tree.n, 0);
    return rc;
}

static struct train_update plain_update(double max_grad_norm)
{
    return (struct train_update){
        .denominator = 4,
        .max_grad_norm = max_grad_norm,
        .adamw = {
            .lr = 1, .beta1 = 0.5f, .beta2 = 0.5f, .eps = 1e-8f, .bias1 = 0.5f, .bias2 = 0.5f}};
}

static void clipping_is_torchs(void **state)
{
    (void)state;
    static const double most[] = {0, 1, 3, 1e9}; // 0: no clipping
    struct device *d = engine_make(&engine_model[0], (struct engine_options){0});
    for (size_t i = 0; i < ARRAY_LEN(most); i++) {
        struct err e = {0};
        struct train_update u = plain_update(most[i]);
        float m, zero = 0;
        struct device_floats clear = {.state = DEVICE_MOMENT1, .lo = 5, .hi = 6, .data = &zero};
        check_ok(device_state_write(d, &clear, &e), e);
        check_ok(apply_one(d, 5, 8, &u, &e), e); // averaged: 8 / 4
        assert_true(u.grad_norm == 2);
        read_state(d, DEVICE_MOMENT1, &m, 5, 1);
        double clip = most[i] > 0 ? fmin(1, most[i] / (2 + 1e-6)) : 1;
        assert_true(m == (float)(0.5 * (double)((float)(clip / 4) * 8)));
    }
    device_close(d);
}

static void a_gradient_that_is_not_finite_updates_nothing(void **state)
{
    (void)state;
    struct device *d = engine_open("qwen2_bias", (struct engine_options){0});
    struct engine_state before = engine_state(&d, 1);
    struct model_params p;
    model_params_init(&p, &d->conf.model);
    size_t at = p.layer[1].vector[VECTOR_MLP_NORM] + 3;
    for (int i = 0; i < 2; i++) {
        struct err e = {0};
        struct train_update u = plain_update(1);
        assert_true(apply_one(d, at, i ? INFINITY : NAN, &u, &e) < 0);
        check_error(e, ERR_NUMERIC,
                    "the gradient is not finite at model.layers.1.post_attention_layernorm.weight, "
                    "element 3");
        struct engine_state after = engine_state(&d, 1);
        engine_check_states(&before, &after, "after the refusal");
        engine_state_free(&after);
    }
    model_params_release(&p);
    engine_state_free(&before);
    device_close(d);
}

/* Decay moves every matrix, the gradient one element of the first block. */
static void norms_are_of_the_masters_and_their_change(void **state)
{
    (void)state;
    struct err e = {0};
    struct device *d = engine_open("qwen2_bias", (struct engine_options){.threads = 2});
    struct engine_state before = engine_state(&d, 1);
    struct train_update u = plain_update(0);
    u.adamw.decay = 0.1f;
    check_ok(apply_one(d, 5, 8, &u, &e), e);
    struct engine_state after = engine_state(&d, 1);
    double master = 0, move = 0;
    for (size_t i = 0; i < after.n; i++) {
        float change = after.master[i] - before.master[i];
        master += (double)after.master[i] * after.master[i];
        move += (double)change * change;
    }
    assert_true(after.n > SUMSQ_BLOCK && move > 1 && move < master);
    assert_true(fabs(u.param_norm - sqrt(master)) <= 1e-12 * sqrt(master));
    assert_true(fabs(u.update_norm - sqrt(move)) <= 1e-12 * sqrt(move));
    engine_state_free(&before);
    engine_state_free(&after);
    device_close(d);
}

/* The count is what a run needs, for every way to deal leaves: device_invariance trains with it. */
static void buffers_are_few(void **state)
{
    (void)state;
    assert_int_equal(train_buffers(1, 0, 1), 1);
    assert_int_equal(train_buffers(8, 0, 1), 4); // log2 8 subtrees and the leaf in the making
    assert_int_equal(train_buffers(8, 0, 2), 3);
    assert_int_equal(train_buffers(8, 1, 2), 3);
    assert_int_equal(train_buffers(64, 63, 64), 7); // one leaf of its own, 63 that pass through
    for (int leaves = 1; leaves <= 4096; leaves *= 2)
        for (int n = 1; n <= MIN(leaves, 64); n++)
            for (int i = 0; i < n; i++)
                assert_in_range(train_buffers(leaves, i, n), 1, 24);
}

static void one_sample_always_fits_a_micro_batch(void **state)
{
    (void)state;
    struct train_limits l = train_limits(64, 1, 1);
    assert_true(l.rows == 64 && l.segments >= 2);
    l = train_limits(1, 1, 1);
    assert_true(l.rows == 1 && l.segments >= 2);
    l = train_limits(64, 100, 200);
    assert_true(l.rows == 299 && l.segments >= 2);
}

/* ---- the state on disk ---- */

struct fleet {
    struct device *device[4];
    int n;
};

static struct fleet open_fleet(int n)
{
    struct fleet f = {.n = n};
    for (int i = 0; i < n; i++)
        f.device[i] = engine_open("qwen2_bias", (struct engine_options){.gradients = 4});
    return f;
}

static void close_fleet(struct fleet *f)
{
    for (int i = 0; i < f->n; i++)
        device_close(f->device[i]);
}

static void state_moves_between_any_numbers_of_devices(void **state)
{
    (void)state;
    const char *root = check_folder();
    struct engine_groups leaf[4];
    struct fleet f = open_fleet(1);
    struct err e = {0};
    for (int i = 0; i < 4; i++)
        leaf[i] = engine_groups(40 + (uint64_t)i, 300, (struct engine_shape){1, 2, 1, 9, 1, 9});
    engine_step(f.device, 1, leaf, 4, 1);
    struct engine_state want = engine_state(f.device, 1);
    for (int n = 2; n <= 4; n++) { // 1 -> 2 -> 3 -> 1
        char dir[300];
        struct fleet next = open_fleet(n < 4 ? n : 1);
        snprintf(dir, sizeof dir, "%s/%d", root, n);
        check_ok(file_mkdirs(dir, &e), e);
        check_ok(train_state_save(f.device, f.n, dir, &e), e);
        check_ok(device_save(f.device[0], "tests/golden/models/qwen2_bias", dir, &e), e);
        close_fleet(&f);
        f = next;
        for (int i = 0; i < f.n; i++)
            check_ok(device_load(f.device[i], DEVICE_POLICY, dir, &e), e);
        check_ok(train_state_load(f.device, f.n, dir, &e), e);
        struct engine_state got = engine_state(f.device, f.n);
        engine_check_states(&want, &got, dir);
        engine_state_free(&got);
    }
    engine_state_free(&want);
    close_fleet(&f);
    for (int i = 0; i < 4; i++)
        engine_groups_free(&leaf[i]);
    check_folder_remove(root);
}

/* A master that bf16 rounds to infinity is as bad as an infinite one. */
static void what_is_not_finite_is_not_saved(void **state)
{
    (void)state;
    static const struct {
        enum device_state which;
        float value;
        const char *noun;
    } CASES[] = {{DEVICE_MASTER, 3.4e38F, "weight"},
                 {DEVICE_MOMENT1, -INFINITY, "first moment"},
                 {DEVICE_MOMENT2, NAN, "second moment"}};
    struct fleet f = open_fleet(2);
    size_t n = f.device[0]->n_elements;
    const char *dir = check_folder();
    for (size_t i = 0; i < ARRAY_LEN(CASES); i++) {
        struct err e = {0};
        float value = CASES[i].value;
        char want[100];
        struct device_floats s = {.state = CASES[i].which, .lo = n - 1, .hi = n, .data = &value};
        check_ok(device_state_write(f.device[1], &s, &e), e);
        assert_true(train_state_save(f.device, 2, dir, &e) < 0);
        snprintf(want, sizeof want, "the %s is not finite at model.norm.weight, element 79",
                 CASES[i].noun);
        check_error(e, ERR_NUMERIC, want);
        value = 0;
        check_ok(device_state_write(f.device[1], &s, &e), e);
    }
    check_folder_remove(dir);
    close_fleet(&f);
}

/* A folder that two devices wrote, changed by a case; then read by one. */
static void remove_second(const char *dir, struct device *d)
{
    struct err e = {0};
    char *path = file_join(dir, "optimizer-00002-of-00002.safetensors");
    (void)d;
    check_ok(file_remove(path, &e), e);
    mem_free(path);
}

static void remove_first(const char *dir, struct device *d)
{
    struct err e = {0};
    char *path = file_join(dir, "optimizer-00001-of-00002.safetensors");
    (void)d;
    check_ok(file_remove(path, &e), e);
    mem_free(path);
}

static void remove_all(const char *dir, struct device *d)
{
    remove_first(dir, d);
    remove_second(dir, d);
}

static void add_another(const char *dir, struct device *d)
{
    struct err e = {0};
    check_ok(train_state_save(&d, 1, dir, &e), e);
}

/* A first file as another program may write it. */
static void write_first(const char *dir, const char *moment, float value, const char *lo)
{
    struct err e = {0};
    static float data[SUMSQ_BLOCK];
    char hi[24];
    struct tensor_source s[3];
    const char *const name[] = {"master", "exp_avg", moment};
    data[4] = value;
    snprintf(hi, sizeof hi, "%d", SUMSQ_BLOCK);
    for (int i = 0; i < 3; i++)
        s[i] = (struct tensor_source){.name = name[i],
                                      .dtype = TENSOR_F32,
                                      .n_dims = 1,
                                      .shape = {SUMSQ_BLOCK},
                                      .data = data};
    struct tensor_meta meta[] = {{"hi", hi}, {"count", "71504"}, {"lo", lo}};
    char *path = file_join(dir, "optimizer-00001-of-00002.safetensors");
    check_ok(tensor_write(path, s, 3, meta, lo ? 3 : 2, &e), e);
    mem_free(path);
}

static void no_offset(const char *dir, struct device *d)
{
    (void)d;
    write_first(dir, "exp_avg_sq", 0, NULL);
}

static void no_moment(const char *dir, struct device *d)
{
    (void)d;
    write_first(dir, "exp_avg_cube", 0, "0");
}

static void nan_moment(const char *dir, struct device *d)
{
    (void)d;
    write_first(dir, "exp_avg_sq", NAN, "0");
}

static const struct {
    void (*change)(const char *dir, struct device *d);
    int code;
    const char *text; // after the folder's name
} REFUSALS[] = {
    {remove_second, ERR_STATE,
     ": optimizer files end at element 65536 of 71504; a file is missing"},
    {remove_first, ERR_STATE,
     "/optimizer-00002-of-00002.safetensors: holds elements [65536, 71504) of 71504; expected to "
     "go "
     "on from 0 of 71504"},
    {remove_all, ERR_STATE, ": optimizer files end at element 0 of 71504; a file is missing"},
    {add_another, ERR_STATE,
     "/optimizer-00001-of-00002.safetensors: holds elements [0, 65536) of 71504; expected to go on "
     "from 71504 of 71504"},
    {no_offset, ERR_FORMAT,
     "/optimizer-00001-of-00002.safetensors: __metadata__ has no offset 'lo'; expected a file that "
     "LoCo wrote"},
    {no_moment, ERR_FORMAT,
     "/optimizer-00001-of-00002.safetensors: tensor 'exp_avg_sq' is missing: the weights do not "
     "belong to this configuration"},
    {nan_moment, ERR_NUMERIC,
     "/optimizer-00001-of-00002.safetensors: tensor 'master' is NaN or infinite at element 4: "
     "these "
     "weights cannot be used, fetch them again or go back to an older checkpoint"},
};

static void broken_states_are_refused(void **state)
{
    (void)state;
    struct fleet f = open_fleet(2);
    assert_int_equal(f.device[0]->n_elements, 71504);
    for (size_t i = 0; i < ARRAY_LEN(REFUSALS); i++) {
        const char *dir = check_folder();
        char want[600];
        struct err e = {0};
        check_ok(train_state_save(f.device, 2, dir, &e), e);
        REFUSALS[i].change(dir, f.device[0]);
        snprintf(want, sizeof want, "%s%s", dir, REFUSALS[i].text);
        assert_true(train_state_load(f.device, 1, dir, &e) < 0);
        check_error(e, REFUSALS[i].code, want);
        check_folder_remove(dir);
    }
    close_fleet(&f);
}

static void another_models_state_is_refused(void **state)
{
    (void)state;
    const char *dir = check_folder();
    char want[600];
    struct err e = {0};
    struct fleet f = open_fleet(1);
    struct device *other = engine_open("llama_tied", (struct engine_options){0});
    check_ok(train_state_save(f.device, 1, dir, &e), e);
    snprintf(
        want, sizeof want,
        "%s/optimizer-00001-of-00001.safetensors: holds elements [0, 71504) of 71504; expected "
        "to go on from 0 of %zu",
        dir, other->n_elements);
    assert_true(train_state_load(&other, 1, dir, &e) < 0);
    check_error(e, ERR_STATE, want);
    device_close(other);
    close_fleet(&f);
    check_folder_remove(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(adamw_is_torchs),
        cmocka_unit_test(clipping_is_torchs),
        cmocka_unit_test(norms_are_of_the_masters_and_their_change),
        cmocka_unit_test(a_gradient_that_is_not_finite_updates_nothing),
        cmocka_unit_test(buffers_are_few),
        cmocka_unit_test(one_sample_always_fits_a_micro_batch),
        cmocka_unit_test(state_moves_between_any_numbers_of_devices),
        cmocka_unit_test(what_is_not_finite_is_not_saved),
        cmocka_unit_test(broken_states_are_refused),
        cmocka_unit_test(another_models_state_is_refused),
    };
    return cmocka_run_group_tests_name("train", tests, NULL, NULL);
}
