/*
 * store/journal.c - see journal.h.
 *
 * A failed sync leaves unknown what is on the disk, and a second one would not tell (what it could not write may count
 * as written from then on). So the batch has failed, and the file gets no other: its owner goes on without it. Should
 * data.mdb not be written any more either, the next start may find the batch, if its head could not be taken away.
 */
#include "store/journal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include "store/record.h"

#define BLOCK 4096
#define STEP (BLOCK * 64) /* read at a time */
#define STAGE (BLOCK * 64)
#define HEAD_BYTES 32 /* check sum of the rest (4), magic (4), number of the journal (8), sequence (8), length (8) */
#define FILE_MAGIC 0x46474a31u
#define BATCH_MAGIC 0x46474231u
#define PATH_CAP 4096
#define BATCH_MOST (JOURNAL_BYTES / 2) /* one that fills the file would leave no place for the next one, ever */

struct journal {
    int fd;
    uint64_t id;
    char path[PATH_CAP];
    struct buffer bytes; /* bytes.data is at offset BLOCK of the file */
    size_t begin, end;   /* of the run; bytes.len runs ahead of the end in between */
    struct {
        size_t begin, end; /* 0: there is none */
    } newest;              /* the batch that was written last, in this run or the one before */
    char *stage;           /* what is written goes through here: STAGE bytes, at a place that O_DIRECT takes */
};

static void put_u32(char out[4], uint32_t value)
{
    for (unsigned i = 0; i < 4; i++)
        out[i] = (char)(value >> (24 - 8 * i));
}

static uint32_t get_u32(const char in[4])
{
    uint32_t value = 0;
    for (unsigned i = 0; i < 4; i++)
        value = value << 8 | (unsigned char)in[i];
    return value;
}

static uint32_t check_sum(const char *head, size_t len)
{
    const union {
        const char *chars;
        const unsigned char *bytes;
    } from = {head + 4};
    return (uint32_t)crc32_z(0, from.bytes, HEAD_BYTES - 4 + len);
}

static void write_head(char *head, uint32_t magic, uint64_t id, uint64_t seq, size_t len)
{
    put_u32(head + 4, magic);
    put_u64(head + 8, id);
    put_u64(head + 16, seq);
    put_u64(head + 24, len);
    put_u32(head, check_sum(head, len));
}

/* False: this is none, or not whole, within `room` bytes. */
static bool read_head(const char *head, uint32_t magic, uint64_t id, size_t room, uint64_t *seq, size_t *len)
{
    if (room < HEAD_BYTES || get_u32(head + 4) != magic || get_u64(head + 8) != id)
        return false;
    uint64_t is = get_u64(head + 24);
    if (is > room - HEAD_BYTES || get_u32(head) != check_sum(head, (size_t)is))
        return false;
    *seq = get_u64(head + 16);
    *len = (size_t)is;
    return true;
}

static size_t whole_blocks(size_t len)
{
    return (len + BLOCK - 1) / BLOCK * BLOCK;
}

static int write_at(int fd, const char *bytes, size_t len, size_t offset)
{
    while (len > 0) {
        ssize_t wrote = pwrite(fd, bytes, len, (off_t)offset);
        if (wrote == 0)
            return EIO;
        if (wrote < 0 && errno != EINTR)
            return errno;
        wrote = wrote < 0 ? 0 : wrote;
        bytes += wrote;
        len -= (size_t)wrote;
        offset += (size_t)wrote;
    }
    return 0;
}

static enum store_error error_of(int number)
{
    switch (number) {
    case 0: return STORE_OK;
    case ENOSPC:
    case EDQUOT:
    case EFBIG: return STORE_FULL;
    case ENOENT:
    case ENODATA: return STORE_NOT_FOUND;
    default: return STORE_IO;
    }
}

static int open_file(const char *folder, int flags, struct journal **out)
{
    struct journal *journal = calloc(1, sizeof *journal);
    *out = journal;
    if (journal == NULL)
        return ENOMEM;
    journal->fd = -1;
    if (snprintf(journal->path, sizeof journal->path, "%s/" JOURNAL_NAME, folder) >= (int)sizeof journal->path)
        return ENAMETOOLONG;
    journal->fd = open(journal->path, flags | O_NOFOLLOW | O_CLOEXEC, 0600);
    return journal->fd < 0 ? errno : 0;
}

/* Past the page cache, where the file system can: what goes to the disk at once need not be looked for there first.
 * Some say only when they are written to that they can't. */
