/* Properties of GRPO's arithmetic: exact zeros, permutations, masks, exact sums, the run's header.
 */
#include "grpo_metric.h"

#include "grpo/grpo.h"

#include "base/rng.h"

static void equal_totals_give_exact_zeros(void **state)
{
    (void)state;
    static const double LEVELS[] = {0.1, 0.95, 0.3, 0.0, -7.25, 1e-9, 123456.789};
    for (size_t k = 0; k < ARRAY_LEN(LEVELS); k++) {
        double totals[8];
        float advantages[8];
        for (size_t i = 0; i < 8; i++)
            totals[i] = LEVELS[k];
        for (int scale = GRPO_SCALE_GROUP; scale <= GRPO_SCALE_NONE; scale++) {
            grpo_advantages((enum grpo_scale)scale, totals, 8, advantages);
            for (size_t i = 0; i < 8; i++)
                assert_true(advantages[i] == 0.0F && !signbit(advantages[i]));
        }
    }
}

static void permuting_a_group_permutes_its_advantages(void **state)
{
    (void)state;
    const uint64_t seed = check_seed();
    for (uint32_t round = 0; round < 200; round++) {
        double totals[9], moved[9];
        float advantages[9], moved_advantages[9];
        for (uint32_t i = 0; i < 9; i++)
            totals[i] = rng_uniform(seed, i, round, 0, 0) * 3 - 1;
        for (uint64_t i = 0; i < 9; i++)
            moved[i] = totals[rng_permute(seed, round, 9, i)];
        grpo_advantages(GRPO_SCALE_GROUP, totals, 9, advantages);
        grpo_advantages(GRPO_SCALE_GROUP, moved, 9, moved_advantages);
        for (uint64_t i = 0; i < 9; i++)
            assert_true(moved_advantages[i] == advantages[rng_permute(seed, round, 9, i)]);
    }
}

static void samples_without_a_total_have_no_advantage(void **state)
{
    (void)state;
    const double none = (double)NAN, totals[4] = {1.0, none, 0.0, none};
    float advantages[4];
    grpo_advantages(GRPO_SCALE_NONE, totals, 4, advantages);
    assert_true(advantages[0] == 0.5F && advantages[2] == -0.5F);
    assert_true(advantages[1] == 0.0F && advantages[3] == 0.0F);
    const double alone[3] = {none, 4.0, none};
    grpo_advantages(GRPO_SCALE_GROUP, alone, 3, advantages);
    assert_true(advantages[0] == 0.0F && advantages[1] == 0.0F && advantages[2] == 0.0F);
}

static void totals_weigh_the_scores_that_apply(void **state)
{
    (void)state;
    const struct grpo_conf c = {.n_rewards = 3, .weight = {1.0, 0.5, 2.0}};
    const double none = (double)NAN;
    assert_true(grpo_total(&c, (double[]){1.0, 1.0, 0.25}) == 2.0);
    assert_true(grpo_total(&c, (double[]){none, 1.0, 0.25}) == 1.0);
    assert_true(isnan(grpo_total(&c, (double[]){none, none, none})));
}

static const struct grpo_conf ON_POLICY = {.objective = GRPO_DAPO,
                                           .kl = GRPO_KL_K3_RATIO,
                                           .beta = 0.04,
                                           .epsilon_low = 0.2,
                                           .epsilon_high = 0.28,
                                           .max_completion_length = 4,
                                           .mask_truncated = true};

static void on_policy_every_ratio_is_one_and_kl_to_itself_is_zero(void **state)
{
    (void)state;
    const float logp[4] = {-0.3F, -11.25F, -1e-7F, 0.0F};
    struct grpo_sample s = {
        .n_tokens = 4, .logp = logp, .logp_old = logp, .logp_ref = logp, .advantage = 1.5F};
    struct grpo_stats stats = {0};
    float dlogp[4];
    grpo_sample_loss(&ON_POLICY, &s, dlogp, &stats);
    for (size_t t = 0; t < 4; t++)
        assert_true(dlogp[t] == -1.5F);
    assert_true(stats.ratio.min == 1.0 && stats.ratio.max == 1.0);
    assert_true(stats.kl.min == 0.0 && stats.kl.max == 0.0);
    assert_int_equal(stats.tokens_clipped_low + stats.tokens_clipped_high, 0);
    assert_true(metric_of(&ON_POLICY, &stats, "importance_ratio/p99") == 1.0);
    assert_true(metric_of(&ON_POLICY, &stats, "loss") == -1.5);
}

static void masked_tokens_train_nothing_and_leak_no_nan(void **state)
{
    (void)state;
    const float nan = (float)NAN, logp[4] = {-1.0F, nan, nan, -2.0F};
    const uint8_t sampled[4] = {1, 0, 0, 1};
    struct grpo_sample s = {.n_tokens = 4,
                            .logp = logp,
                            .logp_old = logp,
                            .logp_ref = logp,
                            .sampled = sampled,
                            .advantage = 1.0F};
    struct grpo_stats stats = {0};
    float dlogp[4];
    grpo_sample_loss(&ON_POLICY, &s, dlogp, &stats);
    assert_true(dlogp[0] == -1.0F && dlogp[1] == 0.0F && dlogp[2] == 0.0F && dlogp[3] == -1.0F);
    assert_int_equal(stats.tokens, 2);
    s.truncated = true;
    grpo_sample_loss(&ON_POLICY, &s, dlogp, &stats);
    for (size_t t = 0; t < 4; t++)
        assert_true(dlogp[t] == 0.0F);
    assert_int_equal(stats.tokens, 2);
    assert_int_equal(stats.samples, 2);
    assert_true(metric_of(&ON_POLICY, &stats, "loss") == -1.0);
    assert_true(metric_of(&ON_POLICY, &stats, "completions/clipped_ratio") == 0.5);
}

