/*
 * tests/bench/fill.c - fills a store, for timing starts, queries and calls on many keys.
 *
 *   fill DIR N [KEYS]   KEYS fences (N unless given), N audit records that go round their keys, one of a hundred a
 * drop, and 1,000 effects left open fill DIR N fences   N fences alone
 *
 * The keys are order-00000000 and up. Fences alone come in PASSES turns over all keys, each key in a turn of chance, so
 * that pages split in the middle as they do when keys come in any order, and not only at the end.
 */
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "store/store.h"

enum { BATCH = 1000, PASSES = 8 };

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t all_done = PTHREAD_COND_INITIALIZER;
static unsigned left;
static struct store_op ops[BATCH];
static char keys[BATCH][32];
static unsigned key_count;

static void on_done(struct store_op *op)
{
    if (op->error != STORE_OK) {
        fprintf(stderr, "fill: the store failed (%d)\n", (int)op->error);
        exit(1);
    }
    pthread_mutex_lock(&mutex);
    if (--left == 0)
        pthread_cond_signal(&all_done);
    pthread_mutex_unlock(&mutex);
}

static struct slice of(const char *text)
{
    return (struct slice){text, strlen(text)};
}

static void submit(struct store *store, const unsigned *numbers, unsigned count, enum store_op_kind kind, bool intent)
{
    left = count;
    for (unsigned i = 0; i < count; i++) {
        snprintf(keys[i], sizeof keys[i], "order-%08u", numbers[i] % key_count);
        ops[i] = (struct store_op){.kind = kind, .done = on_done};
        ops[i].record = (struct audit_record){.route = of("payments"),
                                              .ns = of("default"),
                                              .key = of(keys[i]),
                                              .token = 41,
                                              .method = of("POST"),
                                              .path = of("/pay/charges"),
                                              .client = of("127.0.0.1:1")};
        bool dropped = numbers[i] / key_count % 100 == 99;
        ops[i].record.kind = kind == STORE_RECORD ? (dropped ? AUDIT_DROPPED : AUDIT_SENT) : (enum audit_kind)0;
        ops[i].record.reason = of(dropped ? "stale-token" : "");
        ops[i].admit.equal_allowed = true;
        ops[i].admit.intent = intent;
        store_submit(store, &ops[i]);
    }
    pthread_mutex_lock(&mutex);
    while (left > 0)
        pthread_cond_wait(&all_done, &mutex);
    pthread_mutex_unlock(&mutex);
}

static void submit_batch(struct store *store, unsigned first, enum store_op_kind kind, bool intent)
{
    unsigned numbers[BATCH];
    for (unsigned i = 0; i < BATCH; i++)
        numbers[i] = first + i;
    submit(store, numbers, BATCH, kind, intent);
}

static unsigned turn_of(unsigned number)
{
    uint32_t mixed = number * UINT32_C(2654435761);
    mixed = (mixed ^ mixed >> 15) * UINT32_C(2246822519);
    return (mixed >> 16) % PASSES;
}

static void fences(struct store *store, unsigned count)
{
    unsigned numbers[BATCH], gathered = 0;
    for (unsigned pass = 0; pass < PASSES; pass++)
        for (unsigned i = 0; i < count; i++) {
            if (turn_of(i) != pass)
                continue;
            numbers[gathered++] = i;
            if (gathered == BATCH) {
                submit(store, numbers, gathered, STORE_ADMIT, false);
                gathered = 0;
            }
        }
    if (gathered > 0)
        submit(store, numbers, gathered, STORE_ADMIT, false);
}

int main(int argc, char **argv)
{
    char why[512];
    struct store *store;
    bool only_fences = argc == 4 && strcmp(argv[3], "fences") == 0;
    if (argc != 3 && argc != 4)
        return 2;
    unsigned count = (unsigned)strtoul(argv[2], NULL, 10);
    key_count = argc == 4 && !only_fences ? (unsigned)strtoul(argv[3], NULL, 10) : count;
    struct store_options options = {.path = argv[1], .make = true, .max_size = UINT64_C(16) << 30};
    if (store_open(&options, &store, why, sizeof why) != STORE_OK) {
        fprintf(stderr, "fill: %s\n", why);
        return 1;
    }
    if (only_fences) {
        fences(store, count);
        store_close(&store);
        return 0;
    }
    for (unsigned i = 0; i < count; i += BATCH) {
        if (i < key_count)
            submit_batch(store, i, STORE_ADMIT, false);
        submit_batch(store, i, STORE_RECORD, false);
    }
    submit_batch(store, 0, STORE_ADMIT, true);
    _exit(0); /* as after a kill: the effects stay open */
}
