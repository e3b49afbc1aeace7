/* tests/unit/test_address_rule.c - which addresses are public: the borders of every block, and what holds another. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "gateway/address_rule.h"

static const char *const refused[] = {
    /* first and last address of each IPv4 block */
    "0.0.0.0",
    "0.0.0.1",
    "0.255.255.255",
    "10.0.0.0",
    "10.0.0.1",
    "10.255.255.255",
    "100.64.0.0",
    "100.64.0.1",
    "100.100.100.200", /* a cloud's metadata service */
    "100.127.255.255",
    "127.0.0.0",
    "127.0.0.1",
    "127.1.2.3",
    "127.255.255.255",
    "169.254.0.0",
    "169.254.169.254", /* most clouds' */
    "169.254.170.2",
    "169.254.255.255",
    "172.16.0.0",
    "172.17.0.1",
    "172.31.255.255",
    "192.0.0.0",
    "192.0.0.1",
    "192.0.0.170",
    "192.0.0.192",
    "192.0.0.255",
    "192.0.2.0",
    "192.0.2.1",
    "192.0.2.255",
    "192.88.99.0",
    "192.88.99.1",
    "192.88.99.255",
    "192.168.0.0",
    "192.168.0.1",
    "192.168.255.255",
    "198.18.0.0",
    "198.18.0.1",
    "198.19.255.255",
    "198.51.100.0",
    "198.51.100.1",
    "198.51.100.255",
    "203.0.113.0",
    "203.0.113.1",
    "203.0.113.255",
    "224.0.0.0",
    "224.0.0.1",
    "239.255.255.250",
    "239.255.255.255",
    "240.0.0.0",
    "240.0.0.1",
    "255.255.255.254",
    "255.255.255.255",
    /* IPv6 outside 2000::/3 */
    "::",
    "::1",
    "::2",
    "::7f00:1",
    "::127.0.0.1",
    "::10.0.0.1",
    "::8.8.8.8",
    "::ffff:0:0",
    "::ffff:127.0.0.1",
    "::ffff:7f00:1",
    "::ffff:10.0.0.1",
    "::ffff:169.254.169.254",
    "::ffff:8.8.8.8",
    "::ffff:ffff:ffff",
    "::ffff:0:127.0.0.1",
    "64:ff9b::",
    "64:ff9b::127.0.0.1",
    "64:ff9b::8.8.8.8",
    "64:ff9b:1::",
    "64:ff9b:1::10.0.0.1",
    "100::",
    "100::1",
    "100:0:0:1::1",
    "200::1",
    "400::1",
    "1000::1",
    "1fff:ffff:ffff:ffff:ffff:ffff:ffff:ffff",
    "4000::",
    "4000::1",
    "5f00::1",
    "6000::1",
    "8000::1",
    "a000::1",
    "c000::1",
    "e000::1",
    "f000::1",
    "fc00::",
    "fc00::1",
    "fd00::1",
    "fd00:ec2::254", /* a cloud's metadata service */
    "fdff:ffff:ffff:ffff:ffff:ffff:ffff:ffff",
    "fe00::1",
    "fe80::",
    "fe80::1",
    "febf::1",
    "fec0::1",
    "feff::1",
    "ff00::",
    "ff01::1",
    "ff02::1",
    "ff05::2",
    "ff0e::1",
    "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff",
    /* and of 2000::/3 */
    "2001::",
    "2001::1",
    "2001:0:4136:e378:8000:63bf:3fff:fdd2",
    "2001:1::1",
    "2001:2::",
    "2001:2:0:1::1",
    "2001:3::1",
    "2001:4:112::1",
    "2001:10::1",
    "2001:20::1",
    "2001:2f:ffff::1",
    "2001:30::1",
    "2001:100::1",
    "2001:1ff:ffff:ffff:ffff:ffff:ffff:ffff",
    "2001:db8::",
    "2001:db8::1",
    "2001:db8:ffff:ffff:ffff:ffff:ffff:ffff",
    "2002::",
    "2002:7f00:1::",
    "2002:7f00:1::1",
    "2002:a9fe:a9fe::1",
    "2002:808:808::1",
    "2002:ffff:ffff:ffff:ffff:ffff:ffff:ffff",
    "3fff::",
    "3fff::1",
    "3fff:fff:ffff:ffff:ffff:ffff:ffff:ffff",
};

