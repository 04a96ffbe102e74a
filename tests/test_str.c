/* Buffers, UTF-8 by the Unicode standard's tables, escapes, and strict numbers. */
#include "check.h"

#include "base/mem.h"
#include "base/rng.h"
#include "base/str.h"

static void test_buffers_grow_and_end_in_nul(void **state)
{
    (void)state;
    struct buf b = {0};
    assert_string_equal(buf_str(&b), "");
    for (int i = 0; i < 1000; i++) {
        buf_printf(&b, "%d,", i);
        assert_int_equal(b.data[b.len], 0);
    }
    assert_int_equal(b.len, 10 * 2 + 90 * 3 + 900 * 4);
    buf_clear(&b);
    assert_string_equal(buf_str(&b), "");
    buf_puts(&b, "ab");
    buf_putc(&b, 'c');
    buf_put(&b, NULL, 0);
    assert_string_equal(b.data, "abc");
    buf_release(&b);
    buf_release(&b);
    assert_null(b.data);
}

static void exceed_ceiling(void *ctx)
{
    (void)ctx;
    struct buf b = {.max = 4};
    buf_puts(&b, "four");
    buf_putc(&b, '!');
}

static void test_a_ceiling_holds(void **state)
{
    (void)state;
    check_asserts(exceed_ceiling, NULL, "b->len <= max - n");
}

/* Code points survive encoding and decoding, all of them. */
static void test_every_code_point_survives(void **state)
{
    (void)state;
    for (uint32_t c = 0; c <= 0x10FFFF; c++) {
        if (c == 0xD800)
            c = 0xE000;
        char s[4];
        uint32_t back = 0;
        int len = utf8_encode(c, s);
        if (utf8_decode(s, (size_t)len, &back) != len || back != c)
            fail_msg("U+%04X", c);
        for (int cut = 1; cut < len; cut++)
            if (utf8_decode(s, (size_t)cut, &back) != -cut)
                fail_msg("U+%04X cut to %d bytes", c, cut);
    }
}

static void check_lossy(const char *s, const char *want)
{
    struct buf b = {0};
    buf_utf8_lossy(&b, s, strlen(s));
    assert_string_equal(buf_str(&b), want);
    buf_release(&b);
}

#define R "\xEF\xBF\xBD"

/* Tables 3-8 to 3-11 of the Unicode standard 15, section 3.9. */
static void test_maximal_subparts_are_replaced(void **state)
{
    (void)state;
    check_lossy("\xC0\xAF\xE0\x80\xBF\xF0\x81\x82"
                "A",
                R R R R R R R R "A");
    check_lossy("\xED\xA0\x80\xED\xBF\xBF\xED\xAF"
                "A",
                R R R R R R R R "A");
    check_lossy("\xF4\x91\x92\x93\xFF"
                "A\x80\xBF"
                "B",
                R R R R R "A" R R "B");
    check_lossy("\xE1\x80\xE2\xF0\x91\x92\xF1\xBF"
                "A",
                R R R R "A");
    check_lossy("", "");
    check_lossy("\xC3\xA9\xF0\x9F\x98\x80", "\xC3\xA9\xF0\x9F\x98\x80");
}

static void test_first_invalid_byte_is_found(void **state)
{
    (void)state;
    assert_int_equal(utf8_valid("caf\xC3\xA9", 5), 5);
    assert_int_equal(utf8_valid("caf\xC3\xA9", 4), 3);
    assert_int_equal(utf8_valid("a\0\x80", 3), 2);
    assert_int_equal(utf8_valid("", 0), 0);
}

/* Lossy text is valid, and valid text is left alone. */
static void test_lossy_is_idempotent_on_random_bytes(void **state)
{
    (void)state;
    uint64_t key = rng_key(check_seed(), RNG_DATA);
    static const char favourite[] = "a\x80\x9F\xA0\xBF\xC0\xC2\xE0\xED\xEF\xF0\xF4\xF5\xFF";
    for (uint32_t row = 0; row < 2000; row++) {
        char s[24];
        for (uint32_t i = 0; i < sizeof s; i++)
            s[i] = favourite[rng_below(key, i, 0, row, 0, sizeof favourite - 1)];
        struct buf once = {0}, twice = {0};
        buf_utf8_lossy(&once, s, sizeof s);
        assert_int_equal(utf8_valid(once.data, once.len), once.len);
        buf_utf8_lossy(&twice, once.data, once.len);
        assert_string_equal(once.data, twice.data);
        buf_release(&once);
        buf_release(&twice);
    }
}

