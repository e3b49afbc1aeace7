/*
 * gateway/alarm.h - what an operator has to look at: each alarm is a metric, a log line when it comes and one when it
 * goes, and an entry in /v1/stats. Any thread; a short mutex at the edges, an atomic for those who only ask.
 *
 * Who notices calls alarm_on() and alarm_off() as often as it likes; only edges are told. When an alarm comes is judged
 * elsewhere: token_watch.h (tokens, per route), unresolved_watch.h (unknown outcomes, per route) and store_watch.h (the
 * store).
 */
#ifndef FENCEGATE_ALARM_H
#define FENCEGATE_ALARM_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "store/store.h"

struct jsonout;

enum alarm_kind {
    /* of a route */
    ALARM_TOKEN_REGRESSION,
    ALARM_CLOCK_LIKE_TOKEN,
    ALARM_UNRESOLVED,
    /* of the process */
    ALARM_IN_DOUBT,
    ALARM_STORE_NEARLY_FULL,
    ALARM_DISK_NEARLY_FULL,
    ALARM_OLD_READER,
    ALARM_STORE_NOT_WRITABLE,
    ALARM_KINDS,
};

/* Lives as long as the process. Set kind and route, the rest zero. */
struct alarm {
    enum alarm_kind kind;
    const char *route; /* NULL: of the process */
    atomic_bool is_on;
    /* ---- alarm.c's, under its mutex ---- */
    struct alarm *next; /* of those that are on, oldest first */
    uint64_t since_ms;  /* wall time */
    char text[640];     /* may name a key */
};

struct alarm *alarm_of_process(enum alarm_kind kind); /* its one alarm of that kind */
bool alarm_is_on(const struct alarm *alarm);

/* What a token alarm's log line is about. */
struct alarm_subject {
    struct slice ns, key;
    uint64_t token;
};
/* One sentence. On already: the sentence takes the old one's place, nothing is logged. `subject` may be NULL. */
void alarm_on(struct alarm *alarm, const struct alarm_subject *subject, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* What it is about began before it was noticed. */
void alarm_began(struct alarm *alarm, uint64_t wall_ms);
void alarm_off(struct alarm *alarm);
/* Logs it once more, if it is on: it should not be forgotten, or it has become worse. */
void alarm_remind(struct alarm *alarm);

/* Those that are on, as the elements of an array that the caller has begun. */
void alarms_write(struct jsonout *out);

#endif
