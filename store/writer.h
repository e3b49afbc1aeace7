/* store/writer.h - the one thread that changes the store: queue, group commit, room, retention, callbacks. */
#ifndef FENCEGATE_STORE_WRITER_H
#define FENCEGATE_STORE_WRITER_H

#include "store/apply.h"
#include "store/lmdb.h"
#include "store/store.h"

struct overlay;
struct writer;

/* `db` must outlive the writer; of `options` the callbacks and numbers are copied, of `left` what health tells.
 * `unresolved` is kept up to date, and must outlive it, too. */
enum store_error writer_start(struct db *db, const struct store_options *options, const struct leftovers *left,
                              struct unresolved *unresolved, struct writer **out) __attribute__((warn_unused_result));
/* Linked by `next`, NULL after `last`. Any thread. */
void writer_submit(struct writer *writer, struct store_op *first, struct store_op *last);
void writer_refuse(struct store_op *list, enum store_error error); /* gives all of them back */
void writer_stop(struct writer **writer);                          /* finishes what was submitted, joins, frees */
void writer_retention(struct writer *writer, uint64_t retain_ms, bool drop, uint64_t rejected_max); /* any thread */
/* Waits until data.mdb has all that was told to be durable before this call; at most a second. Any thread but the
 * writer's and those that serve calls. */
void writer_settle(struct writer *writer);
struct overlay *writer_overlay(struct writer *writer);               /* NULL: none; see overlay.h */
bool writer_writable(struct writer *writer);                         /* any thread */
bool writer_roomy(struct writer *writer);                            /* any thread */
void writer_health(struct writer *writer, struct store_health *out); /* any thread */

#endif