static int write_batch(struct journal *journal, const char *bytes, size_t len, size_t offset)
{
    int number = 0;
    for (size_t done = 0; number == 0 && done < len; done += STAGE) {
        size_t part = len - done < STAGE ? len - done : STAGE;
        memcpy(journal->stage, bytes + done, part);
        number = write_at(journal->fd, journal->stage, part, offset + done);
        if (number == EINVAL && fcntl(journal->fd, F_SETFL, 0) == 0)
            number = write_at(journal->fd, journal->stage, part, offset + done);
    }
    return number;
}

/* Zeroes behind the end. What a hole or a block that was only reserved would cost comes with the sync of a batch. They
 * have a sync of their own: after a power cut the file system may have kept the header that comes next without the
 * zeroes before it, and a file that is too short under a valid header counts as damaged. */
static int fill(int fd)
{
    static const char zeroes[BLOCK * 16];
    struct stat st;
    if (fstat(fd, &st) != 0)
        return errno;
    size_t at = (size_t)st.st_size / BLOCK * BLOCK, all = JOURNAL_BYTES + BLOCK;
    int number = 0;
    while (number == 0 && at < all) {
        size_t len = all - at < sizeof zeroes ? all - at : sizeof zeroes;
        number = write_at(fd, zeroes, len, at);
        at += len;
    }
    return number == 0 && fsync(fd) != 0 ? errno : number;
}

static int mark(struct journal *journal)
{
    char block[BLOCK] = {0};
    if (getrandom(&journal->id, sizeof journal->id, 0) != sizeof journal->id)
        return EIO;
    journal->id |= 1; /* 0 is none */
    write_head(block, FILE_MAGIC, journal->id, 0, 0);
    int number = write_at(journal->fd, block, sizeof block, 0);
    return number == 0 && fsync(journal->fd) != 0 ? errno : number;
}

enum store_error journal_make(const char *folder, struct journal **out, uint64_t *id)
{
    void *stage;
    int number = open_file(folder, O_RDWR | O_CREAT, out);
    if (number == 0)
        number = posix_memalign(&stage, BLOCK, STAGE);
    if (number == 0) {
        (*out)->stage = stage;
        number = fill((*out)->fd);
    }
    if (number == 0)
        number = mark(*out);
    if (number != 0) {
        journal_close(out);
        return error_of(number);
    }
    (void)fcntl((*out)->fd, F_SETFL, O_DIRECT);
    *id = (*out)->id;
    return STORE_OK;
}

enum store_error journal_find(const char *folder, uint64_t id, struct journal **out)
{
    char head[HEAD_BYTES];
    uint64_t seq;
    size_t len;
    int number = open_file(folder, O_RDONLY, out);
    if (number == 0 && pread((*out)->fd, head, sizeof head, 0) != sizeof head)
        number = ENODATA;
    if (number == 0 && !read_head(head, FILE_MAGIC, id, sizeof head, &seq, &len))
        number = ENOENT;
    if (number == 0)
        (*out)->id = id;
    else
        journal_close(out);
    return error_of(number);
}

void journal_close(struct journal **journal)
{
    if (*journal == NULL)
        return;
    if ((*journal)->fd >= 0)
        close((*journal)->fd);
    buffer_free(&(*journal)->bytes);
    free((*journal)->stage);
    free(*journal);
    *journal = NULL;
}

bool journal_in_place(const struct journal *journal)
{
    struct stat opened, named;
    return fstat(journal->fd, &opened) == 0 && lstat(journal->path, &named) == 0 && opened.st_ino == named.st_ino &&
           opened.st_dev == named.st_dev;
}

struct buffer *journal_begin(struct journal *journal)
{
    journal->bytes.len = journal->end;
    if (!buffer_reserve(&journal->bytes, journal->end + HEAD_BYTES))
        return NULL;
    journal->bytes.len += HEAD_BYTES;
    return &journal->bytes;
}

/* Its owner has been told that nothing of the batch was kept, so the next start should not find it, if that can be
 * had. */
static void take_back(struct journal *journal, size_t at)
{
    static const char none[BLOCK];
    (void)write_batch(journal, none, sizeof none, BLOCK + at);
}

/* Where a batch of `whole` bytes goes: see journal.h for the first one of a run. */
static size_t place_for(const struct journal *journal, size_t whole)
{
    return journal_empty(journal) && whole > journal->newest.begin ? journal->newest.end : journal->end;
}

