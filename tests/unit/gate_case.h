/*
 * tests/unit/gate_case.h - what the tests of the gate share: a gate, an inbox, and tickets that write down what they
 * were told. Helpers without a key are about ("default", "order-17").
 */
#ifndef FENCEGATE_TESTS_GATE_CASE_H
#define FENCEGATE_TESTS_GATE_CASE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>

#include "gateway/gate.h"
#include "gateway/inbox.h"

struct holder {
    struct gate_ticket ticket;
    unsigned notices; /* all that came */
    unsigned runs;    /* how often the item ran */
};

static struct gate *gate;
static struct inbox inbox;
static struct holder *woken[16]; /* in the order of their notices */
static size_t woken_count;

static inline void on_notice(struct inbox_item *item)
{
    struct holder *holder = (struct holder *)((char *)item - offsetof(struct holder, ticket.item));
    holder->notices |= gate_notices(&holder->ticket);
    holder->runs++;
    if (woken_count < sizeof woken / sizeof woken[0])
        woken[woken_count++] = holder;
}

static inline int set_up(void **state)
{
    (void)state;
    woken_count = 0;
    gate = gate_new();
    return gate != NULL && inbox_init(&inbox) ? 0 : -1;
}

/* The address sanitizer sees an entry that outlived its tickets. */
static inline int tear_down(void **state)
{
    (void)state;
    gate_free(&gate);
    inbox_destroy(&inbox);
    return gate == NULL ? 0 : -1;
}

static inline struct slice text(const char *chars)
{
    return (struct slice){chars, strlen(chars)};
}

static inline void join_as(struct holder *holder, const char *ns, const char *key, uint64_t token, enum gate_rule rule)
{
    *holder = (struct holder){.ticket = {.item.run = on_notice, .inbox = &inbox, .token = token, .rule = rule}};
    assert_true(gate_join(gate, &holder->ticket, text(ns), text(key)));
}

static inline void join(struct holder *holder, uint64_t token)
{
    join_as(holder, "default", "order-17", token, GATE_DRAIN);
}

static inline enum gate_answer enter(struct holder *holder)
{
    uint64_t highest = 0;
    return gate_enter(&holder->ticket, &highest);
}

static inline bool begin(struct holder *holder)
{
    uint64_t highest = 0;
    return gate_begin_send(&holder->ticket, &highest);
}

static inline void start(struct holder *holder, uint64_t token)
{
    join(holder, token);
    assert_int_equal(enter(holder), GATE_ENTERED);
    assert_true(begin(holder));
}

static inline void raise_to(uint64_t token)
{
    gate_raised(gate, text("default"), text("order-17"), token);
}

static inline void leave(struct holder *holder)
{
    assert_false(gate_leave(&holder->ticket));
}

static inline uint64_t in_flight(void)
{
    return gate_in_flight(gate, text("default"), text("order-17"));
}

/* What this holder was told since the last look. */
static inline unsigned told(struct holder *holder)
{
    inbox_drain(&inbox);
    unsigned notices = holder->notices;
    holder->notices = 0;
    return notices;
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

#endif
