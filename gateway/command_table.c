/* gateway/command_table.c - rows and their widths, see command_table.h. What is in them is left to the commands. */
#include "gateway/command_table.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "gateway/command_store.h"
#include "gateway/command_terminal.h"
#include "gateway/token.h"

#define PAD_MAX 40    /* one long path must not push every row's next column off the screen */
#define SOFT_LEAST 12 /* places that a cut cell keeps */
#define BOLD "1"
#define DIM "2"

void cell_end(struct jsonout *out)
{
    jsonout_raw(out, "", 1);
}

void cell_slice(struct jsonout *out, struct slice text)
{
    jsonout_escaped(out, text.data, text.len);
    cell_end(out);
}

void cell_number(struct jsonout *out, uint64_t value)
{
    if (value != 0) {
        char digits[TOKEN_DIGITS_MAX + 1];
        size_t len = token_format(value, digits);
        jsonout_raw(out, digits, len);
    }
    cell_end(out);
}

/* Local time with its offset, since people compare it with their own logs and clocks change twice a year. */
void cell_time(struct jsonout *out, uint64_t unix_ms)
{
    time_t seconds = (time_t)(unix_ms / 1000);
    struct tm local;
    char date[32], offset[8], text[64];
    if (localtime_r(&seconds, &local) == NULL || strftime(date, sizeof date, "%Y-%m-%d %H:%M:%S", &local) == 0 ||
        strftime(offset, sizeof offset, "%z", &local) == 0) {
        format_time_ms(unix_ms, text);
    } else {
        snprintf(text, sizeof text, "%s.%03u %s", date, (unsigned)(unix_ms % 1000), offset);
    }
    jsonout_raw(out, text, strlen(text));
    cell_end(out);
}

void cell_request(struct jsonout *out, struct slice method, struct slice path)
{
    jsonout_escaped(out, method.data, method.len);
    if (method.len > 0 && path.len > 0)
        jsonout_raw(out, " ", 1);
    cell_slice(out, path);
}

bool table_row_begin(struct table *table)
{
    if (table->count == table->cap) {
        size_t cap = table->cap == 0 ? 128 : table->cap * 2;
        size_t *rows = realloc(table->rows, cap * sizeof *rows);
        if (rows == NULL) {
            table->failed = true;
            return false;
        }
        table->rows = rows;
        table->cap = cap;
    }
    table->rows[table->count++] = table->text.len;
    return true;
}

bool table_row_end(struct table *table)
{
    if (table->json)
        jsonout_raw(&table->text, "\n", 1);
    table->failed = table->text.failed;
    return !table->failed;
}

static void measure(struct table *table)
{
    for (size_t row = 0; row < table->count; row++) {
        const char *cell = table->text.text + table->rows[row];
        for (size_t column = 0; column < table->columns; column++) {
            size_t len = strlen(cell), width = display_width(cell, len);
            if (width > table->width[column])
                table->width[column] = width;
            cell += len + 1;
        }
    }
    for (size_t column = 0; column < table->columns; column++) {
        size_t least = strlen(table->titles[column]);
        if (table->width[column] > 0 && table->width[column] < least)
            table->width[column] = least;
    }
}

struct layout {
    struct terminal terminal;
    size_t width[TABLE_COLUMNS_MAX]; /* to pad to */
    unsigned cut;                    /* columns that are cut to their width */
};

static void lay_out(const struct table *table, struct layout *layout)
{
    size_t total = 0;
    const size_t least = table->soft_least > SOFT_LEAST ? table->soft_least : SOFT_LEAST;
    layout->cut = layout->terminal.width == 0 ? 0 : table->soft;
    for (size_t column = 0; column < table->columns; column++) {
        bool whole = (layout->cut & 1u << column) != 0; /* these give way when they have to, below */
        layout->width[column] = whole || table->width[column] < PAD_MAX ? table->width[column] : PAD_MAX;
        total += layout->width[column] == 0 ? 0 : layout->width[column] + 2;
    }
    while (layout->cut != 0 && total > layout->terminal.width + 2) { /* the last column has no blanks behind it */
        size_t widest = 0, most = least;
        for (size_t column = 0; column < table->columns; column++)
            if ((layout->cut & 1u << column) != 0 && layout->width[column] > most) {
                widest = column;
                most = layout->width[column];
            }
        if (most == least)
            break;
        layout->width[widest]--;
        total--;
    }
}

static void print_coloured(const char *colour, const char *text, size_t len)
{
    if (colour != NULL)
        printf("\033[%sm%.*s\033[0m", colour, (int)len, text);
    else
        fwrite(text, 1, len, stdout);
}

/* Blanks are written only before a further cell, so that no row ends in them. */
static void print_cell(const struct layout *layout, size_t column, const char *cell, const char *colour, size_t *owed)
{
    size_t width = layout->width[column], len = strlen(cell), used;
    if (width == 0) /* empty in every row: the column is left out */
        return;
    if (len == 0) {
        cell = "-";
        len = 1;
        colour = layout->terminal.colours ? DIM : NULL;
    }
    bool cut = (layout->cut & 1u << column) != 0 && display_width(cell, len) > width;
    if (cut)
        len = display_fit(cell, len, width - 1, &used);
    else
        used = display_width(cell, len);
    printf("%*s", (int)*owed, "");
    print_coloured(colour, cell, len);
    if (cut)
        fputs("\u2026", stdout);
    used += cut;
    *owed = (used < width ? width - used : 0) + 2;
}

static void print_titles(struct table *table, const struct layout *layout)
{
    size_t owed = 0;
    unsigned columns = 0;
    for (size_t column = 0; column < table->columns; column++)
        if (layout->width[column] > 0)
            columns |= 1u << column;
    if (columns == table->titled)
        return;
    table->titled = columns;
    for (size_t column = 0; column < table->columns; column++)
        print_cell(layout, column, table->titles[column], layout->terminal.colours ? BOLD : NULL, &owed);
    putchar('\n');
}

static void print_table(struct table *table, bool reversed)
{
    struct layout layout = {.terminal = terminal_of(STDOUT_FILENO)};
    measure(table);
    lay_out(table, &layout);
    print_titles(table, &layout);
    bool colours = layout.terminal.colours && table->colour != NULL;
    for (size_t row = 0; row < table->count && !ferror(stdout); row++) {
        const char *cell = table->text.text + table->rows[reversed ? table->count - 1 - row : row];
        size_t owed = 0;
        for (size_t column = 0; column < table->columns; column++, cell += strlen(cell) + 1)
            print_cell(&layout, column, cell, colours ? table->colour(column, cell) : NULL, &owed);
        putchar('\n');
    }
}

static void print_lines(const struct table *table, bool reversed)
{
    for (size_t i = 0; i < table->count && !ferror(stdout); i++) {
        size_t row = reversed ? table->count - 1 - i : i;
        size_t end = row + 1 < table->count ? table->rows[row + 1] : table->text.len;
        fwrite(table->text.text + table->rows[row], 1, end - table->rows[row], stdout);
    }
}

bool table_print(struct table *table, const char *command, bool reversed)
{
    if (table->json)
        print_lines(table, reversed);
    else if (table->count > 0)
        print_table(table, reversed);
    return command_flush(command);
}

void table_clear(struct table *table)
{
    table->count = 0;
    jsonout_reset(&table->text);
}

void table_free(struct table *table)
{
    free(table->rows);
    table->rows = NULL;
    table->count = table->cap = 0;
    jsonout_free(&table->text);
}
