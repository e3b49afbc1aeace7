/* tests/unit/test_jsonout.c - JSON text that stays JSON, one line and valid UTF-8 whatever comes in. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>
#include <jansson.h>

#include "gateway/jsonout.h"

static const char *string_of(struct jsonout *out, const char *text, size_t len)
{
    jsonout_reset(out);
    jsonout_string(out, text, len);
    assert_false(out->failed);
    return out->text;
}

static void commas_and_nesting(void **state)
{
    struct jsonout out = {0};
    (void)state;
    jsonout_object_begin(&out);
    jsonout_member_cstring(&out, "a", "x");
    jsonout_member_cstring(&out, "absent", NULL);
    jsonout_member_string(&out, "absent", NULL, 3);
    jsonout_member_string(&out, "empty", "", 0);
    jsonout_name(&out, "list");
    jsonout_array_begin(&out);
    jsonout_number(&out, 0);
    jsonout_number(&out, UINT64_MAX);
    jsonout_bool(&out, true);
    jsonout_bool(&out, false);
    jsonout_null(&out);
    jsonout_array_begin(&out);
    jsonout_array_end(&out);
    jsonout_object_begin(&out);
    jsonout_object_end(&out);
    jsonout_cstring(&out, "y");
    jsonout_array_end(&out);
    jsonout_member_id(&out, "id", UINT64_MAX);
    jsonout_member_number(&out, "n", 12);
    jsonout_name(&out, "t");
    jsonout_time_ms(&out, 0);
    jsonout_object_end(&out);
    jsonout_raw(&out, "\n", 1);
    jsonout_object_begin(&out); /* a second document after a raw line end: no comma before it */
    jsonout_object_end(&out);
    assert_string_equal(out.text, "{\"a\":\"x\",\"empty\":\"\",\"list\":[0,18446744073709551615,true,false,null,[],{},"
                                  "\"y\"],\"id\":\"18446744073709551615\",\"n\":12,\"t\":\"1970-01-01T00:00:00.000Z\"}"
                                  "\n{}");
    assert_int_equal(out.len, strlen(out.text));
    jsonout_reset(&out);
    assert_int_equal(out.len, 0);
    jsonout_number(&out, 7);
    assert_string_equal(out.text, "7");
    jsonout_free(&out);
    assert_null(out.text);
}

static void strings_made_safe(void **state)
{
    static const struct {
        const char *in, *out;
    } cases[] = {
        {"", "\"\""},
        {"plain ~!", "\"plain ~!\""},
        {"a\"b\\c/", "\"a\\\"b\\\\c/\""},
        {"\r\n\t\x1b[31m", "\"\\u000d\\u000a\\u0009\\u001b[31m\""},
        {"\x7F", "\"\\u007f\""},
        {"\xC2\x80\xC2\x85\xC2\x9F\xC2\xA0", "\"\\u0080\\u0085\\u009f\xC2\xA0\""},
        {"\xE2\x80\xA8\xE2\x80\xA9", "\"\\u2028\\u2029\""},
        {"\xE2\x80\xAA\xE2\x80\xAE\xE2\x80\xAF", "\"\\u202a\\u202e\xE2\x80\xAF\""},
        {"\xE2\x81\x9F\xE2\x81\xA0\xE2\x81\xA6\xE2\x81\xAF\xE2\x81\xB0",
         "\"\xE2\x81\x9F\\u2060\\u2066\\u206f\xE2\x81\xB0\""},
        {"\xE2\x80\x8A\xE2\x80\x8B\xE2\x80\x8F\xE2\x80\x90", "\"\xE2\x80\x8A\\u200b\\u200f\xE2\x80\x90\""},
        {"\xD8\x9C\xEF\xBB\xBF\xEF\xBF\xB9\xEF\xBF\xBB\xEF\xBF\xBC", "\"\\u061c\\ufeff\\ufff9\\ufffb\xEF\xBF\xBC\""},
        {"Z\xC3\xBCrich \xF0\x9F\x92\xB6", "\"Z\xC3\xBCrich \xF0\x9F\x92\xB6\""},
        {"a\xFFz", "\"a\xEF\xBF\xBDz\""},
        {"\xC3", "\"\xEF\xBF\xBD\""},
        {"\xC0\xAF", "\"\xEF\xBF\xBD\xEF\xBF\xBD\""},
        {"\xED\xA0\x80", "\"\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD\""},
    };
    struct jsonout out = {0};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        assert_string_equal(string_of(&out, cases[i].in, strlen(cases[i].in)), cases[i].out);
    assert_string_equal(string_of(&out, "a\0b", 3), "\"a\\u0000b\"");
    assert_string_equal(string_of(&out, NULL, 9), "\"\"");
    jsonout_reset(&out);
    jsonout_escaped(&out, "k\x1b\n\"", 4);
    assert_string_equal(out.text, "k\\u001b\\u000a\\\"");
    jsonout_free(&out);
}

