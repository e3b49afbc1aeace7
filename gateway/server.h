/*
 * gateway/server.h - the `serve` subcommand: brings the parts up, handles signals, takes them down in order.
 *
 * Main thread only. Returns the exit status of SPEC section 6: 0 done, 2 configuration, 3 store or I/O, 4 a shutdown
 * that had to cut effects.
 */
#ifndef FENCEGATE_SERVER_H
#define FENCEGATE_SERVER_H

int server_run(const char *config_file);

#endif
