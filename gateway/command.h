/*
 * gateway/command.h - the subcommands that look into a store, beside a running gateway or without one.
 *
 * Each takes its own arguments (argv[0] is the subcommand) and returns the exit status of SPEC section 6:
 * 0 done, 1 not found or refused, 2 usage or configuration, 3 store or I/O.
 */
#ifndef FENCEGATE_COMMAND_H
#define FENCEGATE_COMMAND_H

struct audit_record;
struct jsonout;

int command_audit(int argc, char **argv);

/* One audit record as a JSON object with SPEC section 7's members; also what GET /v1/audit gives. */
void audit_record_write(struct jsonout *out, const struct audit_record *record);

#endif
