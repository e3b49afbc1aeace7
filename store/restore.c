/*
 * store/restore.c - puts a backup into a store's folder, and lifts what is in it over what the world has seen since.
 *
 * All is done to data.mdb.part, which becomes data.mdb in the end: a restore that failed or was killed leaves no store
 * behind. gateway.lock is held all the while, so that no gateway starts an empty one meanwhile.
 *
 * A backup is older than the world: tokens above its fences have been accepted since, and ids given out. The fences can
 * be lifted to a floor that the lock service's numbers give; the ids go on so far above that nobody's note of an effect
 * means another one.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "store/fence.h"
#include "store/folder.h"
#include "store/journal.h"
#include "store/leftovers.h"
#include "store/make.h"
#include "store/owner.h"
#include "store/part.h"
#include "store/verify.h"

#define COPY_BYTES ((size_t)1 << 20)
#define FENCES_PER_COMMIT 4096
#define IDS_LEFT_OUT 1000000000 /* more than any gateway gives out between two backups */
#define MAP_SPARE ((uint64_t)64 << 20)

struct job {
    const struct store_restore *restore;
    struct store_contents *out;
    struct part part;
    struct db *db;
    struct buffer scratch;
    char *why;
    size_t why_cap;
};

static enum store_error say(struct job *job, enum store_error error, const char *text)
{
    (void)snprintf(job->why, job->why_cap, "%s: %s", job->restore->from, text);
    return error;
}

static void alive(const struct job *job)
{
    if (job->restore->checker.alive)
        job->restore->checker.alive(job->restore->checker.arg);
}

/* A store that is served is no backup: its file changes while it is read. The lock is kept while it is. */
static enum store_error lock_source(struct job *job, int *fd)
{
    char file[PART_PATH_CAP];
    (void)snprintf(file, sizeof file, "%.*s/gateway.lock", PART_PATH_CAP - 16, job->restore->from);
    *fd = open(file, O_RDONLY | O_CLOEXEC);
    if (*fd < 0 || flock(*fd, LOCK_SH | LOCK_NB) == 0 || errno != EWOULDBLOCK)
        return STORE_OK;
    return say(job, STORE_BUSY, "is a store in use by another process, not a backup");
}

static enum store_error copy_bytes(struct job *job, int from)
{
    char *bytes = malloc(COPY_BYTES);
    ssize_t len = 0;
    int number = bytes == NULL ? ENOMEM : 0;
    while (number == 0 && (len = read(from, bytes, COPY_BYTES)) != 0) {
        if (len < 0) {
            number = errno == EINTR ? 0 : errno;
            continue;
        }
        for (ssize_t done = 0, part; done < len && number == 0; done += part) {
            part = write(job->part.fd, bytes + done, (size_t)(len - done));
            if (part < 0) {
                number = errno == EINTR ? 0 : errno;
                part = 0;
            }
        }
        alive(job);
    }
    free(bytes);
    return number == 0 ? STORE_OK : part_say(number, job->part.path, "cannot copy the backup", job->why, job->why_cap);
}

static enum store_error copy_in(struct job *job)
{
    char file[PART_PATH_CAP];
    int lock = -1;
    (void)snprintf(file, sizeof file, "%.*s/data.mdb", PART_PATH_CAP - 16, job->restore->from);
    int from = open(file, O_RDONLY | O_CLOEXEC);
    if (from < 0)
        return errno == ENOENT ? say(job, STORE_NOT_FOUND, "there is no backup in this folder")
                               : part_say(errno, file, "cannot read it", job->why, job->why_cap);
    enum store_error error = lock_source(job, &lock);
    if (error == STORE_OK)
        error = copy_bytes(job, from);
    if (lock >= 0)
        close(lock);
    close(from);
    return error;
}

static enum store_error verify(struct job *job)
{
    struct db_txn txn;
    uint64_t findings = 0;
    enum store_error error = db_read_open(job->db, &txn);
    if (error == STORE_OK)
        error = verify_db(&txn, &job->restore->checker, job->out, &findings);
    db_read_close(&txn);
    if (error != STORE_OK)
        return say(job, error, "the backup cannot be read");
    return findings == 0 ? STORE_OK : say(job, STORE_DAMAGED, "the backup is damaged; nothing was restored");
}

/* What is wrong with the copy is wrong with the backup: that is what whoever reads it can look at. */
static void rename_part(struct job *job)
{
    char text[512];
    size_t len = strlen(job->part.path);
    const char *at = strstr(job->why, job->part.path);
    if (at == NULL)
        return;
    (void)snprintf(text, sizeof text, "%s", at + len);
    (void)snprintf(job->why, job->why_cap, "backup %s%s", job->restore->from, text);
}

