/* tests/unit/test_token.c - what is a token and a key, and what is not. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "gateway/token.h"

#define UNTOUCHED UINT64_C(0xDEADBEEF)

static void tokens_accepted(void **state)
{
    static const struct {
        const char *text;
        uint64_t value;
    } good[] = {
        {"1", 1},
        {"42", 42},
        {"9", 9},
        {"10", 10},
        {"0042", 42},
        {"00000000000000000042", 42},
        {"9007199254740991", UINT64_C(9007199254740991)},
        {"9007199254740992", UINT64_C(9007199254740992)},
        {"9007199254740993", UINT64_C(9007199254740993)},
        {"9223372036854775807", UINT64_C(9223372036854775807)},
        {"9223372036854775808", UINT64_C(9223372036854775808)},
        {"18446744073709551614", UINT64_MAX - 1},
        {"18446744073709551615", UINT64_MAX},
    };
    (void)state;
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        uint64_t value = UNTOUCHED;
        assert_true(token_parse(good[i].text, strlen(good[i].text), &value));
        assert_true(value == good[i].value);
    }
}

static void tokens_refused(void **state)
{
    static const char *const bad[] = {
        "",
        " ",
        "   ",
        "\t",
        "0",
        "00000000000000000000",
        "-1",
        "-0",
        "+5",
        " 5",
        "5 ",
        "5\t",
        "5\n",
        "4 2",
        "5x",
        "x5",
        "0x10",
        "0b1",
        "0o7",
        "1e3",
        "5.0",
        "5,0",
        "42,42",
        "1_000",
        "18446744073709551616",
        "18446744073709551617",
        "18446744073709551620",
        "28446744073709551615",
        "99999999999999999999",
        "000000000000000000042",
        "184467440737095516150",
        "\xD9\xA4\xD9\xA2",         /* Arabic-Indic 42 */
        "\xEF\xBC\x94\xEF\xBC\x92", /* full-width 42 */
        "\xC2\xB2",                 /* superscript 2 */
        "NaN",
        "inf",
        "null",
        "\"42\"",
    };
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        uint64_t value = UNTOUCHED;
        if (token_parse(bad[i], strlen(bad[i]), &value))
            fail_msg("accepted \"%s\"", bad[i]);
        assert_true(value == UNTOUCHED);
    }
}

static void tokens_with_nul_and_very_long(void **state)
{
    static char digits[10240];
    uint64_t value = UNTOUCHED;
    (void)state;
    memset(digits, '7', sizeof digits);
    assert_false(token_parse(digits, sizeof digits, &value));
    memset(digits, '0', sizeof digits);
    digits[sizeof digits - 1] = '1';
    assert_false(token_parse(digits, sizeof digits, &value));
    assert_false(token_parse("4\0002", 3, &value));
    assert_false(token_parse("42\0", 3, &value));
    assert_true(value == UNTOUCHED);
    /* only `len` bytes are looked at */
    assert_true(token_parse("42999", 2, &value));
    assert_true(value == 42);
}

static void formats_and_reads_back(void **state)
{
    static const uint64_t values[] = {1, 9, 10, 99, 100, UINT64_C(9007199254740993), UINT64_C(1) << 63, UINT64_MAX};
    char text[TOKEN_DIGITS_MAX + 1];
    (void)state;
    assert_int_equal(token_format(0, text), 1);
    assert_string_equal(text, "0");
    assert_int_equal(token_format(UINT64_MAX, text), 20);
    assert_string_equal(text, "18446744073709551615");
    for (size_t i = 0; i < sizeof values / sizeof values[0]; i++) {
        uint64_t back = 0;
        size_t len = token_format(values[i], text);
        assert_int_equal(len, strlen(text));
        assert_true(token_parse(text, len, &back));
        assert_true(back == values[i]);
    }
}

static bool key(const char *text)
{
    return key_valid(text, strlen(text));
}

