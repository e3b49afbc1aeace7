/*
 * gateway/command_store.h - what the subcommands share: which store, reading it, and changing it beside a running
 * gateway or without one.
 */
#ifndef FENCEGATE_COMMAND_STORE_H
#define FENCEGATE_COMMAND_STORE_H

#include <stdbool.h>

#include "gateway/jsonout.h"
#include "store/store.h"

enum { COMMAND_DONE = 0, COMMAND_REFUSED = 1, COMMAND_USAGE = 2, COMMAND_STORE = 3 };

struct config;
struct store;

/* Set `command` and one of the next two. */
struct store_place {
    const char *command;                  /* for messages */
    const char *config_file, *store_path; /* -c FILE or --store DIR */
    const struct config *config;          /* NULL with --store */
    const char *path;
};
/* All return an exit status, and whatever is not COMMAND_DONE was said on standard error. */
int place_find(struct store_place *place);
void place_free(struct store_place *place);
int place_read(const struct store_place *place, enum store_error (*read)(struct store_reader *reader, void *arg),
               void *arg);
/* STORE_RAISE, STORE_RESET or STORE_RESOLVE with the record that it needs: through the gateway that serves this store,
 * or, when none does, in the store itself. `out` gets the JSON object that the admin listener answers (nothing for a
 * reset). */
int place_change(const struct store_place *place, enum store_op_kind kind, const struct audit_record *record,
                 struct jsonout *out);

/* Resets the fences that count (1 at least) records name, in the same way; one that is not there is passed over. *done
 * counts those that were, also when it ends early. */
int place_reset(const struct store_place *place, const struct audit_record *records, size_t count, size_t *done);

/* What the gateway that serves this store answers to a GET of {ns}/{key} under /v1/fences with `rest` behind it. False,
 * with nothing said and *out empty: none serves it, or it did not answer 200. */
bool place_ask(const struct store_place *place, struct slice ns, struct slice key, const char *rest,
               struct jsonout *out) __attribute__((warn_unused_result));

/* Says `why` and, where there is one, what to do about it; COMMAND_STORE. */
int place_complain(const struct store_place *place, enum store_error error, const char *why);
void command_complain(const char *command, const char *text);
/* Says when what the store's gateway recorded last can't be seen in this store, opened for reading. */
void command_tell_behind(const char *command, const struct store *store);
bool command_behind(void); /* that was said: what is not found may be there all the same */
/* The exit status of a command that has come to `status`: who reads what was shown must not take it for the state of
 * things when that was said. */
int command_status(int status);
bool command_flush(const char *command); /* false: standard output failed, which was said unless `command` is NULL */

#endif
