/*
 * tests/e2e/names.c - a name service and a network of the tests' own, preloaded into the gateway.
 *
 * Names that end in ".test" are looked up in the file NAMES_FILE: a line "NAME ADDRESS...", read anew for each look. A
 * name without a line does not resolve; one whose line is "NAME wait" resolves when it has another line. Under
 * ".mute.test" no name server answers: the look gives up after MUTE_SECONDS, as a resolver does. Connections
 * to addresses that are not loopback go to 127.0.0.1, same port, and look as if they had gone where they should. A line
 * "clock SECONDS" sets time() ahead: libcurl's memory of names ages by it, its connections do not.
 */
#include <arpa/inet.h>
#include <dlfcn.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { DESCRIPTORS = 4096, MUTE_SECONDS = 20 };

static struct sockaddr_storage peers[DESCRIPTORS]; /* where a redirected connection was meant to go */

/* The rest of the line that begins with `word`, into `out`; false: there is none. */
static int line_of(const char *word, char *out, size_t cap)
{
    const char *name = getenv("NAMES_FILE");
    FILE *file = name == NULL ? NULL : fopen(name, "re");
    int found = 0;
    while (file != NULL && !found && fgets(out, (int)cap, file) != NULL) {
        size_t len = strlen(word);
        found = strncmp(out, word, len) == 0 && out[len] == ' ';
        if (found)
            memmove(out, out + len + 1, strlen(out + len + 1) + 1);
    }
    if (file != NULL)
        fclose(file);
    return found;
}

int getaddrinfo(const char *node, const char *service, const struct addrinfo *hints, struct addrinfo **out)
{
    int (*real)(const char *, const char *, const struct addrinfo *, struct addrinfo **) =
        dlsym(RTLD_NEXT, "getaddrinfo");
    size_t len = node == NULL ? 0 : strlen(node), mute = strlen(".mute.test");
    char line[1024], *rest = NULL;
    struct addrinfo numeric = hints == NULL ? (struct addrinfo){0} : *hints;
    struct addrinfo **tail = out;
    if (len < 5 || strcmp(node + len - 5, ".test") != 0)
        return real(node, service, hints, out);
    if (len > mute && strcmp(node + len - mute, ".mute.test") == 0) {
        sleep(MUTE_SECONDS);
        return EAI_AGAIN;
    }
    do {
        if (!line_of(node, line, sizeof line))
            return EAI_NONAME;
    } while (strncmp(line, "wait", 4) == 0 && usleep(2000) == 0);
    numeric.ai_flags |= AI_NUMERICHOST;
    *out = NULL;
    for (char *word = strtok_r(line, " \n", &rest); word != NULL; word = strtok_r(NULL, " \n", &rest)) {
        if (real(word, service, &numeric, tail) != 0)
            continue; /* of another family than was asked for */
        while (*tail != NULL)
            tail = &(*tail)->ai_next; /* freeaddrinfo() frees one by one */
    }
    return *out == NULL ? EAI_NONAME : 0;
}

static int is_loopback(const struct sockaddr *address)
{
    const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)address;
    if (address->sa_family == AF_INET)
        return ntohl(((const struct sockaddr_in *)address)->sin_addr.s_addr) >> 24 == 127;
    return address->sa_family != AF_INET6 || IN6_IS_ADDR_LOOPBACK(&v6->sin6_addr);
}

int connect(int fd, const struct sockaddr *address, socklen_t len)
{
    int (*real)(int, const struct sockaddr *, socklen_t) = dlsym(RTLD_NEXT, "connect");
    if (fd >= 0 && fd < DESCRIPTORS)
        peers[fd].ss_family = AF_UNSPEC;
    if (fd < 0 || fd >= DESCRIPTORS || is_loopback(address))
        return real(fd, address, len);
    struct sockaddr_in6 v6 = {.sin6_family = AF_INET6};
    struct sockaddr_in v4 = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    inet_pton(AF_INET6, "::ffff:127.0.0.1", &v6.sin6_addr);
    memcpy(&peers[fd], address, len);
    if (address->sa_family == AF_INET) {
        v4.sin_port = ((const struct sockaddr_in *)address)->sin_port;
        return real(fd, (struct sockaddr *)&v4, sizeof v4);
    }
    v6.sin6_port = ((const struct sockaddr_in6 *)address)->sin6_port;
    return real(fd, (struct sockaddr *)&v6, sizeof v6);
}

int getpeername(int fd, struct sockaddr *address, socklen_t *len)
{
    int (*real)(int, struct sockaddr *, socklen_t *) = dlsym(RTLD_NEXT, "getpeername");
    if (fd < 0 || fd >= DESCRIPTORS || peers[fd].ss_family == AF_UNSPEC)
        return real(fd, address, len);
    socklen_t whole = peers[fd].ss_family == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6);
    memcpy(address, &peers[fd], *len < whole ? *len : whole);
    *len = whole;
    return 0;
}

time_t time(time_t *out)
{
    struct timespec now;
    char line[1024];
    clock_gettime(CLOCK_REALTIME, &now);
    time_t seconds = now.tv_sec + (line_of("clock", line, sizeof line) ? atol(line) : 0);
    if (out != NULL)
        *out = seconds;
    return seconds;
}
