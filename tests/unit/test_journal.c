/* Tests of store/journal.c: batches come back whole, in order and no others, whatever has become of the file. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "store/journal.h"

#define BLOCK 4096
#define HEAD 32

struct fixture {
    char folder[64], file[80];
    struct journal *journal;
    uint64_t id;
    uint64_t seq, place; /* of the batch that data.mdb would name; 0: none yet */
};

static int make(void **state)
{
    struct fixture *fx = calloc(1, sizeof *fx);
    if (fx == NULL)
        return -1;
    (void)snprintf(fx->folder, sizeof fx->folder, "/tmp/journal-test-XXXXXX");
    if (!mkdtemp(fx->folder))
        return -1;
    (void)snprintf(fx->file, sizeof fx->file, "%s/" JOURNAL_NAME, fx->folder);
    *state = fx;
    return journal_make(fx->folder, &fx->journal, &fx->id) == STORE_OK ? 0 : -1;
}

static int drop(void **state)
{
    struct fixture *fx = *state;
    journal_close(&fx->journal);
    (void)unlink(fx->file);
    int left = rmdir(fx->folder);
    free(fx);
    return left;
}

/* A batch of `len` bytes, each of them `fill`. */
static enum store_error write_batch(struct journal *journal, uint64_t seq, char fill, size_t len)
{
    struct buffer *log = journal_begin(journal);
    assert_non_null(log);
    assert_true(buffer_reserve(log, log->len + len));
    memset(log->data + log->len, fill, len);
    log->len += len;
    return journal_write(journal, seq);
}

static void put(struct fixture *fx, uint64_t seq, char fill, size_t len)
{
    assert_int_equal(write_batch(fx->journal, seq, fill, len), STORE_OK);
}

static uint64_t place_of(const struct fixture *fx, uint64_t seq)
{
    return fx->seq != 0 && seq == fx->seq ? fx->place : JOURNAL_NOWHERE;
}

/* data.mdb has all of it, up to `seq`. */
static void restart(struct fixture *fx, uint64_t seq)
{
    journal_restart(fx->journal);
    fx->seq = seq;
    fx->place = journal_place(fx->journal);
}

/* Reads the file anew, above `seq`: the fills of the batches that it has, which must have the numbers that follow. */
static const char *read_back(const struct fixture *fx, uint64_t seq)
{
    static char fills[64];
    struct journal *journal;
    struct slice changes;
    size_t at = 0, count = 0;
    uint64_t last, is;
    assert_int_equal(journal_find(fx->folder, fx->id, &journal), STORE_OK);
    assert_int_equal(journal_read(journal, seq, place_of(fx, seq), &last), STORE_OK);
    while (journal_next(journal, &at, &is, &changes)) {
        assert_int_equal(is, seq + count + 1);
        for (size_t i = 0; i < changes.len; i++)
            assert_int_equal(changes.data[i], changes.data[0]);
        assert_true(count + 1 < sizeof fills);
        fills[count++] = changes.data[0];
    }
    assert_int_equal(last, seq + count);
    fills[count] = '\0';
    journal_close(&journal);
    return fills;
}

static bool goes_on(const struct fixture *fx, uint64_t seq)
{
    struct journal *journal;
    uint64_t last;
    assert_int_equal(journal_find(fx->folder, fx->id, &journal), STORE_OK);
    assert_int_equal(journal_read(journal, seq, place_of(fx, seq), &last), STORE_OK);
    bool is = journal_goes_on(journal, last);
    journal_close(&journal);
    return is;
}

