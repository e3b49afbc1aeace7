/*
 * gateway/command.h - the subcommands that look into a store or change it, beside a running gateway or without one.
 *
 * Each is a table (command_options.h) that command_run() runs; exit statuses are those of SPEC section 6:
 * 0 done, 1 not found or refused, 2 usage or configuration, 3 store or I/O.
 */
#ifndef FENCEGATE_COMMAND_H
#define FENCEGATE_COMMAND_H

#include <stdint.h>

#include "store/store.h"

struct command;
struct jsonout;

extern const struct command command_audit, command_fences, command_history, command_effects;
extern const struct command command_backup, command_restore, command_verify;

/* One audit record, fence or effect without a known outcome as a JSON object with SPEC section 7's members; also what
 * the admin listener gives. in_flight NULL: not known. */
void audit_record_write(struct jsonout *out, const struct audit_record *record);
void fence_write(struct jsonout *out, const struct fence_entry *entry, const uint64_t *in_flight);
void effect_write(struct jsonout *out, const struct audit_record *effect, enum effects_state state);

#endif
