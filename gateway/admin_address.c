/* gateway/admin_address.c - the listening socket and the file admin.addr, see admin_address.h. */
#include "gateway/admin_address.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "gateway/log.h"

#define PATH_CAP 4096

static bool name_file(char path[PATH_CAP], const char *store_path, const char *name)
{
    return snprintf(path, PATH_CAP, "%s/%s", store_path, name) < PATH_CAP;
}

/* As one who is on this machine reaches it: a listener on all addresses is found on loopback. */
static bool describe(int listen_fd, char out[ADMIN_ADDRESS_CAP])
{
    union {
        struct sockaddr any;
        struct sockaddr_in v4;
        struct sockaddr_in6 v6;
    } address;
    char text[INET6_ADDRSTRLEN];
    socklen_t len = sizeof address;
    if (getsockname(listen_fd, &address.any, &len) != 0) {
        return false;
    }
    if (address.any.sa_family == AF_INET) {
        if (address.v4.sin_addr.s_addr == htonl(INADDR_ANY)) {
            address.v4.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        }
        inet_ntop(AF_INET, &address.v4.sin_addr, text, sizeof text);
        snprintf(out, ADMIN_ADDRESS_CAP, "%s:%u\n", text, ntohs(address.v4.sin_port));
        return true;
    }
    if (IN6_IS_ADDR_UNSPECIFIED(&address.v6.sin6_addr)) {
        address.v6.sin6_addr = in6addr_loopback;
    }
    inet_ntop(AF_INET6, &address.v6.sin6_addr, text, sizeof text);
    snprintf(out, ADMIN_ADDRESS_CAP, "[%s]:%u\n", text, ntohs(address.v6.sin6_port));
    return true;
}

/* Renamed into place: who reads it never sees half a line. */
void admin_address_write(const char *store_path, int listen_fd)
{
    char path[PATH_CAP], fresh[PATH_CAP], line[ADMIN_ADDRESS_CAP];
    bool ok = false;
    if (name_file(path, store_path, "admin.addr") && name_file(fresh, store_path, "admin.addr.new") &&
        describe(listen_fd, line)) {
        (void)unlink(fresh); /* of a start that did not end */
        int fd = open(fresh, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
        ok = fd >= 0 && write(fd, line, strlen(line)) == (ssize_t)strlen(line);
        ok = (fd < 0 || close(fd) == 0) && ok && rename(fresh, path) == 0;
    }
    if (!ok) {
        log_message(LOG_WARN, "admin-address", "%s/admin.addr: can't be written, commands won't find this gateway: %s",
                    store_path, strerror(errno));
    }
}

void admin_address_remove(const char *store_path)
{
    char path[PATH_CAP];
    if (name_file(path, store_path, "admin.addr")) {
        unlink(path);
    }
}

bool admin_address_read(const char *store_path, char out[ADMIN_ADDRESS_CAP])
{
    char path[PATH_CAP];
    int fd = name_file(path, store_path, "admin.addr") ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (fd < 0) {
        return false;
    }
    ssize_t len = read(fd, out, ADMIN_ADDRESS_CAP - 1);
    close(fd);
    if (len < 2 || out[len - 1] != '\n') {
        return false;
    }
    out[len - 1] = '\0';
    return strspn(out, "0123456789abcdef.:[]") == strlen(out);
}

static int open_listener(const struct addrinfo *info)
{
    int on = 1;
    int fd = socket(info->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0) {
        return -1;
    }
    if (setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) != 0 ||
        bind(fd, info->ai_addr, info->ai_addrlen) != 0 || listen(fd, SOMAXCONN) != 0) {
        int saved = errno;
        close(fd);
        errno = saved;
        return -1;
    }
    return fd;
}

static bool real_port(int fd, uint16_t *port)
{
    union {
        struct sockaddr any;
        struct sockaddr_in v4;
        struct sockaddr_in6 v6;
    } address;
    socklen_t len = sizeof address;
    if (getsockname(fd, &address.any, &len) != 0) {
        return false;
    }
    *port = ntohs(address.any.sa_family == AF_INET6 ? address.v6.sin6_port : address.v4.sin_port);
    return true;
}

int admin_listen(const char *address, uint16_t wanted, uint16_t *port, char *error, size_t error_cap)
{
    const struct addrinfo hints = {.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV, .ai_socktype = SOCK_STREAM};
    struct addrinfo *info = NULL;
    char digits[8];
    snprintf(digits, sizeof digits, "%u", wanted);
    if (getaddrinfo(address, digits, &hints, &info) != 0) {
        snprintf(error, error_cap, "admin listener: %s is not an IP address", address);
        return -1;
    }
    int fd = open_listener(info);
    freeaddrinfo(info);
    if (fd < 0 || !real_port(fd, port)) {
        snprintf(error, error_cap, "admin listener: %s port %u: %s", address, wanted, strerror(errno));
        if (fd >= 0) {
            close(fd);
        }
        return -1;
    }
    return fd;
}
