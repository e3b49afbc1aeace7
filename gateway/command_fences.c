/*
 * gateway/command_fences.c - `fencegate fences`: list, get, raise, reset; and how a fence looks as JSON.
 *
 * Arguments and output. Where the store is, and who changes it, is command_store.c's.
 */
#include "gateway/command.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "gateway/command_hint.h"
#include "gateway/command_options.h"
#include "gateway/command_store.h"
#include "gateway/command_table.h"
#include "gateway/token.h"

#define PAGE 1000

enum { ACTION_LIST, ACTION_GET, ACTION_RAISE, ACTION_RESET };

struct arguments {
    struct command_line line;
    struct slice prefix, key, reason; /* point into argv */
    uint64_t token;
};

void fence_write(struct jsonout *out, const struct fence_entry *entry, const uint64_t *in_flight)
{
    jsonout_object_begin(out);
    jsonout_member_string(out, "namespace", entry->ns.data, entry->ns.len);
    jsonout_member_string(out, "key", entry->key.data, entry->key.len);
    jsonout_member_id(out, "highest", entry->fence.token);
    jsonout_name(out, "updated_at");
    jsonout_time_ms(out, entry->fence.updated_ms);
    if (in_flight != NULL)
        jsonout_member_number(out, "in_flight", *in_flight);
    jsonout_object_end(out);
}

/* ---- list and get ---- */

static const char *const titles[] = {"NAMESPACE", "KEY", "HIGHEST", "UPDATED"};

struct listing {
    struct table table;
    struct fence_filter filter;
    char last_ns[64], last_key[KEY_BYTES_MAX]; /* where the next page goes on */
    bool found;
};

static bool add_fence(void *arg, const struct fence_entry *entry)
{
    struct listing *listing = arg;
    struct table *table = &listing->table;
    if (!table_row_begin(table))
        return false;
    if (table->json) {
        fence_write(&table->text, entry, NULL);
    } else {
        cell_slice(&table->text, entry->ns);
        cell_slice(&table->text, entry->key);
        cell_number(&table->text, entry->fence.token);
        cell_time(&table->text, entry->fence.updated_ms);
    }
    if (entry->ns.len <= sizeof listing->last_ns && entry->key.len <= sizeof listing->last_key) {
        memcpy(listing->last_ns, entry->ns.data, entry->ns.len);
        memcpy(listing->last_key, entry->key.data, entry->key.len);
        listing->filter.after_ns = (struct slice){listing->last_ns, entry->ns.len};
        listing->filter.after_key = (struct slice){listing->last_key, entry->key.len};
    }
    return table_row_end(table);
}

static enum store_error collect(struct store_reader *reader, void *arg)
{
    struct listing *listing = arg;
    bool more = true;
    enum store_error error = STORE_OK;
    while (more && error == STORE_OK && !listing->table.failed)
        error = store_fences_query(reader, &listing->filter, add_fence, listing, &more);
    return error;
}

static enum store_error look_up(struct store_reader *reader, void *arg)
{
    struct listing *listing = arg;
    struct fence_entry entry = {.ns = listing->filter.ns, .key = listing->filter.prefix};
    enum store_error error = store_fence_get(reader, entry.ns, entry.key, &entry.fence);
    if (error == STORE_OK)
        (void)add_fence(listing, &entry);
    return error == STORE_NOT_FOUND ? STORE_OK : error;
}

static int show(const struct arguments *arguments)
{
    bool one = arguments->line.action == ACTION_GET;
    struct listing listing = {
        .table = {titles, sizeof titles / sizeof titles[0], .json = arguments->line.json},
        .filter = {.ns = arguments->line.ns, .prefix = one ? arguments->key : arguments->prefix, .limit = PAGE}};
    int status = place_read(&arguments->line.place, one ? look_up : collect, &listing);
    if (status == COMMAND_DONE && listing.table.failed) {
        command_complain("fences", "out of memory");
        status = COMMAND_STORE;
    } else if (status == COMMAND_DONE && listing.table.count == 0 && command_behind()) {
        status = COMMAND_STORE;
    } else if (status == COMMAND_DONE && one && listing.table.count == 0) {
        const struct audit_filter key = {.ns = arguments->line.ns, .key = arguments->key};
        hint_complain(&arguments->line.place, "No token has been accepted for this key", &key, hint_key);
        status = COMMAND_REFUSED;
    } else if (status == COMMAND_DONE && listing.table.count == 0 && !arguments->line.json) {
        command_complain("fences", "no fence matches");
    }
    if (status == COMMAND_DONE && !table_print(&listing.table, "fences", false))
        status = COMMAND_STORE;
    table_free(&listing.table);
    return status;
}

