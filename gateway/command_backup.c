/* gateway/command_backup.c - `fencegate backup` and `fencegate restore`: the store, out and back in. */
#include "gateway/command.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "gateway/command_options.h"
#include "gateway/command_store.h"
#include "gateway/command_whole.h"
#include "gateway/token.h"

#define WHY_CAP 1024
#define TOKENS_LEAST 1000000 /* with fewer left above --min-token it was hardly meant so */

struct arguments {
    struct command_line line;
    struct slice folder;
    uint64_t min_token; /* 0: not given */
};

static void say(struct jsonout *out, const char *text)
{
    jsonout_raw(out, text, strlen(text));
}

static int refuse(const char *command, enum store_error error, const char *why)
{
    command_complain(command, why);
    return error == STORE_ALREADY || error == STORE_DAMAGED || error == STORE_NOT_FOUND ? COMMAND_REFUSED
                                                                                        : COMMAND_STORE;
}

/* ---- backup ---- */

static int run_backup(struct command_line *line)
{
    const char *folder = ((const struct arguments *)line)->folder.data;
    struct store_contents contents;
    struct store *store = NULL;
    struct jsonout out = {0}, path = {0};
    char why[WHY_CAP] = "";
    whole_guard("backup", line->place.path);
    enum store_error error = store_open_readonly(line->place.path, &store, why, sizeof why);
    if (error != STORE_OK) {
        command_complain("backup", why);
        return COMMAND_STORE;
    }
    (void)alarm(0); /* one copy without a sign of life in between */
    error = store_backup(store, folder, &contents, why, sizeof why);
    store_close(&store);
    if (error != STORE_OK)
        return refuse("backup", error, why);
    say(&path, folder);
    say(&path, "/data.mdb");
    if (line->json) {
        jsonout_object_begin(&out);
        jsonout_member_string(&out, "path", path.text, path.len);
        whole_contents_json(&out, &contents);
        jsonout_object_end(&out);
    } else {
        char bytes[48];
        snprintf(bytes, sizeof bytes, ": %" PRIu64 " bytes, ", contents.bytes);
        jsonout_escaped(&out, path.text == NULL ? "" : path.text, path.len);
        say(&out, bytes);
        whole_contents(&out, &contents);
    }
    jsonout_free(&path);
    return whole_print("backup", &out);
}

static const struct command_action backup_words[] = {
    {.words = {{.name = "DIR", .at = offsetof(struct arguments, folder)}}}};

const struct command command_backup = {
    .name = "backup",
    .summary = "copy the store into the empty or missing folder DIR, beside a running gateway or not",
    .notes = "The copy is consistent, compacted and synced; half a one never has the name data.mdb.\n",
    .place = PLACE_STORE,
    .json = true,
    .actions = backup_words,
    .action_count = 1,
    .size = sizeof(struct arguments),
    .run = run_backup,
};

/* ---- restore ---- */

static void tell_people(const struct arguments *arguments, const struct store_contents *contents, struct jsonout *out)
{
    const char *path = arguments->line.place.path;
    char text[400];
    jsonout_escaped(out, path, strlen(path));
    say(out, ": restored; ");
    whole_contents(out, contents);
    say(out, "\n");
    if (arguments->min_token != 0) {
        snprintf(text, sizeof text,
                 "No token below %" PRIu64 " passes for any key now; fences raised to it: %" PRIu64
                 ". The lock service "
                 "must go on above it.\n",
                 arguments->min_token, contents->raised);
        say(out, text);
    }
    if (contents->effects > 0)
        say(out, "Effects are in doubt: ask the partner about each, then `fencegate effects resolve`.\n");
    say(out, "Calls sent after the backup was made are on no record here: compare with the partner.");
}

static int run_restore(struct command_line *line)
{
    const struct arguments *arguments = (const struct arguments *)line;
    struct findings findings = {.json = line->json};
    const struct store_restore restore = {.from = arguments->folder.data,
                                          .path = line->place.path,
                                          .min_token = arguments->min_token,
                                          .checker = {whole_finding, whole_alive, &findings}};
    struct store_contents contents;
    struct jsonout out = {0};
    char why[WHY_CAP] = "";
    whole_guard("restore", restore.from);
    enum store_error error = store_restore(&restore, &contents, why, sizeof why);
    if (error != STORE_OK)
        return refuse("restore", error, why);
    if (line->json) {
        jsonout_object_begin(&out);
        jsonout_member_cstring(&out, "store", restore.path);
        whole_contents_json(&out, &contents);
        jsonout_member_number(&out, "raised", contents.raised);
        jsonout_object_end(&out);
    } else {
        tell_people(arguments, &contents, &out);
    }
    if (arguments->min_token > UINT64_MAX - TOKENS_LEAST)
        command_complain("restore",
                         "warning: the lock service can hardly go on above this --min-token: the highest token there "
                         "is is 18446744073709551615. If N was not meant so, remove this store before a gateway serves "
                         "it, and restore with the highest token that was issued");
    if (arguments->min_token == 0)
        command_complain("restore",
                         "warning: the fences are as old as the backup, so tokens that have become stale since pass "
                         "again. Unless no worker with an older lease is alive, remove this store before a gateway "
                         "serves it, and restore with --min-token N: the highest token that was issued");
    return whole_print("restore", &out);
}

static const char *take_min_token(void *arguments, struct slice value)
{
    return token_parse(value.data, value.len, &((struct arguments *)arguments)->min_token)
               ? NULL
               : "a token is 1 to 20 digits with a value from 1 to 18446744073709551615";
}

static const struct command_option restore_options[] = {
    {"min-token", "N", "no token below N passes any more, for any key", .take = take_min_token},
};
static const struct command_action restore_words[] = {
    {.words = {{.name = "BACKUP", .at = offsetof(struct arguments, folder)}}}};

const struct command command_restore = {
    .name = "restore",
    .summary = "put the backup in the folder BACKUP into an empty or missing store",
    .notes =
        "The backup is verified before. Exit status 1: it is damaged, or the store's folder has something in it.\n",
    .place = PLACE_STORE,
    .json = true,
    .actions = restore_words,
    .action_count = 1,
    .options = restore_options,
    .option_count = sizeof restore_options / sizeof restore_options[0],
    .size = sizeof(struct arguments),
    .run = run_restore,
};
