/*
 * store/folder.c - makes the store's folder, refuses remote file systems, and lets one server in.
 *
 * LMDB itself lets a second server open the same files, so gateway.lock keeps it out: flock(2) belongs to the open
 * file, goes with the process however it ends, and is no business of LMDB's fcntl locks. Who removes a lock file makes
 * room for two owners: only a failed restore removes the one that it made, while it has the lock, and whoever gets the
 * lock looks whether the file still has its name.
 */
#include "store/folder.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "store/owner.h"

#define PATH_CAP 4096

struct folder {
    struct folder *next;
    dev_t dev;
    ino_t ino;
    int lock_fd; /* -1 when reading only */
    bool made, made_lock;
};

/* The folders this process is in. */
static pthread_mutex_t entered_lock = PTHREAD_MUTEX_INITIALIZER;
static struct folder *entered;

static enum store_error say(enum store_error error, char *why, size_t why_cap, const char *path, const char *what,
                            int number)
{
    (void)snprintf(why, why_cap, "store %s: %s%s%s", path, what, number ? ": " : "",
                   number ? strerrordesc_np(number) : "");
    return error;
}

static enum store_error error_of(int number)
{
    return number == ENOSPC || number == EDQUOT ? STORE_FULL : STORE_IO;
}

const char *folder_remote_type(uint64_t magic)
{
    static const struct {
        uint32_t magic;
        const char *name;
    } remote[] = {
        {0x00006969, "NFS"},  {0x0000517b, "SMB"}, {0xff534d42, "CIFS"},   {0xfe534d42, "SMB2"},
        {0x01021997, "9P"},   {0x5346414f, "AFS"}, {0x6b414653, "AFS"},    {0x00c36400, "Ceph"},
        {0x73757245, "Coda"}, {0x0000564c, "NCP"}, {0x0bd00bd0, "Lustre"},
    };
    for (size_t i = 0; i < sizeof remote / sizeof *remote; i++) {
        if (magic == remote[i].magic)
            return remote[i].name;
    }
    return NULL;
}

static int sync_folder(const char *path)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return errno;
    int rc = fsync(fd) != 0 ? errno : 0;
    close(fd);
    return rc;
}

/* Makes one folder; the entry in the folder above is synced, else a power cut could take the store's name away. */
static int make_folder(const char *path, bool *made)
{
    *made = mkdir(path, 0700) == 0;
    if (!*made) {
        /* What exists may refuse mkdir in its own way (read-only, not ours): only what is missing counts. */
        int number = errno;
        struct stat st;
        return number == EEXIST || stat(path, &st) == 0 ? 0 : number;
    }
    owner_of_folder(path);
    char parent[PATH_CAP + 4];
    (void)snprintf(parent, sizeof parent, "%s/..", path);
    int number = sync_folder(parent);
    return number == EACCES ? 0 : number; /* one where we may make names but not read them */
}

int folder_make(const char *path, size_t *made)
{
    char part[PATH_CAP];
    size_t len = strlen(path), none = 0;
    made = made == NULL ? &none : made;
    *made = 0;
    if (len == 0 || len >= sizeof part)
        return len == 0 ? ENOENT : ENAMETOOLONG;
    memcpy(part, path, len + 1);
    for (size_t i = 1; i <= len; i++) {
        if (part[i] != '/' && part[i] != '\0')
            continue;
        part[i] = '\0';
        bool new_one;
        int number = make_folder(part, &new_one);
        if (new_one && *made == 0)
            *made = i;
        if (number != 0)
            return number;
        part[i] = path[i];
    }
    return 0;
}

void folder_unmake(const char *path, size_t made)
{
    char part[PATH_CAP];
    size_t len = strlen(path);
    if (made == 0 || len >= sizeof part)
        return;
    memcpy(part, path, len + 1);
    for (size_t i = len; i >= made; i--) {
        if (path[i] != '/' && path[i] != '\0')
            continue;
        part[i] = '\0';
        if (rmdir(part) != 0 && errno != ENOENT)
            return;
    }
}

static bool among(const char *name, const char *const *names, size_t count)
{
    size_t i = 0;
    while (i < count && strcmp(name, names[i]) != 0)
        i++;
    return i < count;
}

int folder_holds_only(const char *path, const char *const *names, size_t count, char found[256])
{
    static const char *const always[] = {".", "..", "lost+found"};
    DIR *folder = opendir(path);
    if (!folder)
        return errno;
    struct dirent *entry;
    int number = 0;
    errno = 0;
    while (number == 0 && (entry = readdir(folder)) != NULL) {
        if (among(entry->d_name, always, 3) || among(entry->d_name, names, count))
            continue;
        (void)snprintf(found, 256, "%s", entry->d_name);
        number = EEXIST;
    }
    number = number == 0 ? errno : number;
    closedir(folder);
    return number;
}

