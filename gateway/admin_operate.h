/*
 * gateway/admin_operate.h - what operators and lock services change: raise, reset, resolve.
 *
 * Admin thread only. A handler answers at once, or leaves a change in `in` whose answer comes later.
 */
#ifndef FENCEGATE_ADMIN_OPERATE_H
#define FENCEGATE_ADMIN_OPERATE_H

#include "gateway/admin_int.h"

struct admin_change;

void admin_answer_raise(struct admin_context *context, struct call_input *in, struct admin_answer *answer);
void admin_answer_reset(struct admin_context *context, struct call_input *in, struct admin_answer *answer);
void admin_answer_resolve(struct admin_context *context, struct call_input *in, struct admin_answer *answer);

/* The store has done its part. */
/* The log line of a change that has come home, whatever became of it and of its client. */
void admin_operate_log(const struct admin_change *change);
bool admin_operate_must_wait(const struct admin_change *change);
void admin_operate_answer(struct admin_change *change); /* fills change->answer */

#endif
