/*
 * gateway/address_rule.c - the blocks that are not public unicast, from the special-purpose registries of IANA (RFC
 * 6890 and its updates).
 *
 * For IPv4 what is not public is listed; for IPv6 what is public, less a list. So an IPv6 address that holds an IPv4
 * address (mapped, compatible, NAT64) is refused whatever that is: it lies outside 2000::/3, or (6to4, Teredo) in the
 * list.
 */
#include "gateway/address_rule.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>

#define V4(a, b, c, d) ((uint32_t)(a) << 24 | (uint32_t)(b) << 16 | (uint32_t)(c) << 8 | (uint32_t)(d))

static const struct {
    uint32_t net;
    unsigned bits;
} not_public_v4[] = {
    {V4(0, 0, 0, 0), 8},       /* "this network" */
    {V4(10, 0, 0, 0), 8},      /* private */
    {V4(100, 64, 0, 0), 10},   /* shared by a carrier's customers (CGNAT) */
    {V4(127, 0, 0, 0), 8},     /* loopback */
    {V4(169, 254, 0, 0), 16},  /* link-local: the clouds' metadata services are here */
    {V4(172, 16, 0, 0), 12},   /* private */
    {V4(192, 0, 0, 0), 24},    /* protocol assignments */
    {V4(192, 0, 2, 0), 24},    /* documentation */
    {V4(192, 88, 99, 0), 24},  /* 6to4 relays, withdrawn */
    {V4(192, 168, 0, 0), 16},  /* private */
    {V4(198, 18, 0, 0), 15},   /* benchmarking */
    {V4(198, 51, 100, 0), 24}, /* documentation */
    {V4(203, 0, 113, 0), 24},  /* documentation */
    {V4(224, 0, 0, 0), 4},     /* multicast */
    {V4(240, 0, 0, 0), 4},     /* reserved, and the broadcast address */
};

/* The first two groups decide: no block here is longer than 32 bits. */
#define V6(a, b) ((uint32_t)(a) << 16 | (uint32_t)(b))

static const struct {
    uint32_t net;
    unsigned bits;
} not_public_v6[] = {
    {V6(0x2001, 0), 23},     /* protocol assignments: Teredo, benchmarking, ORCHID */
    {V6(0x2001, 0xdb8), 32}, /* documentation */
    {V6(0x2002, 0), 16},     /* 6to4 */
    {V6(0x3fff, 0), 20},     /* documentation */
};

static bool within(uint32_t value, uint32_t net, unsigned bits)
{
    return (value ^ net) >> (32 - bits) == 0;
}

static bool v4_is_public(const struct in_addr *address)
{
    uint32_t value = ntohl(address->s_addr);
    for (size_t i = 0; i < sizeof not_public_v4 / sizeof not_public_v4[0]; i++)
        if (within(value, not_public_v4[i].net, not_public_v4[i].bits))
            return false;
    return true;
}

static bool v6_is_public(const struct in6_addr *address)
{
    uint32_t value;
    memcpy(&value, address->s6_addr, sizeof value);
    value = ntohl(value);
    if (!within(value, V6(0x2000, 0), 3))
        return false;
    for (size_t i = 0; i < sizeof not_public_v6 / sizeof not_public_v6[0]; i++)
        if (within(value, not_public_v6[i].net, not_public_v6[i].bits))
            return false;
    return true;
}

bool address_is_public(const struct sockaddr *address, size_t len)
{
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
    if (len >= sizeof v4 && address->sa_family == AF_INET) {
        memcpy(&v4, address, sizeof v4);
        return v4_is_public(&v4.sin_addr);
    }
    if (len >= sizeof v6 && address->sa_family == AF_INET6) {
        memcpy(&v6, address, sizeof v6);
        return v6_is_public(&v6.sin6_addr);
    }
    return false;
}

bool address_text_is_public(const char *text)
{
    struct in_addr v4;
    struct in6_addr v6;
    if (text == NULL)
        return false;
    if (inet_pton(AF_INET, text, &v4) == 1)
        return v4_is_public(&v4);
    return inet_pton(AF_INET6, text, &v6) == 1 && v6_is_public(&v6);
}
