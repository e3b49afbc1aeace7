/* store/owner.c - see owner.h. What can't be given away stays root's: the gateway says so when it can't open it. */
#include "store/owner.h"

#include <fcntl.h>
#include <stddef.h>
#include <sys/stat.h>
#include <unistd.h>

#include "store/journal.h"
#include "store/make.h"
#include "store/part.h"

static const char *const names[] = {"data.mdb",     PART_NAME,     NEW_NAME,          "lock.mdb",   JOURNAL_NAME,
                                    "gateway.lock", "admin.token", "admin.token.new", "admin.addr", "admin.addr.new"};

static void give(int folder, const struct stat *owner, const char *name)
{
    struct stat st;
    int fd = openat(folder, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return;
    if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_uid == 0 && st.st_nlink == 1)
        (void)!fchownat(fd, "", owner->st_uid, owner->st_gid, AT_EMPTY_PATH);
    close(fd);
}

void owner_of_files(const char *folder)
{
    struct stat owner;
    int fd = geteuid() == 0 ? open(folder, O_PATH | O_DIRECTORY | O_CLOEXEC) : -1;
    if (fd < 0)
        return;
    if (fstat(fd, &owner) == 0 && owner.st_uid != 0)
        for (size_t i = 0; i < sizeof names / sizeof *names; i++)
            give(fd, &owner, names[i]);
    close(fd);
}

void owner_of_folder(const char *path)
{
    struct stat owner, st;
    int fd = geteuid() == 0 ? open(path, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC) : -1;
    if (fd < 0)
        return;
    if (fstatat(fd, "..", &owner, 0) == 0 && owner.st_uid != 0 && fstat(fd, &st) == 0 && st.st_uid == 0)
        (void)!fchownat(fd, "", owner.st_uid, owner.st_gid, AT_EMPTY_PATH);
    close(fd);
}