static enum store_error judge(const char *path, struct stat *st, char *why, size_t why_cap)
{
    struct statfs fs;
    if (stat(path, st) != 0 || statfs(path, &fs) != 0) {
        int number = errno;
        if (number == ENOENT || number == ENOTDIR)
            return say(STORE_NOT_FOUND, why, why_cap, path, "there is no store in this folder", number);
        return say(error_of(number), why, why_cap, path, "cannot open", number);
    }
    if (!S_ISDIR(st->st_mode))
        return say(STORE_IO, why, why_cap, path, "is not a folder", 0);
    const char *remote = folder_remote_type((uint32_t)fs.f_type);
    if (remote) {
        (void)snprintf(why, why_cap, "store %s: is on a remote file system (%s), where locks and maps are not safe",
                       path, remote);
        return STORE_IO;
    }
    return STORE_OK;
}

static bool has_name(int fd, const char *file)
{
    struct stat opened, named;
    return fstat(fd, &opened) == 0 && stat(file, &named) == 0 && opened.st_ino == named.st_ino &&
           opened.st_dev == named.st_dev;
}

static enum store_error take_lock(const char *path, struct folder *folder, char *why, size_t why_cap)
{
    char file[PATH_CAP];
    int *fd = &folder->lock_fd;
    if (snprintf(file, sizeof file, "%s/gateway.lock", path) >= (int)sizeof file)
        return say(STORE_IO, why, why_cap, path, "cannot open gateway.lock", ENAMETOOLONG);
    *fd = open(file, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    folder->made_lock = *fd >= 0;
    if (*fd < 0 && errno == EEXIST)
        *fd = open(file, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (*fd < 0)
        return say(error_of(errno), why, why_cap, path, "cannot open gateway.lock", errno);
    int rc;
    do
        rc = flock(*fd, LOCK_EX | LOCK_NB);
    while (rc != 0 && errno == EINTR);
    if (rc == 0 && has_name(*fd, file))
        return STORE_OK;
    int number = rc == 0 ? EWOULDBLOCK : errno;
    close(*fd);
    *fd = -1;
    folder->made_lock = false;
    if (number == EWOULDBLOCK)
        return say(STORE_BUSY, why, why_cap, path, "is in use by another process", 0);
    return say(STORE_IO, why, why_cap, path, "cannot lock gateway.lock", number);
}

/* Shared, so that looks don't get into each other's way; who wants to serve in that moment tries again. */
bool folder_served(const char *path)
{
    char file[PATH_CAP];
    if (snprintf(file, sizeof file, "%s/gateway.lock", path) >= (int)sizeof file)
        return false;
    int fd = open(file, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return errno != ENOENT && errno != ENOTDIR; /* not known: who may not look must not say that nobody serves it */
    bool served = flock(fd, LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK;
    close(fd);
    return served;
}

static bool enter_once(struct folder *folder)
{
    pthread_mutex_lock(&entered_lock);
    struct folder *other = entered;
    while (other && (other->dev != folder->dev || other->ino != folder->ino))
        other = other->next;
    if (!other) {
        folder->next = entered;
        entered = folder;
    }
    pthread_mutex_unlock(&entered_lock);
    return !other;
}

enum store_error folder_enter(const char *path, bool readonly, struct folder **out, char *why, size_t why_cap)
{
    *out = NULL;
    bool made = false;
    int number = readonly ? 0 : strlen(path) >= PATH_CAP ? ENAMETOOLONG : make_folder(path, &made);
    if (number != 0)
        return say(error_of(number), why, why_cap, path, "cannot make the folder", number);
    struct stat st;
    enum store_error error = judge(path, &st, why, why_cap);
    if (error != STORE_OK)
        return error;
    struct folder *folder = calloc(1, sizeof *folder);
    if (!folder)
        return say(STORE_IO, why, why_cap, path, "out of memory", 0);
    *folder = (struct folder){.dev = st.st_dev, .ino = st.st_ino, .lock_fd = -1, .made = made};
    if (!enter_once(folder)) {
        free(folder);
        return say(STORE_BUSY, why, why_cap, path, "is already open in this process", 0);
    }
    *out = folder;
    if (!readonly)
        error = take_lock(path, folder, why, why_cap);
    if (error != STORE_OK) {
        folder_undo(folder, path);
        folder_leave(out);
    }
    return error;
}

void folder_undo(const struct folder *folder, const char *path)
{
    char lock[PATH_CAP];
    if (folder == NULL || snprintf(lock, sizeof lock, "%s/gateway.lock", path) >= (int)sizeof lock)
        return;
    if (folder->made_lock)
        (void)unlink(lock);
    if (folder->made)
        (void)rmdir(path);
}

void folder_leave(struct folder **folder)
{
    if (!*folder)
        return;
    pthread_mutex_lock(&entered_lock);
    struct folder **at = &entered;
    while (*at != *folder)
        at = &(*at)->next;
    *at = (*folder)->next;
    pthread_mutex_unlock(&entered_lock);
    if ((*folder)->lock_fd >= 0)
        close((*folder)->lock_fd);
    free(*folder);
    *folder = NULL;
}

enum store_error folder_sync(const char *path, char *why, size_t why_cap)
{
    int number = sync_folder(path);
    if (number != 0)
        return say(error_of(number), why, why_cap, path, "cannot sync the folder", number);
    return STORE_OK;
}
