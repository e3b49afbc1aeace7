/* gateway/request_int.h - shared by the request*.c files only: the steps. Each may free the request: it comes last. */
#ifndef FENCEGATE_REQUEST_INT_H
#define FENCEGATE_REQUEST_INT_H

#include "gateway/request.h"
#include "gateway/settings.h"
#include "gateway/worker.h"

static inline struct gateway *gateway_of(const struct request *request)
{
    return request->worker->gateway;
}

static inline const struct config_route *route_of(const struct request *request)
{
    return request->route->config;
}

/* request.c */
void request_move(struct request *request, enum request_state to); /* aborts on an illegal move */
void request_submit(struct request *request, enum store_op_kind kind);
void request_maybe_free(struct request *request); /* when done and nobody else has hold of it */

void request_heed(struct request *request, unsigned notices); /* enum gate_notice */

/* request_decide.c */
void request_on_admitted(struct request *request);
void request_composed(struct request *request);     /* its mail was made, or can't be */
void request_stop_looking(struct request *request); /* shutdown */

/* request_call.c */
void request_connect(struct request *request);
void request_start(struct request *request); /* its turn has come: connects when its intent says so on disk */
void request_on_started(struct request *request);
void request_on_parked(struct request *request);
void request_enter_gate(struct request *request);
void request_drop_superseded(struct request *request);
/* `observe`: forward what enforce would refuse for `reason`, outside the key's order, and say so in the record. */
void request_go_on_observed(struct request *request, enum reason reason);
void request_wait_over(struct request *request); /* keeps the books of a wait that has ended */
void request_stop_waiting(struct request *request, enum reason reason);
/* Closes a call that has begun to send. */
void request_cut_call(struct request *request, enum reason reason, const char *note);

/* request_outcome.c */
void request_refuse(struct request *request, enum reason reason); /* before acceptance */
void request_on_recorded(struct request *request);
void request_leave_gate(struct request *request);
void request_settle(struct request *request, enum reason reason, enum effect effect); /* outcome of what was accepted */
void request_on_settled(struct request *request);
void request_answer_settled(struct request *request, bool kept);
void request_record_outcome(struct request *request);
void request_answer(struct request *request);
void request_finish(struct request *request);

#endif