/* A byte that needs a look is found wherever it stands: runs of plain ones are not looked at one by one. */
static void each_byte_at_each_place(void **state)
{
    struct jsonout out = {0};
    (void)state;
    for (unsigned byte = 0; byte < 256; byte++) {
        char alone[16], one = (char)byte;
        string_of(&out, &one, 1);
        memcpy(alone, out.text + 1, out.len - 2);
        alone[out.len - 2] = '\0';
        for (size_t place = 0; place < 19; place++) {
            char text[] = "abcdefghijklmnopqrs", want[64];
            snprintf(want, sizeof want, "\"%.*s%s%s\"", (int)place, text, alone, text + place + 1);
            text[place] = one;
            assert_string_equal(string_of(&out, text, 19), want);
        }
    }
    jsonout_free(&out);
}

static void grows(void **state)
{
    struct jsonout out = {0};
    char block[1000];
    (void)state;
    memset(block, 'x', sizeof block);
    for (int i = 0; i < 1000; i++)
        jsonout_raw(&out, block, sizeof block);
    assert_false(out.failed);
    assert_int_equal(out.len, 1000000);
    assert_int_equal(strlen(out.text), 1000000);
    jsonout_free(&out);
}

static void no_memory_is_sticky(void **state)
{
    struct jsonout out = {0};
    (void)state;
    jsonout_cstring(&out, "kept");
    out.failed = true;
    jsonout_cstring(&out, "not added");
    jsonout_number(&out, 1);
    assert_string_equal(out.text, "\"kept\"");
    jsonout_reset(&out);
    assert_false(out.failed);
    jsonout_free(&out);
}

static void times(void **state)
{
    char text[25];
    (void)state;
    format_time_ms(UINT64_C(951782400123), text);
    assert_string_equal(text, "2000-02-29T00:00:00.123Z");
    format_time_ms(UINT64_C(1709251199999), text);
    assert_string_equal(text, "2024-02-29T23:59:59.999Z");
    format_time_ms(UINT64_MAX, text);
    assert_string_equal(text, "9999-12-31T23:59:59.999Z");
    for (uint64_t ms = 0; ms < UINT64_C(253402300800000); ms += UINT64_C(86400000) * 29 + 3661001) {
        time_t seconds = (time_t)(ms / 1000);
        struct tm tm;
        char want[25], date[20];
        assert_non_null(gmtime_r(&seconds, &tm));
        assert_int_equal(strftime(date, sizeof date, "%Y-%m-%dT%H:%M:%S", &tm), 19);
        snprintf(want, sizeof want, "%s.%03uZ", date, (unsigned)(ms % 1000));
        format_time_ms(ms, text);
        assert_string_equal(text, want);
    }
}

/* Random bytes, rich in lead bytes: what comes out must be one line that a strict reader takes. */
static void random_bytes_stay_json(void **state)
{
    static const unsigned char rich[] = {0xC2, 0xE2, 0x80, 0xA8, 0xAE, 0xED, 0xA0, 0xF0, 0x9F, 0xF4, 0x90, '"', '\\'};
    struct jsonout out = {0};
    unsigned seed = 4242;
    (void)state;
    for (int round = 0; round < 30000; round++) {
        size_t len = (size_t)(rand_r(&seed) % 24);
        char *text = malloc(len == 0 ? 1 : len);
        assert_non_null(text);
        for (size_t i = 0; i < len; i++)
            text[i] = (char)(rand_r(&seed) % 2 ? rich[(size_t)rand_r(&seed) % sizeof rich]
                                               : (unsigned char)(rand_r(&seed) >> 3));
        jsonout_reset(&out);
        jsonout_array_begin(&out);
        jsonout_string(&out, text, len);
        jsonout_array_end(&out);
        free(text);
        json_t *back = json_loadb(out.text, out.len, JSON_ALLOW_NUL, NULL);
        assert_non_null(back);
        assert_int_equal(json_array_size(back), 1);
        json_decref(back);
        for (size_t i = 0; i < out.len; i++)
            assert_true((unsigned char)out.text[i] >= 0x20 && out.text[i] != 0x7F);
    }
    jsonout_free(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(commas_and_nesting),      cmocka_unit_test(strings_made_safe),
        cmocka_unit_test(each_byte_at_each_place), cmocka_unit_test(grows),
        cmocka_unit_test(no_memory_is_sticky),     cmocka_unit_test(times),
        cmocka_unit_test(random_bytes_stay_json),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
