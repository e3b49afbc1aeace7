/*
 * gateway/command_table.h - rows for people or for programs: a table, or a JSON object a line.
 *
 * A row is written into `text` when it comes (what a query delivers is gone after the call) and printed at the end,
 * when the widths are known. Zero-initialise, then set `titles`, `columns` and `json`.
 *
 * On a terminal the titles and some cells have colours, and long cells of the `soft` columns are cut, with "…" at
 * their end, as far as a row would not fit otherwise. The others are never cut: keys, tokens and ids are copied into
 * the next command. What goes into a file or a pipe is whole and plain.
 */
#ifndef FENCEGATE_COMMAND_TABLE_H
#define FENCEGATE_COMMAND_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "gateway/jsonout.h"
#include "store/store.h"

#define TABLE_COLUMNS_MAX 16

struct table {
    const char *const *titles;
    size_t columns;
    bool json;
    unsigned soft;     /* bit 1 << column: may be cut */
    size_t soft_least; /* places that a cut cell keeps at least; 0: a dozen */
    /* The colour of a cell (a parameter of the terminal's SGR sequence, as "31"), or NULL. May be NULL itself. */
    const char *(*colour)(size_t column, const char *cell);
    struct jsonout text; /* the rows: a JSON line each, or a cell after the other, each with a NUL behind it */
    size_t *rows;        /* where each begins */
    size_t count, cap;
    bool failed;                     /* out of memory */
    size_t width[TABLE_COLUMNS_MAX]; /* of the widest cell so far; 0: empty in every row, left out */
    unsigned titled;                 /* the columns of the titles printed last */
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
 * are left out. More rows may come after table_clear(): columns keep their places, and the titles come again only
 * when there is a new column. */
bool table_print(struct table *table, const char *command, bool reversed) __attribute__((warn_unused_result));
void table_clear(struct table *table);
void table_free(struct table *table);

#endif
