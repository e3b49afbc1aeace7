/*
 * gateway/admin_change.c - the life of a change, see admin_change.h. What it is and what is answered is left to
 * admin_operate.c.
 */
#include "gateway/admin_change.h"

#include <poll.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "gateway/admin_operate.h"
#include "gateway/timers.h"

#define LOOK_MS 20     /* how often a wait looks whether older calls have ended */
#define WAITS_MAX 400u /* leaves connections for everybody else; beyond it an answer comes without waiting */

static struct slice keep(char **to, struct slice text)
{
    if (text.data == NULL) {
        return text;
    }
    memcpy(*to, text.data, text.len);
    struct slice kept = {*to, text.len};
    *to += text.len;
    return kept;
}

static void come_home(struct store_op *op) /* writer thread */
{
    struct admin_change *change = (struct admin_change *)((char *)op - offsetof(struct admin_change, op));
    inbox_post(&change->context->inbox, &change->item);
}

static void leave_list(struct admin_change *change)
{
    if (change->prev != NULL) {
        change->prev->next = change->next;
    } else {
        change->context->changes = change->next;
    }
    if (change->next != NULL) {
        change->next->prev = change->prev;
    }
}

static void make_ready(struct admin_change *change)
{
    if (change->deadline_ms != 0) {
        change->context->waits--;
    }
    leave_list(change);
    change->ready = true;
    if (change->on_ready == NULL) {
        free(change);
        return;
    }
    admin_operate_answer(change);
    change->on_ready(change, change->arg);
}

static void on_home(struct inbox_item *item)
{
    struct admin_change *change = (struct admin_change *)((char *)item - offsetof(struct admin_change, item));
    struct admin_context *context = change->context;
    context->submitted--;
    admin_operate_log(change);
    if (change->wait_ms == 0 || context->ending || context->waits >= WAITS_MAX || !admin_operate_must_wait(change)) {
        make_ready(change);
        return;
    }
    change->deadline_ms = monotonic_ms() + change->wait_ms;
    context->waits++;
}

struct admin_change *admin_change_new(struct admin_context *context, enum store_op_kind kind,
                                      const struct audit_record *record)
{
    size_t bytes = record->ns.len + record->key.len + record->reason.len + record->note.len + record->client.len;
    struct admin_change *change = calloc(1, sizeof *change + bytes);
    if (change == NULL) {
        return NULL;
    }
    char *to = change->text;
    change->item.run = on_home;
    change->context = context;
    change->op.kind = kind;
    change->op.done = come_home;
    change->op.record.ns = keep(&to, record->ns);
    change->op.record.key = keep(&to, record->key);
    change->op.record.reason = keep(&to, record->reason);
    change->op.record.note = keep(&to, record->note);
    change->op.record.client = keep(&to, record->client);
    change->op.record.token = record->token;
    change->op.record.effect_id = record->effect_id;
    return change;
}

void admin_change_submit(struct admin_change *change)
{
    struct admin_context *context = change->context;
    change->next = context->changes;
    if (change->next != NULL) {
        change->next->prev = change;
    }
    context->changes = change;
    context->submitted++;
    store_submit(context->options.store, &change->op);
}

void admin_change_release(struct admin_change **change)
{
    struct admin_change *released = *change;
    *change = NULL;
    if (released == NULL) {
        return;
    }
    if (!released->ready) {
        released->on_ready = NULL;
        return;
    }
    jsonout_free(&released->answer.body);
    free(released);
}

int admin_changes_run(struct admin_context *context)
{
    inbox_drain(&context->inbox);
    if (context->waits == 0) {
        return -1;
    }
    uint64_t now = monotonic_ms();
    struct admin_change *next;
    for (struct admin_change *change = context->changes; change != NULL; change = next) {
        next = change->next;
        bool waits = change->deadline_ms != 0;
        if (waits && (context->ending || now >= change->deadline_ms || !admin_operate_must_wait(change))) {
            make_ready(change);
        }
    }
    return context->waits == 0 ? -1 : LOOK_MS;
}

void admin_changes_end(struct admin_context *context)
{
    struct pollfd home = {.fd = context->inbox.event_fd, .events = POLLIN};
    context->ending = true;
    (void)admin_changes_run(context);
    while (context->submitted > 0) {
        poll(&home, 1, -1);
        (void)admin_changes_run(context);
    }
}
