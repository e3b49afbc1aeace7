/* tests/unit/test_resolver.c - looking names up: shares of the threads, what is shared and kept, leaving. */
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "gateway/inbox.h"
#include "gateway/resolver.h"

/* ---- the name service: a name that begins with "slow" waits for let_go() ---- */

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static unsigned asked, inside;
static bool released;

static struct addrinfo *make_info(const char *text, struct addrinfo *next)
{
    struct {
        struct addrinfo info;
        struct sockaddr_in v4;
    } *made = calloc(1, sizeof *made);
    assert_non_null(made);
    made->info = (struct addrinfo){.ai_family = AF_INET, .ai_addr = (struct sockaddr *)&made->v4, .ai_next = next};
    made->v4.sin_family = AF_INET;
    made->v4.sin_addr.s_addr = htonl(strcmp(text, "one") == 0 ? 0x0a000001 : 0x0a000002);
    return &made->info;
}

int getaddrinfo(const char *node, const char *service, const struct addrinfo *hints, struct addrinfo **out)
{
    (void)service, (void)hints;
    pthread_mutex_lock(&mutex);
    asked++;
    inside++;
    pthread_cond_broadcast(&changed);
    while (strncmp(node, "slow", 4) == 0 && !released)
        pthread_cond_wait(&changed, &mutex);
    inside--;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&mutex);
    if (strcmp(node, "absent") == 0)
        return EAI_NONAME;
    *out = make_info("one", make_info("two", NULL));
    return 0;
}

void freeaddrinfo(struct addrinfo *info)
{
    while (info != NULL) {
        struct addrinfo *next = info->ai_next;
        free(info);
        info = next;
    }
}

static void wait_inside(unsigned count)
{
    pthread_mutex_lock(&mutex);
    while (inside != count)
        pthread_cond_wait(&changed, &mutex);
    pthread_mutex_unlock(&mutex);
}

static void let_go(void)
{
    pthread_mutex_lock(&mutex);
    released = true;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&mutex);
}

static unsigned asked_now(void)
{
    pthread_mutex_lock(&mutex);
    unsigned count = asked;
    pthread_mutex_unlock(&mutex);
    return count;
}

/* ---- one who asks ---- */

static struct inbox inbox;
static struct resolver *resolver;

struct answer {
    unsigned count;
    char addresses[64];
    const char *problem;
};

static void on_done(void *arg, const char *addresses, const char *problem)
{
    struct answer *answer = arg;
    answer->count++;
    answer->problem = problem;
    strncpy(answer->addresses, addresses == NULL ? "" : addresses, sizeof answer->addresses - 1);
}

static struct lookup *ask(const char *name, enum lookup_class class, struct answer *answer)
{
    *answer = (struct answer){0};
    struct lookup *lookup = resolver_ask(resolver, name, class, &inbox, on_done, answer);
    assert_non_null(lookup);
    assert_int_equal(answer->count, 0);
    return lookup;
}

static void wait_for(const struct answer *answer)
{
    while (answer->count == 0) {
        struct pollfd fd = {.fd = inbox.event_fd, .events = POLLIN};
        assert_int_equal(poll(&fd, 1, 10000), 1);
        inbox_drain(&inbox);
    }
    assert_int_equal(answer->count, 1);
}

static int set_up(void **state)
{
    (void)state;
    asked = 0;
    released = false;
    resolver = resolver_new(4);
    return resolver != NULL && inbox_init(&inbox) ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    resolver_free(&resolver);
    resolver_free(&resolver);
    let_go();
    wait_inside(0);
    inbox_destroy(&inbox);
    return 0;
}

/* ---- tests ---- */

static void addresses_come_in_their_order(void **state)
{
    struct answer answer;
    (void)state;
    ask("name", LOOKUP_FIXED, &answer);
    wait_for(&answer);
    assert_string_equal(answer.addresses, "10.0.0.1,10.0.0.2");
    assert_null(answer.problem);
}

