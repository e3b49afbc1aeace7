/*
 * gateway/server.c - start: configuration, store, gate, workers, admin, "ready" line. End: readiness goes first,
 * waiting calls are refused, running effects may end within shutdown_grace, then what still runs is cut; workers, store
 * and the rest are taken down in the reverse order.
 *
 * Leaves to others: everything a request is about.
 */
#include "gateway/server.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "config/config.h"
#include "gateway/admin.h"
#include "gateway/admin_address.h"
#include "gateway/admin_guard.h"
#include "gateway/composer.h"
#include "gateway/crash_count.h"
#include "gateway/gate.h"
#include "gateway/log.h"
#include "gateway/log_queue.h"
#include "gateway/metrics.h"
#include "gateway/resolver.h"
#include "gateway/settings.h"
#include "gateway/store_watch.h"
#include "gateway/unresolved_watch.h"
#include "gateway/upstream.h"
#include "gateway/version.h"
#include "gateway/worker.h"
#include "store/store.h"

enum {
    EXIT_CONFIG = 2,
    EXIT_STORE = 3,
    EXIT_CUT = 4,
    LOOK_MS = 1000,     /* how often the store is looked at for alarms */
    POLL_MS = 20,       /* how often a shutdown looks whether the workers are idle */
    BUSY_MS = 1000,     /* how long a start waits for a store in use */
    FLUSH_MS = 2000,    /* after a cut: for the last records and answers */
    LOG_WAIT_MS = 1000, /* for the log's reader to take the last lines */
    ANSWERS_MS = 1000,  /* after the last outcome: for clients to take their answers */
    ENDPOINT_CAP = 128, /* an address with its port */
};

struct server {
    const char *file;
    struct settings *settings;      /* main's; the admin thread looks at them under settings_mutex */
    pthread_mutex_t settings_mutex; /* main holds it while it puts others in their place */
    const struct config *started;   /* the configuration of the start; NULL before the workers run */
    char proxy[ENDPOINT_CAP];
    struct gateway gateway;
    struct worker **workers;
    unsigned worker_count;
    struct admin *admin;
    int signal_fd;
    int stop_signal;     /* the one that began the shutdown */
    uint64_t started_ms; /* wall time */
};

static int complain(int status, const char *text)
{
    fprintf(stderr, "fencegate: %s\n", text);
    return status;
}

/* ---- what the store and the admin listener ask ---- */

static void on_raised(void *arg, struct slice ns, struct slice key, uint64_t token) /* writer thread */
{
    gate_raised(arg, ns, key, token);
}

static void on_reset(void *arg, struct slice ns, struct slice key) /* writer thread */
{
    gate_reset(arg, ns, key);
}

static void tell_created(const char *path)
{
    struct log_line line;
    if (!log_begin(&line, LOG_WARN, "store-created"))
        return;
    log_cstring(&line, "store", path);
    log_cstring(&line, "message",
                "a new, empty store was made: it knows no fence, the first token of every key passes");
    log_end(&line);
}

static void on_store_notice(void *arg, enum store_notice weight, const char *text)
{
    static const enum log_level levels[] = {
        [STORE_NOTICE_FINE] = LOG_INFO, [STORE_NOTICE_ODD] = LOG_WARN, [STORE_NOTICE_TROUBLE] = LOG_ERROR};
    (void)arg;
    if (weight == STORE_NOTICE_MADE)
        tell_created(text);
    else
        log_message(levels[weight], "store", "%s", text);
}

static void on_store_measured(void *arg, const struct store_sample *sample) /* writer thread */
{
    (void)arg;
    metrics_transaction(sample);
}

static bool is_shutting_down(void *arg)
{
    const struct server *server = arg;
    return atomic_load(&server->gateway.shutting_down);
}

static void read_gauges(void *arg, struct metrics_gauges *out)
{
    struct server *server = arg;
    struct gateway *gateway = &server->gateway;
    *out = (struct metrics_gauges){
        .connections = places_taken(&gateway->places),
        .in_flight = atomic_load(&gateway->in_flight),
        .buffered_bytes = atomic_load(&gateway->buffered),
        .connections_max = atomic_load(&gateway->connections_max),
        .in_flight_max = atomic_load(&gateway->in_flight_max),
        .buffered_max = atomic_load(&gateway->buffered_max),
        .started_ms = server->started_ms,
        .libmicrohttpd = admin_library(),
        .libcurl = upstream_library(),
    };
    for (unsigned i = 0; i < server->worker_count; i++)
        out->requests_live += worker_busy(server->workers[i]);
}

