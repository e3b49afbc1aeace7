/*
 * gateway/command_whole.h - what backup, restore and verify share: what is in a store, findings, and an end in good
 * order when a page of its file is broken.
 */
#ifndef FENCEGATE_COMMAND_WHOLE_H
#define FENCEGATE_COMMAND_WHOLE_H

#include "gateway/jsonout.h"
#include "store/store.h"

/* A damaged file can end a process that reads it through a map (store.h says how). From here on that is exit status 3
 * and a line on standard error that names `path`, and so is no sign of life for ten minutes. */
void whole_guard(const char *command, const char *path);

/* Prints what a check finds, at most FINDINGS_SHOWN of it; for a store_checker. */
#define FINDINGS_SHOWN 100
struct findings {
    uint64_t count;
    bool json;
};
void whole_finding(void *findings, const struct store_finding *finding);
void whole_alive(void *findings); /* a sign of life */

/* "3 fences, 12 audit records up to id 14, 1 effect without an outcome"; members of an open object. */
void whole_contents(struct jsonout *out, const struct store_contents *contents);
void whole_contents_json(struct jsonout *out, const struct store_contents *contents);

/* Prints the line and frees it. An exit status. */
int whole_print(const char *command, struct jsonout *line);

#endif
