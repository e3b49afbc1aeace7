/*
 * gateway/dashboard.h - the files of the dashboard, as they lie in the program.
 */
#ifndef FENCEGATE_DASHBOARD_H
#define FENCEGATE_DASHBOARD_H

#include <stdbool.h>
#include <stddef.h>

#include "store/store.h"

struct dashboard_file {
    const char *content_type;
    struct slice bytes; /* lives as long as the program */
};

/* False: the dashboard has no file at that path (`/`, `/dashboard.js`, ...). */
bool dashboard_find(const char *path, size_t len, struct dashboard_file *out);

#endif