static uint64_t key_in_flight(void *arg, struct slice ns, struct slice key)
{
    struct server *server = arg;
    return gate_in_flight(server->gateway.gate, ns, key);
}

static uint64_t key_in_flight_below(void *arg, struct slice ns, struct slice key, uint64_t token)
{
    struct server *server = arg;
    return gate_in_flight_below(server->gateway.gate, ns, key, token);
}

static size_t key_tokens(void *arg, struct slice ns, struct slice key, struct gate_token *out, size_t cap)
{
    struct server *server = arg;
    return gate_tokens(server->gateway.gate, ns, key, out, cap);
}

static bool is_of_worker(void *arg, const struct header_field *fields, size_t count)
{
    struct server *server = arg;
    pthread_mutex_lock(&server->settings_mutex);
    bool found = admin_fields_of_worker(server->settings->config, fields, count);
    pthread_mutex_unlock(&server->settings_mutex);
    return found;
}

/* ---- start ---- */

static unsigned core_count(void)
{
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    return cores < 1 ? 1 : (unsigned)cores;
}

static void share_descriptors(struct gateway *gateway, const struct config *config)
{
    uint64_t have = descriptors_raise();
    char text[256];
    descriptors_share(have, config->workers == 0 ? core_count() : config->workers, config->connections,
                      config->in_flight, &gateway->shares);
    if (!gateway->shares.short_of)
        return;
    descriptors_tell(&gateway->shares, have, text, sizeof text);
    log_message(LOG_WARN, "open-files", "%s", text);
}

static bool catch_signals(struct server *server)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGHUP);
    if (pthread_sigmask(SIG_BLOCK, &set, NULL) != 0) /* before any thread is made: they inherit it */
        return false;
    signal(SIGPIPE, SIG_IGN);
    server->signal_fd = signalfd(-1, &set, SFD_CLOEXEC);
    return server->signal_fd >= 0;
}

static int open_store(struct server *server)
{
    const struct config *config = server->settings->config;
    char why[1024];
    struct store_options options = {
        .path = config->store_path,
        .max_size = config->store_max_size,
        .retain_ms = config->audit_retain_ms,
        .drop_oldest = config->audit_drop_oldest,
        .rejected_max = config->audit_rejected_max,
        .make = true,
        .journal = true,
        .raised = on_raised,
        .reset = on_reset,
        .raised_arg = server->gateway.gate,
        .notice = on_store_notice,
        .measured = on_store_measured,
    };
    enum store_error error;
    uint64_t end = monotonic_ms() + BUSY_MS;
    while ((error = store_open(&options, &server->gateway.store, why, sizeof why)) == STORE_BUSY &&
           monotonic_ms() < end)
        poll(NULL, 0, POLL_MS); /* a command may have the store for the moment */
    if (error != STORE_OK)
        return complain(EXIT_STORE, why);
    snprintf(server->gateway.via, sizeof server->gateway.via, "1.1 fencegate-%08" PRIx32,
             (uint32_t)store_id(server->gateway.store));
    admin_address_remove(config->store_path); /* of a gateway that was killed: nobody may be sent there any more */
    return 0;
}

static int start_workers(struct server *server, uint16_t *port)
{
    const struct config *config = server->settings->config;
    unsigned count = config->workers == 0 ? core_count() : config->workers;
    struct worker_options options = {&server->gateway, server->settings, config->listen_port, 0};
    char error[256];
    server->workers = calloc(count, sizeof(struct worker *));
    if (server->workers == NULL)
        return complain(EXIT_STORE, "out of memory");
    for (unsigned i = 0; i < count; i++) {
        server->workers[i] = worker_new(&options, port, error, sizeof error);
        if (server->workers[i] == NULL)
            return complain(EXIT_STORE, error);
        server->worker_count++;
        options.port = *port;
        options.number++;
    }
    for (unsigned i = 0; i < count; i++)
        if (!worker_start(server->workers[i]))
            return complain(EXIT_STORE, "cannot start a worker thread");
    return 0;
}