static void test_json_strings_are_escaped(void **state)
{
    (void)state;
    struct buf b = {0};
    static const char text[] = "a\"b\\c\n\t\x01\x1F\0\xC3\xA9\xFF/\x7F";
    buf_json(&b, text, sizeof text - 1);
    assert_string_equal(b.data, "\"a\\\"b\\\\c\\n\\t\\u0001\\u001f\\u0000\xC3\xA9" R "/\x7F\"");
    buf_release(&b);
}

static void test_numbers_that_no_double_holds_are_tamed_and_come_back(void **state)
{
    (void)state;
    static const struct {
        const char *text, *tame;
    } cases[] = {
        {"{\"a\": NaN, \"b\":[-Infinity,Infinity]}",
         "{\"a\": \"\\u0001NaN\", \"b\":[\"\\u0001-Infinity\",\"\\u0001Infinity\"]}"},
        {"[9223372036854775807, 9223372036854775808,\n-9223372036854775809]",
         "[9223372036854775807, \"\\u00019223372036854775808\",\n"
         "\"\\u0001-9223372036854775809\"]"},
        {"1e400", "\"\\u00011e400\""},
        {"[1e308, 1e-400, -1.5E+3, 0]", "[1e308, 1e-400, -1.5E+3, 0]"},
        {"\"NaN, \\\"1e400\"", "\"NaN, \\\"1e400\""},
        {"[\"open: NaN", "[\"open: NaN"},
        {"[\"\\", "[\"\\"},
        {"[0123456789012345678901, nan, +Infinity, 1e400x, .1e400]",
         "[0123456789012345678901, nan, +Infinity, 1e400x, .1e400]"}, // no numbers of JSON
        {"", ""},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct buf tame = {0}, back = {0};
        buf_json_tame(&tame, cases[i].text, strlen(cases[i].text));
        assert_string_equal(buf_str(&tame), cases[i].tame);
        buf_json_untame(&back, buf_str(&tame), tame.len);
        assert_string_equal(buf_str(&back), cases[i].text);
        buf_release(&tame);
        buf_release(&back);
    }
}

static void test_terminal_text_cannot_move_the_cursor(void **state)
{
    (void)state;
    struct buf b = {0};
    static const char text[] = "ok\x1B[2J\r\n\t\x7F\xC2\x9B\xE2\x80\xAE\xFF\xC3\xA9";
    buf_terminal(&b, text, sizeof text - 1, false);
    assert_string_equal(b.data, "ok\\x1b[2J\\r\\n\\t\\x7f\\x9b\\u202e" R "\xC3\xA9");
    buf_clear(&b);
    buf_terminal(&b, "a\n\tb", 4, true);
    assert_string_equal(b.data, "a\n\\tb");
    buf_release(&b);
}

static void check_double(double x, const char *want)
{
    struct buf b = {0};
    buf_double(&b, x);
    assert_string_equal(b.data, want);
    buf_release(&b);
}

static void test_numbers_take_their_shortest_form(void **state)
{
    (void)state;
    check_double(0, "0");
    check_double(-0.0, "-0");
    check_double(100, "100");
    check_double(-123456789012345, "-123456789012345");
    check_double(0.1, "0.1");
    check_double(1.0 / 3, "0.3333333333333333");
    check_double(5e-324, "5e-324");
    check_double(1e22, "1e+22");
    check_double(NAN, "null");
    check_double(-INFINITY, "null");
    struct buf b = {0};
    buf_float(&b, 0.1f);
    buf_putc(&b, ' ');
    buf_float(&b, 16777217.0f);
    buf_putc(&b, ' ');
    buf_float(&b, INFINITY);
    assert_string_equal(b.data, "0.1 16777216 null");
    buf_release(&b);
}

/* Whole numbers aside, no fewer digits would do. */
static void check_shortest(const char *text, double x, bool narrow)
{
    char fewer[320];
    int digits = 0;
    for (const char *c = text; *c && *c != 'e'; c++)
        digits += (*c >= '0' && *c <= '9') && (digits > 0 || *c != '0');
    if (x == floor(x) || digits < 2)
        return;
    snprintf(fewer, sizeof fewer, "%.*g", digits - 1, x);
    assert_true(narrow ? strtof(fewer, NULL) != (float)x : strtod(fewer, NULL) != x);
}

