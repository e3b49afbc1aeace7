/*
 * config/units.h - numbers, durations and sizes as text. Pure.
 *
 * Digits and a unit, nothing else: no sign, blank, decimal point or exponent, and never a wrapped value. "30" where
 * "30s" was meant is an error, since a guess that is off by a thousand costs money.
 */
#ifndef FENCEGATE_CONFIG_UNITS_H
#define FENCEGATE_CONFIG_UNITS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct conf_unit {
    const char *name;
    uint64_t factor;
};
extern const struct conf_unit conf_duration_units[]; /* ms s m h d, in milliseconds; ends with a NULL name */
extern const struct conf_unit conf_size_units[];     /* B KiB MiB GiB, in bytes; ends with a NULL name */

#define CONF_SECOND UINT64_C(1000)
#define CONF_MINUTE (60 * CONF_SECOND)
#define CONF_HOUR (60 * CONF_MINUTE)
#define CONF_DAY (24 * CONF_HOUR)
#define CONF_KIB UINT64_C(1024)
#define CONF_MIB (1024 * CONF_KIB)
#define CONF_GIB (1024 * CONF_MIB)

/* 1 to 20 ASCII digits up to 2^64-1. False, with *out untouched, for everything else. */
bool conf_parse_digits(const char *text, size_t len, uint64_t *out) __attribute__((warn_unused_result));
/* Digits and one of `units`. False, with *out untouched, for everything else. */
bool conf_parse_units(const char *text, const struct conf_unit *units, uint64_t *out)
    __attribute__((warn_unused_result));
/* In the largest unit that shows it exactly: 90000 ms is "90s". */
#define CONF_UNITS_TEXT 32
void conf_format_units(uint64_t value, const struct conf_unit *units, char out[CONF_UNITS_TEXT]);

#endif
