/*
 * store/lmdb_file.c - the store's file as a whole: is it all there, and a copy of it.
 *
 * Where a copy goes and under which name is left to backup.c.
 */
#include "store/lmdb_int.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Pages of LMDB's data format 1, of a 64-bit little-endian machine; others do without this check. To read a page that
 * lies behind the file's end through the map is SIGBUS, so they are read by pread() here, and no number in them is
 * trusted. */
#define PAGE_HEAD 16 /* number (8), pad (2), flags (2), end of the offsets (2), begin of the nodes (2) */
#define NODE_HEAD 8
#define NODE_BIG 1 /* the value is a page number: the value itself lies there */
#define PAGE_BRANCH 1
#define DEPTH_MAX 16
#define META_DEPTH 30 /* of the free table's tree; places in a root page, behind the page's head */
#define META_ROOT 64
#define META_LAST 120
#define META_TXN 128
#define META_BYTES 136

struct file {
    int fd;
    uint64_t page_bytes, pages; /* whole ones */
    uint64_t free_behind;       /* free pages that lie behind them */
    uint64_t behind;            /* from this number on */
};

static uint64_t number_at(const char *bytes, size_t size)
{
    uint64_t number = 0;
    memcpy(&number, bytes, size);
    return number;
}

static int read_at(const struct file *file, uint64_t offset, char *out, size_t len)
{
    while (len > 0) {
        ssize_t got = pread(file->fd, out, len, (off_t)offset);
        if (got == 0)
            return MDB_CORRUPTED;
        if (got < 0 && errno != EINTR)
            return errno;
        got = got < 0 ? 0 : got;
        out += got;
        len -= (size_t)got;
        offset += (uint64_t)got;
    }
    return 0;
}

/* A list: its length, then page numbers that descend. */
static int count_list(struct file *file, uint64_t offset, uint64_t len)
{
    char *list = malloc(len);
    if (list == NULL)
        return ENOMEM;
    int rc = read_at(file, offset, list, len);
    for (uint64_t at = 8; rc == 0 && at + 8 <= len && number_at(list + at, 8) >= file->behind; at += 8)
        file->free_behind++;
    free(list);
    return rc;
}

static int count_node(struct file *file, uint64_t page, const char *bytes, uint64_t node)
{
    uint64_t len = number_at(bytes + node, 4), key = number_at(bytes + node + 6, 2), offset = node + NODE_HEAD + key;
    if ((number_at(bytes + node + 4, 2) & NODE_BIG) == 0) {
        if (offset + len > file->page_bytes)
            return MDB_CORRUPTED;
        return count_list(file, page * file->page_bytes + offset, len);
    }
    if (offset + 8 > file->page_bytes)
        return MDB_CORRUPTED;
    uint64_t big = number_at(bytes + offset, 8);
    if (big >= file->pages || len > (file->pages - big) * file->page_bytes - PAGE_HEAD)
        return MDB_CORRUPTED;
    return count_list(file, big * file->page_bytes + PAGE_HEAD, len);
}

static int count_tree(struct file *file, uint64_t page, unsigned depth)
{
    if (page >= file->pages || depth == 0)
        return MDB_CORRUPTED;
    char *bytes = malloc(file->page_bytes);
    if (bytes == NULL)
        return ENOMEM;
    int rc = read_at(file, page * file->page_bytes, bytes, file->page_bytes);
    uint64_t end = rc == 0 ? number_at(bytes + 12, 2) : 0;
    if (rc == 0 && (end < PAGE_HEAD || end > file->page_bytes))
        rc = MDB_CORRUPTED;
    for (uint64_t at = PAGE_HEAD; rc == 0 && at + 2 <= end; at += 2) {
        uint64_t node = number_at(bytes + at, 2);
        if (node + NODE_HEAD > file->page_bytes)
            rc = MDB_CORRUPTED;
        else if (number_at(bytes + 10, 2) & PAGE_BRANCH)
            rc = count_tree(file, number_at(bytes + node, 6), depth - 1);
        else
            rc = count_node(file, page, bytes, node);
    }
    free(bytes);
    return rc;
}

/* The newer of the two root pages. */
static int read_root(const struct file *file, char out[META_BYTES])
{
    char other[META_BYTES];
    int rc = read_at(file, PAGE_HEAD, out, META_BYTES);
    if (rc == 0)
        rc = read_at(file, file->page_bytes + PAGE_HEAD, other, META_BYTES);
    if (rc == 0 && number_at(other + META_TXN, 8) > number_at(out + META_TXN, 8))
        memcpy(out, other, META_BYTES);
    return rc;
}

static int whole_pages(struct file *file)
{
    struct stat st;
    if (fstat(file->fd, &st) != 0)
        return errno;
    file->pages = (uint64_t)st.st_size / file->page_bytes;
    return 0;
}

static int count_missing(struct file *file, uint64_t *missing)
{
    char root[META_BYTES];
    int rc = read_root(file, root);
    if (rc == 0)
        rc = whole_pages(file);
    uint64_t last = rc == 0 ? number_at(root + META_LAST, 8) : 0;
    if (rc != 0 || last < file->pages)
        return rc;
    uint64_t depth = number_at(root + META_DEPTH, 2);
    file->behind = file->pages;
    if (depth > 0 && depth <= DEPTH_MAX)
        rc = count_tree(file, number_at(root + META_ROOT, 8), (unsigned)depth);
    if (rc == MDB_CORRUPTED) { /* the list of free pages is itself cut off, or worse */
        *missing = last + 1 - file->pages;
        return 0;
    }
    if (rc == 0)
        rc = whole_pages(file);
    if (rc == 0 && last + 1 > file->pages + file->free_behind)
        *missing = last + 1 - file->pages - file->free_behind;
    return rc;
}

/* Beside a process that writes: the reading transaction keeps all pages that are read here as they are, and the file's
 * size is looked at last, so what is written meanwhile makes less missing, never more. */
int lmdb_pages_missing(const struct db *db, uint64_t *missing)
{
    MDB_stat stat;
    MDB_txn *txn;
    struct file file = {0};
    *missing = 0;
    if (sizeof(size_t) != 8 || __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__)
        return 0;
    int rc = mdb_env_stat(db->env, &stat);
    if (rc == 0)
        rc = mdb_env_get_fd(db->env, &file.fd);
    if (rc == 0)
        rc = mdb_txn_begin(db->env, NULL, MDB_RDONLY, &txn);
    if (rc == MDB_MAP_RESIZED) /* a process that serves has taken a larger map meanwhile, so there is one */
        return 0;
    if (rc != 0)
        return rc;
    file.page_bytes = stat.ms_psize;
    rc = count_missing(&file, missing);
    mdb_txn_abort(txn);
    return rc;
}

enum store_error db_copy(struct db *db, int fd, const char **why)
{
    int rc = mdb_env_copyfd2(db->env, fd, MDB_CP_COMPACT);
    if (rc == MDB_MAP_RESIZED && db->readonly && mdb_env_set_mapsize(db->env, 0) == 0)
        rc = mdb_env_copyfd2(db->env, fd, MDB_CP_COMPACT);
    *why = rc == MDB_INCOMPATIBLE ? "pages of it belong to nothing, or it is damaged" : mdb_strerror(rc);
    return lmdb_translate(rc);
}

uint64_t db_file_bytes(const struct db *db)
{
    struct stat file;
    int fd;
    return mdb_env_get_fd(db->env, &fd) == 0 && fstat(fd, &file) == 0 ? (uint64_t)file.st_size : 0;
}
