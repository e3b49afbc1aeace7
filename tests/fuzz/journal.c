/* tests/fuzz/journal.c - the journal after any damage: a batch that comes back is byte for byte one that was written,
 * and none that lies whole on the disk is lost without a refusal.
 *
 * An input is a play of four bytes a step: a batch of some size, a settling (data.mdb names number and place of the
 * last batch, the run begins anew), or damage. The file is read as a start would read it before the damage and after
 * it. It lies in memory (/dev/shm). */
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "store/journal.h"
#include "tests/fuzz/fuzz.h"

enum { BLOCK = 4096, HEAD = 32, STEPS = 40, BATCHES = STEPS + 1, DAMAGES = 4 };

struct batch {
    size_t place, len; /* of its bytes in the file's part for batches; of its changes */
};
struct play {
    struct journal *journal;
    uint64_t id, last, named, place; /* the last batch; what data.mdb names: number and place */
    struct batch batches[BATCHES];
    struct {
        size_t at, len;
    } damages[DAMAGES];
    size_t damage_count;
};

static char folder[64], file[96];

static void clean_up(void)
{
    (void)unlink(file);
    (void)rmdir(folder);
}

static void set_up(void)
{
    (void)snprintf(folder, sizeof folder, "/dev/shm/fencegate-fuzz-XXXXXX");
    require(mkdtemp(folder) != NULL);
    (void)snprintf(file, sizeof file, "%s/" JOURNAL_NAME, folder);
    require(atexit(clean_up) == 0);
}

/* Each byte of the changes of batch `seq`. */
static char byte_of(uint64_t seq)
{
    return (char)(seq * 7 + 1);
}

static void write_batch(struct play *play, size_t len)
{
    struct buffer *log = journal_begin(play->journal);
    uint64_t seq = play->last + 1;
    require(log != NULL && buffer_reserve(log, log->len + len));
    memset(log->data + log->len, byte_of(seq), len);
    log->len += len;
    enum store_error error = journal_write(play->journal, seq);
    if (error == STORE_FULL) {
        journal_drop(play->journal);
        return;
    }
    require(error == STORE_OK);
    play->last = seq;
    play->batches[seq] = (struct batch){(size_t)journal_place(play->journal), len};
}

static void settle(struct play *play)
{
    if (play->last == 0)
        return;
    play->named = play->last;
    play->place = journal_place(play->journal);
    journal_restart(play->journal);
}

static bool is_damaged(const struct play *play, size_t begin, size_t end)
{
    for (size_t i = 0; i < play->damage_count; i++)
        if (play->damages[i].at < end && begin < play->damages[i].at + play->damages[i].len)
            return true;
    return false;
}

/* Is it whole on the disk: neither damaged nor written over by a later one? */
static bool is_whole(const struct play *play, uint64_t seq)
{
    const struct batch *is = &play->batches[seq];
    size_t end = is->place + HEAD + is->len;
    if (is_damaged(play, is->place, end))
        return false;
    for (uint64_t later = seq + 1; later <= play->last; later++)
        if (play->batches[later].place < end &&
            is->place < (play->batches[later].place + HEAD + play->batches[later].len + BLOCK - 1) / BLOCK * BLOCK)
            return false;
    return true;
}

static void damage(struct play *play, size_t at, size_t len, char mask)
{
    int fd = open(file, O_RDWR | O_CLOEXEC);
    static char bytes[1 << 16];
    require(fd >= 0 && len <= sizeof bytes && pread(fd, bytes, len, (off_t)(BLOCK + at)) == (ssize_t)len);
    for (size_t i = 0; i < len; i++)
        bytes[i] = (char)(bytes[i] ^ mask);
    require(pwrite(fd, bytes, len, (off_t)(BLOCK + at)) == (ssize_t)len);
    close(fd);
    play->damages[play->damage_count].at = at;
    play->damages[play->damage_count++].len = len;
}

static void step(struct play *play, const uint8_t in[4])
{
    size_t number = (size_t)in[1] << 8 | in[2];
    if (in[0] < 160)
        write_batch(play, in[0] < 100 ? number % 9000 + 1 : number * 16 + 1);
    else
        settle(play);
}

/* Only to batches, never to the first block, which names the file; nowhere twice, which could mend it. */
static void step_of_damage(struct play *play, const uint8_t in[4])
{
    const struct batch *is = &play->batches[1 + in[1] % (play->last == 0 ? 1 : play->last)];
    size_t len = (size_t)1 << in[3] % 14;
    size_t at = is->place + (in[2] % 4 == 0 ? in[2] / 4U % HEAD : (size_t)in[2] * is->len / 256);
    if (at + len <= JOURNAL_BYTES && play->damage_count < DAMAGES && play->last > 0 && !is_damaged(play, at, at + len))
        damage(play, at, len, (char)(in[3] | 1));
}

static void judge_found(const struct play *play, const struct journal *found, uint64_t last)
{
    size_t at = 0;
    uint64_t seq, expected = play->named;
    struct slice changes;
    require(last >= play->named && last <= play->last);
    while (journal_next(found, &at, &seq, &changes)) {
        require(seq == ++expected && changes.len == play->batches[seq].len);
        require(changes.data[0] == byte_of(seq) && memcmp(changes.data, changes.data + 1, changes.len - 1) == 0);
        require(is_whole(play, seq));
    }
    require(expected == last);
    if (!journal_goes_on(found, last))
        for (seq = last + 1; seq <= play->last; seq++)
            require(!is_whole(play, seq));
}

/* Damage only where the last batch of a run was being written, as a power cut leaves it. */
static bool is_only_torn(const struct play *play)
{
    const struct batch *is = &play->batches[play->last];
    size_t end = (is->place + HEAD + is->len + BLOCK - 1) / BLOCK * BLOCK;
    if (play->last == play->named)
        return false;
    for (size_t i = 0; i < play->damage_count; i++)
        if (play->damages[i].at < is->place || play->damages[i].at + play->damages[i].len > end)
            return false;
    return true;
}

static void start(const struct play *play)
{
    struct journal *found;
    uint64_t last;
    require(journal_find(folder, play->id, &found) == STORE_OK);
    enum store_error error = journal_read(found, play->named, play->named == 0 ? JOURNAL_NOWHERE : play->place, &last);
    if (error == STORE_OK)
        judge_found(play, found, last);
    else
        require(error == STORE_FORMAT && play->damage_count > 0);
    if (play->damage_count == 0)
        require(error == STORE_OK && last == play->last && !journal_torn(found, last));
    if (is_only_torn(play)) /* all that was acknowledged is there */
        require(error == STORE_OK && last == play->last - !is_whole(play, play->last) && !journal_goes_on(found, last));
    journal_close(&found);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct play play = {.place = JOURNAL_NOWHERE};
    size_t steps = size / 4 < STEPS ? size / 4 : STEPS;
    if (folder[0] == '\0')
        set_up();
    require(journal_make(folder, &play.journal, &play.id) == STORE_OK);
    for (size_t i = 0; i < steps; i++)
        if (data[i * 4] < 210)
            step(&play, data + i * 4);
    start(&play);
    for (size_t i = 0; i < steps; i++)
        if (data[i * 4] >= 210)
            step_of_damage(&play, data + i * 4);
    start(&play);
    journal_close(&play.journal);
    return 0;
}
