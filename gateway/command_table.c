/* gateway/command_table.c - rows and their widths, see command_table.h. What is in them is left to the commands. */
#include "gateway/command_table.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "gateway/command_store.h"
#include "gateway/token.h"

#define COLUMNS_MAX 16
#define PAD_MAX 40 /* one long path must not push every row's next column off the screen */

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

/* Places that UTF-8 text takes on a terminal, near enough: code points. */
static size_t width_of(const char *text)
{
    size_t width = 0;
    for (; *text != '\0'; text++)
        width += (*text & 0xC0) != 0x80;
    return width;
}

static void measure(const struct table *table, size_t *width)
{
    memset(width, 0, table->columns * sizeof *width);
    for (size_t row = 0; row < table->count; row++) {
        const char *cell = table->text.text + table->rows[row];
        for (size_t column = 0; column < table->columns; column++, cell += strlen(cell) + 1) {
            size_t cell_width = width_of(cell);
            if (cell_width > width[column])
                width[column] = cell_width;
        }
    }
    for (size_t column = 0; column < table->columns; column++) {
        size_t title_width = strlen(table->titles[column]);
        if (width[column] > 0 && width[column] < title_width)
            width[column] = title_width;
        if (width[column] > PAD_MAX)
            width[column] = PAD_MAX;
    }
}

/* Blanks are written only before a further cell, so that no row ends in them. */
static void print_cell(const char *cell, size_t width, size_t *owed)
{
    if (width == 0) /* empty in every row: the column is left out */
        return;
    if (*cell == '\0')
        cell = "-";
    size_t used = width_of(cell);
    printf("%*s%s", (int)*owed, "", cell);
    *owed = (used < width ? width - used : 0) + 2;
}

static void print_table(const struct table *table, bool reversed)
{
    size_t width[COLUMNS_MAX], owed = 0;
    measure(table, width);
    for (size_t column = 0; column < table->columns; column++)
        print_cell(table->titles[column], width[column], &owed);
    putchar('\n');
    for (size_t row = 0; row < table->count; row++) {
        const char *cell = table->text.text + table->rows[reversed ? table->count - 1 - row : row];
        owed = 0;
        for (size_t column = 0; column < table->columns; column++, cell += strlen(cell) + 1)
            print_cell(cell, width[column], &owed);
        putchar('\n');
    }
}

static void print_lines(const struct table *table, bool reversed)
{
    for (size_t i = 0; i < table->count; i++) {
        size_t row = reversed ? table->count - 1 - i : i;
        size_t end = row + 1 < table->count ? table->rows[row + 1] : table->text.len;
        fwrite(table->text.text + table->rows[row], 1, end - table->rows[row], stdout);
    }
}

bool table_print(const struct table *table, const char *command, bool reversed)
{
    if (table->json)
        print_lines(table, reversed);
    else if (table->count > 0)
        print_table(table, reversed);
    return command_flush(command);
}

void table_free(struct table *table)
{
    free(table->rows);
    table->rows = NULL;
    table->count = table->cap = 0;
    jsonout_free(&table->text);
}