static enum store_error open_part(struct job *job)
{
    struct stat st;
    if (fstat(job->part.fd, &st) != 0)
        return part_say(errno, job->part.path, "cannot look at it", job->why, job->why_cap);
    uint64_t room = 2 * (uint64_t)st.st_size + MAP_SPARE; /* of this process alone: the gateway opens with its own */
    enum store_error error = db_open_file(job->part.path, room, &job->db, job->why, job->why_cap);
    if (error == STORE_NOT_FOUND)
        error = say(job, STORE_NOT_FOUND, "data.mdb holds no store; nothing was restored");
    if (error == STORE_FORMAT)
        rename_part(job);
    return error;
}

static enum store_error skip_ids(struct job *job)
{
    struct batch batch;
    batch_begin(&batch, job->db, &job->scratch);
    batch.next_id += IDS_LEFT_OUT;
    db_forget_id(&batch.txn); /* the gateway of the store that was backed up may run beside this one's */
    return batch_commit(&batch);
}

static enum store_error raise_fences(struct job *job, struct db_floor floor)
{
    struct fence_position at = {.len = 1};
    enum store_error error = STORE_OK;
    for (size_t looked = FENCES_PER_COMMIT; looked == FENCES_PER_COMMIT && error == STORE_OK;) {
        struct batch batch;
        batch_begin(&batch, job->db, &job->scratch);
        looked = fence_raise_all(&batch.txn, floor, &at, FENCES_PER_COMMIT);
        error = batch_commit(&batch);
        alive(job);
    }
    job->out->raised = at.raised;
    return error;
}

/* A restore may take fences back, which only a reset does otherwise: whoever watches for resets should hear of it. With
 * a floor it is a raise of all of them. */
static enum store_error write_record(struct job *job, struct db_floor floor)
{
    struct batch batch;
    char note[160];
    struct store_op op = {.record = {.kind = job->restore->min_token == 0 ? AUDIT_RESET : AUDIT_RAISED,
                                     .reason = {"restored", 8},
                                     .token = job->restore->min_token,
                                     .highest = job->restore->min_token}};
    (void)snprintf(note, sizeof note, "from a backup whose newest record is %" PRIu64, job->out->newest_id);
    op.record.note = (struct slice){note, strlen(note)};
    batch_begin(&batch, job->db, &job->scratch);
    batch_record(&batch, &op);
    if (floor.token > db_floor(job->db).token)
        db_put_floor(&batch.txn, floor);
    return batch_commit(&batch);
}

static enum store_error lift(struct job *job)
{
    const struct db_floor floor = {job->restore->min_token, batch_clock_ms()};
    struct leftovers left = {.of_copy = true};
    enum store_error error = skip_ids(job);
    if (error == STORE_OK)
        error = leftovers_take(job->db, false, &left);
    if (error == STORE_OK && floor.token != 0)
        error = raise_fences(job, floor);
    if (error == STORE_OK)
        error = write_record(job, floor);
    job->out->effects = left.in_doubt;
    if (floor.token > job->out->floor)
        job->out->floor = floor.token;
    if (error != STORE_OK)
        (void)snprintf(job->why, job->why_cap, "%s: %s", job->part.path,
                       error == STORE_FULL ? "no room on the disk" : "cannot write it");
    return error;
}

/* What a gateway leaves beside its store; an empty folder for all that. */
static const char *const beside[] = {"gateway.lock", "lock.mdb",        JOURNAL_NAME, NEW_NAME,
                                     "admin.token",  "admin.token.new", "admin.addr", "admin.addr.new"};
#define BESIDE_COUNT (sizeof beside / sizeof *beside)

static enum store_error fill_folder(struct job *job)
{
    enum store_error error = part_begin(&job->part, job->restore->path, beside, BESIDE_COUNT, job->why, job->why_cap);
    if (error == STORE_OK)
        error = copy_in(job);
    if (error == STORE_OK)
        error = open_part(job);
    if (error == STORE_OK)
        error = verify(job);
    if (error == STORE_OK)
        error = lift(job);
    db_close(&job->db);
    buffer_free(&job->scratch);
    if (error == STORE_OK)
        journal_forget(job->restore->path);
    if (error == STORE_OK)
        error = part_finish(&job->part, job->why, job->why_cap);
    part_drop(&job->part);
    return error;
}

enum store_error store_restore(const struct store_restore *restore, struct store_contents *out, char *why,
                               size_t why_cap)
{
    struct job job = {.restore = restore, .out = out, .part.fd = -1, .why = why, .why_cap = why_cap};
    struct folder *folder = NULL;
    *out = (struct store_contents){0};
    enum store_error error = part_look(restore->path, beside, BESIDE_COUNT, why, why_cap);
    if (error != STORE_OK)
        return error; /* before the lock's file is made in it */
    size_t made;
    int number = folder_make(restore->path, &made);
    if (number != 0)
        error = part_say(number, restore->path, "cannot make the folder", why, why_cap);
    else
        error = folder_enter(restore->path, false, &folder, why, why_cap);
    if (error == STORE_OK)
        error = fill_folder(&job);
    owner_of_files(restore->path);
    if (error != STORE_OK)
        folder_undo(folder, restore->path);
    folder_leave(&folder);
    if (error != STORE_OK)
        folder_unmake(restore->path, made);
    return error;
}
