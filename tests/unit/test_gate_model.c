/*
 * tests/unit/test_gate_model.c - the gate beside a model of it that has lists of nothing and looks at everybody,
 * through a long random run of tickets with all rules, raises and resets on one key.
 */
#include "tests/unit/gate_case.h"

#include <string.h>

enum { MODEL_TICKETS = 24, MODEL_STEPS = 60000 };

struct modelled {
    struct holder holder;
    enum gate_state state;
    bool old;       /* joined before a reset */
    uint64_t order; /* in flight: the token, 0 after a reset */
    unsigned due;   /* notices the model expects and the holder has not yet got */
};

static struct modelled model[MODEL_TICKETS];
static uint64_t model_highest, random_state;

static uint32_t random_below(uint32_t bound)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return (uint32_t)((random_state >> 32) % bound);
}

static bool model_flies(const struct modelled *one)
{
    return one->state == GATE_STARTING || one->state == GATE_SENDING;
}

static bool model_older_flies(uint64_t token)
{
    for (size_t i = 0; i < MODEL_TICKETS; i++)
        if (model_flies(&model[i]) && model[i].order < token)
            return true;
    return false;
}

static bool model_too_late(const struct modelled *one)
{
    return one->old || one->holder.ticket.token < model_highest;
}

static uint64_t model_told(const struct modelled *one)
{
    return one->old && model_highest <= one->holder.ticket.token ? 0 : model_highest;
}

static void model_reset(void)
{
    gate_reset(gate, text("default"), text("order-17"));
    model_highest = 0;
    for (size_t i = 0; i < MODEL_TICKETS; i++) {
        if (model[i].state == GATE_WAITING || model[i].state == GATE_STARTING)
            model[i].due |= GATE_SUPERSEDED;
        model[i].old = model[i].state != GATE_OUT;
        model[i].order = 0;
    }
}

static void model_raise(uint64_t token)
{
    if (token <= model_highest)
        return;
    model_highest = token;
    for (size_t i = 0; i < MODEL_TICKETS; i++)
        if ((model[i].state == GATE_WAITING || model[i].state == GATE_STARTING) && model[i].holder.ticket.token < token)
            model[i].due |= GATE_SUPERSEDED;
}

static void model_enter(struct modelled *one)
{
    uint64_t token = one->holder.ticket.token, highest = 0;
    enum gate_answer expected = GATE_ENTERED;
    if (!one->old)
        model_raise(token);
    if (model_too_late(one))
        expected = GATE_TOO_LATE;
    else if (one->holder.ticket.rule != GATE_OVERLAP && model_older_flies(token))
        expected = GATE_MUST_WAIT;
    assert_int_equal(gate_enter(&one->holder.ticket, &highest), expected);
    if (expected == GATE_TOO_LATE) {
        assert_int_equal(highest, model_told(one));
        return;
    }
    one->order = token;
    one->state = expected == GATE_MUST_WAIT ? GATE_WAITING : GATE_STARTING;
    for (size_t i = 0; expected == GATE_MUST_WAIT && one->holder.ticket.rule == GATE_ABORT && i < MODEL_TICKETS; i++)
        if (model[i].state == GATE_SENDING && model[i].order < token)
            model[i].due |= GATE_CUT;
}

static void model_begin(struct modelled *one)
{
    uint64_t highest = 0;
    bool current = !model_too_late(one);
    assert_true(gate_begin_send(&one->holder.ticket, &highest) == current);
    assert_int_equal(highest, current ? 0 : model_told(one));
    if (current)
        one->state = GATE_SENDING;
}

static void model_retract(struct modelled *one)
{
    uint64_t highest = 0;
    bool current = !model_too_late(one);
    assert_true(gate_retract(&one->holder.ticket, &highest) == current);
    assert_int_equal(highest, current ? 0 : model_told(one));
    one->state = GATE_STARTING;
}