/* ---- raise and reset ---- */

/* One line; `answer` is the JSON object of a raise, empty for a reset. */
static void print_change(const struct arguments *arguments, const struct jsonout *answer)
{
    struct jsonout line = {0};
    if (arguments->line.json && arguments->line.action == ACTION_RESET) {
        jsonout_object_begin(&line);
        jsonout_member_string(&line, "namespace", arguments->line.ns.data, arguments->line.ns.len);
        jsonout_member_string(&line, "key", arguments->key.data, arguments->key.len);
        jsonout_name(&line, "highest");
        jsonout_null(&line);
        jsonout_object_end(&line);
    } else if (arguments->line.json) {
        jsonout_raw(&line, answer->text, answer->len);
    } else {
        jsonout_escaped(&line, arguments->line.ns.data, arguments->line.ns.len);
        jsonout_raw(&line, " ", 1);
        jsonout_escaped(&line, arguments->key.data, arguments->key.len);
    }
    printf("%.*s", (int)line.len, line.text == NULL ? "" : line.text);
    jsonout_free(&line);
    if (arguments->line.json) {
        putchar('\n');
    } else if (arguments->line.action == ACTION_RESET) {
        printf(": reset\n");
    } else {
        json_t *fence = json_loadb(answer->text, answer->len, 0, NULL);
        const char *highest = json_string_value(json_object_get(fence, "highest"));
        json_int_t in_flight = json_integer_value(json_object_get(fence, "in_flight"));
        printf(": the fence is at %s", highest == NULL ? "?" : highest);
        if (in_flight > 0)
            printf(", %lld call%s with lower tokens still in flight", (long long)in_flight, in_flight == 1 ? "" : "s");
        putchar('\n');
        json_decref(fence);
    }
}

static int change(const struct arguments *arguments)
{
    struct jsonout answer = {0};
    struct audit_record record = {
        .ns = arguments->line.ns, .key = arguments->key, .token = arguments->token, .reason = arguments->reason};
    int status = place_change(&arguments->line.place,
                              arguments->line.action == ACTION_RAISE ? STORE_RAISE : STORE_RESET, &record, &answer);
    if (status == COMMAND_DONE) {
        print_change(arguments, &answer);
        if (!command_flush("fences"))
            status = COMMAND_STORE;
    }
    jsonout_free(&answer);
    return status;
}

/* ---- reset of all with a prefix ---- */

/* The keys of one page, copied: the page is gone when they are reset. */
struct page {
    struct fence_filter filter;
    struct audit_record record[PAGE];
    char keys[PAGE][KEY_BYTES_MAX];
    size_t count;
};

static bool add_key(void *arg, const struct fence_entry *entry)
{
    struct page *page = arg;
    char *key = page->keys[page->count];
    memcpy(key, entry->key.data, entry->key.len);
    page->record[page->count++].key = (struct slice){key, entry->key.len};
    return page->count < PAGE;
}

static enum store_error read_page(struct store_reader *reader, void *arg)
{
    struct page *page = arg;
    bool more;
    return store_fences_query(reader, &page->filter, add_key, page, &more);
}

static void print_count(const struct arguments *arguments, uint64_t count)
{
    struct jsonout line = {0};
    if (arguments->line.json) {
        jsonout_object_begin(&line);
        jsonout_member_string(&line, "namespace", arguments->line.ns.data, arguments->line.ns.len);
        jsonout_member_string(&line, "prefix", arguments->prefix.data, arguments->prefix.len);
        jsonout_member_number(&line, "reset", count);
        jsonout_object_end(&line);
        printf("%.*s\n", (int)line.len, line.text == NULL ? "" : line.text);
    } else {
        jsonout_escaped(&line, arguments->line.ns.data, arguments->line.ns.len);
        jsonout_raw(&line, " ", 1);
        jsonout_escaped(&line, arguments->prefix.data, arguments->prefix.len);
        printf("%.*s*: %llu fence%s reset\n", (int)line.len, line.text == NULL ? "" : line.text,
               (unsigned long long)count, count == 1 ? "" : "s");
    }
    jsonout_free(&line);
}

/* Page by page: a reset of many takes no memory for all, and each has its record. A page in which nothing was reset is
 * the last: keys that come while it runs are not chased. */
