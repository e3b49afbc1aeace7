/* tests/fuzz/config.c - configuration files: an error is one line that begins with the file's name; what is accepted is
 * complete, within its ranges, and the same when it is read again. */
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "config/config.h"
#include "gateway/headers.h"
#include "tests/fuzz/fuzz.h"

static void look_at_line(void *arg, const char *line)
{
    size_t *lines = arg;
    ++*lines;
    require(line[0] != '\0' && strchr(line, '\n') == NULL);
}

static void differs(void *arg, const char *name)
{
    (void)arg;
    require(name == NULL);
}

static void judge_route(const struct config_route *route)
{
    require(route->name[0] != '\0' && (route->path[0] == '/' || route->path[0] == '\0') && route->ns[0] != '\0');
    require((route->upstream_origin == NULL) == (route->kind == ROUTE_WEBHOOK));
    require(token_chars(route->token_header, strlen(route->token_header)));
    require(token_chars(route->key_header, strlen(route->key_header)));
    require(strcasecmp(route->token_header, route->key_header) != 0);
    require(route->stale_status >= 400 && route->stale_status < 500);
    require(route->missing_status >= 400 && route->missing_status < 500);
    require(route->in_flight > 0);
    for (size_t i = 0; i < route->set_header_count; i++) {
        const struct config_header *header = &route->set_headers[i];
        require(token_chars(header->name, strlen(header->name)));
        require(strpbrk(header->value, "\r\n") == NULL);
    }
    require((route->smtp.username == NULL) == (route->smtp.password == NULL));
    require(route->kind != ROUTE_WEBHOOK || (route->webhook.allow_hosts != NULL && route->webhook.port_count > 0));
}

static void judge(const struct config *config)
{
    require(config->listen_address != NULL && config->admin_address != NULL && config->store_path[0] == '/');
    require(config->connections > 0 && config->in_flight > 0 && config->route_count > 0);
    for (size_t i = 0; i < config->route_count; i++) {
        judge_route(&config->routes[i]);
        for (size_t j = 0; j < i; j++)
            require(strcmp(config->routes[i].name, config->routes[j].name) != 0);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static char path[64];
    char error[512];
    int fd = memfd_create("config", MFD_CLOEXEC);
    require(fd >= 0 && write(fd, data, size) == (ssize_t)size);
    (void)snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    const struct config *config = config_load(path, error, sizeof error);
    if (config == NULL) {
        size_t len = strnlen(error, sizeof error);
        require(len > strlen(path) && len < sizeof error && strncmp(error, path, strlen(path)) == 0);
        require(strpbrk(error, "\r\n") == NULL);
    } else {
        size_t lines = 0, again_lines = 0;
        judge(config);
        config_warnings(config, look_at_line, &lines);
        const struct config *again = config_load(path, error, sizeof error);
        require(again != NULL && again->route_count == config->route_count);
        config_warnings(again, look_at_line, &again_lines);
        require(lines == again_lines);
        config_fixed_changes(config, again, differs, NULL);
        config_unref(&again);
        config_unref(&config);
    }
    close(fd);
    return 0;
}