static void keys(void **state)
{
    char longest[KEY_BYTES_MAX + 1];
    (void)state;
    assert_true(key("order-17"));
    assert_true(key(" "));
    assert_true(key("a b/c%2F;?#\"\\"));
    assert_true(key("Z\xC3\xBCrich"));
    assert_true(key("\xC2\x80")); /* U+0080: C1, not excluded */
    assert_true(key("\xE2\x82\xAC"));
    assert_true(key("\xED\x9F\xBF")); /* U+D7FF */
    assert_true(key("\xEE\x80\x80")); /* U+E000 */
    assert_true(key("\xF0\x9F\x92\xB6"));
    assert_true(key("\xF4\x8F\xBF\xBF")); /* U+10FFFF */

    assert_false(key(""));
    assert_false(key_valid("a\0b", 3));
    for (char c = 1; c < 0x20; c++)
        assert_false(key_valid(&c, 1));
    assert_false(key("a\x7F"));
    assert_false(key("a\tb"));
    assert_false(key("\x80"));
    assert_false(key("\xC0\x80")); /* overlong NUL */
    assert_false(key("\xC1\xBF"));
    assert_false(key("\xE0\x80\xAF"));     /* overlong slash */
    assert_false(key("\xE0\x9F\xBF"));     /* overlong */
    assert_false(key("\xF0\x8F\xBF\xBF")); /* overlong */
    assert_false(key("\xED\xA0\x80"));     /* surrogate */
    assert_false(key("\xED\xBF\xBF"));
    assert_false(key("\xF4\x90\x80\x80")); /* above U+10FFFF */
    assert_false(key("\xF5\x80\x80\x80"));
    assert_false(key("\xFF"));
    assert_false(key("\xC3"));
    assert_false(key("\xC3z"));
    assert_false(key("\xE2\x82"));
    assert_false(key("\xE2\x82z"));
    assert_false(key("\xF0\x9F\x92"));
    /* cut by the length, not by what lies behind it */
    assert_false(key_valid("\xE2\x82\xAC", 2));

    memset(longest, 'k', sizeof longest);
    assert_true(key_valid(longest, KEY_BYTES_MAX));
    assert_false(key_valid(longest, KEY_BYTES_MAX + 1));
}

/* Bytes drawn from what tokens are mistaken for; what is accepted must be digits that say the value. */
static void random_tokens(void **state)
{
    static const char alphabet[] = "0123456789012345678901234567890123456789 +-.,exX\t";
    unsigned seed = 12345;
    (void)state;
    for (int round = 0; round < 200000; round++) {
        size_t len = (size_t)(rand_r(&seed) % 24);
        char *text = malloc(len == 0 ? 1 : len); /* exact size: a read behind it is seen */
        uint64_t value = UNTOUCHED;
        assert_non_null(text);
        for (size_t i = 0; i < len; i++)
            text[i] = alphabet[(size_t)rand_r(&seed) % (sizeof alphabet - 1)];
        if (token_parse(text, len, &value)) {
            char back[TOKEN_DIGITS_MAX + 1];
            size_t back_len = token_format(value, back), zeros = 0;
            while (text[zeros] == '0')
                zeros++;
            assert_int_equal(len - zeros, back_len);
            assert_memory_equal(text + zeros, back, back_len);
        } else {
            assert_true(value == UNTOUCHED);
        }
        free(text);
    }
}

static void random_keys(void **state)
{
    unsigned seed = 777;
    (void)state;
    for (int round = 0; round < 100000; round++) {
        size_t len = (size_t)(rand_r(&seed) % 8);
        char *text = malloc(len == 0 ? 1 : len);
        assert_non_null(text);
        for (size_t i = 0; i < len; i++)
            text[i] = (char)(rand_r(&seed) >> 3);
        if (key_valid(text, len))
            for (size_t i = 0; i < len; i++)
                assert_true((unsigned char)text[i] >= 0x20 && text[i] != 0x7F);
        free(text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tokens_accepted),
        cmocka_unit_test(tokens_refused),
        cmocka_unit_test(tokens_with_nul_and_very_long),
        cmocka_unit_test(formats_and_reads_back),
        cmocka_unit_test(keys),
        cmocka_unit_test(random_tokens),
        cmocka_unit_test(random_keys),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
