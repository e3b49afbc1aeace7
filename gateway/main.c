/* gateway/main.c - arguments and subcommands. What they do is elsewhere. */
#include <stdio.h>
#include <string.h>

#include "config/config.h"
#include "gateway/command.h"
#include "gateway/inbound.h"
#include "gateway/server.h"
#include "gateway/upstream.h"
#include "gateway/version.h"

enum { EXIT_USAGE = 2 };

static const char help_text[] =
    "fencegate - an HTTP reverse proxy for side effects: stale calls of paused workers never leave it\n"
    "\n"
    "  fencegate serve  -c FILE    run the gateway\n"
    "  fencegate check  -c FILE    read the configuration and say what is wrong with it\n"
    "  fencegate audit  (-c FILE | --store DIR) [--key K] [--kind K] [--reason R] [--route R]\n"
    "                   [--namespace N] [--since T] [--until T] [--limit N] [--json]\n"
    "                              what went out, what was dropped, and why; the newest, oldest of them first\n"
    "  fencegate fences (-c FILE | --store DIR) list [--namespace N] [--prefix P] | get KEY |\n"
    "                   raise KEY TOKEN --reason R | reset KEY --reason R  [--namespace N] [--json]\n"
    "                              the highest token accepted for each key; raise and reset go through the\n"
    "                              running gateway, if there is one\n"
    "  fencegate effects (-c FILE | --store DIR) in-doubt | resolve ID --outcome sent|not-sent --note N [--json]\n"
    "                              calls whose outcome nobody recorded, and what became of them\n"
    "  fencegate version           this program's version and that of its libraries\n"
    "  fencegate help              this text\n"
    "\n"
    "Exit status: 0 done, 1 not found or refused, 2 usage or configuration, 3 store or I/O,\n"
    "4 a shutdown that had to cut effects.\n";

static int usage(const char *complaint, const char *what)
{
    fprintf(stderr, "fencegate: %s%s%s\nTry 'fencegate help'.\n", complaint, what == NULL ? "" : " ",
            what == NULL ? "" : what);
    return EXIT_USAGE;
}

/* `-c FILE` and nothing else; NULL: the complaint was printed. */
static const char *config_argument(int argc, char **argv)
{
    if (argc == 3 && (strcmp(argv[1], "-c") == 0 || strcmp(argv[1], "--config") == 0))
        return argv[2];
    usage(argv[0], "takes -c FILE");
    return NULL;
}

static int command_serve(int argc, char **argv)
{
    const char *file = config_argument(argc, argv);
    return file == NULL ? EXIT_USAGE : server_run(file);
}

static void print_warning(void *arg, const char *line)
{
    (void)arg;
    printf("warning: %s\n", line);
}

static int command_check(int argc, char **argv)
{
    char error[512];
    const char *file = config_argument(argc, argv);
    if (file == NULL)
        return EXIT_USAGE;
    const struct config *config = config_load(file, error, sizeof error);
    if (config == NULL) {
        fprintf(stderr, "fencegate: %s\n", error);
        return EXIT_USAGE;
    }
    config_warnings(config, print_warning, NULL);
    printf("%s: ok, %zu route%s\n", file, config->route_count, config->route_count == 1 ? "" : "s");
    config_unref(&config);
    return 0;
}

static int command_version(int argc, char **argv)
{
    (void)argv;
    if (argc > 1)
        return usage("version takes no arguments", NULL);
    printf("fencegate %s (libmicrohttpd/%s, %s)\n", FENCEGATE_VERSION, inbound_library(), upstream_library());
    return 0;
}

static int command_help(int argc, char **argv)
{
    (void)argc, (void)argv;
    fputs(help_text, stdout);
    return 0;
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        int (*run)(int argc, char **argv);
    } commands[] = {
        {"serve", command_serve},   {"check", command_check},       {"audit", command_audit},
        {"fences", command_fences}, {"effects", command_effects},   {"version", command_version},
        {"help", command_help},     {"--version", command_version}, {"--help", command_help},
        {"-h", command_help},
    };
    if (argc < 2)
        return usage("a subcommand is needed", NULL);
    for (size_t i = 0; i < sizeof commands / sizeof commands[0]; i++)
        if (strcmp(argv[1], commands[i].name) == 0)
            return commands[i].run(argc - 1, argv + 1);
    return usage("unknown subcommand", argv[1]);
}
