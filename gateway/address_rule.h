/*
 * gateway/address_rule.h - is an address a public unicast one? Pure.
 *
 * Judged is the address that a socket is opened for or connected to, never a name or a spelling: whatever a target was
 * written like and whatever the name service said, this is where the bytes would go.
 */
#ifndef FENCEGATE_ADDRESS_RULE_H
#define FENCEGATE_ADDRESS_RULE_H

#include <stdbool.h>
#include <stddef.h>

struct sockaddr;

/* False for every family but IPv4 and IPv6, and for less than a whole address. */
bool address_is_public(const struct sockaddr *address, size_t len);
/* The same for an address as inet_ntop() writes it; false for anything else, a zone ("%eth0") included. */
bool address_text_is_public(const char *text);

#endif
