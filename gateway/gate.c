/*
 * gateway/gate.c - the per-key order behind gate.h.
 *
 * A hash table of entries, one per key with a live request, in shards with a mutex each. An entry knows the highest
 * token it was told of, the tickets that have not yet entered, those in flight (STARTING, SENDING) and those that wait,
 * first come first. It keeps the
 * lowest order (the token, but 0 for what a reset found in flight) in flight with a count, so that a leave is cheap
 * however many calls of one key run.
 *
 * Leaves to others: the durable fence (store), what a refused call is answered (request.c).
 */
#include "gateway/gate.h"

#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

enum {
    GUESS_LOOKS = 16, /* of those that have not yet entered: a guess need not be dear */
    SHARDS = 64,
    BUCKETS = 256,   /* 16384 chains in all: short for tens of thousands of live keys */
    SPARE_NAME = 64, /* an entry has room for a name of this size at least: then it can be used again */
#if defined(__SANITIZE_ADDRESS__)
    SPARE_ENTRIES = 0, /* reuse would hide a use after free */
#else
    SPARE_ENTRIES = 8, /* of a shard */
#endif
};

struct ticket_list {
    struct gate_ticket *head, *tail;
};

struct gate_entry {
    struct gate_entry *chain;
    struct shard *shard;
    uint64_t hash;
    uint64_t tickets; /* members, whatever their state; 0: freed */
    uint64_t highest; /* highest token the gate was told of while the entry lived, since the last reset; 0: none */
    uint64_t epoch;   /* how many resets */
    struct ticket_list joined, flying, waiting;
    uint64_t flying_count;
    uint64_t low_order, low_count; /* lowest order in flight and how many have it; count 0: nothing flies */
    size_t ns_len, key_len;
    char name[]; /* namespace, then key */
};

struct shard {
    pthread_mutex_t mutex;
    struct gate_entry *bucket[BUCKETS];
    struct gate_entry *spare; /* by `chain` */
    unsigned spare_count;
};

struct gate {
    uint64_t seed; /* so that nobody can choose keys that share a chain */
    struct shard shard[SHARDS];
};

static uint64_t hash_bytes(uint64_t hash, struct slice text)
{
    for (size_t i = 0; i < text.len; i++)
        hash = (hash ^ (unsigned char)text.data[i]) * UINT64_C(0x100000001b3);
    return hash ^ (hash >> 29);
}

static uint64_t hash_key(const struct gate *gate, struct slice ns, struct slice key)
{
    uint64_t hash = hash_bytes(hash_bytes(gate->seed, ns) + 1, key);
    return hash * UINT64_C(0x9e3779b97f4a7c15);
}

static struct shard *shard_of(struct gate *gate, uint64_t hash)
{
    return &gate->shard[hash >> 58];
}

static struct gate_entry **bucket_of(struct shard *shard, uint64_t hash)
{
    return &shard->bucket[(hash >> 50) & (BUCKETS - 1)];
}

static struct gate_entry *find(struct shard *shard, uint64_t hash, struct slice ns, struct slice key)
{
    struct gate_entry *entry = *bucket_of(shard, hash);
    for (; entry != NULL; entry = entry->chain)
        if (entry->hash == hash && entry->ns_len == ns.len && entry->key_len == key.len &&
            memcmp(entry->name, ns.data, ns.len) == 0 && memcmp(entry->name + ns.len, key.data, key.len) == 0)
            return entry;
    return NULL;
}

static void list_add(struct ticket_list *list, struct gate_ticket *ticket)
{
    ticket->next = NULL;
    ticket->prev = list->tail;
    if (list->tail != NULL)
        list->tail->next = ticket;
    else
        list->head = ticket;
    list->tail = ticket;
}

static void list_remove(struct ticket_list *list, struct gate_ticket *ticket)
{
    if (ticket->prev != NULL)
        ticket->prev->next = ticket->next;
    else
        list->head = ticket->next;
    if (ticket->next != NULL)
        ticket->next->prev = ticket->prev;
    else
        list->tail = ticket->prev;
    ticket->next = ticket->prev = NULL;
}

/* Lock order: a shard's mutex, then an inbox's. */
static void notify(struct gate_ticket *ticket, enum gate_notice notice)
{
    ticket->notices |= notice;
    if (ticket->posted)
        return;
    ticket->posted = true;
    inbox_post(ticket->inbox, &ticket->item);
}

static void count_low(struct gate_entry *entry, const struct gate_ticket *ticket)
{
    if (entry->low_count == 0 || ticket->order < entry->low_order) {
        entry->low_order = ticket->order;
        entry->low_count = 1;
    } else if (ticket->order == entry->low_order) {
        entry->low_count++;
    }
}

