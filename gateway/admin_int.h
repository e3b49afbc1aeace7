/* gateway/admin_int.h - what the files with admin calls share. */
#ifndef FENCEGATE_ADMIN_INT_H
#define FENCEGATE_ADMIN_INT_H

#include "gateway/admin_calls.h"
#include "gateway/admin_query.h"
#include "store/store.h"

/* One call's input, and the change that it leaves when its answer has to wait for the store. */
struct call_input {
    const struct admin_request *request;
    struct admin_span path; /* raw */
    struct admin_span captured[ADMIN_CAPTURES];
    struct admin_span query;
    struct admin_change *change;
};

void admin_json_answer(struct admin_answer *answer, unsigned status);
/* False: the problem is in the answer. */
bool admin_have_reader(struct admin_context *context, struct admin_answer *answer);
/* NULL: ready. Fills *health. */
const char *admin_not_ready(struct admin_context *context, struct store_health *health);
/* Into context->stats. A store that can't be read any more is something to show, not an error: its numbers stay at what
 * was seen last. */
void admin_look_at_store(struct admin_context *context);
/* {namespace}/{key} of a path, decoded and checked. False: the problem is in the answer. */
bool admin_fence_path(struct call_input *in, struct slice *ns, struct slice *key, struct admin_answer *answer);

void admin_answer_fence_list(struct admin_context *context, struct call_input *in, struct admin_answer *answer);
void admin_answer_stats(struct admin_context *context, struct call_input *in, struct admin_answer *answer);
void admin_answer_history(struct admin_context *context, struct call_input *in, struct admin_answer *answer);
void admin_answer_effects(struct admin_context *context, struct call_input *in, struct admin_answer *answer);

#endif
