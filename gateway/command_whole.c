/* gateway/command_whole.c - what backup, restore and verify share, see command_whole.h. */
#include "gateway/command_whole.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "gateway/command_store.h"

#define PATIENCE_SECONDS 600

static char fault_text[4400], silence_text[4400];

static void on_signal(int number)
{
    const char *text = number == SIGALRM ? silence_text : fault_text;
    ssize_t done = write(STDERR_FILENO, text, strlen(text));
    (void)done; /* the status says it too */
    _exit(COMMAND_STORE);
}

void whole_guard(const char *command, const char *path)
{
    static const int numbers[] = {SIGSEGV, SIGBUS, SIGFPE, SIGABRT, SIGALRM};
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_NODEFER};
    struct jsonout safe = {0};
    jsonout_escaped(&safe, path, strlen(path));
    snprintf(fault_text, sizeof fault_text, "fencegate %s: %s: data.mdb is damaged, a page of it can't be read\n",
             command, safe.text == NULL ? "" : safe.text);
    snprintf(silence_text, sizeof silence_text, "fencegate %s: %s: no answer for %d seconds, it can't be read\n",
             command, safe.text == NULL ? "" : safe.text, PATIENCE_SECONDS);
    jsonout_free(&safe);
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++)
        (void)sigaction(numbers[i], &action, NULL);
    whole_alive(NULL);
}

void whole_alive(void *findings)
{
    (void)findings;
    (void)alarm(PATIENCE_SECONDS);
}

static void say(struct jsonout *out, const char *text)
{
    jsonout_raw(out, text, strlen(text));
}

void whole_finding(void *arg, const struct store_finding *finding)
{
    struct findings *findings = arg;
    struct jsonout line = {0};
    char id[32];
    if (findings->count++ >= FINDINGS_SHOWN)
        return;
    if (findings->json) {
        jsonout_object_begin(&line);
        jsonout_member_cstring(&line, "table", finding->table);
        jsonout_member_string(&line, "namespace", finding->ns.data, finding->ns.len);
        jsonout_member_string(&line, "key", finding->key.data, finding->key.len);
        if (finding->id != 0)
            jsonout_member_id(&line, "id", finding->id);
        jsonout_member_cstring(&line, "finding", finding->text);
        jsonout_object_end(&line);
    } else {
        say(&line, finding->table);
        if (finding->ns.data != NULL) {
            say(&line, " ");
            jsonout_escaped(&line, finding->ns.data, finding->ns.len);
        }
        if (finding->key.data != NULL) {
            say(&line, " ");
            jsonout_escaped(&line, finding->key.data, finding->key.len);
        }
        snprintf(id, sizeof id, " %" PRIu64, finding->id);
        say(&line, finding->id == 0 ? "" : id);
        say(&line, ": ");
        say(&line, finding->text);
    }
    printf("%.*s\n", (int)line.len, line.text == NULL ? "" : line.text);
    (void)fflush(stdout); /* the next page may end the process; a failure shows in the end */
    jsonout_free(&line);
}

static void count(struct jsonout *out, uint64_t number, const char *what)
{
    char text[80];
    snprintf(text, sizeof text, "%" PRIu64 " %s%s", number, what, number == 1 ? "" : "s");
    say(out, text);
}

void whole_contents(struct jsonout *out, const struct store_contents *contents)
{
    char text[80];
    count(out, contents->fences, "fence");
    say(out, ", ");
    count(out, contents->records, "audit record");
    snprintf(text, sizeof text, " up to id %" PRIu64, contents->newest_id);
    say(out, contents->newest_id == 0 ? "" : text);
    say(out, ", ");
    count(out, contents->effects, "effect");
    say(out, " without an outcome");
    snprintf(text, sizeof text, ", floor %" PRIu64, contents->floor);
    say(out, contents->floor == 0 ? "" : text);
}

void whole_contents_json(struct jsonout *out, const struct store_contents *contents)
{
    jsonout_member_number(out, "bytes", contents->bytes);
    jsonout_member_number(out, "fences", contents->fences);
    jsonout_member_number(out, "records", contents->records);
    jsonout_member_number(out, "effects", contents->effects);
    if (contents->newest_id != 0)
        jsonout_member_id(out, "newest_audit_id", contents->newest_id);
    if (contents->floor != 0)
        jsonout_member_id(out, "floor", contents->floor);
}

int whole_print(const char *command, struct jsonout *line)
{
    bool failed = line->failed;
    printf("%.*s\n", (int)line->len, line->text == NULL ? "" : line->text);
    jsonout_free(line);
    if (failed)
        command_complain(command, "out of memory");
    return command_flush(command) && !failed ? COMMAND_DONE : COMMAND_STORE;
}