/* The batch at hand was added at the run's end. False: no memory. */
static bool move_to(struct journal *journal, size_t at, size_t whole)
{
    struct buffer *bytes = &journal->bytes;
    size_t len = bytes->len - journal->end;
    if (!buffer_reserve(bytes, at + whole))
        return false;
    memmove(bytes->data + at, bytes->data + journal->end, len);
    memset(bytes->data + at + len, 0, whole - len);
    return true;
}

enum store_error journal_write(struct journal *journal, uint64_t seq)
{
    size_t len = journal->bytes.len - journal->end, whole = whole_blocks(len), at = place_for(journal, whole);
    if (whole > BATCH_MOST || whole > JOURNAL_BYTES - at)
        return STORE_FULL;
    if (!move_to(journal, at, whole))
        return STORE_IO;
    char *batch = journal->bytes.data + at;
    write_head(batch, BATCH_MAGIC, journal->id, seq, len - HEAD_BYTES);
    int number = write_batch(journal, batch, whole, BLOCK + at);
    if (number == 0 && fdatasync(journal->fd) != 0)
        number = errno;
    if (number != 0) {
        take_back(journal, at);
        return STORE_IO;
    }
    if (journal_empty(journal))
        journal->begin = at;
    journal->newest.begin = at;
    journal->newest.end = journal->end = journal->bytes.len = at + whole;
    return STORE_OK;
}

uint64_t journal_place(const struct journal *journal)
{
    return journal->newest.end == 0 ? JOURNAL_NOWHERE : journal->newest.begin;
}

struct slice journal_newest(const struct journal *journal)
{
    const char *batch = journal->bytes.data + journal->newest.begin;
    return (struct slice){batch + HEAD_BYTES, (size_t)get_u64(batch + 24)};
}

void journal_drop(struct journal *journal)
{
    journal->bytes.len = journal->end;
}

static char *read_batches(const struct journal *journal, ssize_t *got)
{
    char *bytes = malloc(JOURNAL_BYTES);
    *got = bytes == NULL ? -1 : pread(journal->fd, bytes, JOURNAL_BYTES, BLOCK);
    return bytes;
}

static bool all_zero(const char *bytes, size_t len)
{
    return len == 0 || (bytes[0] == 0 && memcmp(bytes, bytes + 1, len - 1) == 0);
}

static bool holds_anything(const struct journal *journal)
{
    ssize_t got;
    char *bytes = read_batches(journal, &got);
    bool is = got < 0 || !all_zero(bytes, (size_t)got);
    free(bytes);
    return is;
}

bool journal_is_of_another(const char *folder, uint64_t id)
{
    struct journal *journal;
    char head[HEAD_BYTES];
    uint64_t seq;
    size_t len;
    bool other = false;
    if (open_file(folder, O_RDONLY, &journal) == 0 && pread(journal->fd, head, sizeof head, 0) == sizeof head) {
        journal->id = get_u64(head + 8);
        other = journal->id != id && read_head(head, FILE_MAGIC, journal->id, sizeof head, &seq, &len) &&
                journal_goes_on(journal, 0) && holds_anything(journal);
    }
    journal_close(&journal);
    return other;
}

static bool has_number(const struct journal *journal)
{
    char block[BLOCK];
    ssize_t got = pread(journal->fd, block, sizeof block, 0);
    return got < 0 || !all_zero(block, (size_t)got);
}

bool journal_used(const char *folder)
{
    struct journal *journal;
    struct stat st;
    int number = open_file(folder, O_RDONLY | O_NONBLOCK, &journal);
    bool used = number == 0 ? fstat(journal->fd, &st) != 0 ||
                                  (S_ISREG(st.st_mode) && (has_number(journal) || holds_anything(journal)))
                            : number != ENOENT && number != ELOOP;
    journal_close(&journal);
    return used;
}

void journal_remove(const struct journal *journal)
{
    if (journal_in_place(journal))
        (void)unlink(journal->path);
}

void journal_forget(const char *folder)
{
    char path[PATH_CAP];
    if (snprintf(path, sizeof path, "%s/" JOURNAL_NAME, folder) < (int)sizeof path)
        (void)unlink(path);
}

bool journal_empty(const struct journal *journal)
{
    return journal->end == journal->begin;
}

size_t journal_size(const struct journal *journal)
{
    return journal->end - journal->begin;
}

size_t journal_room(const struct journal *journal)
{
    return JOURNAL_BYTES - journal->end;
}