static void what_was_found_is_kept_what_failed_is_not(void **state)
{
    struct answer answer;
    (void)state;
    for (int i = 0; i < 2; i++) {
        ask("name", LOOKUP_CHOSEN, &answer);
        wait_for(&answer);
        assert_string_equal(answer.addresses, "10.0.0.1,10.0.0.2");
    }
    assert_int_equal(asked_now(), 1);
    for (int i = 0; i < 2; i++) {
        ask("absent", LOOKUP_CHOSEN, &answer);
        wait_for(&answer);
        assert_string_equal(answer.problem, gai_strerror(EAI_NONAME));
        assert_string_equal(answer.addresses, "");
    }
    assert_int_equal(asked_now(), 3);
}

static void one_name_is_looked_up_once(void **state)
{
    struct answer answers[8];
    (void)state;
    for (int i = 0; i < 8; i++)
        ask("slow", i % 2 == 0 ? LOOKUP_CHOSEN : LOOKUP_FIXED, &answers[i]);
    wait_inside(1);
    let_go();
    for (int i = 0; i < 8; i++)
        wait_for(&answers[i]);
    assert_int_equal(asked_now(), 1);
}

static void chosen_names_get_half(void **state)
{
    static const char *const slow[] = {"slow1", "slow2", "slow3", "slow4", "slow5"};
    struct answer answers[5], other;
    struct lookup *lookups[5];
    (void)state;
    for (int i = 0; i < 5; i++)
        lookups[i] = ask(slow[i], LOOKUP_CHOSEN, &answers[i]);
    wait_inside(2);
    ask("name", LOOKUP_FIXED, &other);
    wait_for(&other);
    assert_int_equal(asked_now(), 3);
    ask("slow5", LOOKUP_FIXED, &other); /* the same name as one that waits: it goes first now */
    wait_inside(3);
    assert_int_equal(asked_now(), 4);
    lookup_cancel(&lookups[2]); /* nobody else wants it: it is not looked up at all */
    assert_null(lookups[2]);
    let_go();
    wait_for(&answers[3]);
    wait_for(&other);
    assert_int_equal(answers[2].count, 0);
    for (int i = 0; i < 5; i++)
        if (i != 2)
            wait_for(&answers[i]);
    assert_int_equal(asked_now(), 5);
}

static void a_lower_limit_holds(void **state)
{
    struct answer answers[3];
    (void)state;
    resolver_limit(resolver, 2);
    ask("slow1", LOOKUP_CHOSEN, &answers[0]);
    wait_inside(1);
    ask("slow2", LOOKUP_CHOSEN, &answers[1]);
    ask("name", LOOKUP_FIXED, &answers[2]);
    wait_for(&answers[2]);
    assert_int_equal(asked_now(), 2);
    let_go();
    wait_for(&answers[0]);
    wait_for(&answers[1]);
}

static void a_cancelled_answer_does_not_come(void **state)
{
    struct answer gone, answer;
    (void)state;
    struct lookup *lookup = ask("name", LOOKUP_FIXED, &gone);
    struct pollfd fd = {.fd = inbox.event_fd, .events = POLLIN};
    assert_int_equal(poll(&fd, 1, 10000), 1); /* it is in the inbox */
    lookup_cancel(&lookup);
    lookup_cancel(&lookup);
    ask("other", LOOKUP_FIXED, &answer);
    wait_for(&answer);
    assert_int_equal(gone.count, 0);
}

/* The inbox is not run again; the thread finds its way out when its look-up has ended. */
static void leaving_waits_for_nobody(void **state)
{
    struct answer answer;
    (void)state;
    struct lookup *hangs = ask("slow", LOOKUP_FIXED, &answer);
    wait_inside(1);
    ask("name", LOOKUP_FIXED, &answer);
    struct pollfd fd = {.fd = inbox.event_fd, .events = POLLIN};
    assert_int_equal(poll(&fd, 1, 10000), 1);
    lookup_cancel(&hangs);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(addresses_come_in_their_order, set_up, tear_down),
        cmocka_unit_test_setup_teardown(what_was_found_is_kept_what_failed_is_not, set_up, tear_down),
        cmocka_unit_test_setup_teardown(one_name_is_looked_up_once, set_up, tear_down),
        cmocka_unit_test_setup_teardown(chosen_names_get_half, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_lower_limit_holds, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_cancelled_answer_does_not_come, set_up, tear_down),
        cmocka_unit_test_setup_teardown(leaving_waits_for_nobody, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
