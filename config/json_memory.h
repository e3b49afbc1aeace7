/*
 * config/json_memory.h - memory for jansson, taken beforehand. jansson 2.14 ignores a failed allocation inside a string
 * and then reads past its end; so what a text can need is there before it is parsed, or the text is not parsed at all.
 *
 * Per thread, one text at a time: open, parse, use and free what was parsed, close.
 */
#ifndef FENCEGATE_CONFIG_JSON_MEMORY_H
#define FENCEGATE_CONFIG_JSON_MEMORY_H

#include <stdbool.h>
#include <stddef.h>

bool json_memory_open(size_t text_len) __attribute__((warn_unused_result)); /* false: no memory, nothing is open */
/* The same for a large text with few values (keys count as values): takes a fraction of that. */
bool json_memory_open_for(size_t text_len, size_t values) __attribute__((warn_unused_result));
void json_memory_close(void); /* also when nothing is open */

#endif
