/*
 * store/leftovers.c - turns what a crash left behind into records, before the first new change. What becomes of one
 * effect is apply.c's.
 */
#include "store/leftovers.h"

#define LEFTOVERS_PER_COMMIT 64
#define DROP_PER_COMMIT 64

static enum store_error make_room(struct db *db, struct buffer *scratch)
{
    struct batch batch;
    batch_begin(&batch, db, scratch);
    size_t removed = batch_drop_oldest(&batch, DROP_PER_COMMIT);
    enum store_error error = batch_commit(&batch);
    return error == STORE_OK && removed == 0 ? STORE_FULL : error;
}

/* In steps, so that any number of leftovers fits into the reserve that was kept for them. */
enum store_error leftovers_take(struct db *db, bool drop_oldest, struct leftovers *state)
{
    struct buffer scratch = {0}, intent = {0};
    enum store_error error = STORE_OK;
    for (size_t looked = 1; looked > 0 && error == STORE_OK;) {
        struct batch batch;
        struct leftovers next = *state;
        batch_begin(&batch, db, &scratch);
        looked = batch_leftovers(&batch, &next, &intent, LEFTOVERS_PER_COMMIT);
        error = batch_commit(&batch);
        if (error == STORE_OK) {
            *state = next;
        } else if (error == STORE_FULL && drop_oldest) {
            error = make_room(db, &scratch);
            looked = 1;
        }
    }
    buffer_free(&scratch);
    buffer_free(&intent);
    return error;
}