static void take_off(struct gate_entry *entry, struct gate_ticket *ticket)
{
    ticket->state = GATE_STARTING;
    ticket->order = ticket->token;
    list_add(&entry->flying, ticket);
    entry->flying_count++;
    count_low(entry, ticket);
}

static void land(struct gate_entry *entry, struct gate_ticket *ticket)
{
    list_remove(&entry->flying, ticket);
    entry->flying_count--;
    if (ticket->order != entry->low_order || --entry->low_count > 0)
        return;
    for (const struct gate_ticket *other = entry->flying.head; other != NULL; other = other->next)
        count_low(entry, other);
}

static bool older_in_flight(const struct gate_entry *entry, uint64_t token)
{
    return entry->low_count > 0 && entry->low_order < token;
}

/* Was a higher token accepted, or the fence reset, since this ticket joined? */
static bool too_late(const struct gate_entry *entry, const struct gate_ticket *ticket)
{
    return ticket->epoch != entry->epoch || ticket->token < entry->highest;
}

/* What may be told to somebody who is too late: never a token that is not above his own. */
static uint64_t highest_for(const struct gate_entry *entry, const struct gate_ticket *ticket)
{
    return ticket->epoch == entry->epoch || entry->highest > ticket->token ? entry->highest : 0;
}

static void wake_waiting(struct gate_entry *entry)
{
    struct gate_ticket *next;
    for (struct gate_ticket *ticket = entry->waiting.head; ticket != NULL; ticket = next) {
        next = ticket->next;
        if (too_late(entry, ticket) || older_in_flight(entry, ticket->token))
            continue;
        list_remove(&entry->waiting, ticket);
        take_off(entry, ticket);
        notify(ticket, GATE_MAY_START);
    }
}

struct gate *gate_new(void)
{
    struct gate *gate = calloc(1, sizeof *gate);
    if (gate == NULL)
        return NULL;
    if (getrandom(&gate->seed, sizeof gate->seed, GRND_NONBLOCK) != (ssize_t)sizeof gate->seed)
        gate->seed = UINT64_C(0xcbf29ce484222325);
    for (size_t i = 0; i < SHARDS; i++)
        pthread_mutex_init(&gate->shard[i].mutex, NULL);
    return gate;
}

void gate_free(struct gate **gate)
{
    if (*gate == NULL)
        return;
    for (size_t i = 0; i < SHARDS; i++) {
        struct shard *shard = &(*gate)->shard[i];
        for (struct gate_entry *entry; (entry = shard->spare) != NULL;) {
            shard->spare = entry->chain;
            free(entry);
        }
        pthread_mutex_destroy(&shard->mutex);
    }
    free(*gate);
    *gate = NULL;
}

/* Uncleared. Most entries live as long as one call does. */
static struct gate_entry *entry_memory(struct shard *shard, size_t name_len)
{
    struct gate_entry *entry = shard->spare;
    if (entry == NULL || name_len > SPARE_NAME)
        return malloc(sizeof *entry + (name_len > SPARE_NAME ? name_len : SPARE_NAME));
    shard->spare = entry->chain;
    shard->spare_count--;
    return entry;
}

static struct gate_entry *entry_new(struct shard *shard, uint64_t hash, struct slice ns, struct slice key)
{
    struct gate_entry *entry = entry_memory(shard, ns.len + key.len);
    if (entry == NULL)
        return NULL;
    *entry = (struct gate_entry){.shard = shard, .hash = hash, .ns_len = ns.len, .key_len = key.len};
    memcpy(entry->name, ns.data, ns.len);
    memcpy(entry->name + ns.len, key.data, key.len);
    struct gate_entry **bucket = bucket_of(shard, hash);
    entry->chain = *bucket;
    *bucket = entry;
    return entry;
}

static void entry_free(struct gate_entry *entry)
{
    struct gate_entry **link = bucket_of(entry->shard, entry->hash);
    while (*link != entry)
        link = &(*link)->chain;
    *link = entry->chain;
    struct shard *shard = entry->shard;
    if (entry->ns_len + entry->key_len > SPARE_NAME || shard->spare_count == SPARE_ENTRIES) {
        free(entry);
        return;
    }
    entry->chain = shard->spare;
    shard->spare = entry;
    shard->spare_count++;
}

bool gate_join(struct gate *gate, struct gate_ticket *ticket, struct slice ns, struct slice key)
{
    uint64_t hash = hash_key(gate, ns, key);
    struct shard *shard = shard_of(gate, hash);
    pthread_mutex_lock(&shard->mutex);
    struct gate_entry *entry = find(shard, hash, ns, key);
    if (entry == NULL)
        entry = entry_new(shard, hash, ns, key);
    if (entry != NULL) {
        entry->tickets++;
        ticket->entry = entry;
        ticket->state = GATE_JOINED;
        ticket->epoch = entry->epoch;
        ticket->notices = 0;
        list_add(&entry->joined, ticket);
    }
    pthread_mutex_unlock(&shard->mutex);
    return entry != NULL;
}

