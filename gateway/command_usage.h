/*
 * gateway/command_usage.h - what a command says about itself, made from its table; and running one.
 */
#ifndef FENCEGATE_COMMAND_USAGE_H
#define FENCEGATE_COMMAND_USAGE_H

#include "gateway/command_options.h"

/* The text of `fencegate help NAME`. */
void command_usage(const struct command *command, struct jsonout *out);
/* Its row in `fencegate help`. */
void command_summary(const struct command *command, struct jsonout *out);

/* argv[0] is the subcommand. Parses, finds the store where the command has one, runs; an exit status. Whatever is not
 * COMMAND_DONE was said on standard error. */
int command_run(const struct command *command, int argc, char **argv);

#endif
