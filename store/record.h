/*
 * store/record.h - audit records and intents as bytes. Pure.
 *
 * The bytes: version (1), kind (1; 0 in an intent), time (8, big-endian, at a fixed place so that a scan by time need
 * not decode the rest), then fields in any order. A field is one byte, number * 2 + (1 for bytes, 0 for an integer),
 * and a LEB128 integer, for bytes their length, followed by them. A reader skips numbers it does not know, so a new
 * field needs no new version. The id is the key the record is stored under and is not among the bytes.
 */
#ifndef FENCEGATE_STORE_RECORD_H
#define FENCEGATE_STORE_RECORD_H

#include "store/store.h"

/* Returns the bytes that `record` takes; when that is more than `cap`, `out` holds nothing of use. */
size_t record_encode(const struct audit_record *record, char *out, size_t cap) __attribute__((warn_unused_result));

/* Slices of *out point into `bytes`. False, with *out zeroed, for anything that is no whole record of a known version
 * and kind; no input makes it read outside `bytes`. */
bool record_decode(struct slice bytes, struct audit_record *out) __attribute__((warn_unused_result));

/* The time alone. False when `bytes` can't be a record. */
bool record_time(struct slice bytes, uint64_t *time_ms) __attribute__((warn_unused_result));

/* Integers as they are stored in keys and fixed values: big-endian, so that they sort. */
void put_u64(char out[8], uint64_t value);
uint64_t get_u64(const char in[8]);

/* Keys of the tables. A namespace and a key hold no NUL, so no pair can be taken for another. */
#define NS_BYTES_MAX 64
#define FENCE_KEY_BYTES_MAX 255
#define FENCE_KEY_CAP (NS_BYTES_MAX + 1 + FENCE_KEY_BYTES_MAX)
#define INDEX_KEY_CAP (FENCE_KEY_CAP + 1 + 8)
/* Both return the length, 0 when the pair is no valid one: absent, empty, too long, or with a NUL. */
size_t fence_key(struct slice ns, struct slice key, char out[FENCE_KEY_CAP]) __attribute__((warn_unused_result));
size_t index_key(struct slice ns, struct slice key, uint64_t id, char out[INDEX_KEY_CAP])
    __attribute__((warn_unused_result));

/* The same backwards. False: these are no bytes that the above make. *ns and *key point into `bytes`. */
bool fence_key_split(struct slice bytes, struct slice *ns, struct slice *key);
bool index_key_split(struct slice bytes, struct slice *ns, struct slice *key, uint64_t *id);

#endif