static void name_endpoint(char out[ENDPOINT_CAP], const char *address, uint16_t port)
{
    const char *form = strchr(address, ':') != NULL ? "[%s]:%u" : "%s:%u";
    snprintf(out, ENDPOINT_CAP, form, address, port);
}

static int start_admin(struct server *server, uint16_t *port)
{
    const struct config *config = server->settings->config;
    struct admin_options options = {
        .address = config->admin_address,
        .port = config->admin_port,
        .token_file = config->admin_token_file,
        .connections_max = server->gateway.shares.admin,
        .store_path = config->store_path,
        .proxy = server->proxy,
        .hosts = server->started->admin_hosts,
        .store = server->gateway.store,
        .shutting_down = is_shutting_down,
        .gauges = read_gauges,
        .in_flight = key_in_flight,
        .in_flight_below = key_in_flight_below,
        .tokens = key_tokens,
        .of_worker = is_of_worker,
        .arg = server,
    };
    char error[512];
    server->admin = admin_start(&options, port, error, sizeof error);
    return server->admin == NULL ? complain(EXIT_STORE, error) : 0;
}

static void tell_ready(const struct server *server, const char *admin)
{
    struct log_line line;
    if (!log_begin(&line, LOG_INFO, "ready"))
        return;
    log_cstring(&line, "version", FENCEGATE_VERSION);
    log_cstring(&line, "libmicrohttpd", admin_library());
    log_cstring(&line, "libcurl", upstream_library());
    log_cstring(&line, "config", server->file);
    log_cstring(&line, "store", server->settings->config->store_path);
    log_cstring(&line, "proxy", server->proxy);
    log_cstring(&line, "admin", admin);
    log_number(&line, "workers", server->worker_count);
    log_number(&line, "routes", server->settings->config->route_count);
    log_end(&line);
}

static int bring_up(struct server *server)
{
    const struct config *config = server->settings->config;
    uint16_t port = 0, admin_port = 0;
    server->gateway.gate = gate_new();
    server->gateway.composer = composer_new();
    if (server->gateway.gate == NULL || server->gateway.composer == NULL || !places_init(&server->gateway.places))
        return complain(EXIT_STORE, "out of memory");
    server->gateway.resolver = resolver_new(config->lookups);
    if (server->gateway.resolver == NULL)
        return complain(EXIT_STORE, "no memory, or no thread, to look up names");
    int status = open_store(server);
    if (status == 0) {
        crash_count(server->gateway.store, server->started_ms);
        status = start_workers(server, &port);
    }
    if (status == 0) {
        server->started = config_ref(config);
        name_endpoint(server->proxy, config->listen_address, port);
        status = start_admin(server, &admin_port);
    }
    if (status != 0)
        return status;
    char admin[ENDPOINT_CAP];
    name_endpoint(admin, config->admin_address, admin_port);
    tell_ready(server, admin);
    printf("fencegate ready proxy=%s admin=%s\n", server->proxy, admin);
    fflush(stdout);
    return 0;
}

/* ---- while running ---- */

static void apply_log_level(const struct config *config)
{
    static const enum log_level levels[] = {
        [CONFIG_LOG_ERROR] = LOG_ERROR,
        [CONFIG_LOG_WARN] = LOG_WARN,
        [CONFIG_LOG_INFO] = LOG_INFO,
        [CONFIG_LOG_DEBUG] = LOG_DEBUG,
    };
    log_set_level(levels[config->log_level]);
}

/* In force: the settings, or what the descriptors allow. */
static void set_limits(struct gateway *gateway, const struct config *config)
{
    const struct descriptor_shares *shares = &gateway->shares;
    bool few = shares->short_of;
    atomic_store(&gateway->connections_max,
                 few && shares->connections < config->connections ? shares->connections : config->connections);
    atomic_store(&gateway->in_flight_max,
                 few && shares->in_flight < config->in_flight ? shares->in_flight : config->in_flight);
    atomic_store(&gateway->buffered_max, config->buffered_max);
}

