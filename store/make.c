/* store/make.c - see make.h. */
#include "store/make.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "store/folder.h"
#include "store/journal.h"
#include "store/lmdb.h"
#include "store/owner.h"
#include "store/part.h"

#define PATH_CAP 4096

static enum store_presence say(enum store_presence is, char *why, size_t why_cap, const char *path, const char *text)
{
    (void)snprintf(why, why_cap, "store %s: %s", path, text);
    return is;
}

/* 0, or the errno of looking for a file with this name. */
static int look_for(const char *folder, const char *name, struct stat *out)
{
    char file[PATH_CAP];
    if (snprintf(file, sizeof file, "%s/%s", folder, name) >= (int)sizeof file)
        return ENAMETOOLONG;
    return stat(file, out) == 0 ? 0 : errno;
}

/* The folder is missing: would the one above it take it? */
static enum store_presence look_above(const char *path, char *why, size_t why_cap)
{
    char above[PATH_CAP], text[PATH_CAP + 128];
    struct stat st;
    size_t len = strlen(path);
    while (len > 1 && path[len - 1] == '/')
        len--;
    while (len > 0 && path[len - 1] != '/')
        len--;
    if (len >= sizeof above)
        return say(STORE_NOT_SEEN, why, why_cap, path, strerrordesc_np(ENAMETOOLONG));
    while (len > 1 && path[len - 1] == '/')
        len--;
    (void)snprintf(above, sizeof above, "%.*s", len == 0 ? 1 : (int)len, len == 0 ? "." : path);
    if (stat(above, &st) == 0 || errno != ENOENT)
        return STORE_WOULD_BE_MADE;
    (void)snprintf(text, sizeof text,
                   "the folder above it, %s, is missing and is not made; is the path right? Make that folder if it is",
                   above);
    return say(STORE_REFUSED, why, why_cap, path, text);
}

enum store_presence store_look(const char *path, char *why, size_t why_cap)
{
    struct stat st;
    if (stat(path, &st) != 0)
        return errno == ENOENT ? look_above(path, why, why_cap)
                               : say(STORE_NOT_SEEN, why, why_cap, path, strerrordesc_np(errno));
    int part = look_for(path, PART_NAME, &st), data = look_for(path, "data.mdb", &st);
    if (part == 0)
        return say(STORE_REFUSED, why, why_cap, path,
                   data == 0 ? "there is a " PART_NAME
                               " beside data.mdb, of a backup or restore that did not end or is "
                               "under way. When none is, remove it"
                             : "a restore or backup did not end, or is under way: there is a " PART_NAME
                               " and no data.mdb, and a new store would know no fence. When none is under way, run "
                               "`fencegate restore` again; only for a new, empty store remove " PART_NAME);
    if (data == 0 && S_ISREG(st.st_mode) && st.st_size == 0)
        return say(STORE_REFUSED, why, why_cap, path,
                   "data.mdb is empty: the fences are gone. Put it back, or remove it and restore a backup; a start "
                   "without it makes a new, empty store");
    if (data == 0)
        return STORE_THERE;
    if (data != ENOENT)
        return say(STORE_NOT_SEEN, why, why_cap, path, strerrordesc_np(data));
    if (journal_used(path))
        return say(STORE_REFUSED, why, why_cap, path,
                   "there is a `" JOURNAL_NAME "` and no data.mdb: the fences are gone. Put data.mdb back, or restore "
                   "a backup; for a new, empty store remove the journal, too");
    return STORE_WOULD_BE_MADE;
}

enum store_error make_judge(const char *path, bool may, char *why, size_t why_cap)
{
    switch (store_look(path, why, why_cap)) {
    case STORE_REFUSED: return STORE_FORMAT;
    case STORE_WOULD_BE_MADE: break;
    case STORE_THERE:
    case STORE_NOT_SEEN: return STORE_OK; /* who opens it says why it can't be */
    }
    if (may)
        return STORE_OK;
    (void)say(STORE_WOULD_BE_MADE, why, why_cap, path, "there is no store in this folder");
    return STORE_NOT_FOUND;
}

static int sync_file(const char *file)
{
    int fd = open(file, O_RDWR | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return errno;
    int number = fsync(fd) != 0 ? errno : 0;
    close(fd);
    return number;
}

static enum store_error make_data(const char *path, uint64_t max_size, char *why, size_t why_cap)
{
    char fresh[PATH_CAP], data[PATH_CAP];
    if (snprintf(fresh, sizeof fresh, "%s/" NEW_NAME, path) >= (int)sizeof fresh ||
        snprintf(data, sizeof data, "%s/data.mdb", path) >= (int)sizeof data)
        return part_say(ENAMETOOLONG, path, "cannot make a store", why, why_cap);
    if (unlink(fresh) != 0 && errno != ENOENT) /* of a start that did not end */
        return part_say(errno, fresh, "cannot remove it", why, why_cap);
    enum store_error error = db_make(fresh, max_size, why, why_cap);
    owner_of_files(path);
    int number = error == STORE_OK ? sync_file(fresh) : 0;
    if (number == 0 && error == STORE_OK && rename(fresh, data) != 0)
        number = errno;
    if (number != 0)
        error = part_say(number, fresh, "cannot make a store", why, why_cap);
    if (error != STORE_OK)
        (void)unlink(fresh);
    return error == STORE_OK ? folder_sync(path, why, why_cap) : error;
}

enum store_error make_store(const char *path, bool may, uint64_t max_size, bool *made, char *why, size_t why_cap)
{
    *made = false;
    enum store_error error = make_judge(path, may, why, why_cap);
    if (error != STORE_OK || !may || store_look(path, why, why_cap) != STORE_WOULD_BE_MADE)
        return error;
    error = make_data(path, max_size, why, why_cap);
    *made = error == STORE_OK;
    return error;
}
