/*
 * gateway/admin_history.c - GET /v1/fences/{namespace}/{key}/history: the story of a key, with what runs and waits now.
 *
 * The store is read first, then the gate: a call that ends in between may be missed for a moment, but is not shown as
 * sent and in flight at once.
 */
#include "gateway/admin_int.h"
#include "gateway/gate.h"
#include "gateway/history.h"

#define PATIENCE_MS 500     /* other calls wait for this one: one thread */
#define LIVE_TOKENS_MAX 256 /* more leases of one key at once only with on_supersede overlap */

_Static_assert(HISTORY_LIMIT_DEFAULT == ADMIN_LIMIT_DEFAULT && HISTORY_LIMIT_MAX == ADMIN_LIMIT_MAX,
               "the limit is read as that of every list");

static void add_live(const struct admin_options *options, struct slice ns, struct slice key, struct history *history)
{
    struct gate_token live[LIVE_TOKENS_MAX];
    size_t count = options->tokens(options->arg, ns, key, live, LIVE_TOKENS_MAX);
    history->live = true;
    for (size_t i = 0; i < count; i++) {
        history_set_live(history, live[i].token, live[i].in_flight, live[i].waiting);
        history->in_flight += live[i].in_flight;
    }
}

void admin_answer_history(struct admin_context *context, struct call_input *in, struct admin_answer *answer)
{
    struct history history;
    struct slice ns, key;
    size_t limit;
    char why[160];
    if (!admin_history_filter(in->query, &limit, why, sizeof why)) {
        admin_problem(answer, ADMIN_MALFORMED, why);
        return;
    }
    if (!admin_fence_path(in, &ns, &key, answer) || !admin_have_reader(context, answer)) {
        return;
    }
    enum store_error error = history_collect(context->reader, ns, key, limit, PATIENCE_MS, &history);
    bool found = error == STORE_OK;
    if (found || error == STORE_NOT_FOUND) {
        add_live(&context->options, ns, key, &history);
    }
    found = found || history.token_count > 0;
    if (history.failed || (error != STORE_OK && error != STORE_NOT_FOUND)) {
        admin_problem(answer, ADMIN_STORE, "The store can't be read.");
    } else if (!found) {
        admin_problem(answer, ADMIN_NOT_FOUND,
                      "Nothing is known of this key: no token was accepted, no call recorded.");
    } else {
        history_write(&answer->body, ns, key, &history);
        admin_json_answer(answer, 200);
    }
    history_free(&history);
}
