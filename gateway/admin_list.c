/*
 * gateway/admin_list.c - the lists of the admin listener: fences, effects without a known outcome. The audit's is in
 * admin_calls.c.
 */
#include <string.h>

#include "gateway/admin_int.h"
#include "gateway/command.h"
#include "gateway/jsonout.h"

/* A page of effects is cut at this many bytes of JSON, whatever its limit: paths can be long. next_after says where to
 * go on. */
#define PAGE_BYTES (4u << 20)
/* And after about this time, with what was found until then: effects that were resolved are passed over one by one. */
#define PATIENCE_MS 200

struct fence_page {
    struct admin_context *context;
    struct jsonout *out;
    char cursor[ADMIN_CURSOR_CAP]; /* of the last fence */
};

static bool add_fence(void *arg, const struct fence_entry *entry)
{
    struct fence_page *page = arg;
    const struct admin_options *options = &page->context->options;
    uint64_t in_flight = options->in_flight(options->arg, entry->ns, entry->key);
    fence_write(page->out, entry, &in_flight);
    admin_cursor_format(entry->ns, entry->key, page->cursor);
    return !page->out->failed;
}

void admin_answer_fence_list(struct admin_context *context, struct call_input *in, struct admin_answer *answer)
{
    struct fence_filter filter;
    struct admin_cursor cursor;
    char why[160];
    bool more = false;
    if (!admin_fence_filter(in->query, &filter, &cursor, why, sizeof why)) {
        admin_problem(answer, ADMIN_MALFORMED, why);
        return;
    }
    if (!admin_have_reader(context, answer)) {
        return;
    }
    struct jsonout *out = &answer->body;
    struct fence_page page = {.context = context, .out = out};
    jsonout_object_begin(out);
    jsonout_name(out, "fences");
    jsonout_array_begin(out);
    if (store_fences_query(context->reader, &filter, add_fence, &page, &more) != STORE_OK) {
        admin_problem(answer, ADMIN_STORE, "The store can't be read.");
        return;
    }
    jsonout_array_end(out);
    jsonout_name(out, "next_cursor");
    if (more) {
        jsonout_cstring(out, page.cursor);
    } else {
        jsonout_null(out);
    }
    jsonout_object_end(out);
    admin_json_answer(answer, 200);
}

struct effects_page {
    struct jsonout *out;
    enum effects_state state;
};

static bool add_effect(void *arg, const struct audit_record *effect)
{
    struct effects_page *page = arg;
    effect_write(page->out, effect, page->state);
    return page->out->len < PAGE_BYTES && !page->out->failed;
}

void admin_answer_effects(struct admin_context *context, struct call_input *in, struct admin_answer *answer)
{
    struct effects_filter filter;
    uint64_t next_after = 0;
    char why[160];
    if (!admin_effects_filter(in->query, &filter, why, sizeof why)) {
        admin_problem(answer, ADMIN_MALFORMED, why);
        return;
    }
    if (!admin_have_reader(context, answer)) {
        return;
    }
    filter.patience_ms = PATIENCE_MS;
    struct jsonout *out = &answer->body;
    struct effects_page page = {out, filter.state};
    jsonout_object_begin(out);
    jsonout_name(out, "effects");
    jsonout_array_begin(out);
    if (store_effects_query(context->reader, &filter, add_effect, &page, &next_after) != STORE_OK) {
        admin_problem(answer, ADMIN_STORE, "The store can't be read.");
        return;
    }
    jsonout_array_end(out);
    jsonout_name(out, "next_after");
    if (next_after != 0) {
        jsonout_id(out, next_after);
    } else {
        jsonout_null(out);
    }
    jsonout_object_end(out);
    admin_json_answer(answer, 200);
}