static void model_compare(void)
{
    uint64_t flying = 0, below = 0, middle = model_highest == 0 ? 1000 : model_highest;
    inbox_drain(&inbox);
    for (size_t i = 0; i < MODEL_TICKETS; i++) {
        flying += model_flies(&model[i]) ? 1 : 0;
        below += model_flies(&model[i]) && model[i].order < middle ? 1 : 0;
        assert_int_equal(model[i].holder.notices, model[i].due);
        model[i].holder.notices = model[i].due = 0;
        if (model[i].state != GATE_OUT)
            assert_int_equal(model[i].holder.ticket.state, model[i].state);
    }
    assert_int_equal(in_flight(), flying);
    assert_int_equal(gate_in_flight_below(gate, text("default"), text("order-17"), middle), below);
}

/* All whose way is free now start; among them are none with different tokens, unless they overlap. */
static void model_leave(struct modelled *one)
{
    bool under_way = one->due != 0;
    one->state = GATE_OUT;
    one->due = 0;
    for (size_t i = 0; i < MODEL_TICKETS; i++)
        if (model[i].state == GATE_WAITING && !model_too_late(&model[i]) &&
            !model_older_flies(model[i].holder.ticket.token)) {
            model[i].state = GATE_STARTING;
            model[i].order = model[i].holder.ticket.token;
            model[i].due |= GATE_MAY_START;
        }
    assert_true(gate_leave(&one->holder.ticket) == under_way);
    if (under_way)
        model_compare(); /* takes the item out before the memory is used again */
}

static void model_join(struct modelled *one)
{
    static const enum gate_rule rules[] = {GATE_DRAIN, GATE_DRAIN, GATE_ABORT, GATE_OVERLAP};
    bool anybody = false;
    for (size_t i = 0; i < MODEL_TICKETS && !anybody; i++)
        anybody = model[i].state != GATE_OUT;
    if (!anybody)
        model_highest = 0; /* a new entry */
    uint64_t base = model_highest == 0 ? 1000 : model_highest;
    join_as(&one->holder, "default", "order-17", base + random_below(3) - 1, rules[random_below(4)]);
    one->state = GATE_JOINED;
    one->old = false;
    one->due = 0;
}

static void model_step(struct modelled *one)
{
    switch (one->state) {
    case GATE_OUT: model_join(one); break;
    case GATE_JOINED:
        if (random_below(8) == 0) {
            model_leave(one);
        } else {
            if (random_below(3) != 0) { /* accepted: the writer tells first, unless it was so on disk */
                gate_raised(gate, text("default"), text("order-17"), one->holder.ticket.token);
                model_raise(one->holder.ticket.token);
            }
            model_enter(one);
        }
        break;
    case GATE_STARTING:
        if (random_below(3) == 0)
            model_leave(one);
        else
            model_begin(one);
        break;
    case GATE_WAITING:
        if (random_below(6) == 0)
            model_leave(one);
        break;
    case GATE_SENDING:
        if (random_below(4) == 0)
            model_retract(one);
        else
            model_leave(one);
        break;
    }
}

static void random_steps_beside_a_model(void **state)
{
    (void)state;
    random_state = UINT64_C(0x2545F4914F6CDD1D);
    memset(model, 0, sizeof model);
    unsigned seen[GATE_SENDING + 1] = {0};
    for (int step = 0; step < MODEL_STEPS; step++) {
        struct modelled *one = &model[random_below(MODEL_TICKETS)];
        seen[one->state]++;
        model_step(one);
        if (random_below(150) == 0)
            model_reset();
        if (random_below(3) != 0) /* at times several notices gather */
            model_compare();
    }
    for (size_t i = 0; i <= GATE_SENDING; i++)
        assert_in_range(seen[i], 500, MODEL_STEPS); /* the run came to every state */
    for (size_t i = 0; i < MODEL_TICKETS; i++)
        if (model[i].state != GATE_OUT)
            model_leave(&model[i]);
    model_compare();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(random_steps_beside_a_model),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
