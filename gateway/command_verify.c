/* gateway/command_verify.c - `fencegate verify`: looks at everything in a store, and says what is wrong with it. */
#include "gateway/command.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "gateway/command_options.h"
#include "gateway/command_store.h"
#include "gateway/command_whole.h"

#define WHY_CAP 1024

static int tell(const struct command_line *line, const struct store_contents *contents, uint64_t findings)
{
    struct jsonout out = {0};
    char text[64];
    if (line->json) {
        jsonout_object_begin(&out);
        jsonout_member_cstring(&out, "store", line->place.path);
        jsonout_member_number(&out, "findings", findings);
        whole_contents_json(&out, contents);
        jsonout_object_end(&out);
    } else {
        if (findings > FINDINGS_SHOWN)
            printf("... and %" PRIu64 " more\n", findings - FINDINGS_SHOWN);
        jsonout_escaped(&out, line->place.path, strlen(line->place.path));
        snprintf(text, sizeof text, ": %" PRIu64 " finding%s; ", findings, findings == 1 ? "" : "s");
        jsonout_raw(&out, findings == 0 ? ": sound; " : text, strlen(findings == 0 ? ": sound; " : text));
        whole_contents(&out, contents);
    }
    int status = whole_print("verify", &out);
    return status == COMMAND_DONE && findings > 0 ? COMMAND_REFUSED : status;
}

static int run(struct command_line *line)
{
    struct findings findings = {.json = line->json};
    struct store_checker checker = {whole_finding, whole_alive, &findings};
    struct store_contents contents;
    struct store *store = NULL;
    uint64_t count = 0;
    char why[WHY_CAP] = "";
    whole_guard("verify", line->place.path);
    enum store_error error = store_open_readonly(line->place.path, &store, why, sizeof why);
    if (error == STORE_OK) {
        command_tell_behind("verify", store);
        error = store_verify(store, &checker, &contents, &count);
        snprintf(why, sizeof why, "%s: data.mdb can't be read to its end, it is damaged or the disk fails",
                 line->place.path);
    }
    store_close(&store);
    if (error == STORE_OK)
        return tell(line, &contents, count);
    command_complain("verify", why);
    return COMMAND_STORE;
}

const struct command command_verify = {
    .name = "verify",
    .summary = "look at everything in a store or a backup, and say what is wrong with it",
    .notes = "Changes nothing, but for the journal of a gateway that was killed: it is brought in. Exit status: 0 "
             "sound, 1 findings, 3 it can't be read.\n",
    .place = PLACE_STORE,
    .json = true,
    .actions = command_no_words,
    .action_count = 1,
    .size = sizeof(struct command_line),
    .run = run,
};
