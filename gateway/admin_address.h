/*
 * gateway/admin_address.h - the admin listener's socket, and where it is for others: a file `admin.addr` in the store
 * folder, for the command line. Written when the listener is up, removed at a clean stop, and by whoever takes the
 * store's lock and finds one left by a crash: the port may be somebody else's by then, and the admin token must not go
 * there.
 */
#ifndef FENCEGATE_ADMIN_ADDRESS_H
#define FENCEGATE_ADMIN_ADDRESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ADMIN_ADDRESS_CAP 64 /* "127.0.0.1:8081", "[::1]:8081" */

/* The listening socket, non-blocking; -1 with one line in `error`. wanted 0: a free port; *port is the real one. */
int admin_listen(const char *address, uint16_t wanted, uint16_t *port, char *error, size_t error_cap)
    __attribute__((warn_unused_result));

void admin_address_write(const char *store_path, int listen_fd); /* a failure is logged */
void admin_address_remove(const char *store_path);
bool admin_address_read(const char *store_path, char out[ADMIN_ADDRESS_CAP]) __attribute__((warn_unused_result));

#endif
