/* gateway/main.c - the subcommands: a row in `commands` each. What they do is elsewhere. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "config/config.h"
#include "gateway/descriptors.h"
#include "gateway/command.h"
#include "gateway/command_options.h"
#include "gateway/command_store.h"
#include "gateway/command_usage.h"
#include "gateway/admin.h"
#include "gateway/server.h"
#include "gateway/upstream.h"
#include "gateway/version.h"

#define COUNT(array) (sizeof(array) / sizeof(array)[0])

/* ---- serve and check ---- */

static int run_serve(struct command_line *line)
{
    return server_run(line->place.config_file);
}

static const struct command command_serve = {
    .name = "serve",
    .summary = "run the gateway",
    .notes = "SIGHUP reads the file again. SIGTERM and SIGINT let running calls end; a second one ends at once.\n"
             "Exit status: 0 done, 2 configuration, 3 store or I/O, 4 a shutdown that had to cut effects.\n",
    .place = PLACE_CONFIG,
    .actions = command_no_words,
    .action_count = 1,
    .size = sizeof(struct command_line),
    .run = run_serve,
};

static void print_warning(void *arg, const char *line)
{
    (void)arg;
    printf("warning: %s\n", line);
}

/* What `store.path` and the like come to: relative paths and defaults are where mistakes hide. */
static void print_settings(const struct config *config)
{
    printf("  listens on       %s port %u\n", config->listen_address, config->listen_port);
    printf("  admin listener   %s port %u, token in %s%s\n", config->admin_address, config->admin_port,
           config->admin_token_file != NULL ? config->admin_token_file : config->store_path,
           config->admin_token_file != NULL ? "" : "/admin.token");
    for (size_t i = 0; config->admin_hosts[i] != NULL; i++)
        printf("  admin name       %s\n", config->admin_hosts[i]);
    printf("  store            %s, at most %" PRIu64 " MiB\n", config->store_path, config->store_max_size >> 20);
}

/* A mistyped `store.path` is another memory, one without fences. */
static void print_store(const struct config *config)
{
    char why[1024] = "";
    enum store_presence is = store_look(config->store_path, why, sizeof why);
    if (is == STORE_WOULD_BE_MADE)
        printf("  store            there is none yet: `fencegate serve` would make a new, empty one\n");
    else if (is == STORE_REFUSED)
        printf("warning: %s\n", why);
    else if (is == STORE_NOT_SEEN)
        printf("warning: %s (seen by this user)\n", why);
}

static void print_routes(const struct config *config)
{
    static const char *const modes[] = {[FENCE_ENFORCE] = "enforce", [FENCE_OBSERVE] = "observe", [FENCE_OFF] = "off"};
    for (size_t i = 0; i < config->route_count; i++) {
        const struct config_route *route = &config->routes[i];
        printf("  route %-10s %s%s -> %s%s, namespace %s, %s\n", route->name, route->host == NULL ? "" : route->host,
               *route->path == '\0' ? "/" : route->path,
               route->upstream_origin == NULL ? "the request's target" : route->upstream_origin,
               route->upstream_path == NULL ? "" : route->upstream_path, route->ns, modes[route->mode]);
    }
}

/* The start raises the soft limit to the hard one, which is what a service started from here would get. */
static void warn_of_descriptors(const struct config *config)
{
    struct descriptor_shares shares;
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    uint64_t have = descriptors_raise();
    char text[256];
    descriptors_share(have,
                      config->workers != 0 ? config->workers
                      : cores < 1          ? 1
                                           : (unsigned)cores,
                      config->connections, config->in_flight, &shares);
    if (!shares.short_of)
        return;
    descriptors_tell(&shares, have, text, sizeof text);
    print_warning(NULL, text);
}

static int run_check(struct command_line *line)
{
    char error[512];
    const char *file = line->place.config_file;
    const struct config *config = config_load(file, error, sizeof error);
    if (config == NULL) {
        fprintf(stderr, "fencegate: %s\n", error);
        return COMMAND_USAGE;
    }
    config_warnings(config, print_warning, NULL);
    warn_of_descriptors(config);
    printf("%s: ok, %zu route%s\n", file, config->route_count, config->route_count == 1 ? "" : "s");
    print_settings(config);
    print_store(config);
    print_routes(config);
    config_unref(&config);
    return command_flush("check") ? COMMAND_DONE : COMMAND_STORE;
}

static const struct command command_check = {
    .name = "check",
    .summary = "read the configuration and say what is wrong with it",
    .place = PLACE_CONFIG,
    .actions = command_no_words,
    .action_count = 1,
    .size = sizeof(struct command_line),
    .run = run_check,
};

/* ---- version and help ---- */

static int run_version(struct command_line *line)
{
    printf("fencegate %s (libmicrohttpd/%s, %s)\n", FENCEGATE_VERSION, admin_library(), upstream_library());
    return command_flush(line->command->name) ? COMMAND_DONE : COMMAND_STORE;
}

