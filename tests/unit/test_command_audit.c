/* tests/unit/test_command_audit.c - `fencegate audit` over a real store: filters, order, both forms, exit status. */
#include <ftw.h>
#include <semaphore.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>
#include <jansson.h>

#include "gateway/command.h"
#include "gateway/command_usage.h"
#include "gateway/jsonout.h"
#include "store/store.h"

#define SLICE(text) ((struct slice){(text), sizeof(text) - 1})
#define RECORDS 6

static char folder[] = "/tmp/fencegate-audit-XXXXXX";
static char store_path[64], config_path[64];
static sem_t done;
static char *shown, *complained;

static void op_done(struct store_op *op)
{
    (void)op;
    sem_post(&done);
}

static void append(struct store *store, const struct audit_record *record)
{
    struct store_op op = {.kind = STORE_RECORD, .done = op_done, .record = *record};
    store_submit(store, &op);
    assert_int_equal(sem_wait(&done), 0);
    assert_int_equal(op.error, STORE_OK);
}

static void write_records(struct store *store)
{
    uint64_t now_ms = (uint64_t)time(NULL) * 1000;
    const struct audit_record records[RECORDS] = {
        {.kind = AUDIT_SENT,
         .time_ms = now_ms - 7200000,
         .route = SLICE("pay"),
         .ns = SLICE("default"),
         .key = SLICE("order-17"),
         .token = 41,
         .highest = 41,
         .method = SLICE("POST"),
         .path = SLICE("/pay/charges"),
         .status = 200,
         .upstream_status = 200,
         .has_bytes = true,
         .request_bytes = 12,
         .duration_ms = 5},
        {.kind = AUDIT_DROPPED,
         .time_ms = now_ms - 60000,
         .reason = SLICE("stale-token"),
         .route = SLICE("pay"),
         .ns = SLICE("default"),
         .key = SLICE("order-17"),
         .token = 41,
         .highest = 42,
         .status = 412},
        {.kind = AUDIT_REJECTED,
         .reason = SLICE("missing-key"),
         .route = SLICE("mail"),
         .ns = SLICE("mail"),
         .status = 428},
        {.kind = AUDIT_SENT,
         .reason = SLICE("stale-token"),
         .route = SLICE("pay"),
         .ns = SLICE("default"),
         .key = SLICE("z\xC3\xBCrich"),
         .token = UINT64_MAX,
         .highest = UINT64_MAX,
         .would_drop = true},
        {.kind = AUDIT_UNKNOWN,
         .reason = SLICE("upstream-failed"),
         .route = SLICE("pay"),
         .ns = SLICE("default"),
         .key = SLICE("a\x1b[2J\nb\xFF"),
         .token = 7,
         .client = SLICE("127.0.0.1:5"),
         .target = SLICE("https://c.test")},
        {.kind = AUDIT_RESET, .ns = SLICE("default"), .key = SLICE("order-17"), .note = SLICE("by hand")},
    };
    for (size_t i = 0; i < RECORDS; i++)
        append(store, &records[i]);
}

static int make_store(void **state)
{
    struct store *store = NULL;
    char why[512] = "";
    (void)state;
    if (mkdtemp(folder) == NULL || sem_init(&done, 0, 0) != 0)
        return -1;
    snprintf(store_path, sizeof store_path, "%s/store", folder);
    snprintf(config_path, sizeof config_path, "%s/fencegate.json", folder);
    struct store_options options = {
        .path = store_path, .make = true, .max_size = 64 << 20, .retain_ms = UINT64_C(86400000) * 90};
    if (store_open(&options, &store, why, sizeof why) != STORE_OK) {
        fprintf(stderr, "%s\n", why);
        return -1;
    }
    write_records(store);
    store_close(&store);
    FILE *config = fopen(config_path, "w");
    if (config == NULL)
        return -1;
    fputs("{\"store\":{\"path\":\"store\"},\"routes\":[{\"name\":\"pay\",\"path\":\"/pay\","
          "\"upstream\":\"https://partner.test\"}]}",
          config);
    return fclose(config);
}

static int remove_entry(const char *path, const struct stat *status, int type, struct FTW *walk)
{
    (void)status;
    (void)type;
    (void)walk;
    return remove(path);
}

static int remove_store(void **state)
{
    (void)state;
    free(shown);
    free(complained);
    sem_destroy(&done);
    return nftw(folder, remove_entry, 8, FTW_DEPTH | FTW_PHYS);
}

static char *take_file(FILE *file)
{
    long len = ftell(file);
    char *text = calloc(1, (size_t)len + 1);
    assert_non_null(text);
    rewind(file);
    assert_int_equal(fread(text, 1, (size_t)len, file), len);
    fclose(file);
    return text;
}

