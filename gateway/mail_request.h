/*
 * gateway/mail_request.h - from a request on a mail route to the mail that its relay gets.
 *
 * Two steps: the head's fields are copied while the client's memory is there; the message is judged and made once the
 * fence was looked up, since a stale worker is told that it is stale, whatever it has to say.
 */
#ifndef FENCEGATE_MAIL_REQUEST_H
#define FENCEGATE_MAIL_REQUEST_H

#include <stdbool.h>
#include <stddef.h>

#include "gateway/reason.h"

struct header_field;
struct request;

/* False: no memory. */
bool mail_request_take_head(struct request *request, const struct header_field *fields, size_t count)
    __attribute__((warn_unused_result));
/* What can be said before the body has come. REASON_NONE: nothing is wrong with the head, or another kind of route;
 * else `detail` says what. */
enum reason mail_request_judge_head(struct request *request) __attribute__((warn_unused_result));
/* True: the message is large, and is now made on another thread; request_composed() is called then. False: another kind
 * of route, a small one, made already, or something is wrong: mail_request_judge() goes on. */
bool mail_request_begin(struct request *request) __attribute__((warn_unused_result));
/* What came of it, as mail_request_judge(). */
enum reason mail_request_end(struct request *request) __attribute__((warn_unused_result));
void mail_request_free(struct request *request); /* at the request's end */
/* REASON_NONE: another kind of route, or request->mail is made and its bytes are the request's body. Else `detail` says
 * what is wrong. */
enum reason mail_request_judge(struct request *request) __attribute__((warn_unused_result));

#endif