static const char *const public[] = {
    /* the neighbours of each block */
    "1.0.0.0",
    "1.1.1.1",
    "8.8.8.8",
    "9.255.255.255",
    "11.0.0.0",
    "100.63.255.255",
    "100.128.0.0",
    "126.255.255.255",
    "128.0.0.0",
    "169.253.255.255",
    "169.255.0.0",
    "172.15.255.255",
    "172.32.0.0",
    "191.255.255.255",
    "192.0.1.0",
    "192.0.1.255",
    "192.0.3.0",
    "192.88.98.255",
    "192.88.100.0",
    "192.167.255.255",
    "192.169.0.0",
    "198.17.255.255",
    "198.20.0.0",
    "198.51.99.255",
    "198.51.101.0",
    "203.0.112.255",
    "203.0.114.0",
    "223.255.255.255",
    "2000::",
    "2000::1",
    "2000:ffff:ffff:ffff:ffff:ffff:ffff:ffff",
    "2001:200::",
    "2001:200::1",
    "2001:4860:4860::8888",
    "2001:db7:ffff:ffff:ffff:ffff:ffff:ffff",
    "2001:db9::",
    "2001:ffff::1",
    "2003::",
    "2003::1",
    "2400:cb00::1",
    "2606:4700:4700::1111",
    "2a00:1450:4001:81b::200e",
    "3ffe::1",
    "3ffe:ffff:ffff:ffff:ffff:ffff:ffff:ffff",
    "3fff:1000::",
    "3fff:1000::1",
    "3fff:ffff:ffff:ffff:ffff:ffff:ffff:ffff",
};

/* As a socket has it, and as text. */
static bool is_public(const char *text)
{
    struct sockaddr_in v4 = {.sin_family = AF_INET, .sin_port = htons(443)};
    struct sockaddr_in6 v6 = {.sin6_family = AF_INET6, .sin6_port = htons(443)};
    bool by_text = address_text_is_public(text), by_socket = !by_text;
    if (inet_pton(AF_INET, text, &v4.sin_addr) == 1)
        by_socket = address_is_public((const struct sockaddr *)&v4, sizeof v4);
    else if (inet_pton(AF_INET6, text, &v6.sin6_addr) == 1)
        by_socket = address_is_public((const struct sockaddr *)&v6, sizeof v6);
    else
        fail_msg("no address: %s", text);
    if (by_text != by_socket)
        fail_msg("%s: %d as text, %d on a socket", text, by_text, by_socket);
    return by_text;
}

static void addresses(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++)
        if (is_public(refused[i]))
            fail_msg("%s passed for public", refused[i]);
    for (size_t i = 0; i < sizeof public / sizeof public[0]; i++)
        if (!is_public(public[i]))
            fail_msg("%s was refused", public[i]);
}

/* Every /8 of IPv4 by its middle, against the list of those that are whole blocks. */
static void first_bytes(void **state)
{
    (void)state;
    for (unsigned first = 0; first < 256; first++) {
        char text[32];
        snprintf(text, sizeof text, "%u.77.77.77", first);
        assert_int_equal(is_public(text), first != 0 && first != 10 && first != 127 && first < 224 && first != 100);
    }
    assert_true(is_public("100.200.1.1"));
}

static void not_an_address(void **state)
{
    static const char *const texts[] = {"",          "localhost", "127.1",     "0x7f.0.0.1", "2130706433",
                                        "8.8.8",     "8.8.8.8 ",  " 8.8.8.8",  "8.8.8.8:80", "[2606:4700:4700::1111]",
                                        "2606:4700", "fe80::1%1", "8.8.8.256", "example.com"};
    struct sockaddr_un local = {.sun_family = AF_UNIX, .sun_path = "/run/x"};
    struct sockaddr_in v4 = {.sin_family = AF_INET};
    struct sockaddr_in6 v6 = {.sin6_family = AF_INET6};
    (void)state;
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
        assert_false(address_text_is_public(texts[i]));
    assert_false(address_text_is_public(NULL));
    assert_false(address_is_public((const struct sockaddr *)&local, sizeof local));
    assert_int_equal(inet_pton(AF_INET, "8.8.8.8", &v4.sin_addr), 1);
    assert_int_equal(inet_pton(AF_INET6, "2606:4700:4700::1111", &v6.sin6_addr), 1);
    assert_false(address_is_public((const struct sockaddr *)&v4, sizeof v4 - 1));
    assert_false(address_is_public((const struct sockaddr *)&v6, sizeof v4));
    assert_false(address_is_public((const struct sockaddr *)&v4, 0));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(addresses),
        cmocka_unit_test(first_bytes),
        cmocka_unit_test(not_an_address),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