static void flip(const struct fixture *fx, off_t at)
{
    char byte;
    int fd = open(fx->file, O_RDWR | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(pread(fd, &byte, 1, at), 1);
    byte = (char)(byte ^ 0x10);
    assert_int_equal(pwrite(fd, &byte, 1, at), 1);
    close(fd);
}

static void test_new_file(void **state)
{
    const struct fixture *fx = *state;
    struct stat st;
    assert_int_equal(stat(fx->file, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    assert_int_equal(st.st_size, JOURNAL_BYTES + BLOCK);
    assert_true((size_t)st.st_blocks * 512 >= JOURNAL_BYTES); /* no holes */
    assert_int_not_equal(fx->id, 0);
    assert_true(journal_empty(fx->journal));
    assert_int_equal(journal_room(fx->journal), JOURNAL_BYTES);
    assert_string_equal(read_back(fx, 0), "");
    assert_string_equal(read_back(fx, 17), "");
    assert_false(goes_on(fx, 0));
}

static void test_batches_in_order(void **state)
{
    struct fixture *fx = *state;
    put(fx, 1, 'a', 10);
    put(fx, 2, 'b', BLOCK - HEAD); /* just one block */
    put(fx, 3, 'c', BLOCK - HEAD + 1);
    put(fx, 4, 'd', 300 * 1024); /* more than is read at a time */
    assert_string_equal(read_back(fx, 0), "abcd");
    struct slice newest = journal_newest(fx->journal);
    assert_int_equal(newest.len, 300 * 1024);
    assert_int_equal(newest.data[0], 'd');
    struct slice changes;
    size_t at = 0;
    uint64_t seq;
    for (char fill = 'a'; fill <= 'd'; fill++) {
        assert_true(journal_next(fx->journal, &at, &seq, &changes));
        assert_int_equal(changes.data[0], fill);
    }
    assert_false(journal_next(fx->journal, &at, &seq, &changes));
    assert_false(journal_empty(fx->journal));
    assert_int_equal(journal_room(fx->journal), JOURNAL_BYTES - at);
}

static void test_dropped(void **state)
{
    struct fixture *fx = *state;
    put(fx, 1, 'a', 10);
    struct buffer *log = journal_begin(fx->journal);
    assert_true(buffer_reserve(log, log->len + 100));
    log->len += 100;
    journal_drop(fx->journal);
    assert_string_equal(read_back(fx, 0), "a");
    put(fx, 2, 'b', 10);
    assert_string_equal(read_back(fx, 0), "ab");
}

/* data.mdb has up to 3: what is written then lies over the first ones, and the rest of these is passed over. */
static void test_restart(void **state)
{
    struct fixture *fx = *state;
    for (uint64_t seq = 1; seq <= 3; seq++)
        put(fx, seq, (char)('a' + seq - 1), 2 * BLOCK);
    restart(fx, 3);
    assert_true(journal_empty(fx->journal));
    assert_string_equal(read_back(fx, 3), "");
    put(fx, 4, 'd', 10);
    assert_string_equal(read_back(fx, 3), "d");
    put(fx, 5, 'e', 10); /* from here on the second block of the first batch of old is gone */
    put(fx, 6, 'f', 10);
    assert_string_equal(read_back(fx, 3), "def");
    assert_false(goes_on(fx, 3));
    restart(fx, 6);
    assert_string_equal(read_back(fx, 6), "");
    assert_false(goes_on(fx, 6));
}

static uint64_t highest(const struct fixture *fx)
{
    struct journal *journal;
    uint64_t last;
    assert_int_equal(journal_find(fx->folder, fx->id, &journal), STORE_OK);
    assert_int_equal(journal_read(journal, fx->seq, fx->seq == 0 ? JOURNAL_NOWHERE : fx->place, &last), STORE_OK);
    assert_false(journal_goes_on(journal, last));
    journal_close(&journal);
    return last;
}

static char *read_all(const struct fixture *fx)
{
    char *all = malloc(JOURNAL_BYTES);
    int fd = open(fx->file, O_RDONLY | O_CLOEXEC);
    assert_non_null(all);
    assert_int_equal(pread(fd, all, JOURNAL_BYTES, BLOCK), JOURNAL_BYTES);
    close(fd);
    return all;
}

/* A cut while batch `seq` is written: of its blocks some are there, some are as they were. The batch before it, which
 * data.mdb may name, is found all the same. */
static void cut_while_writing(struct fixture *fx, uint64_t seq, size_t len, unsigned *random)
{
    char *before = read_all(fx);
    put(fx, seq, (char)('a' + seq % 26), len);
    char *after = read_all(fx);
    int fd = open(fx->file, O_RDWR | O_CLOEXEC);
    size_t changed = 0, old = 0;
    for (size_t at = 0; at < JOURNAL_BYTES; at += BLOCK) {
        if (memcmp(before + at, after + at, BLOCK) == 0)
            continue;
        changed++;
        if (rand_r(random) % 2 == 0)
            continue;
        old++;
        assert_int_equal(pwrite(fd, before + at, BLOCK, (off_t)(BLOCK + at)), BLOCK);
    }
    assert_true(changed > 0);
    assert_int_equal(highest(fx), old == 0 ? seq : seq - 1);
    for (size_t at = 0; at < JOURNAL_BYTES; at += BLOCK)
        if (memcmp(before + at, after + at, BLOCK) != 0)
            assert_int_equal(pwrite(fd, after + at, BLOCK, (off_t)(BLOCK + at)), BLOCK);
    assert_int_equal(highest(fx), seq);
    close(fd);
    free(before);
    free(after);
}

/* Runs of one batch and more, small ones and large ones. */
static void test_a_cut_never_takes_the_named_batch(void **state)
{
    struct fixture *fx = *state;
    unsigned random = 7;
    for (uint64_t seq = 1; seq <= 120; seq++) {
        size_t len = 1 + (size_t)rand_r(&random) % (rand_r(&random) % 4 == 0 ? 300 * 1024 : 3 * BLOCK);
        cut_while_writing(fx, seq, len, &random);
        if (rand_r(&random) % 2 == 0)
            restart(fx, seq);
    }
}

/* A journal of before: what data.mdb names is not in it. */
static void test_an_older_file(void **state)
{
    struct fixture *fx = *state;
    for (uint64_t seq = 1; seq <= 20; seq++) {
        char *before = read_all(fx);
        put(fx, seq, 'a', seq % 3 == 0 ? 3 * BLOCK : 10);
        restart(fx, seq);
        char *after = read_all(fx);
        int fd = open(fx->file, O_RDWR | O_CLOEXEC);
        struct journal *journal;
        uint64_t last;
        assert_int_equal(pwrite(fd, before, JOURNAL_BYTES, BLOCK), JOURNAL_BYTES);
        assert_int_equal(journal_find(fx->folder, fx->id, &journal), STORE_OK);
        assert_int_equal(journal_read(journal, seq, fx->place, &last), STORE_FORMAT);
        journal_close(&journal);
        assert_int_equal(pwrite(fd, after, JOURNAL_BYTES, BLOCK), JOURNAL_BYTES);
        assert_int_equal(highest(fx), seq);
        close(fd);
        free(before);
        free(after);
    }
}

/* The head of the next batch is there, the rest is not. */
static void test_torn(void **state)
{
    struct fixture *fx = *state;
    struct journal *journal;
    uint64_t last;
    for (int round = 0; round < 2; round++) {
        put(fx, 1 + (uint64_t)round, 'a', 10);
        if (round == 1)
            restart(fx, 2);
    }
    put(fx, 3, 'b', BLOCK);
    off_t place = (off_t)(BLOCK + journal_place(fx->journal));
    for (int torn = 0; torn < 2; torn++) {
        assert_int_equal(journal_find(fx->folder, fx->id, &journal), STORE_OK);
        assert_int_equal(journal_read(journal, 2, fx->place, &last), STORE_OK);
        assert_int_equal(last, torn ? 2 : 3);
        assert_int_equal(journal_torn(journal, last), torn);
        journal_close(&journal);
        flip(fx, place + BLOCK);
    }
}

/* One byte of a batch is another: it and what follows is not given out. */
static void test_a_byte_is_another(void **state)
{
    struct fixture *fx = *state;
    put(fx, 1, 'a', 10);
    put(fx, 2, 'b', BLOCK + 100);
    for (off_t at = 0; at < HEAD + BLOCK + 100; at += at < 40 ? 1 : 61) {
        flip(fx, 2 * BLOCK + at);
        assert_string_equal(read_back(fx, 0), "a");
        assert_false(goes_on(fx, 0)); /* may be one that was never whole */
        flip(fx, 2 * BLOCK + at);
    }
    put(fx, 3, 'c', 10);
    for (off_t at = 0; at < HEAD + BLOCK + 100; at += at < 40 ? 1 : 611) {
        flip(fx, 2 * BLOCK + at);
        assert_string_equal(read_back(fx, 0), "a");
        assert_true(goes_on(fx, 0)); /* it was whole: one came behind it */
        flip(fx, 2 * BLOCK + at);
    }
    assert_string_equal(read_back(fx, 0), "abc");
    assert_false(goes_on(fx, 0));
}

static void test_cut_short(void **state)
{
    struct fixture *fx = *state;
    put(fx, 1, 'a', 10);
    put(fx, 2, 'b', BLOCK + 100);
    static const off_t cuts[] = {HEAD + BLOCK + 100, HEAD + BLOCK + 99, BLOCK, HEAD + 1, HEAD, HEAD - 1, 1, 0};
    for (size_t i = 0; i < sizeof cuts / sizeof *cuts; i++) {
        assert_int_equal(truncate(fx->file, 2 * BLOCK + cuts[i]), 0);
        assert_string_equal(read_back(fx, 0), i == 0 ? "ab" : "a");
    }
    assert_int_equal(truncate(fx->file, BLOCK), 0);
    assert_string_equal(read_back(fx, 0), "");
}

/* Lengths that lead out of the file or around. */
static void test_wrong_lengths(void **state)
{
    struct fixture *fx = *state;
    put(fx, 1, 'a', 10);
    for (int byte = 24; byte < 32; byte++) {
        static const unsigned char values[] = {0x00, 0x01, 0x7f, 0x80, 0xff};
        for (size_t i = 0; i < sizeof values; i++) {
            int fd = open(fx->file, O_RDWR | O_CLOEXEC);
            char was;
            assert_int_equal(pread(fd, &was, 1, BLOCK + byte), 1);
            assert_int_equal(pwrite(fd, &values[i], 1, BLOCK + byte), 1);
            assert_string_equal(read_back(fx, 0), (unsigned char)was == values[i] ? "a" : "");
            assert_int_equal(pwrite(fd, &was, 1, BLOCK + byte), 1);
            close(fd);
        }
    }
    assert_string_equal(read_back(fx, 0), "a");
}

static void test_full(void **state)
{
    struct fixture *fx = *state;
    const size_t part = JOURNAL_BYTES / 4;
    for (uint64_t seq = 1; seq <= 3; seq++)
        put(fx, seq, (char)('a' + seq - 1), part - HEAD);
    assert_int_equal(journal_room(fx->journal), part);
    assert_int_equal(write_batch(fx->journal, 4, 'x', part - HEAD + 1), STORE_FULL);
    journal_drop(fx->journal);
    assert_string_equal(read_back(fx, 0), "abc");
    put(fx, 4, 'd', part - HEAD); /* to the last byte */
    assert_int_equal(journal_room(fx->journal), 0);
    assert_int_equal(write_batch(fx->journal, 5, 'x', 1), STORE_FULL);
    journal_drop(fx->journal);
    assert_string_equal(read_back(fx, 0), "abcd");
    struct stat st;
    assert_int_equal(stat(fx->file, &st), 0);
    assert_int_equal(st.st_size, JOURNAL_BYTES + BLOCK);
    restart(fx, 4);
    put(fx, 5, 'e', 1);
    assert_string_equal(read_back(fx, 4), "e");
    restart(fx, 5);
    assert_int_equal(write_batch(fx->journal, 6, 'x', JOURNAL_BYTES - HEAD + 1), STORE_FULL); /* never fits */
}

static void test_whose_it_is(void **state)
{
    struct fixture *fx = *state;
    struct journal *other;
    put(fx, 1, 'a', 10);
    assert_int_equal(journal_find(fx->folder, fx->id + 2, &other), STORE_NOT_FOUND);
    assert_null(other);
    for (off_t at = 0; at < HEAD; at++) {
        flip(fx, at);
        assert_int_equal(journal_find(fx->folder, fx->id, &other), STORE_NOT_FOUND);
        flip(fx, at);
    }
    assert_string_equal(read_back(fx, 0), "a");
    assert_int_equal(truncate(fx->file, HEAD - 1), 0);
    assert_int_equal(journal_find(fx->folder, fx->id, &other), STORE_NOT_FOUND);
    assert_int_equal(unlink(fx->file), 0);
    assert_int_equal(journal_find(fx->folder, fx->id, &other), STORE_NOT_FOUND);
    assert_null(other);
}

/* The next start's: under another number, so that nothing of old is in it. */
static void test_made_again(void **state)
{
    struct fixture *fx = *state;
    uint64_t before = fx->id;
    put(fx, 1, 'a', 10);
    put(fx, 2, 'b', 10);
    journal_close(&fx->journal);
    assert_int_equal(truncate(fx->file, 3 * BLOCK + 5), 0);
    assert_int_equal(journal_make(fx->folder, &fx->journal, &fx->id), STORE_OK);
    assert_int_not_equal(fx->id, before);
    struct stat st;
    assert_int_equal(stat(fx->file, &st), 0);
    assert_int_equal(st.st_size, JOURNAL_BYTES + BLOCK);
    assert_string_equal(read_back(fx, 0), "");
    assert_string_equal(read_back(fx, 1), "");
    assert_false(goes_on(fx, 0));
    put(fx, 1, 'c', 10);
    assert_string_equal(read_back(fx, 0), "c");
    assert_false(goes_on(fx, 0));
}

static void test_in_place(void **state)
{
    struct fixture *fx = *state;
    char aside[100];
    assert_true(journal_in_place(fx->journal));
    (void)snprintf(aside, sizeof aside, "%s/aside", fx->folder);
    assert_int_equal(rename(fx->file, aside), 0);
    assert_false(journal_in_place(fx->journal));
    assert_int_equal(symlink("aside", fx->file), 0); /* the file itself has its name no more */
    assert_false(journal_in_place(fx->journal));
    assert_int_equal(unlink(fx->file), 0);
    int fd = open(fx->file, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    close(fd);
    assert_false(journal_in_place(fx->journal));
    assert_int_equal(rename(aside, fx->file), 0);
    assert_true(journal_in_place(fx->journal));
}

/* Somebody else's link must not be written through. */
static void test_no_link_is_followed(void **state)
{
    struct fixture *fx = *state;
    struct journal *other;
    uint64_t id;
    char aside[100];
    struct stat st;
    (void)snprintf(aside, sizeof aside, "%s/aside", fx->folder);
    assert_int_equal(unlink(fx->file), 0);
    int fd = open(aside, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    close(fd);
    assert_int_equal(symlink("aside", fx->file), 0);
    assert_int_equal(journal_make(fx->folder, &other, &id), STORE_IO);
    assert_null(other);
    assert_int_equal(stat(aside, &st), 0);
    assert_int_equal(st.st_size, 0);
    assert_int_equal(unlink(aside), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_new_file, make, drop),
        cmocka_unit_test_setup_teardown(test_batches_in_order, make, drop),
        cmocka_unit_test_setup_teardown(test_dropped, make, drop),
        cmocka_unit_test_setup_teardown(test_restart, make, drop),
        cmocka_unit_test_setup_teardown(test_a_cut_never_takes_the_named_batch, make, drop),
        cmocka_unit_test_setup_teardown(test_an_older_file, make, drop),
        cmocka_unit_test_setup_teardown(test_torn, make, drop),
        cmocka_unit_test_setup_teardown(test_a_byte_is_another, make, drop),
        cmocka_unit_test_setup_teardown(test_cut_short, make, drop),
        cmocka_unit_test_setup_teardown(test_wrong_lengths, make, drop),
        cmocka_unit_test_setup_teardown(test_full, make, drop),
        cmocka_unit_test_setup_teardown(test_whose_it_is, make, drop),
        cmocka_unit_test_setup_teardown(test_made_again, make, drop),
        cmocka_unit_test_setup_teardown(test_in_place, make, drop),
        cmocka_unit_test_setup_teardown(test_no_link_is_followed, make, drop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
