/*
 * gateway/command_hint.c - looks a second time, more widely, when nothing was found; see command_hint.h.
 *
 * The work is bounded: a command that found nothing must not take a minute to say so.
 */
#include "gateway/command_hint.h"

#include <string.h>
#include <strings.h>

#include "gateway/token.h"

#define FENCES_LOOKED_AT 200000

static void say(struct jsonout *out, const char *text)
{
    jsonout_raw(out, text, strlen(text));
}

static bool same(struct slice a, struct slice b)
{
    return a.len == b.len && (a.len == 0 || memcmp(a.data, b.data, a.len) == 0);
}

/* ---- a key that looks the same ---- */

struct search {
    const struct audit_filter *filter;
    char ns[64], key[KEY_BYTES_MAX]; /* of the one found */
    size_t ns_len, key_len;          /* 0: none */
};

static bool compare(void *arg, const struct fence_entry *entry)
{
    struct search *search = arg;
    const struct audit_filter *filter = search->filter;
    bool alike =
        entry->key.len == filter->key.len && strncasecmp(entry->key.data, filter->key.data, filter->key.len) == 0;
    bool itself = same(entry->key, filter->key) && (filter->ns.data == NULL || same(entry->ns, filter->ns));
    if (!alike || itself || entry->ns.len > sizeof search->ns || entry->key.len > sizeof search->key)
        return true;
    memcpy(search->ns, entry->ns.data, entry->ns.len);
    memcpy(search->key, entry->key.data, entry->key.len);
    search->ns_len = entry->ns.len;
    search->key_len = entry->key.len;
    return false;
}

enum store_error hint_key(struct store_reader *reader, void *arg)
{
    const struct hint *hint = arg;
    struct search search = {.filter = hint->filter};
    const struct fence_filter all = {.limit = FENCES_LOOKED_AT};
    bool more;
    enum store_error error = store_fences_query(reader, &all, compare, &search, &more);
    if (error == STORE_OK && search.key_len > 0) {
        say(hint->out, "there is a key ");
        jsonout_escaped(hint->out, search.key, search.key_len);
        say(hint->out, " in namespace ");
        jsonout_escaped(hint->out, search.ns, search.ns_len);
    }
    return error;
}

/* ---- records ---- */

static bool found(void *arg, const struct audit_record *record)
{
    (void)record;
    *(bool *)arg = true;
    return false;
}

/* Has the key records that the other filters hide? With both names given the index answers at once. */
static enum store_error hidden(struct store_reader *reader, const struct hint *hint, bool *any)
{
    const struct audit_filter *filter = hint->filter;
    struct audit_filter wide = {.ns = filter->ns, .key = filter->key, .descending = true, .limit = 1};
    uint64_t next;
    if (wide.ns.data == NULL)
        wide.ns = (struct slice){"default", 7};
    *any = false;
    return store_audit_query(reader, &wide, found, any, &next);
}

/* Why a key with a fence has no record. */
static enum store_error no_record(struct store_reader *reader, const struct hint *hint, struct slice ns)
{
    struct effects_filter effects = {.state = EFFECTS_RUNNING, .ns = ns, .key = hint->filter->key, .limit = 1};
    struct fence fence, floor;
    bool running = false, in_doubt = false;
    uint64_t next;
    if (store_fence_get(reader, ns, hint->filter->key, &fence) != STORE_OK)
        return STORE_OK;
    enum store_error error = store_effects_query(reader, &effects, found, &running, &next);
    effects.state = EFFECTS_IN_DOUBT;
    if (error == STORE_OK)
        error = store_effects_query(reader, &effects, found, &in_doubt, &next);
    if (error != STORE_OK)
        return error;
    bool restored = store_floor_get(reader, &floor) == STORE_OK && fence.token == floor.token &&
                    fence.updated_ms == floor.updated_ms;
    if (running)
        say(hint->out,
            "a call of this key is under way and gets its record when it ends: `fencegate effects in-flight`");
    else if (in_doubt)
        say(hint->out, "a call of this key was under way when the gateway stopped: `fencegate effects in-doubt`");
    else if (restored)
        say(hint->out, "the key's fence is the one that `fencegate restore --min-token` gave to all keys");
    else
        say(hint->out, "the key has a fence, but its records are older than audit.retain, or on no record "
                       "(\"ledger\": \"drops\")");
    return STORE_OK;
}

enum store_error hint_records(struct store_reader *reader, void *arg)
{
    const struct hint *hint = arg;
    const struct audit_filter *filter = hint->filter;
    bool narrowed = filter->kind != 0 || filter->reason.data != NULL || filter->route.data != NULL ||
                    filter->since_ms != 0 || filter->until_ms != 0 || filter->id != 0 || filter->effect_id != 0;
    bool any = false;
    enum store_error error = STORE_OK;
    if (filter->key.data == NULL)
        return STORE_OK;
    if (narrowed)
        error = hidden(reader, hint, &any);
    if (any)
        say(hint->out, "the key has others: leave out --kind, --reason, --route, --since, --until, --id, --effect");
    if (error == STORE_OK && !any)
        error = hint_key(reader, arg);
    struct slice ns = filter->ns.data == NULL ? (struct slice){"default", 7} : filter->ns;
    return error == STORE_OK && hint->out->len == 0 ? no_record(reader, hint, ns) : error;
}

void hint_complain(const struct store_place *place, const char *text, const struct audit_filter *filter,
                   enum store_error (*look)(struct store_reader *reader, void *arg))
{
    struct jsonout line = {0}, found_out = {0};
    struct hint hint = {filter, &found_out};
    say(&line, text);
    if (place_read(place, look, &hint) == COMMAND_DONE && found_out.len > 0) {
        say(&line, "; ");
        jsonout_raw(&line, found_out.text, found_out.len);
    }
    jsonout_raw(&line, "", 1);
    command_complain(place->command, line.failed ? text : line.text);
    jsonout_free(&line);
    jsonout_free(&found_out);
}
