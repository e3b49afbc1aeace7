/*
 * gateway/composer.h - a thread beside the workers for work that would hold a loop for long: large mails.
 *
 * One job after the other, in the order in which they came: what a job takes beyond its input (a JSON tree is six times
 * its text) is there once in the process. How many can wait is bounded by limits.buffered, since each has its body in
 * memory.
 */
#ifndef FENCEGATE_COMPOSER_H
#define FENCEGATE_COMPOSER_H

#include <stdbool.h>

#include "gateway/inbox.h"

/* Embedded in what it is about; the composer's from composer_submit() until item.run() is called through `home`. */
struct composer_job {
    void (*work)(struct composer_job *job); /* on the composer's thread */
    struct inbox *home;
    struct inbox_item item;
    struct composer_job *next; /* the composer's */
};

struct composer;
struct composer *composer_new(void) __attribute__((warn_unused_result)); /* NULL: no memory */
/* Any thread. The thread is started for the first job. False: it can't be, and the job was not taken. */
bool composer_submit(struct composer *composer, struct composer_job *job) __attribute__((warn_unused_result));
/* Joins the thread: what it had begun has come home, what waited has not and never will. Clears *composer. */
void composer_free(struct composer **composer);

#endif
