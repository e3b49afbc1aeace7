/*
 * gateway/dashboard.c - the dashboard's files, put into the program by the assembler, so that there is nothing to
 * install beside it and nothing to build before it.
 *
 * A new file is a line in FILES; the Makefile's rule builds this anew when any of them changes. Which headers go with
 * them is admin.c's.
 */
#include "gateway/dashboard.h"

#include <string.h>

/* FILE(symbol, path asked for, file, content type) */
#define FILES(FILE)                                                                                                    \
    FILE(page, "/", "index.html", "text/html; charset=utf-8")                                                          \
    FILE(style, "/dashboard.css", "dashboard.css", "text/css; charset=utf-8")                                          \
    FILE(start, "/dashboard.js", "dashboard.js", SCRIPT)                                                               \
    FILE(api, "/dashboard/api.js", "api.js", SCRIPT)                                                                   \
    FILE(dom, "/dashboard/dom.js", "dom.js", SCRIPT)                                                                   \
    FILE(words, "/dashboard/words.js", "words.js", SCRIPT)                                                             \
    FILE(status, "/dashboard/status.js", "status.js", SCRIPT)                                                          \
    FILE(chart, "/dashboard/chart.js", "chart.js", SCRIPT)                                                             \
    FILE(records, "/dashboard/records.js", "records.js", SCRIPT)                                                       \
    FILE(audit, "/dashboard/audit.js", "audit.js", SCRIPT)                                                             \
    FILE(story, "/dashboard/story.js", "story.js", SCRIPT)                                                             \
    FILE(lanes, "/dashboard/lanes.js", "lanes.js", SCRIPT)                                                             \
    FILE(change, "/dashboard/change.js", "change.js", SCRIPT)                                                          \
    FILE(lists, "/dashboard/lists.js", "lists.js", SCRIPT)
#define SCRIPT "text/javascript; charset=utf-8"

#define EMBED(symbol, path, file, type)                                                                                \
    __asm__(".pushsection .rodata\n"                                                                                   \
            ".global fencegate_dashboard_" #symbol "\n"                                                                \
            "fencegate_dashboard_" #symbol ":\n"                                                                       \
            ".incbin \"gateway/dashboard/" file "\"\n"                                                                 \
            ".global fencegate_dashboard_" #symbol "_end\n"                                                            \
            "fencegate_dashboard_" #symbol "_end:\n"                                                                   \
            ".byte 0\n"                                                                                                \
            ".popsection\n");                                                                                          \
    extern const char fencegate_dashboard_##symbol[], fencegate_dashboard_##symbol##_end[];
FILES(EMBED)

#define ROW(symbol, path, file, type) {path, type, fencegate_dashboard_##symbol, fencegate_dashboard_##symbol##_end},
static const struct {
    const char *path, *content_type, *begin, *end;
} files[] = {FILES(ROW)};

bool dashboard_find(const char *path, size_t len, struct dashboard_file *out)
{
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        if (strlen(files[i].path) == len && memcmp(files[i].path, path, len) == 0) {
            out->content_type = files[i].content_type;
            out->bytes = (struct slice){files[i].begin, (size_t)(files[i].end - files[i].begin)};
            return true;
        }
    }
    return false;
}