/* Those below `token` that have not begun to send; with `all` whatever their token. */
static void supersede(struct ticket_list *list, uint64_t token, bool all)
{
    for (struct gate_ticket *ticket = list->head; ticket != NULL; ticket = ticket->next)
        if ((all || ticket->token < token) && ticket->state != GATE_SENDING)
            notify(ticket, GATE_SUPERSEDED);
}

static void hear_of(struct gate_entry *entry, uint64_t token)
{
    if (token <= entry->highest)
        return;
    entry->highest = token;
    supersede(&entry->waiting, token, false);
    supersede(&entry->flying, token, false);
}

/* A newer call that must wait, under rule abort: those that send are told to stop. */
static void cut_older(struct gate_entry *entry, uint64_t token)
{
    for (struct gate_ticket *other = entry->flying.head; other != NULL; other = other->next)
        if (other->order < token && other->state == GATE_SENDING)
            notify(other, GATE_CUT);
}

/* Among those that are on their way in, and came first. */
static bool older_joined(const struct gate_entry *entry, const struct gate_ticket *ticket)
{
    const struct gate_ticket *other = entry->joined.head;
    for (int i = 0; i < GUESS_LOOKS && other != NULL; i++, other = other->next)
        if (other->token < ticket->token)
            return true;
    return false;
}

bool gate_would_wait(const struct gate_ticket *ticket)
{
    struct gate_entry *entry = ticket->entry;
    pthread_mutex_lock(&entry->shard->mutex);
    bool waits = ticket->rule != GATE_OVERLAP && (older_in_flight(entry, ticket->token) || older_joined(entry, ticket));
    pthread_mutex_unlock(&entry->shard->mutex);
    return waits;
}

enum gate_answer gate_enter(struct gate_ticket *ticket, uint64_t *highest)
{
    struct gate_entry *entry = ticket->entry;
    enum gate_answer answer = GATE_ENTERED;
    pthread_mutex_lock(&entry->shard->mutex);
    if (ticket->epoch == entry->epoch) /* read on disk, perhaps, between its commit and the writer's word of it */
        hear_of(entry, ticket->token);
    if (too_late(entry, ticket)) {
        *highest = highest_for(entry, ticket);
        answer = GATE_TOO_LATE;
    } else if (ticket->rule != GATE_OVERLAP && older_in_flight(entry, ticket->token)) {
        list_remove(&entry->joined, ticket);
        ticket->state = GATE_WAITING;
        list_add(&entry->waiting, ticket);
        if (ticket->rule == GATE_ABORT)
            cut_older(entry, ticket->token);
        answer = GATE_MUST_WAIT;
    } else {
        list_remove(&entry->joined, ticket);
        take_off(entry, ticket);
    }
    pthread_mutex_unlock(&entry->shard->mutex);
    return answer;
}

bool gate_begin_send(struct gate_ticket *ticket, uint64_t *highest)
{
    struct gate_entry *entry = ticket->entry;
    pthread_mutex_lock(&entry->shard->mutex);
    bool current = !too_late(entry, ticket);
    if (current)
        ticket->state = GATE_SENDING;
    else
        *highest = highest_for(entry, ticket);
    pthread_mutex_unlock(&entry->shard->mutex);
    return current;
}

bool gate_retract(struct gate_ticket *ticket, uint64_t *highest)
{
    struct gate_entry *entry = ticket->entry;
    pthread_mutex_lock(&entry->shard->mutex);
    ticket->state = GATE_STARTING;
    bool current = !too_late(entry, ticket);
    if (!current)
        *highest = highest_for(entry, ticket);
    pthread_mutex_unlock(&entry->shard->mutex);
    return current;
}

bool gate_is_current(struct gate_ticket *ticket, uint64_t *highest)
{
    struct gate_entry *entry = ticket->entry;
    pthread_mutex_lock(&entry->shard->mutex);
    bool current = !too_late(entry, ticket);
    if (!current)
        *highest = highest_for(entry, ticket);
    pthread_mutex_unlock(&entry->shard->mutex);
    return current;
}

bool gate_leave(struct gate_ticket *ticket)
{
    struct gate_entry *entry = ticket->entry;
    struct shard *shard = entry->shard;
    pthread_mutex_lock(&shard->mutex);
    if (ticket->state == GATE_WAITING)
        list_remove(&entry->waiting, ticket);
    else if (ticket->state == GATE_STARTING || ticket->state == GATE_SENDING)
        land(entry, ticket);
    else
        list_remove(&entry->joined, ticket);
    ticket->state = GATE_OUT;
    ticket->notices = 0;
    ticket->entry = NULL;
    bool posted = ticket->posted;
    if (entry->waiting.head != NULL)
        wake_waiting(entry);
    if (--entry->tickets == 0)
        entry_free(entry);
    pthread_mutex_unlock(&shard->mutex);
    return posted;
}

