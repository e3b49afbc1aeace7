/*
 * gateway/admin_guard.c - the admin listener's token and its defence against pages in an operator's browser.
 *
 * The token decides. The checks of Host and Origin stand beside it: a page that had its own name point to the gateway
 * (DNS rebinding) would otherwise be "the same origin" as the API for the operator's browser. Which calls are open
 * to everybody is admin_calls.c's table.
 */
#include "gateway/admin_guard.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "config/config.h"
#include "gateway/headers.h"
#include "gateway/log.h"

#define RANDOM_BYTES 32

static bool write_all(int fd, const char *text, size_t len)
{
    while (len > 0) {
        ssize_t written = write(fd, text, len);
        if (written < 0 && errno == EINTR) {
            continue;
        }
        if (written <= 0) {
            return false;
        }
        text += written;
        len -= (size_t)written;
    }
    return true;
}

static bool sync_folder(const char *path)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    bool ok = fd >= 0 && fsync(fd) == 0;
    if (fd >= 0) {
        close(fd);
    }
    return ok;
}

/* Never over a file or a link that somebody else put there; some file systems can't promise that. */
static bool rename_new(const char *from, const char *to)
{
    if (renameat2(AT_FDCWD, from, AT_FDCWD, to, RENAME_NOREPLACE) == 0) {
        return true;
    }
    return errno == EINVAL && rename(from, to) == 0;
}

/* Under another name until it is whole and synced: half a token would stop the next start. */
static bool put_token_file(const char *folder, const char *path, const char *line, size_t len)
{
    char *fresh = NULL;
    if (asprintf(&fresh, "%s.new", path) < 0) {
        return false;
    }
    (void)unlink(fresh); /* of a start that did not end */
    int fd = open(fresh, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    bool ok = fd >= 0 && write_all(fd, line, len) && fsync(fd) == 0 && rename_new(fresh, path) && sync_folder(folder);
    int saved = errno;
    if (fd >= 0) {
        close(fd);
    }
    if (!ok) {
        (void)unlink(fresh);
    }
    free(fresh);
    errno = saved;
    return ok;
}

static bool make_token_file(const char *folder, const char *path, char *error, size_t error_cap)
{
    unsigned char random[RANDOM_BYTES];
    char line[2 * RANDOM_BYTES + 2];
    if (getrandom(random, sizeof random, 0) != (ssize_t)sizeof random) {
        snprintf(error, error_cap, "%s: no random bytes for a new token", path);
        return false;
    }
    for (size_t i = 0; i < RANDOM_BYTES; i++) {
        snprintf(line + 2 * i, 3, "%02x", random[i]);
    }
    line[2 * RANDOM_BYTES] = '\n';
    bool ok = put_token_file(folder, path, line, 2 * RANDOM_BYTES + 1);
    if (!ok) {
        snprintf(error, error_cap, "%s: can't be made: %s", path, strerror(errno));
    }
    explicit_bzero(random, sizeof random);
    explicit_bzero(line, sizeof line);
    return ok;
}

/* At most the size of out->text; a longer file fills it, which config_token_problem() refuses. */
static bool read_token(int fd, struct admin_token *out)
{
    out->len = 0;
    while (out->len < sizeof out->text) {
        ssize_t got = read(fd, out->text + out->len, sizeof out->text - out->len);
        if (got < 0 && errno == EINTR) {
            continue;
        }
        if (got < 0) {
            return false;
        }
        if (got == 0) {
            break;
        }
        out->len += (size_t)got;
    }
    return true;
}

static bool load_from(const char *path, int fd, bool own, struct admin_token *out, char *error, size_t error_cap)
{
    struct stat info;
    if (fstat(fd, &info) != 0 || !read_token(fd, out)) {
        snprintf(error, error_cap, "%s: can't be read: %s", path, strerror(errno));
        return false;
    }
    const char *wrong = config_token_problem(out->text, &out->len);
    if (wrong != NULL) {
        snprintf(error, error_cap, "%s: the token %s", path, wrong);
        return false;
    }
    if (own && (info.st_mode & (S_IRWXG | S_IRWXO)) != 0) { /* the configuration warns about one that it names */
        log_message(LOG_WARN, "admin-token-exposed", "%s: others than its owner have access to this file (mode %04o)",
                    path, (unsigned)(info.st_mode & 07777));
    }
    return true;
}

bool admin_token_load(const char *token_file, const char *store_path, struct admin_token *out, char *error,
                      size_t error_cap)
{
    char *path = NULL;
    if (token_file != NULL) {
        path = strdup(token_file);
    } else if (asprintf(&path, "%s/admin.token", store_path) < 0) {
        path = NULL;
    }
    if (path == NULL) {
        snprintf(error, error_cap, "admin token: out of memory");
        return false;
    }
    bool ok = false;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 && errno == ENOENT && token_file == NULL) {
        if (!make_token_file(store_path, path, error, error_cap)) {
            free(path);
            return false;
        }
        fd = open(path, O_RDONLY | O_CLOEXEC);
    }
    if (fd < 0) {
        snprintf(error, error_cap, "%s: can't be opened: %s", path, strerror(errno));
    } else {
        ok = load_from(path, fd, token_file == NULL, out, error, error_cap);
        close(fd);
    }
    free(path);
    if (!ok) {
        admin_token_clear(out);
    }
    return ok;
}