static void test_numbers_come_back_bit_for_bit(void **state)
{
    (void)state;
    uint64_t key = rng_key(check_seed(), RNG_EVAL);
    struct buf b = {0};
    for (uint32_t i = 0; i < 20000; i++) {
        uint32_t bits[4];
        rng_block(key, i, 9, 9, 9, bits);
        double x, back;
        float f;
        memcpy(&x, bits, sizeof x);
        memcpy(&f, &bits[2], sizeof f);
        buf_clear(&b);
        buf_double(&b, x);
        assert_int_equal(str_to_double(b.data, &back), isfinite(x) != 0);
        assert_true(!isfinite(x) || memcmp(&back, &x, sizeof x) == 0);
        check_shortest(b.data, x, false);
        buf_clear(&b);
        buf_float(&b, f);
        float fback = strtof(b.data, NULL);
        assert_true(!isfinite(f) || memcmp(&fback, &f, sizeof f) == 0);
        check_shortest(b.data, (double)f, true);
    }
    buf_release(&b);
}

static void test_edit_distance(void **state)
{
    (void)state;
    assert_int_equal(str_distance("", ""), 0);
    assert_int_equal(str_distance("beta", "beta"), 0);
    assert_int_equal(str_distance("", "abc"), 3);
    assert_int_equal(str_distance("kitten", "sitting"), 3);
    assert_int_equal(str_distance("learning_rat", "learning_rate"), 1);
    assert_int_equal(str_distance("moedl", "model"), 1);
    assert_int_equal(str_distance("ca", "abc"), 3);
    char longer[100] = {0};
    memset(longer, 'x', sizeof longer - 1);
    assert_int_equal(str_distance(longer, "x"), 99);
}

static void test_affixes(void **state)
{
    (void)state;
    assert_true(str_starts("model.norm", "model.") && !str_starts("mod", "model"));
    assert_true(str_ends("a.json", ".json") && !str_ends("json", ".json"));
    assert_true(str_starts("", "") && str_ends("", ""));
}

static void test_integers_are_strict(void **state)
{
    (void)state;
    static const char *const bad[] = {"",    "-",   "+1",  " 1",  "1 ",
                                      "1.0", "1e3", "0x1", "1_0", "9223372036854775808"};
    int64_t v = 7;
    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        assert_false(str_to_int(bad[i], &v));
    assert_int_equal(v, 7);
    assert_true(str_to_int("-9223372036854775808", &v) && v == INT64_MIN);
    assert_true(str_to_int("0042", &v) && v == 42);
}

static void test_decimals_are_strict(void **state)
{
    (void)state;
    static const char *const bad[] = {"",    ".",   "-",  "+1", "nan", "inf",   "0x1p3", "1e",
                                      "1e+", "1,5", "1 ", " 1", "1f",  "1e400", "1.2.3"};
    double v = 7;
    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        assert_false(str_to_double(bad[i], &v));
    assert_true(v == 7);
    assert_true(str_to_double("1e-6", &v) && v == 1e-6);
    assert_true(str_to_double("-.5", &v) && v == -0.5);
    assert_true(str_to_double("2.", &v) && v == 2);
    assert_true(str_to_double("1E+3", &v) && v == 1000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_buffers_grow_and_end_in_nul),
        cmocka_unit_test(test_a_ceiling_holds),
        cmocka_unit_test(test_every_code_point_survives),
        cmocka_unit_test(test_maximal_subparts_are_replaced),
        cmocka_unit_test(test_first_invalid_byte_is_found),
        cmocka_unit_test(test_lossy_is_idempotent_on_random_bytes),
        cmocka_unit_test(test_json_strings_are_escaped),
        cmocka_unit_test(test_numbers_that_no_double_holds_are_tamed_and_come_back),
        cmocka_unit_test(test_terminal_text_cannot_move_the_cursor),
        cmocka_unit_test(test_numbers_take_their_shortest_form),
        cmocka_unit_test(test_numbers_come_back_bit_for_bit),
        cmocka_unit_test(test_edit_distance),
        cmocka_unit_test(test_affixes),
        cmocka_unit_test(test_integers_are_strict),
        cmocka_unit_test(test_decimals_are_strict),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