void journal_restart(struct journal *journal)
{
    journal->bytes.len = journal->begin = journal->end = 0;
}

bool journal_next(const struct journal *journal, size_t *at, uint64_t *seq, struct slice *changes)
{
    size_t len, left = journal_size(journal) - *at;
    if (left == 0)
        return false;
    const char *head = journal->bytes.data + journal->begin + *at;
    if (!read_head(head, BATCH_MAGIC, journal->id, left, seq, &len))
        return false;
    *changes = (struct slice){head + HEAD_BYTES, len};
    *at += whole_blocks(HEAD_BYTES + len);
    return true;
}

/* Has the bytes of the file up to `len` in memory, from where reading began. */
static bool have(struct journal *journal, size_t len)
{
    struct buffer *bytes = &journal->bytes;
    size_t step = (len + STEP - 1) / STEP * STEP;
    if (len <= bytes->len)
        return true;
    if (len > JOURNAL_BYTES || !buffer_reserve(bytes, step))
        return false;
    ssize_t got = pread(journal->fd, bytes->data + bytes->len, step - bytes->len, (off_t)(BLOCK + bytes->len));
    bytes->len += got > 0 ? (size_t)got : 0;
    return len <= bytes->len;
}

/* False: there is no whole batch with that number at that place. */
static bool read_batch(struct journal *journal, size_t at, uint64_t seq, size_t *end)
{
    size_t len;
    uint64_t is;
    if (at > JOURNAL_BYTES - HEAD_BYTES || !have(journal, at + HEAD_BYTES))
        return false;
    uint64_t named = get_u64(journal->bytes.data + at + 24);
    size_t room = named > JOURNAL_BYTES - at - HEAD_BYTES ? HEAD_BYTES : HEAD_BYTES + (size_t)named;
    if (!have(journal, at + room) || !read_head(journal->bytes.data + at, BATCH_MAGIC, journal->id, room, &is, &len) ||
        is != seq)
        return false;
    *end = at + whole_blocks(room);
    return true;
}

/* False: the file holds neither batch `seq` nor the one after it. */
static bool find_run(struct journal *journal, uint64_t seq, uint64_t place, size_t *begin)
{
    size_t end;
    *begin = 0;
    journal->bytes.len = 0;
    if (place == JOURNAL_NOWHERE || read_batch(journal, 0, seq + 1, &end))
        return true;
    journal->bytes.len = place < JOURNAL_BYTES ? (size_t)place : 0;
    return place < JOURNAL_BYTES && read_batch(journal, (size_t)place, seq, begin);
}

/* The file may be cut short, or be written to right now by the gateway whose it is: what is not whole ends the run. */
enum store_error journal_read(struct journal *journal, uint64_t seq, uint64_t place, uint64_t *last)
{
    size_t begin, end;
    *last = seq;
    journal_restart(journal);
    if (!find_run(journal, seq, place, &begin))
        return STORE_FORMAT;
    journal->begin = journal->end = begin;
    while (read_batch(journal, journal->end, *last + 1, &end)) {
        ++*last;
        journal->end = end;
    }
    journal->bytes.len = journal->end;
    return STORE_OK;
}

static bool head_at(const struct journal *journal, size_t at, uint64_t seq)
{
    char head[HEAD_BYTES];
    return pread(journal->fd, head, sizeof head, (off_t)(BLOCK + at)) == sizeof head &&
           get_u32(head + 4) == BATCH_MAGIC && get_u64(head + 8) == journal->id && get_u64(head + 16) == seq;
}

bool journal_torn(const struct journal *journal, uint64_t last)
{
    return head_at(journal, journal->end, last + 1) || (journal_empty(journal) && head_at(journal, 0, last + 1));
}

/* A batch begins at a block of its own, and its head names this journal: what is within one is not taken for one. The
 * file was filled, durably, before it got its number, so that no write that was torn leaves it shorter. */
bool journal_goes_on(const struct journal *journal, uint64_t last)
{
    uint64_t seq;
    size_t len;
    ssize_t got;
    char *bytes = read_batches(journal, &got);
    bool found = got < (ssize_t)JOURNAL_BYTES;
    for (size_t at = 0, all = got < 0 ? 0 : (size_t)got; at + HEAD_BYTES <= all && !found; at += BLOCK)
        found =
            get_u64(bytes + at + 16) > last && read_head(bytes + at, BATCH_MAGIC, journal->id, all - at, &seq, &len);
    free(bytes);
    return found;
}
