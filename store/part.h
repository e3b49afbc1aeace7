/*
 * store/part.h - a store's file on its way into a folder: under a name of its own, locked, until it is whole.
 *
 * What an error leaves is removed; what a crash leaves (data.mdb.part) is no store, the next attempt writes over it,
 * and until then no start makes an empty store beside it.
 */
#ifndef FENCEGATE_STORE_PART_H
#define FENCEGATE_STORE_PART_H

#include "store/store.h"

#define PART_NAME "data.mdb.part"
#define PART_PATH_CAP 4096

struct part {
    const char *folder;
    char path[PART_PATH_CAP]; /* of the part */
    int fd;                   /* -1: none */
};

/* Would part_begin() refuse the folder for what is in it? A missing one it would not. */
enum store_error part_look(const char *folder, const char *const *names, size_t count, char *why, size_t why_cap)
    __attribute__((warn_unused_result));
/* The folder exists. Besides the part it may hold files with these names only: STORE_ALREADY. */
enum store_error part_begin(struct part *part, const char *folder, const char *const *names, size_t count, char *why,
                            size_t why_cap) __attribute__((warn_unused_result));
/* Syncs it and gives it its name, durably. */
enum store_error part_finish(struct part *part, char *why, size_t why_cap) __attribute__((warn_unused_result));
void part_drop(struct part *part); /* also after part_finish(): then it removes nothing */

/* "path: what: reason of errno" */
enum store_error part_say(int number, const char *path, const char *what, char *why, size_t why_cap);

#endif