static void a_step_that_trains_nothing_has_loss_zero(void **state)
{
    (void)state;
    const float logp[2] = {-1.0F, -2.0F};
    struct grpo_sample s = {.n_tokens = 2,
                            .logp = logp,
                            .logp_old = logp,
                            .logp_ref = logp,
                            .advantage = 1.0F,
                            .truncated = true};
    struct grpo_stats stats = {0};
    float dlogp[2];
    grpo_sample_loss(&ON_POLICY, &s, dlogp, &stats);
    assert_int_equal(grpo_denominator(&ON_POLICY, stats.samples, stats.tokens), 1);
    assert_true(metric_of(&ON_POLICY, &stats, "loss") == 0.0);
    assert_true(isnan(metric_of(&ON_POLICY, &stats, "entropy")));
    assert_true(isnan(metric_of(&ON_POLICY, &stats, "clip_ratio/low_min")));
}

static void a_loss_that_is_not_finite_is_reported_as_nan(void **state)
{
    (void)state;
    const float logp[2] = {-1.0F, -INFINITY}, old[2] = {-1.0F, -INFINITY};
    struct grpo_sample s = {
        .n_tokens = 2, .logp = logp, .logp_old = old, .logp_ref = old, .advantage = 1.0F};
    struct grpo_stats stats = {0};
    float dlogp[2];
    grpo_sample_loss(&ON_POLICY, &s, dlogp, &stats);
    assert_true(isnan(metric_of(&ON_POLICY, &stats, "loss")));
}

static void groups_without_spread_are_split_into_right_and_wrong(void **state)
{
    (void)state;
    const struct grpo_conf c = {.n_rewards = 1, .weight = {1.0}, .reward_name = {"exact"}};
    const double totals[3][2] = {{1, 1}, {0, 0}, {1, 0}};
    struct grpo_stats stats = {0};
    for (size_t g = 0; g < 3; g++) {
        float advantages[2];
        grpo_advantages(GRPO_SCALE_NONE, totals[g], 2, advantages);
        grpo_stats_group(&c, totals[g], totals[g], advantages, 2, &stats);
    }
    assert_int_equal(stats.groups, 3);
    assert_int_equal(stats.groups_all_correct, 1);
    assert_int_equal(stats.groups_all_wrong, 1);
    assert_true(metric_of(&c, &stats, "advantage/nonzero_frac") == 2.0 / 6.0);
    assert_true(metric_of(&c, &stats, "advantage/abs_mean") == 1.0 / 6.0);
    assert_true(metric_of(&c, &stats, "rewards/exact/mean") == 0.5);
}

static void exact_sums_do_not_depend_on_order(void **state)
{
    (void)state;
    const uint64_t seed = check_seed();
    struct grpo_sum forward = {0}, backward = {0};
    double x[500];
    for (uint32_t i = 0; i < 500; i++) {
        double u = rng_uniform(seed, i, 0, 0, 0) - 0.5;
        x[i] = ldexp(u, (int)rng_below(seed, i, 1, 0, 0, 60) - 25);
        grpo_sum_add(&forward, x[i]);
    }
    for (int i = 499; i >= 0; i--)
        grpo_sum_add(&backward, x[i]);
    assert_memory_equal(&forward, &backward, sizeof forward);
    for (int i = 0; i < 500; i++)
        grpo_sum_add(&forward, -x[i]);
    assert_true(grpo_sum_value(&forward) == 0.0);
}

static void exact_sums_keep_sign_and_small_values(void **state)
{
    (void)state;
    static const double VALUES[] = {1.5, -1.5, -0x1p-64, 0x1p-60, -1e-12, 1099511627775.5, -3.0};
    for (size_t i = 0; i < ARRAY_LEN(VALUES); i++) {
        struct grpo_sum s = {0};
        grpo_sum_add(&s, VALUES[i]);
        assert_true(fabs(grpo_sum_value(&s) - VALUES[i]) <= 0x1p-64);
        assert_true(signbit(grpo_sum_value(&s)) == signbit(VALUES[i]));
    }
}

static void the_run_header_states_every_definition(void **state)
{
    (void)state;
    struct buf b = {0};
    grpo_describe(&ON_POLICY, &b);
    assert_string_equal(buf_str(&b),
                        "loss       dapo: token sum / trained tokens of the step\n"
                        "clip       ratio in [0.8, 1.28]\n"
                        "advantage  (total - group mean) / (unbiased group std + 1e-4), 0 when all "
                        "totals are equal\n"
                        "kl         k3 x importance ratio, beta 0.04\n"
                        "truncated  not trained\n");
    buf_release(&b);
    enum grpo_objective o;
    assert_false(grpo_objective_find("cispo", &o));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equal_totals_give_exact_zeros),
        cmocka_unit_test(permuting_a_group_permutes_its_advantages),
        cmocka_unit_test(samples_without_a_total_have_no_advantage),
        cmocka_unit_test(totals_weigh_the_scores_that_apply),
        cmocka_unit_test(on_policy_every_ratio_is_one_and_kl_to_itself_is_zero),
        cmocka_unit_test(masked_tokens_train_nothing_and_leak_no_nan),
        cmocka_unit_test(a_step_that_trains_nothing_has_loss_zero),
        cmocka_unit_test(a_loss_that_is_not_finite_is_reported_as_nan),
        cmocka_unit_test(groups_without_spread_are_split_into_right_and_wrong),
        cmocka_unit_test(exact_sums_do_not_depend_on_order),
        cmocka_unit_test(exact_sums_keep_sign_and_small_values),
        cmocka_unit_test(the_run_header_states_every_definition),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
