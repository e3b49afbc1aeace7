/*
 * gateway/command_table.h - rows for people or for programs: a table, or a JSON object a line.
 *
 * A row is written into `text` when it comes (what a query delivers is gone after the call) and printed at the end,
 * when the widths are known. Zero-initialise, then set `titles`, `columns` and `json`.
 */
#ifndef FENCEGATE_COMMAND_TABLE_H
#define FENCEGATE_COMMAND_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "gateway/jsonout.h"
#include "store/store.h"

struct table {
    const char *const *titles;
    size_t columns;
    bool json;
    struct jsonout text; /* the rows: a JSON line each, or a cell after the other, each with a NUL behind it */
    size_t *rows;        /* where each begins */
    size_t count, cap;
    bool failed; /* out of memory */
};

bool table_row_begin(struct table *table) __attribute__((warn_unused_result)); /* false: failed */
bool table_row_end(struct table *table) __attribute__((warn_unused_result));   /* ends a JSON line; false: failed */

/* The cells of a row that is not JSON, in the order of the titles. */
void cell_end(struct jsonout *out);
/* Bytes from outside, made safe: a key with an escape sequence must not write on the operator's terminal. */
void cell_slice(struct jsonout *out, struct slice text);
void cell_number(struct jsonout *out, uint64_t value); /* 0: empty */
void cell_time(struct jsonout *out, uint64_t unix_ms);
void cell_request(struct jsonout *out, struct slice method, struct slice path);

/* False: standard output failed, which was said. `reversed`: the last row first. Columns that are empty in every row
 * are left out. */
bool table_print(const struct table *table, const char *command, bool reversed) __attribute__((warn_unused_result));
void table_free(struct table *table);

#endif