static int reset_all(const struct arguments *arguments)
{
    struct page *page = calloc(1, sizeof *page);
    uint64_t total = 0;
    size_t done = 0;
    int status = COMMAND_DONE;
    if (page == NULL) {
        command_complain("fences", "out of memory");
        return COMMAND_STORE;
    }
    page->filter = (struct fence_filter){.ns = arguments->line.ns, .prefix = arguments->prefix, .limit = PAGE};
    do {
        page->count = done = 0;
        for (size_t i = 0; i < PAGE; i++)
            page->record[i] = (struct audit_record){.ns = arguments->line.ns, .reason = arguments->reason};
        status = place_read(&arguments->line.place, read_page, page);
        if (status == COMMAND_DONE && page->count > 0)
            status = place_reset(&arguments->line.place, page->record, page->count, &done);
        total += done;
    } while (status == COMMAND_DONE && done > 0);
    free(page);
    if (status == COMMAND_DONE && total == 0) {
        command_complain("fences", "no fence matches");
        return COMMAND_REFUSED;
    }
    print_count(arguments, total);
    if (!command_flush("fences"))
        status = COMMAND_STORE;
    return status;
}

/* ---- arguments ---- */

static bool one_or_many(const struct command_line *line, struct jsonout *complaint)
{
    static const char text[] = "reset needs a KEY or --prefix P, and one of them only";
    const struct arguments *arguments = (const struct arguments *)line;
    bool key = arguments->key.data != NULL, prefix = arguments->prefix.data != NULL;
    if (line->action != ACTION_RESET || key != prefix)
        return true;
    jsonout_raw(complaint, text, sizeof text - 1);
    return false;
}

static const char *take_key(void *arguments, struct slice value)
{
    (void)arguments;
    return key_valid(value.data, value.len) ? NULL : "a key is 1 to 255 bytes of UTF-8 without control characters";
}

static const char *take_token(void *arguments, struct slice value)
{
    return token_parse(value.data, value.len, &((struct arguments *)arguments)->token)
               ? NULL
               : "a token is 1 to 20 digits with a value from 1 to 18446744073709551615";
}

static const char *take_reason(void *arguments, struct slice value)
{
    (void)arguments;
    return key_valid(value.data, value.len) ? NULL : "a reason is 1 to 255 bytes of UTF-8 without control characters";
}

#define AT(member) offsetof(struct arguments, member)
#define CHANGES (ACTION(ACTION_RAISE) | ACTION(ACTION_RESET))

static const struct command_option options[] = {
    {"prefix", "P", "keys that begin with P", .at = AT(prefix), .actions = ACTION(ACTION_LIST) | ACTION(ACTION_RESET),
     .take = take_key},
    {"reason", "R", "why it is changed; goes into the audit", .at = AT(reason), .actions = CHANGES, .needed = CHANGES,
     .take = take_reason},
};

static const struct command_action actions[] = {
    [ACTION_LIST] = {"list", .help = "all fences, or those of a namespace or with a prefix"},
    [ACTION_GET] = {"get", {{"KEY", AT(key), .take = take_key}}, "the fence of one key"},
    [ACTION_RAISE] = {"raise",
                      {{"KEY", AT(key), .take = take_key}, {"TOKEN", .take = take_token}},
                      "shut out everything below TOKEN, at once"},
    [ACTION_RESET] =
        {"reset",
         {{"KEY", AT(key), .optional = true, .take = take_key}},
         "forget a fence, or all that --prefix names: only when no stale worker can be alive, it would be let through"},
};

static int run(struct command_line *line)
{
    const struct arguments *arguments = (const struct arguments *)line;
    if (line->ns.data == NULL && line->action != ACTION_LIST)
        line->ns = (struct slice){"default", 7};
    if (line->action == ACTION_RESET && arguments->prefix.data != NULL)
        return reset_all(arguments);
    return line->action == ACTION_RAISE || line->action == ACTION_RESET ? change(arguments) : show(arguments);
}

const struct command command_fences = {
    .name = "fences",
    .summary = "the highest token accepted for each key: list, get, raise, reset",
    .notes =
        "The namespace is `default` unless given (list: all). A running gateway makes the change, if there is one.\n",
    .place = PLACE_STORE,
    .json = true,
    .ns = true,
    .actions = actions,
    .action_count = sizeof actions / sizeof actions[0],
    .options = options,
    .option_count = sizeof options / sizeof options[0],
    .size = sizeof(struct arguments),
    .judge = one_or_many,
    .run = run,
};