/* A ticket that has left has no entry, and nobody but its owner can touch it: no lock needed, none could be found. */
unsigned gate_notices(struct gate_ticket *ticket)
{
    if (ticket->entry == NULL) {
        ticket->posted = false;
        return 0;
    }
    pthread_mutex_lock(&ticket->entry->shard->mutex);
    unsigned notices = ticket->notices;
    ticket->notices = 0;
    ticket->posted = false;
    pthread_mutex_unlock(&ticket->entry->shard->mutex);
    return notices;
}

uint64_t gate_highest(struct gate_ticket *ticket)
{
    pthread_mutex_lock(&ticket->entry->shard->mutex);
    uint64_t highest = highest_for(ticket->entry, ticket);
    pthread_mutex_unlock(&ticket->entry->shard->mutex);
    return highest;
}

void gate_raised(struct gate *gate, struct slice ns, struct slice key, uint64_t token)
{
    uint64_t hash = hash_key(gate, ns, key);
    struct shard *shard = shard_of(gate, hash);
    pthread_mutex_lock(&shard->mutex);
    struct gate_entry *entry = find(shard, hash, ns, key);
    if (entry != NULL)
        hear_of(entry, token);
    pthread_mutex_unlock(&shard->mutex);
}

static void forget_order(struct gate_entry *entry)
{
    supersede(&entry->waiting, 0, true);
    supersede(&entry->flying, 0, true);
    for (struct gate_ticket *ticket = entry->flying.head; ticket != NULL; ticket = ticket->next)
        ticket->order = 0;
    entry->low_order = 0;
    entry->low_count = entry->flying_count;
    entry->highest = 0;
    entry->epoch++;
}

void gate_reset(struct gate *gate, struct slice ns, struct slice key)
{
    uint64_t hash = hash_key(gate, ns, key);
    struct shard *shard = shard_of(gate, hash);
    pthread_mutex_lock(&shard->mutex);
    struct gate_entry *entry = find(shard, hash, ns, key);
    if (entry != NULL)
        forget_order(entry);
    pthread_mutex_unlock(&shard->mutex);
}

uint64_t gate_in_flight(struct gate *gate, struct slice ns, struct slice key)
{
    uint64_t hash = hash_key(gate, ns, key);
    struct shard *shard = shard_of(gate, hash);
    pthread_mutex_lock(&shard->mutex);
    const struct gate_entry *entry = find(shard, hash, ns, key);
    uint64_t count = entry == NULL ? 0 : entry->flying_count;
    pthread_mutex_unlock(&shard->mutex);
    return count;
}

uint64_t gate_in_flight_below(struct gate *gate, struct slice ns, struct slice key, uint64_t token)
{
    uint64_t hash = hash_key(gate, ns, key);
    struct shard *shard = shard_of(gate, hash);
    uint64_t count = 0;
    pthread_mutex_lock(&shard->mutex);
    const struct gate_entry *entry = find(shard, hash, ns, key);
    if (entry != NULL && older_in_flight(entry, token))
        for (const struct gate_ticket *ticket = entry->flying.head; ticket != NULL; ticket = ticket->next)
            count += ticket->order < token ? 1 : 0;
    pthread_mutex_unlock(&shard->mutex);
    return count;
}

/* Calls side by side mostly have equal tokens, so the search from the last one on is short. */
static size_t count_tokens(const struct ticket_list *list, struct gate_token *out, size_t count, size_t cap)
{
    for (const struct gate_ticket *ticket = list->head; ticket != NULL; ticket = ticket->next) {
        size_t i = count;
        while (i > 0 && out[i - 1].token != ticket->token)
            i--;
        if (i == 0 && count == cap)
            continue;
        if (i == 0) {
            out[count] = (struct gate_token){.token = ticket->token};
            i = ++count;
        }
        if (ticket->state == GATE_WAITING)
            out[i - 1].waiting++;
        else
            out[i - 1].in_flight++;
    }
    return count;
}

size_t gate_tokens(struct gate *gate, struct slice ns, struct slice key, struct gate_token *out, size_t cap)
{
    uint64_t hash = hash_key(gate, ns, key);
    struct shard *shard = shard_of(gate, hash);
    size_t count = 0;
    pthread_mutex_lock(&shard->mutex);
    const struct gate_entry *entry = find(shard, hash, ns, key);
    if (entry != NULL) {
        count = count_tokens(&entry->flying, out, count, cap);
        count = count_tokens(&entry->waiting, out, count, cap);
    }
    pthread_mutex_unlock(&shard->mutex);
    return count;
}
