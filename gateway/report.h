/*
 * gateway/report.h - what is written down about a request: audit record, log line, metrics, status. Worker's thread.
 */
#ifndef FENCEGATE_REPORT_H
#define FENCEGATE_REPORT_H

#include "gateway/reason.h"
#include "store/store.h"

struct request;

/* The status the client gets: the partner's, or the reason's as the route sets it. */
unsigned report_status(const struct request *request);
enum reason report_verdict_reason(enum store_verdict verdict);
/* Fill request->op.record: the outcome as a record, or the intent. Strings stay the request's. */
void report_fill(struct request *request, enum audit_kind kind);
void report_fill_intent(struct request *request);
/* The same for what was refused before it was a request: at the door, in the middle of its body, for its time. */
struct worker;
void report_turned_away(struct worker *worker, const char *route, const char *client, enum reason reason);
/* The field request_id: start of the process, worker, number. Every line about a request has it. */
struct log_line;
void report_id(struct log_line *line, const struct worker *worker, uint64_t number);
/* Metrics and the access line, once a request. What is unknown is told even without access lines. */
void report_ended(const struct request *request);

#endif
