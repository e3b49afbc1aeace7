/* tests/unit/test_webhook_signature.c - signatures against known values. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "config/config.h"
#include "gateway/webhook_signature.h"

/* The secret, and in one_secret() the message and value, that the Standard Webhooks project's own libraries are tested
 * with; the other values come from Python's hmac. */
static const unsigned char published[] =
    "\x31\xf2\x90\xf6\xbf\x06\x29\x8a\xab\x4f\x08\xd4\x3c\x3f\x08\x2c\xf6\x48\xa3\x62"
    "\xda\x2d\xa4\xb0";

struct webhook_message {
    const char *id, *timestamp, *body;
    size_t body_len;
};

/* In pieces of `step` bytes. */
static bool sign_in_steps(const struct config_secret *secrets, size_t count, const struct webhook_message *message,
                          size_t step, char *out)
{
    struct webhook_signing *signing = webhook_signing_begin(secrets, count, message->id, message->timestamp);
    assert_non_null(signing);
    for (size_t at = 0; at < message->body_len; at += step) {
        size_t left = message->body_len - at;
        assert_true(webhook_signing_add(signing, message->body + at, left < step ? left : step));
    }
    bool ok = webhook_signing_end(signing, out);
    webhook_signing_free(&signing);
    assert_null(signing);
    return ok;
}

static bool webhook_sign(const struct config_secret *secrets, size_t count, const struct webhook_message *message,
                         char *out)
{
    return sign_in_steps(secrets, count, message, SIZE_MAX, out);
}

static void one_secret(void **state)
{
    char out[WEBHOOK_SIGNATURE_LEN(1) + 1];
    const struct config_secret secret = {published, sizeof published - 1};
    const char *body = "{\"test\": 2432232314}";
    const struct webhook_message message = {"msg_p5jXN8AQM9LWM0D4loKWxJek", "1614265330", body, strlen(body)};
    (void)state;
    assert_true(webhook_sign(&secret, 1, &message, out));
    assert_string_equal(out, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
    assert_int_equal(strlen(out), WEBHOOK_SIGNATURE_LEN(1));
}

static void several_secrets(void **state)
{
    char out[WEBHOOK_SIGNATURE_LEN(3) + 1];
    static const unsigned char zero[1] = {0}, text[] = "foobar";
    const struct config_secret secrets[] = {{zero, 1}, {published, sizeof published - 1}, {text, 6}};
    const char *body = "{\"test\": 2432232314}";
    const struct webhook_message message = {"msg_p5jXN8AQM9LWM0D4loKWxJek", "1614265330", body, strlen(body)};
    (void)state;
    assert_true(webhook_sign(secrets, 3, &message, out));
    assert_string_equal(
        out, "v1,woH/1mJtZGSMCmpFTxRYbStS24eLLD/oXIYr4PYyZ7g= v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE= "
             "v1,8oaT0bvdLBrhaSszl1JZ9fq0scO9DwnyyeQ79rRzKOU=");
    assert_int_equal(strlen(out), WEBHOOK_SIGNATURE_LEN(3));
}

static void bodies_of_all_bytes_and_none(void **state)
{
    char out[WEBHOOK_SIGNATURE_LEN(1) + 1], body[256];
    const struct config_secret secret = {published, sizeof published - 1};
    struct webhook_message message = {"a", "1", NULL, 0};
    (void)state;
    assert_true(webhook_sign(&secret, 1, &message, out));
    assert_string_equal(out, "v1,PSRSUeDIET2rOqW2tXRRNPtaDHUhM5hP9vypna1/Ouo=");
    for (size_t i = 0; i < sizeof body; i++)
        body[i] = (char)i;
    message.body = body;
    message.body_len = sizeof body;
    assert_true(webhook_sign(&secret, 1, &message, out));
    assert_string_equal(out, "v1,jZUrMhPtonCh3y8dFnvxz6kcrRqvJhRwQngd8yZeg0Q=");
}

static void pieces_make_no_difference(void **state)
{
    char out[WEBHOOK_SIGNATURE_LEN(2) + 1];
    static const unsigned char text[] = "foobar";
    const struct config_secret secrets[] = {{published, sizeof published - 1}, {text, 6}};
    const char *body = "{\"test\": 2432232314}";
    const struct webhook_message message = {"msg_p5jXN8AQM9LWM0D4loKWxJek", "1614265330", body, strlen(body)};
    (void)state;
    for (size_t step = 1; step <= strlen(body) + 1; step++) {
        assert_true(sign_in_steps(secrets, 2, &message, step, out));
        assert_string_equal(out, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE= "
                                 "v1,8oaT0bvdLBrhaSszl1JZ9fq0scO9DwnyyeQ79rRzKOU=");
    }
}

/* What was begun may be given up. */
static void given_up(void **state)
{
    const struct config_secret secret = {published, sizeof published - 1};
    struct webhook_signing *signing = webhook_signing_begin(&secret, 1, "a", "1");
    (void)state;
    assert_true(webhook_signing_add(signing, "x", 1));
    webhook_signing_free(&signing);
    webhook_signing_free(&signing);
    assert_null(signing);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_secret),
        cmocka_unit_test(several_secrets),
        cmocka_unit_test(bodies_of_all_bytes_and_none),
        cmocka_unit_test(pieces_make_no_difference),
        cmocka_unit_test(given_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
