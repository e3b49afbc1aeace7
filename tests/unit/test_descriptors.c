/* tests/unit/test_descriptors.c - shares of the descriptors: all of them where there are enough, else parts that fit.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "gateway/descriptors.h"

static void enough_is_enough(void **state)
{
    struct descriptor_shares shares;
    (void)state;
    descriptors_share(UINT64_MAX, 2, 10000, 20000, &shares);
    assert_int_equal(shares.connections, 10000);
    assert_int_equal(shares.in_flight, 20000);
    assert_false(shares.short_of);
    assert_true(shares.needed > 30000);
    descriptors_share(shares.needed, 2, 10000, 20000, &shares);
    assert_false(shares.short_of);
    descriptors_share(shares.needed - 1, 2, 10000, 20000, &shares);
    assert_true(shares.short_of);
}

static void shares_fit_into_what_there_is(void **state)
{
    (void)state;
    for (unsigned workers = 1; workers <= 16; workers *= 2) {
        for (uint64_t have = 256; have < 40000; have += 97) {
            struct descriptor_shares shares;
            descriptors_share(have, workers, 10000, 20000, &shares);
            uint64_t used = (uint64_t)shares.connections + shares.in_flight + shares.admin + shares.admin / 2;
            if (shares.short_of)
                used += (uint64_t)workers * (shares.lingering + shares.idle);
            assert_true(used <= have);
            assert_true(shares.connections > 0 && shares.in_flight > 0 && shares.admin > 0);
            assert_true(shares.connections <= 10000 && shares.in_flight <= 20000);
        }
    }
}

static void the_sentence_has_the_numbers(void **state)
{
    struct descriptor_shares shares;
    char text[256];
    (void)state;
    descriptors_share(200, 2, 10000, 10000, &shares);
    descriptors_tell(&shares, 200, text, sizeof text);
    assert_non_null(strstr(text, "200 file descriptors are allowed"));
    assert_true(shares.connections >= 30 && shares.in_flight >= 30);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(enough_is_enough),
        cmocka_unit_test(shares_fit_into_what_there_is),
        cmocka_unit_test(the_sentence_has_the_numbers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
