/* tests/unit/test_dashboard.c - gateway/dashboard.c: which paths have a file, and that it is whole. What the files do
 * is tested end to end, in a browser. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "gateway/dashboard.h"

static void expect_file(const char *path, const char *file, const char *content_type)
{
    struct dashboard_file found;
    static char bytes[256 << 10];
    assert_true(dashboard_find(path, strlen(path), &found));
    assert_string_equal(found.content_type, content_type);
    FILE *stream = fopen(file, "rb");
    assert_non_null(stream);
    size_t len = fread(bytes, 1, sizeof bytes, stream);
    fclose(stream);
    assert_in_range(len, 1, sizeof bytes - 1);
    assert_int_equal(found.bytes.len, len);
    assert_memory_equal(found.bytes.data, bytes, len);
}

static void test_the_files_are_whole(void **state)
{
    (void)state;
    expect_file("/", "gateway/dashboard/index.html", "text/html; charset=utf-8");
    expect_file("/dashboard.css", "gateway/dashboard/dashboard.css", "text/css; charset=utf-8");
    expect_file("/dashboard.js", "gateway/dashboard/dashboard.js", "text/javascript; charset=utf-8");
    expect_file("/dashboard/api.js", "gateway/dashboard/api.js", "text/javascript; charset=utf-8");
    expect_file("/dashboard/lists.js", "gateway/dashboard/lists.js", "text/javascript; charset=utf-8");
}

static void test_other_paths_have_none(void **state)
{
    static const char *const paths[] = {"",
                                        "//",
                                        "/dashboard",
                                        "/dashboard/",
                                        "/dashboard.js/",
                                        "/dashboard/dashboard.js",
                                        "/dashboard/../api.js",
                                        "/dashboard/API.js",
                                        "/index.html"};
    struct dashboard_file found;
    (void)state;
    for (size_t i = 0; i < sizeof paths / sizeof paths[0]; i++) {
        assert_false(dashboard_find(paths[i], strlen(paths[i]), &found));
    }
    assert_true(dashboard_find("/dashboard.js?x", strlen("/dashboard.js"), &found));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_files_are_whole),
        cmocka_unit_test(test_other_paths_have_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
