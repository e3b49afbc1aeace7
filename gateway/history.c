/*
 * gateway/history.c - puts the story of a key together, see history.h. How it looks as JSON is history_write.c's.
 *
 * Within what came between two resets a higher token is a newer lease, whatever the order of the records: a late call
 * of lease 41 is recorded after the first one of lease 42. Across a reset the tokens begin anew, so every token belongs
 * to an era, and the eras are in order. Effects and records take their ids from one counter, so a call belongs to the
 * era its effect's id lies in, however late it ended.
 */
#include "gateway/history.h"

#include <stdlib.h>
#include <string.h>

static char *copy_of(struct history *history, struct slice text)
{
    if (text.len == 0)
        return NULL;
    char *copy = strndup(text.data, text.len);
    history->failed |= copy == NULL;
    return copy;
}

static void replace(struct history *history, char **text, struct slice by)
{
    free(*text);
    *text = copy_of(history, by);
}

/* ---- tokens in their order ---- */

static void token_free(struct history_token *token)
{
    for (size_t i = 0; i < HISTORY_NAMES; i++) {
        free(token->routes[i].text);
        free(token->reasons[i].text);
    }
    free(token->accepted.client);
    free(token->accepted.route);
    free(token->accepted.reason);
    free(token);
}

static size_t era_of(const struct history *history, uint64_t id)
{
    size_t low = 0, high = history->reset_count; /* newest first: how many are above id */
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (history->resets[middle].id > id)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* Where the token is, or where it belongs. */
static size_t place_of(const struct history *history, size_t era, uint64_t token)
{
    size_t low = 0, high = history->token_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        const struct history_token *at = history->tokens[middle];
        if (at->era < era || (at->era == era && at->token > token))
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static bool make_room(struct history *history)
{
    if (history->token_count < history->token_cap)
        return true;
    size_t cap = history->token_cap == 0 ? 16 : 2 * history->token_cap;
    struct history_token **tokens = realloc(history->tokens, cap * sizeof *tokens);
    if (tokens == NULL)
        return false;
    history->tokens = tokens;
    history->token_cap = cap;
    return true;
}

/* NULL: older than the newest `limit`, or out of memory. */
static struct history_token *token_at(struct history *history, size_t era, uint64_t token)
{
    size_t place = place_of(history, era, token);
    if (place < history->token_count && history->tokens[place]->era == era && history->tokens[place]->token == token)
        return history->tokens[place];
    if (place >= history->limit) {
        history->more_tokens = true;
        return NULL;
    }
    struct history_token *made = calloc(1, sizeof *made);
    if (made == NULL || !make_room(history)) {
        free(made);
        history->failed = true;
        return NULL;
    }
    made->token = token;
    made->era = era;
    memmove(&history->tokens[place + 1], &history->tokens[place],
            (history->token_count - place) * sizeof history->tokens[0]);
    history->tokens[place] = made;
    if (++history->token_count > history->limit) {
        token_free(history->tokens[--history->token_count]);
        history->more_tokens = true;
    }
    return made;
}

/* ---- records ---- */

static void count_name(struct history *history, struct history_name names[HISTORY_NAMES], struct slice text)
{
    if (text.len == 0)
        return;
    for (size_t i = 0; i < HISTORY_NAMES; i++) {
        if (names[i].text == NULL)
            names[i].text = copy_of(history, text);
        if (names[i].text != NULL && strlen(names[i].text) == text.len &&
            memcmp(names[i].text, text.data, text.len) == 0) {
            names[i].count++;
            return;
        }
    }
}

static bool is(struct slice text, const char *word)
{
    return text.len == strlen(word) && memcmp(text.data, word, text.len) == 0;
}

/* Does this record say that its token was accepted? What a route that observes let through despite its token was not;
 * what it let through although a newer one had come was. */
static bool was_accepted(const struct audit_record *record)
{
    bool superseded = is(record->reason, "superseded") || is(record->reason, "predecessor-in-flight");
    switch (record->kind) {
    case AUDIT_SENT:
    case AUDIT_NOT_SENT:
    case AUDIT_UNKNOWN: return !record->would_drop || superseded;
    case AUDIT_DROPPED: return superseded;
    default: return false;
    }
}

/* The earliest call tells, but a raise that has a record was there before every call with its token. */
static void accept(struct history *history, struct history_token *token, const struct audit_record *record,
                   enum history_by by, uint64_t order)
{
    if (token->accepted.by > by || (token->accepted.by == by && token->accepted.order < order))
        return;
    token->accepted.by = by;
    token->accepted.order = order;
    token->accepted.time_ms = by == HISTORY_BY_CALL ? audit_accepted_ms(record) : record->time_ms;
    token->accepted.audit_id = record->id;
    if (by == HISTORY_BY_EVIDENCE)
        return;
    replace(history, &token->accepted.client, record->client);
    replace(history, &token->accepted.route, record->route);
    replace(history, &token->accepted.reason, by == HISTORY_BY_RAISE ? record->reason : (struct slice){0});
}

/* Records come newest first. What an operator did is no call: who reads when a token was last seen wants to know
 * whether its worker is alive. */
static void span(struct history_token *token, const struct audit_record *record, bool own)
{
    if (token->last_id == 0 || (own && !token->own))
        token->last_id = record->id;
    if (own && token->last_ms == 0 && record->kind != AUDIT_RAISED && record->kind != AUDIT_RESOLVED)
        token->last_ms = record->time_ms;
    token->own |= own;
    token->first_id = record->id;
    token->first_ms = record->time_ms;
}

static bool count_of(enum audit_kind kind, enum history_count *out)
{
    switch (kind) {
    case AUDIT_SENT: *out = HISTORY_SENT; return true;
    case AUDIT_NOT_SENT: *out = HISTORY_NOT_SENT; return true;
    case AUDIT_DROPPED: *out = HISTORY_DROPPED; return true;
    case AUDIT_REJECTED: *out = HISTORY_REJECTED; return true;
    case AUDIT_UNKNOWN: *out = HISTORY_UNKNOWN; return true;
    case AUDIT_RESOLVED: *out = HISTORY_RESOLVED; return true;
    case AUDIT_RAISED:
    case AUDIT_RESET: break;
    }
    return false;
}

static void add_own(struct history *history, const struct audit_record *record, uint64_t order)
{
    struct history_token *token = token_at(history, era_of(history, order), record->token);
    enum history_count count;
    if (token == NULL)
        return;
    span(token, record, true);
    if (record->kind == AUDIT_RAISED)
        accept(history, token, record, HISTORY_BY_RAISE, order);
    else if (was_accepted(record))
        accept(history, token, record, HISTORY_BY_CALL, order);
    if (!count_of(record->kind, &count))
        return;
    token->count[count]++;
    token->count[HISTORY_WOULD_DROP] += record->would_drop ? 1 : 0;
    count_name(history, token->routes, record->route);
    if (count != HISTORY_RESOLVED) /* its reason says how it was resolved */
        count_name(history, token->reasons, record->reason);
}

/* The highest token that a record names was accepted by then, whether or not a record of its own says so. */
static void add_evidence(struct history *history, const struct audit_record *record, uint64_t order)
{
    struct history_token *token = token_at(history, era_of(history, order), record->highest);
    if (token == NULL)
        return;
    if (!token->own)
        span(token, record, false);
    accept(history, token, record, HISTORY_BY_EVIDENCE, order);
}

static bool add_reset(struct history *history, const struct audit_record *record)
{
    history->cut = history->reset_count == HISTORY_LIMIT_MAX;
    if (history->cut)
        return false;
    if (history->reset_count == history->reset_cap) {
        size_t cap = history->reset_cap == 0 ? 8 : 2 * history->reset_cap;
        struct history_reset *resets = realloc(history->resets, cap * sizeof *resets);
        if (resets == NULL) {
            history->failed = true;
            return false;
        }
        history->resets = resets;
        history->reset_cap = cap;
    }
    history->resets[history->reset_count++] = (struct history_reset){
        .id = record->id,
        .time_ms = record->time_ms,
        .highest = record->highest,
        .client = copy_of(history, record->client),
        .reason = copy_of(history, record->reason),
    };
    return true;
}

bool history_add(struct history *history, const struct audit_record *record)
{
    bool reset = record->kind == AUDIT_RESET;
    if (history->resets_known && record->id < history->oldest_audit_id)
        return false;
    if (reset && !history->resets_known && !add_reset(history, record))
        return false;
    if (history->newest_id == 0)
        history->newest_id = record->id;
    history->oldest_audit_id = history->resets_known ? history->oldest_audit_id : record->id;
    history->records++;
    uint64_t order = record->effect_id != 0 ? record->effect_id : record->id;
    if (record->token != 0)
        add_own(history, record, order);
    /* What a reset ended lay before it. A drop tells the fence of its own moment, an outcome that of its admission. */
    if (record->highest != 0)
        add_evidence(history, record, reset ? record->id - 1 : (record->kind == AUDIT_DROPPED ? record->id : order));
    return !history->failed;
}

static void tokens_clear(struct history *history)
{
    for (size_t i = 0; i < history->token_count; i++)
        token_free(history->tokens[i]);
    history->token_count = 0;
    history->more_tokens = false;
}

bool history_again(struct history *history)
{
    if (history->reset_count == 0 || history->resets_known)
        return false;
    history->resets_known = true;
    history->records = 0;
    tokens_clear(history);
    return true;
}

void history_add_intent(struct history *history, const struct audit_record *intent, bool in_doubt)
{
    if (intent->token == 0)
        return;
    struct history_token *token = token_at(history, era_of(history, intent->id), intent->token);
    if (token == NULL)
        return;
    token->in_doubt += in_doubt ? 1 : 0;
    if (token->first_ms == 0 || intent->time_ms < token->first_ms)
        token->first_ms = intent->time_ms;
    if (intent->time_ms > token->last_ms)
        token->last_ms = intent->time_ms;
    count_name(history, token->routes, intent->route);
    if (intent->would_drop || token->accepted.by > HISTORY_BY_CALL)
        return;
    uint64_t record_id = token->accepted.order == intent->id ? token->accepted.audit_id : 0;
    struct audit_record told = *intent; /* its id is the effect's */
    told.id = record_id;
    accept(history, token, &told, HISTORY_BY_CALL, intent->id);
}

void history_set_fence(struct history *history, const struct fence *fence)
{
    history->fence = *fence;
    if (fence->floor) /* of a restored store: nobody's token */
        return;
    struct history_token *token = token_at(history, 0, fence->token);
    if (token == NULL)
        return;
    token->accepted.time_ms = fence->updated_ms;
    if (token->accepted.by == HISTORY_BY_NONE)
        token->accepted.by = HISTORY_BY_EVIDENCE;
    if (token->first_ms == 0)
        token->first_ms = fence->updated_ms;
    if (token->last_ms == 0 && token->accepted.by == HISTORY_BY_EVIDENCE) /* a raise has a record: this was a call */
        token->last_ms = fence->updated_ms;
}

/* A call may outlive a reset: then its token's row is in the era before. */
static struct history_token *find_token(const struct history *history, uint64_t token)
{
    for (size_t i = 0; i < history->token_count; i++)
        if (history->tokens[i]->token == token)
            return history->tokens[i];
    return NULL;
}

bool history_needs_floor(const struct history *history, const struct fence *floor)
{
    const struct history_token *at = find_token(history, floor->token);
    bool holds = history->fence.token == floor->token && history->fence.updated_ms == floor->updated_ms;
    if (at == NULL)
        return holds;
    bool before = at->accepted.by == HISTORY_BY_CALL && at->accepted.time_ms < floor->updated_ms;
    return at->accepted.by <= HISTORY_BY_CALL && (holds || !before);
}

void history_set_floor(struct history *history, const struct fence *floor, uint64_t audit_id)
{
    struct history_token *token = find_token(history, floor->token);
    if (token == NULL)
        token = token_at(history, 0, floor->token);
    if (token == NULL)
        return;
    struct audit_record told = {.id = audit_id, .time_ms = floor->updated_ms};
    accept(history, token, &told, HISTORY_BY_RESTORE, audit_id);
    if (token->first_ms == 0 || floor->updated_ms < token->first_ms)
        token->first_ms = floor->updated_ms;
}

void history_set_live(struct history *history, uint64_t token, uint64_t in_flight, uint64_t waiting)
{
    struct history_token *at = find_token(history, token);
    history->live = true;
    if (at == NULL)
        at = token_at(history, 0, token);
    if (at == NULL)
        return;
    at->in_flight = in_flight;
    at->waiting = waiting;
}

/* ---- out of a store ---- */

static bool take_record(void *arg, const struct audit_record *record)
{
    return history_add(arg, record);
}

static bool take_doubt(void *arg, const struct audit_record *intent)
{
    struct history *history = arg;
    history_add_intent(history, intent, true);
    return !history->failed;
}

static bool take_running(void *arg, const struct audit_record *intent)
{
    struct history *history = arg;
    history_add_intent(history, intent, false);
    return !history->failed;
}

static enum store_error read_records(struct store_reader *reader, struct audit_filter *filter, struct history *out)
{
    uint64_t next = 0;
    enum store_error error = store_audit_query(reader, filter, take_record, out, &next);
    if (error == STORE_OK && history_again(out)) {
        filter->after = out->newest_id + 1;
        filter->patience_ms = 0; /* all that was read: it ends where the first pass ended */
        uint64_t ignored;
        error = store_audit_query(reader, filter, take_record, out, &ignored);
    }
    out->complete = next == 0 && !out->cut;
    return error == STORE_OK ? store_removed(reader, &out->removed_id) : error;
}

/* What is running has no record yet, but it was accepted. */
static enum store_error read_intents(struct store_reader *reader, const struct audit_filter *filter,
                                     struct history *out)
{
    struct effects_filter effects = {
        .state = EFFECTS_IN_DOUBT, .ns = filter->ns, .key = filter->key, .limit = SIZE_MAX, .looks = HISTORY_LOOKS};
    uint64_t next = 0, running_next = 0;
    enum store_error error = store_effects_query(reader, &effects, take_doubt, out, &next);
    effects.state = EFFECTS_RUNNING;
    if (error == STORE_OK)
        error = store_effects_query(reader, &effects, take_running, out, &running_next);
    out->complete = out->complete && next == 0 && running_next == 0;
    return error;
}

struct restored {
    uint64_t token, audit_id;
};

static bool take_restored(void *arg, const struct audit_record *record)
{
    struct restored *restored = arg;
    if (record->key.data == NULL && record->token == restored->token) /* of all keys: no operator's with that reason */
        restored->audit_id = record->id;
    return restored->audit_id == 0;
}

static enum store_error read_floor(struct store_reader *reader, struct history *out)
{
    struct fence floor;
    if (store_floor_get(reader, &floor) != STORE_OK || !history_needs_floor(out, &floor))
        return STORE_OK;
    const struct audit_filter filter = {.kind = AUDIT_RAISED,
                                        .reason = {"restored", 8},
                                        .since_ms = floor.updated_ms,
                                        .limit = HISTORY_LOOKS,
                                        .looks = HISTORY_LOOKS};
    struct restored restored = {.token = floor.token};
    uint64_t ignored;
    enum store_error error = store_audit_query(reader, &filter, take_restored, &restored, &ignored);
    history_set_floor(out, &floor, restored.audit_id);
    return error;
}

enum store_error history_collect(struct store_reader *reader, struct slice ns, struct slice key, size_t limit,
                                 uint64_t patience_ms, struct history *out)
{
    struct audit_filter filter = {.ns = ns,
                                  .key = key,
                                  .descending = true,
                                  .limit = HISTORY_LOOKS,
                                  .looks = HISTORY_LOOKS,
                                  .patience_ms = patience_ms};
    struct fence fence;
    *out = (struct history){.limit = limit};
    enum store_error error = read_records(reader, &filter, out);
    if (error == STORE_OK)
        error = read_intents(reader, &filter, out);
    if (error != STORE_OK)
        return error;
    error = store_fence_get(reader, ns, key, &fence);
    if (error == STORE_OK)
        history_set_fence(out, &fence);
    if (error == STORE_OK || error == STORE_NOT_FOUND) {
        enum store_error of_floor = read_floor(reader, out);
        error = of_floor == STORE_OK ? error : of_floor;
    }
    if (out->failed)
        return STORE_IO;
    bool known = out->records > 0 || out->token_count > 0;
    if (error == STORE_OK || error == STORE_NOT_FOUND)
        return known ? STORE_OK : STORE_NOT_FOUND;
    return error;
}

void history_free(struct history *history)
{
    tokens_clear(history);
    for (size_t i = 0; i < history->reset_count; i++) {
        free(history->resets[i].client);
        free(history->resets[i].reason);
    }
    free(history->tokens);
    free(history->resets);
    *history = (struct history){0};
}