static const struct command command_version = {
    .name = "version",
    .summary = "this program's version and that of its libraries",
    .actions = command_no_words,
    .action_count = 1,
    .size = sizeof(struct command_line),
    .run = run_version,
};

struct help_arguments {
    struct command_line line;
    struct slice name;
};

static int run_help(struct command_line *line);

static const struct command_action help_words[] = {
    {.words = {{"COMMAND", offsetof(struct help_arguments, name), .optional = true}}}};

static const struct command command_help = {
    .name = "help",
    .summary = "this list, or how a command is used",
    .actions = help_words,
    .action_count = 1,
    .size = sizeof(struct help_arguments),
    .run = run_help,
};

/* In the order of the list that `help` prints. */
static const struct command *const commands[] = {
    &command_serve,  &command_check,   &command_audit,  &command_fences,  &command_history, &command_effects,
    &command_backup, &command_restore, &command_verify, &command_version, &command_help,
};

static const struct command *find_command(const char *name)
{
    for (size_t i = 0; i < COUNT(commands); i++)
        if (strcmp(name, commands[i]->name) == 0)
            return commands[i];
    return NULL;
}

static int unknown_command(const char *name)
{
    const char *names[COUNT(commands) + 1] = {NULL};
    struct jsonout safe = {0};
    for (size_t i = 0; i < COUNT(commands); i++)
        names[i] = commands[i]->name;
    const char *nearest = command_nearest(name, strlen(name), names);
    jsonout_escaped(&safe, name, strlen(name));
    fprintf(stderr, "fencegate: unknown subcommand %.*s%s%s%s\nTry 'fencegate help'.\n", (int)safe.len,
            safe.text == NULL ? "" : safe.text, nearest == NULL ? "" : ", did you mean ",
            nearest == NULL ? "" : nearest, nearest == NULL ? "" : "?");
    jsonout_free(&safe);
    return COMMAND_USAGE;
}

static int run_help(struct command_line *line)
{
    static const char title[] =
        "fencegate - an HTTP reverse proxy for side effects: stale calls of paused workers never leave it\n\n";
    static const char end[] =
        "\n-c FILE names the configuration; all but serve and check take --store DIR in its place, and work beside a\n"
        "running gateway or without one. `fencegate help COMMAND` has the options of each.\n"
        "\nExit status: 0 done, 1 not found or refused, 2 usage or configuration, 3 store or I/O,\n"
        "4 a shutdown that had to cut effects.\n";
    const struct help_arguments *arguments = (const struct help_arguments *)line;
    const struct command *command = arguments->name.data == NULL ? NULL : find_command(arguments->name.data);
    struct jsonout text = {0};
    if (arguments->name.data != NULL && command == NULL)
        return unknown_command(arguments->name.data);
    if (command == NULL) {
        jsonout_raw(&text, title, sizeof title - 1);
        for (size_t i = 0; i < COUNT(commands); i++)
            command_summary(commands[i], &text);
        jsonout_raw(&text, end, sizeof end - 1);
    } else {
        command_usage(command, &text);
    }
    fwrite(text.text, 1, text.failed ? 0 : text.len, stdout);
    jsonout_free(&text);
    return command_flush("help") ? COMMAND_DONE : COMMAND_STORE;
}

/* Files take the lowest free descriptors: without this, what is printed with standard output closed could go into the
 * store's. Opened so that what was closed still can't be used. */
static bool keep_standard_streams(void)
{
    bool ok = true;
    for (int fd = STDIN_FILENO; ok && fd <= STDERR_FILENO; fd++)
        ok = fcntl(fd, F_GETFD) >= 0 || open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY) == fd;
    return ok;
}

int main(int argc, char **argv)
{
    static const struct {
        const char *option, *name;
    } also[] = {{"--version", "version"}, {"-V", "version"}, {"--help", "help"}, {"-h", "help"}};
    if (!keep_standard_streams()) {
        fprintf(stderr, "fencegate: a standard stream is closed and can't be replaced: %s\n", strerror(errno));
        return COMMAND_STORE;
    }
    signal(SIGXFSZ, SIG_IGN);  /* a write past the limit of file sizes fails instead, and is handled where it is made */
    unsetenv("SSLKEYLOGFILE"); /* libcurl obeys it: whoever reads that file can decrypt the calls to partners */
    if (argc < 2) {
        fprintf(stderr, "fencegate: a subcommand is needed\nTry 'fencegate help'.\n");
        return COMMAND_USAGE;
    }
    const char *name = argv[1];
    for (size_t i = 0; i < COUNT(also); i++)
        if (strcmp(name, also[i].option) == 0)
            name = also[i].name;
    const struct command *command = find_command(name);
    return command == NULL ? unknown_command(name) : command_run(command, argc - 1, argv + 1);
}
