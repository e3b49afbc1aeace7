/*
 * gateway/command.h - the subcommands that look into a store, beside a running gateway or without one.
 *
 * Each takes its own arguments (argv[0] is the subcommand) and returns the exit status of SPEC section 6:
 * 0 done, 1 not found or refused, 2 usage or configuration, 3 store or I/O.
 */
#ifndef FENCEGATE_COMMAND_H
#define FENCEGATE_COMMAND_H

#include <stdint.h>

struct audit_record;
struct fence_entry;
struct jsonout;

int command_audit(int argc, char **argv);
int command_fences(int argc, char **argv);
int command_effects(int argc, char **argv);

/* One audit record, fence or effect in doubt as a JSON object with SPEC section 7's members; also what the admin
 * listener gives. in_flight NULL: not known. */
void audit_record_write(struct jsonout *out, const struct audit_record *record);
void fence_write(struct jsonout *out, const struct fence_entry *entry, const uint64_t *in_flight);
void effect_write(struct jsonout *out, const struct audit_record *intent);

#endif