static void warn_line(void *arg, const char *line)
{
    (void)arg;
    log_message(LOG_WARN, "config", "%s", line);
}

static void warn_fixed(void *arg, const char *name)
{
    (void)arg;
    log_message(LOG_WARN, "reload", "%s can't change while running: it takes hold at the next start", name);
}

/* False: the old settings stay in force, and the log has why. */
static bool reload(struct server *server)
{
    char error[512];
    const struct config *config = config_load(server->file, error, sizeof error);
    if (config == NULL) {
        log_message(LOG_ERROR, "reload", "refused, the old settings stay in force: %s", error);
        return false;
    }
    config_fixed_changes(server->started, config, warn_fixed, NULL);
    config_warnings(config, warn_line, NULL);
    struct settings *settings = settings_new(config);
    if (settings == NULL) {
        config_unref(&config);
        log_message(LOG_ERROR, "reload", "refused, the old settings stay in force: out of memory");
        return false;
    }
    for (unsigned i = 0; i < server->worker_count; i++)
        if (!worker_reload(server->workers[i], settings))
            log_message(LOG_ERROR, "reload", "out of memory: worker %u keeps the old settings", i);
    struct settings *before = server->settings;
    pthread_mutex_lock(&server->settings_mutex);
    server->settings = settings;
    pthread_mutex_unlock(&server->settings_mutex);
    settings_unref(&before);
    store_retention(server->gateway.store, config->audit_retain_ms, config->audit_drop_oldest,
                    config->audit_rejected_max);
    apply_log_level(config);
    set_limits(&server->gateway, config);
    resolver_limit(server->gateway.resolver, config->lookups);
    log_message(LOG_INFO, "reload", "new settings are in force: %s", server->file);
    return true;
}

/* The next signal, or 0 when `timeout_ms` passed first. */
static int next_signal(const struct server *server, int timeout_ms)
{
    struct pollfd fd = {.fd = server->signal_fd, .events = POLLIN};
    struct signalfd_siginfo info;
    if (poll(&fd, 1, timeout_ms) <= 0 || read(server->signal_fd, &info, sizeof info) != (ssize_t)sizeof info)
        return 0;
    return (int)info.ssi_signo;
}

static void run_until_told(struct server *server)
{
    struct store_watch watch = {0};
    struct unresolved_watch unresolved = {0};
    for (;;) {
        struct store_health health;
        store_health(server->gateway.store, &health);
        store_watch_look(&watch, &health, monotonic_ms());
        unresolved_watch_look(&unresolved, server->gateway.store, monotonic_ms());
        metrics_tick();
        int number = next_signal(server, LOOK_MS);
        if (number == SIGHUP) {
            metrics_reload(reload(server), realtime_ms());
        } else if (number != 0) {
            server->stop_signal = number;
            return;
        }
    }
}

/* ---- end ---- */

static bool busy(const struct server *server)
{
    for (unsigned i = 0; i < server->worker_count; i++)
        if (worker_busy(server->workers[i]) != 0)
            return true;
    return false;
}

/* Waits until nothing runs or the time is over. The same signal a second time ends the process at once: what is not
 * settled is an intent on disk and will be listed as in doubt. Another one does not (a terminal's SIGINT and then a
 * supervisor's SIGTERM are one wish to stop). */
static bool wait_idle(const struct server *server, uint64_t limit_ms, bool (*more)(const struct server *))
{
    uint64_t end = monotonic_ms() + limit_ms;
    while (more(server)) {
        if (monotonic_ms() >= end)
            return false;
        if (next_signal(server, POLL_MS) == server->stop_signal) {
            log_message(LOG_WARN, "stop-now", "second signal: leaving at once, what still runs will be in doubt");
            log_queue_stop(LOG_WAIT_MS / 10);
            _exit(EXIT_CUT);
        }
    }
    return true;
}

static bool unsettled(const struct server *server)
{
    return atomic_load(&server->gateway.unsettled) != 0;
}

