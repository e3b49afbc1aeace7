/*
 * gateway/command_hint.h - what to try when nothing was found.
 */
#ifndef FENCEGATE_COMMAND_HINT_H
#define FENCEGATE_COMMAND_HINT_H

#include "gateway/command_store.h"
#include "gateway/jsonout.h"
#include "store/store.h"

/* Each writes half a sentence, or nothing, into `out`; errors of the store end the search. */
struct hint {
    const struct audit_filter *filter; /* what found no record; a fence look-up sets `ns` and `key` alone */
    struct jsonout *out;
};
/* For an audit that found nothing: other records of the key, the key in another spelling or namespace. `arg` is a
 * struct hint, so that both can be given to place_read(). */
enum store_error hint_records(struct store_reader *reader, void *arg);
/* For a key without a fence: another spelling or namespace. */
enum store_error hint_key(struct store_reader *reader, void *arg);

/* Says `text` and, behind it, what `look` (one of the two) finds for `filter`. */
void hint_complain(const struct store_place *place, const char *text, const struct audit_filter *filter,
                   enum store_error (*look)(struct store_reader *reader, void *arg));

#endif