/* Runs `fencegate audit` with what both streams said in `shown` and `complained`. */
static int run(const char *const *arguments)
{
    char *argv[24] = {strdup("audit")};
    int argc = 1;
    for (; arguments[argc - 1] != NULL; argc++)
        argv[argc] = strdup(arguments[argc - 1]);
    FILE *out = tmpfile(), *err = tmpfile();
    assert_true(out != NULL && err != NULL);
    fflush(stdout);
    int saved_out = dup(STDOUT_FILENO), saved_err = dup(STDERR_FILENO);
    dup2(fileno(out), STDOUT_FILENO);
    dup2(fileno(err), STDERR_FILENO);
    int status = command_run(&command_audit, argc, argv);
    fflush(stdout);
    dup2(saved_out, STDOUT_FILENO);
    dup2(saved_err, STDERR_FILENO);
    close(saved_out);
    close(saved_err);
    fseek(out, 0, SEEK_END);
    fseek(err, 0, SEEK_END);
    free(shown);
    free(complained);
    shown = take_file(out);
    complained = take_file(err);
    for (int i = 0; i < argc; i++)
        free(argv[i]);
    return status;
}

#define RUN(...) run((const char *const[]){__VA_ARGS__, NULL})
#define ON_STORE "--store", store_path

/* The ids of the JSON lines shown, as "1,2,". */
static const char *ids(void)
{
    static char text[64];
    text[0] = '\0';
    for (char *line = strtok(shown, "\n"); line != NULL; line = strtok(NULL, "\n")) {
        json_t *root = json_loads(line, 0, NULL);
        assert_non_null(root);
        const char *id = json_string_value(json_object_get(root, "id"));
        assert_non_null(id);
        strcat(strcat(text, id), ",");
        json_decref(root);
    }
    return text;
}

static void filters(void **state)
{
    (void)state;
    assert_int_equal(RUN(ON_STORE, "--json"), 0);
    assert_string_equal(ids(), "1,2,3,4,5,6,");
    assert_int_equal(RUN("-c", config_path, "--json"), 0);
    assert_string_equal(ids(), "1,2,3,4,5,6,");
    assert_int_equal(RUN(ON_STORE, "--json", "--limit", "2"), 0);
    assert_string_equal(ids(), "5,6,");
    assert_int_equal(RUN(ON_STORE, "--json", "--key", "order-17"), 0);
    assert_string_equal(ids(), "1,2,6,");
    assert_int_equal(RUN(ON_STORE, "--json", "--key", "order-17", "--namespace", "default", "--limit", "2"), 0);
    assert_string_equal(ids(), "2,6,");
    assert_int_equal(RUN(ON_STORE, "--json", "--namespace", "mail"), 0);
    assert_string_equal(ids(), "3,");
    assert_int_equal(RUN(ON_STORE, "--json", "--kind", "sent"), 0);
    assert_string_equal(ids(), "1,4,");
    assert_int_equal(RUN(ON_STORE, "--json", "--reason", "stale-token", "--kind=dropped"), 0);
    assert_string_equal(ids(), "2,");
    assert_int_equal(RUN(ON_STORE, "--json", "--route", "pay", "--limit", "1"), 0);
    assert_string_equal(ids(), "5,");
    assert_int_equal(RUN(ON_STORE, "--json", "--until", "1h"), 0);
    assert_string_equal(ids(), "1,");
    assert_int_equal(RUN(ON_STORE, "--json", "--since", "1h", "--until", "30s"), 0);
    assert_string_equal(ids(), "2,");
    assert_int_equal(RUN(ON_STORE, "--json", "--until", "1970-01-01T00:00:00Z"), 0);
    assert_string_equal(ids(), "");
    assert_int_equal(RUN(ON_STORE, "--json", "--since", "1970-01-01T00:00:00Z", "--limit", "1000000"), 0);
    assert_string_equal(ids(), "1,2,3,4,5,6,");
}

static void nothing_found(void **state)
{
    (void)state;
    assert_int_equal(RUN(ON_STORE, "--key", "nobody", "--json"), 0);
    assert_string_equal(shown, "");
    assert_string_equal(complained, "");
    assert_int_equal(RUN(ON_STORE, "--key", "nobody"), 0);
    assert_string_equal(shown, "");
    assert_non_null(strstr(complained, "no record matches"));
}

static size_t column_of(const char *line, const char *title)
{
    const char *at = strstr(line, title);
    assert_non_null(at);
    return (size_t)(at - line);
}

