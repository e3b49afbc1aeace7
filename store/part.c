/*
 * store/part.c - a file that gets its name when it is whole. What goes into it is backup.c's and restore.c's.
 */
#include "store/part.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "store/folder.h"
#include "store/owner.h"

enum store_error part_say(int number, const char *path, const char *what, char *why, size_t why_cap)
{
    (void)snprintf(why, why_cap, "%s: %s%s%s", path, what, number ? ": " : "", number ? strerrordesc_np(number) : "");
    return number == ENOSPC || number == EDQUOT || number == EFBIG ? STORE_FULL : STORE_IO;
}

enum store_error part_look(const char *folder, const char *const *names, size_t count, char *why, size_t why_cap)
{
    const char *known[16] = {PART_NAME};
    char found[256], what[320];
    for (size_t i = 0; i < count && i < 15; i++)
        known[i + 1] = names[i];
    int number = folder_holds_only(folder, known, count + 1, found);
    if (number == 0 || number == ENOENT)
        return STORE_OK;
    if (number != EEXIST)
        return part_say(number, folder, "cannot look into the folder", why, why_cap);
    if (strcmp(found, "data.mdb") == 0)
        (void)snprintf(what, sizeof what, "there is a store in this folder");
    else
        (void)snprintf(what, sizeof what, "the folder is not empty (%s)", found);
    (void)part_say(0, folder, what, why, why_cap);
    return STORE_ALREADY;
}

/* The name is synced at once: after a power cut it shows that a store is on its way, and keeps a start from making an
 * empty one. Looks once it has the lock, since another may just have finished; and before, to leave nothing in a folder
 * that it refuses. */
enum store_error part_begin(struct part *part, const char *folder, const char *const *names, size_t count, char *why,
                            size_t why_cap)
{
    *part = (struct part){.folder = folder, .fd = -1};
    if (snprintf(part->path, sizeof part->path, "%s/" PART_NAME, folder) >= (int)sizeof part->path)
        return part_say(ENAMETOOLONG, folder, "cannot make " PART_NAME, why, why_cap);
    enum store_error error = part_look(folder, names, count, why, why_cap);
    if (error != STORE_OK)
        return error;
    int fd = open(part->path, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0)
        return part_say(errno, part->path, "cannot make it", why, why_cap);
    if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
        int number = errno;
        close(fd);
        (void)part_say(number == EWOULDBLOCK ? 0 : number, part->path, "another backup or restore is writing it", why,
                       why_cap);
        return STORE_BUSY;
    }
    part->fd = fd;
    owner_of_files(folder);
    error = part_look(folder, names, count, why, why_cap);
    if (error == STORE_OK && (ftruncate(fd, 0) != 0 || fchmod(fd, 0600) != 0))
        error = part_say(errno, part->path, "cannot write it", why, why_cap);
    return error == STORE_OK ? folder_sync(folder, why, why_cap) : error;
}

enum store_error part_finish(struct part *part, char *why, size_t why_cap)
{
    char name[PART_PATH_CAP];
    (void)snprintf(name, sizeof name, "%.*s/data.mdb", PART_PATH_CAP - 16, part->folder);
    if (fsync(part->fd) != 0)
        return part_say(errno, part->path, "cannot sync it", why, why_cap);
    if (rename(part->path, name) != 0)
        return part_say(errno, part->path, "cannot give it its name", why, why_cap);
    part->path[0] = '\0';
    return folder_sync(part->folder, why, why_cap);
}

void part_drop(struct part *part)
{
    if (part->fd < 0)
        return;
    if (part->path[0] != '\0')
        (void)unlink(part->path);
    close(part->fd);
    part->fd = -1;
}