static void tell_stop(const struct server *server)
{
    struct log_line line;
    if (!log_begin(&line, LOG_INFO, "stop"))
        return;
    log_cstring(&line, "message", "shutting down: new requests are refused, running effects may end");
    log_cstring(&line, "signal", server->stop_signal == SIGTERM ? "SIGTERM" : "SIGINT");
    log_number(&line, "running", atomic_load(&server->gateway.unsettled));
    log_number(&line, "grace_ms", server->settings->config->shutdown_grace_ms);
    log_end(&line);
}

static void drain(struct server *server)
{
    const struct config *config = server->settings->config;
    tell_stop(server);
    atomic_store(&server->gateway.shutting_down, true);
    for (unsigned i = 0; i < server->worker_count; i++)
        worker_begin_shutdown(server->workers[i]);
    if (!wait_idle(server, config->shutdown_grace_ms, unsettled)) {
        log_message(LOG_WARN, "stop-cut", "shutdown_grace is over, what still runs is cut: %u",
                    atomic_load(&server->gateway.unsettled));
        for (unsigned i = 0; i < server->worker_count; i++)
            worker_cut(server->workers[i]);
        wait_idle(server, FLUSH_MS, unsettled);
    }
    wait_idle(server, ANSWERS_MS, busy);
}

/* The last line: the store is closed by now. */
static void tell_end(int status, unsigned cut, unsigned open)
{
    struct log_line line;
    const char *message = "all effects ended, everything is recorded";
    if (open != 0)
        message = "the store could not record every outcome: see what is in doubt after the next start";
    else if (cut != 0)
        message = "effects were cut, their outcome is unknown";
    if (!log_begin(&line, open != 0 ? LOG_ERROR : cut != 0 ? LOG_WARN : LOG_INFO, "stopped"))
        return;
    log_cstring(&line, "message", message);
    log_number(&line, "cut", cut);
    log_number(&line, "unrecorded", open);
    log_number(&line, "exit_status", (uint64_t)status);
    log_end(&line);
}

static void take_down(struct server *server)
{
    for (unsigned i = 0; i < server->worker_count; i++)
        worker_stop(server->workers[i]);
    for (unsigned i = 0; i < server->worker_count; i++)
        worker_join(server->workers[i]);
    composer_free(&server->gateway.composer); /* before the requests: it has the bodies of some */
    admin_stop(&server->admin);
    store_close(&server->gateway.store); /* flushes; after it no operation comes home */
    for (unsigned i = 0; i < server->worker_count; i++)
        worker_free(&server->workers[i]);
    free(server->workers);
    resolver_free(&server->gateway.resolver);
    gate_free(&server->gateway.gate);
    places_destroy(&server->gateway.places);
    settings_unref(&server->settings);
    config_unref(&server->started);
    if (server->signal_fd >= 0)
        close(server->signal_fd);
}

int server_run(const char *config_file)
{
    struct server server = {
        .file = config_file, .settings_mutex = PTHREAD_MUTEX_INITIALIZER, .signal_fd = -1, .started_ms = realtime_ms()};
    char error[512];
    const struct config *config = config_load(config_file, error, sizeof error);
    if (config == NULL)
        return complain(EXIT_CONFIG, error);
    metrics_started(server.started_ms);
    apply_log_level(config);
    server.gateway.started_ms = server.started_ms;
    server.settings = settings_new(config);
    if (server.settings == NULL) {
        config_unref(&config);
        return complain(EXIT_STORE, "out of memory");
    }
    share_descriptors(&server.gateway, config);
    set_limits(&server.gateway, config);
    config_warnings(config, warn_line, NULL);
    int status = 0;
    if (!upstream_global_init() || !catch_signals(&server) || !log_queue_start())
        status = complain(EXIT_STORE, "cannot initialise libcurl, signals or the log");
    if (status == 0)
        status = bring_up(&server);
    if (status == 0) {
        run_until_told(&server);
        drain(&server);
        if (atomic_load(&server.gateway.cut_effects) != 0)
            status = EXIT_CUT;
        else if (unsettled(&server))
            status = EXIT_STORE;
    }
    bool served = server.stop_signal != 0;
    unsigned cut = atomic_load(&server.gateway.cut_effects), open = atomic_load(&server.gateway.unsettled);
    take_down(&server);
    if (served)
        tell_end(status, cut, open);
    log_queue_stop(LOG_WAIT_MS);
    return status;
}