static void table(void **state)
{
    (void)state;
    assert_int_equal(RUN(ON_STORE, "--key", "order-17"), 0);
    assert_string_equal(complained, "");
    char *title = strtok(shown, "\n"), *first = strtok(NULL, "\n"), *second = strtok(NULL, "\n");
    assert_true(title != NULL && first != NULL && second != NULL);
    assert_int_equal(column_of(title, "KIND"), column_of(first, "sent"));
    assert_int_equal(column_of(title, "KIND"), column_of(second, "dropped"));
    assert_int_equal(column_of(title, "REASON"), column_of(second, "stale-token"));
    assert_int_equal(column_of(title, "KEY"), column_of(first, "order-17"));
    assert_int_equal(column_of(title, "REQUEST"), column_of(first, "POST /pay/charges"));
    assert_null(strstr(title, "TARGET")); /* empty in every row */
    assert_int_equal(RUN(ON_STORE), 0);
    assert_non_null(strstr(shown, "sent (would drop)"));
    assert_non_null(strstr(shown, "18446744073709551615"));
    assert_non_null(strstr(shown, "a\\u001b[2J\\u000ab\xEF\xBF\xBD"));
    assert_null(strchr(shown, '\x1b'));
    assert_null(strstr(shown, " \n")); /* no row ends in blanks */
}

static void usage_errors(void **state)
{
    static const char *const wrong[][6] = {
        {"--json"},
        {"--store"},
        {"-c"},
        {"--store", "/x", "-c", "/y"},
        {"--store", "/x", "--follow", "--until", "1h"},
        {"--store", "/x", "-fx"},
        {"--store", "/x", "extra"},
        {"--store", "/x", "--json=yes"},
        {"--store", "/x", "--key", ""},
        {"--store", "/x", "--key"},
        {"--store", "/x", "--kind", "lost"},
        {"--store", "/x", "--limit", "0"},
        {"--store", "/x", "--limit", "-1"},
        {"--store", "/x", "--limit", "1000001"},
        {"--store", "/x", "--limit", "5x"},
        {"--store", "/x", "--limit", "18446744073709551617"},
        {"--store", "/x", "--since", "yesterday"},
        {"--store", "/x", "--until", "2026-02-30T00:00:00Z"},
        {"--store", "/x", "--since", "5"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        assert_int_equal(run(wrong[i]), 2);
        assert_string_equal(shown, "");
        assert_non_null(strstr(complained, "Try 'fencegate help audit'"));
    }
    assert_int_equal(RUN("-c", "/nonexistent/fencegate.json"), 2);
    assert_non_null(strstr(complained, "/nonexistent/fencegate.json"));
    assert_int_equal(RUN("--help"), 0);
    assert_non_null(strstr(shown, "usage: fencegate audit"));
}

static void no_store(void **state)
{
    char missing[80];
    (void)state;
    snprintf(missing, sizeof missing, "%s/missing", folder);
    assert_int_equal(RUN("--store", missing), 3);
    assert_string_equal(shown, "");
    assert_non_null(strstr(complained, missing));
    assert_int_equal(access(missing, F_OK), -1); /* looking makes nothing */
}

static void record_as_json(void **state)
{
    struct jsonout out = {0};
    struct audit_record record = {.id = 1093,
                                  .time_ms = 4,
                                  .kind = AUDIT_NOT_SENT,
                                  .reason = SLICE("r"),
                                  .effect_id = 3,
                                  .route = SLICE("pay"),
                                  .ns = SLICE("n"),
                                  .key = SLICE("k"),
                                  .token = UINT64_MAX,
                                  .highest = 2,
                                  .method = SLICE("POST"),
                                  .path = SLICE("/p"),
                                  .client = SLICE("c:1"),
                                  .target = SLICE("t"),
                                  .note = SLICE("o"),
                                  .status = 502,
                                  .upstream_status = 500,
                                  .has_bytes = true,
                                  .request_bytes = 0,
                                  .response_bytes = 8,
                                  .duration_ms = 9,
                                  .would_drop = true};
    (void)state;
    audit_record_write(&out, &record);
    assert_string_equal(out.text,
                        "{\"id\":\"1093\",\"time\":\"1970-01-01T00:00:00.004Z\",\"kind\":\"not-sent\",\"reason\":\"r\","
                        "\"effect_id\":\"3\",\"route\":\"pay\",\"namespace\":\"n\",\"key\":\"k\","
                        "\"token\":\"18446744073709551615\",\"highest\":\"2\",\"method\":\"POST\",\"path\":\"/p\","
                        "\"client\":\"c:1\",\"status\":502,\"upstream_status\":500,\"request_bytes\":0,"
                        "\"response_bytes\":8,\"duration_ms\":9,\"target\":\"t\",\"would_drop\":true,\"note\":\"o\"}");
    jsonout_reset(&out);
    audit_record_write(&out, &(struct audit_record){.id = 1, .kind = AUDIT_SENT});
    assert_string_equal(out.text, "{\"id\":\"1\",\"time\":\"1970-01-01T00:00:00.000Z\",\"kind\":\"sent\"}");
    jsonout_free(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(filters),      cmocka_unit_test(nothing_found), cmocka_unit_test(table),
        cmocka_unit_test(usage_errors), cmocka_unit_test(no_store),      cmocka_unit_test(record_as_json),
    };
    return cmocka_run_group_tests(tests, make_store, remove_store);
}
