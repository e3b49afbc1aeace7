/* config/units.c - strict parsing of digits, durations and sizes. Ranges are judged by the caller. */
#include "config/units.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

const struct conf_unit conf_duration_units[] = {
    {"ms", 1}, {"s", CONF_SECOND}, {"m", CONF_MINUTE}, {"h", CONF_HOUR}, {"d", CONF_DAY}, {NULL, 0},
};
const struct conf_unit conf_size_units[] = {
    {"B", 1}, {"KiB", CONF_KIB}, {"MiB", CONF_MIB}, {"GiB", CONF_GIB}, {NULL, 0},
};

bool conf_parse_digits(const char *text, size_t len, uint64_t *out)
{
    uint64_t value = 0;
    if (len < 1 || len > 20)
        return false;
    for (size_t i = 0; i < len; i++) {
        if (text[i] < '0' || text[i] > '9')
            return false;
        uint64_t digit = (uint64_t)(text[i] - '0');
        if (value > (UINT64_MAX - digit) / 10)
            return false;
        value = value * 10 + digit;
    }
    *out = value;
    return true;
}

bool conf_parse_units(const char *text, const struct conf_unit *units, uint64_t *out)
{
    size_t digits = strspn(text, "0123456789");
    uint64_t value;
    if (!conf_parse_digits(text, digits, &value))
        return false;
    for (const struct conf_unit *unit = units; unit->name != NULL; unit++) {
        if (strcmp(text + digits, unit->name) != 0)
            continue;
        if (value > UINT64_MAX / unit->factor)
            return false;
        *out = value * unit->factor;
        return true;
    }
    return false;
}

void conf_format_units(uint64_t value, const struct conf_unit *units, char out[CONF_UNITS_TEXT])
{
    const struct conf_unit *best = units;
    for (const struct conf_unit *unit = units; unit->name != NULL; unit++) {
        if (value >= unit->factor && value % unit->factor == 0)
            best = unit;
    }
    snprintf(out, CONF_UNITS_TEXT, "%" PRIu64 "%s", value / best->factor, best->name);
}