void admin_token_clear(struct admin_token *token)
{
    explicit_bzero(token, sizeof *token);
}

bool admin_token_matches(const struct admin_token *token, const char *authorization)
{
    if (authorization == NULL || strncasecmp(authorization, "Bearer ", 7) != 0) {
        return false;
    }
    const char *given = authorization + 7;
    given += strspn(given, " ");
    size_t given_len = strlen(given);
    while (given_len > 0 && (given[given_len - 1] == ' ' || given[given_len - 1] == '\t')) {
        given_len--; /* libmicrohttpd leaves trailing blanks in a value */
    }
    /* Every byte of the token is looked at, whatever was given: the time tells nothing about where they differ. */
    unsigned differs = given_len != token->len || token->len == 0;
    for (size_t i = 0; i < token->len; i++) {
        unsigned char theirs = i < given_len ? (unsigned char)given[i] : 0;
        differs |= (unsigned)((unsigned char)token->text[i] ^ theirs);
    }
    return differs == 0;
}

static bool ends_with(const char *name, size_t len, const char *suffix)
{
    size_t suffix_len = strlen(suffix);
    return len > suffix_len && strncasecmp(name + len - suffix_len, suffix, suffix_len) == 0;
}

#define NAME_CAP 256

/* A Host's name without port and the dot at its end. Returns its length; 0: there is none that can be. */
static size_t name_of(const char *host, char name[NAME_CAP])
{
    size_t len = strcspn(host, ":");
    if (len > 0 && host[len - 1] == '.') {
        len--;
    }
    if (len >= NAME_CAP) {
        return 0;
    }
    memcpy(name, host, len);
    name[len] = '\0';
    return len;
}

bool admin_host_private(const char *host)
{
    static const char *const suffixes[] = {".localhost", ".local", ".internal", ".svc"};
    char name[NAME_CAP];
    if (host == NULL || host[0] == '[') { /* in brackets: an IPv6 address, as headers_screen() has seen to */
        return true;
    }
    size_t len = name_of(host, name);
    if (len == 0) {
        return false;
    }
    struct in_addr address;
    if (inet_pton(AF_INET, name, &address) == 1 || strchr(name, '.') == NULL) {
        return true;
    }
    for (size_t i = 0; i < sizeof suffixes / sizeof suffixes[0]; i++) {
        if (ends_with(name, len, suffixes[i])) {
            return true;
        }
    }
    return false;
}

bool admin_host_named(const char *host, const char *const *hosts)
{
    char name[NAME_CAP];
    bool named = false;
    for (size_t i = 0; name_of(host, name) > 0 && hosts[i] != NULL && !named; i++) {
        named = strcasecmp(name, hosts[i]) == 0;
    }
    return named;
}

static bool is_workers(const struct config *config, const struct header_field *field)
{
    bool found =
        header_is(field, "Fencing-Token") || header_is(field, "Workflow-Key") || header_is(field, "Fencegate-Target");
    for (size_t i = 0; i < config->route_count && !found; i++) {
        found = header_is(field, config->routes[i].token_header) || header_is(field, config->routes[i].key_header);
    }
    return found;
}

bool admin_fields_of_worker(const struct config *config, const struct header_field *fields, size_t count)
{
    bool found = false;
    for (size_t i = 0; i < count && !found; i++) {
        found = is_workers(config, &fields[i]);
    }
    return found;
}

bool admin_target_host(const char *target, char out[ADMIN_HOST_CAP])
{
    out[0] = '\0';
    if (strncasecmp(target, "http://", 7) != 0) {
        return true;
    }
    size_t len = strcspn(target + 7, "/?");
    if (len >= ADMIN_HOST_CAP || !authority_valid(target + 7, len)) {
        return false;
    }
    memcpy(out, target + 7, len);
    out[len] = '\0';
    return true;
}

bool admin_origin_same(const char *origin, const char *host)
{
    if (origin == NULL) {
        return true;
    }
    if (host == NULL) {
        return false;
    }
    if (strncasecmp(origin, "http://", 7) == 0) {
        return strcasecmp(origin + 7, host) == 0;
    }
    return strncasecmp(origin, "https://", 8) == 0 && strcasecmp(origin + 8, host) == 0;
}
