/*
 * gateway/resolver.c - the threads, queues and memory behind resolver.h.
 *
 * One mutex guards all of it; it is never held while a name is looked up. A job is one name: queued, running, or known.
 * Lookups hang on a job that is queued or running. When it ends they move to `posted`, where they stay until their
 * inbox has run them.
 */
#include "gateway/resolver.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "gateway/inbox.h"

enum {
    CHAINS = 256,
    KNOWN_MAX = 1024,    /* names in memory */
    KNOWN_S = 10,        /* by the wall clock, so that a machine's sleep counts; one that was set back ends it */
    IDLE_S = 30,         /* a thread without work leaves */
    STACK = 1024 * 1024, /* name service modules keep answers of 64 KiB on it */
    ADDRESSES_MAX = 32,  /* of one name */
    ADDRESS_CAP = INET6_ADDRSTRLEN + 3, /* brackets, comma */
};

struct lookup {
    struct inbox_item item; /* first */
    struct resolver *resolver;
    struct inbox *inbox;
    lookup_done *done; /* NULL: cancelled while its answer was on its way */
    void *arg;
    struct job *job; /* NULL: posted */
    char *addresses;
    const char *problem; /* static */
    struct lookup *next, **at;
};

enum job_step { JOB_QUEUED, JOB_RUNNING, JOB_KNOWN };

struct job {
    enum job_step step;
    enum lookup_class class; /* of its place in the queue, and of the thread that it has */
    struct lookup *lookups;
    char *addresses; /* KNOWN */
    time_t found_s;
    struct job *next, *prev;   /* in its queue, or of what is known, the oldest first */
    struct job *same, **chain; /* by name */
    char name[];
};

struct queue {
    struct job *first, *last;
    unsigned count;
};

struct resolver {
    pthread_mutex_t mutex;
    pthread_cond_t work;
    unsigned references; /* threads, and the owner */
    unsigned threads_max, threads, idle;
    unsigned running_chosen;
    bool stopping;
    struct queue waiting[2]; /* by class */
    struct queue known;
    struct job *chains[CHAINS];
    struct lookup *posted;
};

/* ---- lists ---- */

static void queue_add(struct queue *queue, struct job *job)
{
    job->next = NULL;
    job->prev = queue->last;
    *(queue->last == NULL ? &queue->first : &queue->last->next) = job;
    queue->last = job;
    queue->count++;
}

static void queue_remove(struct queue *queue, struct job *job)
{
    *(job->prev == NULL ? &queue->first : &job->prev->next) = job->next;
    *(job->next == NULL ? &queue->last : &job->next->prev) = job->prev;
    queue->count--;
}

static void lookup_into(struct lookup **list, struct lookup *lookup)
{
    lookup->next = *list;
    lookup->at = list;
    if (*list != NULL)
        (*list)->at = &lookup->next;
    *list = lookup;
}

static void lookup_out(struct lookup *lookup)
{
    *lookup->at = lookup->next;
    if (lookup->next != NULL)
        lookup->next->at = lookup->at;
}

static struct job **chain_of(struct resolver *resolver, const char *name)
{
    uint32_t hash = 2166136261u; /* FNV-1a */
    for (; *name != '\0'; name++)
        hash = (hash ^ (unsigned char)*name) * 16777619u;
    return &resolver->chains[hash % CHAINS];
}

static struct job *job_find(struct resolver *resolver, const char *name)
{
    struct job *job = *chain_of(resolver, name);
    while (job != NULL && strcmp(job->name, name) != 0)
        job = job->same;
    return job;
}

static struct job *job_new(struct resolver *resolver, const char *name, enum lookup_class class)
{
    size_t size = strlen(name) + 1;
    struct job *job = calloc(1, sizeof *job + size);
    if (job == NULL)
        return NULL;
    memcpy(job->name, name, size);
    job->class = class;
    job->chain = chain_of(resolver, name);
    job->same = *job->chain;
    if (job->same != NULL)
        job->same->chain = &job->same;
    *job->chain = job;
    queue_add(&resolver->waiting[class], job);
    return job;
}

/* It is in no queue any more. */
static void job_free(struct job *job)
{
    *job->chain = job->same;
    if (job->same != NULL)
        job->same->chain = job->chain;
    free(job->addresses);
    free(job);
}

static void forget(struct resolver *resolver, struct job *job)
{
    queue_remove(&resolver->known, job);
    job_free(job);
}

/* ---- answers ---- */

static void on_home(struct inbox_item *item)
{
    struct lookup *lookup = (struct lookup *)item;
    struct resolver *resolver = lookup->resolver;
    pthread_mutex_lock(&resolver->mutex);
    lookup_out(lookup);
    pthread_mutex_unlock(&resolver->mutex);
    if (lookup->done != NULL)
        lookup->done(lookup->arg, lookup->addresses, lookup->problem);
    free(lookup->addresses);
    free(lookup);
}

/* Under the mutex, so that nothing is on its way to an inbox whose owner has cancelled all it asked. */
static void post(struct resolver *resolver, struct lookup *lookup, const char *addresses, const char *problem)
{
    lookup->job = NULL;
    lookup->addresses = addresses == NULL ? NULL : strdup(addresses);
    lookup->problem = problem;
    lookup_into(&resolver->posted, lookup);
    inbox_post(lookup->inbox, &lookup->item);
}

static void answer_all(struct resolver *resolver, struct job *job, const char *addresses, const char *problem)
{
    struct lookup *lookup;
    while ((lookup = job->lookups) != NULL) {
        lookup_out(lookup);
        post(resolver, lookup, addresses, problem);
    }
}

/* ---- a look-up ---- */

static size_t write_address(const struct addrinfo *info, char *out)
{
    char text[INET6_ADDRSTRLEN];
    const void *address = NULL;
    if (info->ai_family == AF_INET)
        address = &((const struct sockaddr_in *)info->ai_addr)->sin_addr;
    else if (info->ai_family == AF_INET6)
        address = &((const struct sockaddr_in6 *)info->ai_addr)->sin6_addr;
    if (address == NULL || inet_ntop(info->ai_family, address, text, sizeof text) == NULL)
        return 0;
    return (size_t)snprintf(out, ADDRESS_CAP, info->ai_family == AF_INET6 ? "[%s]," : "%s,", text);
}

/* NULL: none, *problem has why. */
static char *look_up(const char *name, const char **problem)
{
    struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
    struct addrinfo *found = NULL;
    int error = getaddrinfo(name, NULL, &hints, &found);
    *problem = error == 0 ? NULL : gai_strerror(error);
    char *text = error == 0 ? malloc((size_t)ADDRESSES_MAX * ADDRESS_CAP) : NULL;
    size_t len = 0;
    unsigned count = 0;
    for (const struct addrinfo *info = found; info != NULL && text != NULL && count < ADDRESSES_MAX;
         info = info->ai_next, count++)
        len += write_address(info, text + len);
    if (found != NULL)
        freeaddrinfo(found);
    if (text != NULL && len > 0) {
        text[len - 1] = '\0';
        return text;
    }
    if (text != NULL)
        *problem = gai_strerror(EAI_NONAME);
    free(text);
    return NULL;
}

/* ---- the threads ---- */

/* How many more chosen names may be looked up now. */
static unsigned room_for_chosen(const struct resolver *resolver)
{
    unsigned most = resolver->threads_max / 2;
    if (most > resolver->threads - 1)
        most = resolver->threads - 1;
    return resolver->running_chosen < most ? most - resolver->running_chosen : 0;
}

static struct job *take_job(struct resolver *resolver)
{
    enum lookup_class class = resolver->waiting[LOOKUP_FIXED].first != NULL ? LOOKUP_FIXED : LOOKUP_CHOSEN;
    struct job *job = resolver->waiting[class].first;
    if (job == NULL || (class == LOOKUP_CHOSEN && room_for_chosen(resolver) == 0))
        return NULL;
    queue_remove(&resolver->waiting[class], job);
    job->step = JOB_RUNNING;
    resolver->running_chosen += class == LOOKUP_CHOSEN;
    return job;
}

static void keep(struct resolver *resolver, struct job *job, char *addresses)
{
    job->step = JOB_KNOWN;
    job->addresses = addresses;
    job->found_s = time(NULL);
    queue_add(&resolver->known, job);
    if (resolver->known.count > KNOWN_MAX)
        forget(resolver, resolver->known.first);
}

static void run_job(struct resolver *resolver, struct job *job)
{
    const char *problem;
    pthread_mutex_unlock(&resolver->mutex);
    char *addresses = look_up(job->name, &problem);
    pthread_mutex_lock(&resolver->mutex);
    resolver->running_chosen -= job->class == LOOKUP_CHOSEN;
    answer_all(resolver, job, addresses, problem);
    if (addresses != NULL && !resolver->stopping)
        keep(resolver, job, addresses);
    else {
        free(addresses);
        job_free(job);
    }
}

/* False: nothing came for a while. */
static bool wait_for_work(struct resolver *resolver)
{
    struct timespec end;
    clock_gettime(CLOCK_MONOTONIC, &end);
    end.tv_sec += IDLE_S;
    resolver->idle++;
    int error = pthread_cond_timedwait(&resolver->work, &resolver->mutex, &end);
    resolver->idle--;
    return error != ETIMEDOUT;
}

static void destroy(struct resolver *resolver)
{
    pthread_cond_destroy(&resolver->work);
    pthread_mutex_destroy(&resolver->mutex);
    free(resolver);
}

/* With the mutex, which is given back. */
static void drop_reference(struct resolver *resolver)
{
    bool last = --resolver->references == 0;
    pthread_mutex_unlock(&resolver->mutex);
    if (last)
        destroy(resolver);
}

static void *resolver_run(void *arg)
{
    struct resolver *resolver = arg;
    bool bored = false;
    pthread_setname_np(pthread_self(), "fg-resolver");
    pthread_mutex_lock(&resolver->mutex);
    while (!resolver->stopping && resolver->threads <= resolver->threads_max) {
        struct job *job = take_job(resolver);
        if (job != NULL)
            run_job(resolver, job);
        else if (bored && resolver->threads > 1)
            break;
        bored = job == NULL && !wait_for_work(resolver);
    }
    resolver->threads--;
    drop_reference(resolver);
    return NULL;
}

static bool start_thread(struct resolver *resolver)
{
    pthread_t thread;
    pthread_attr_t attributes;
    if (pthread_attr_init(&attributes) != 0)
        return false;
    bool started = pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED) == 0 &&
                   pthread_attr_setstacksize(&attributes, STACK) == 0 &&
                   pthread_create(&thread, &attributes, resolver_run, resolver) == 0;
    pthread_attr_destroy(&attributes);
    resolver->threads += started;
    resolver->references += started;
    return started;
}

/* One thread for each job that may begin. Where none can be started those there are take one after the other. */
static void see_to_threads(struct resolver *resolver)
{
    unsigned most = resolver->threads_max / 2;
    unsigned chosen = most > resolver->running_chosen ? most - resolver->running_chosen : 0;
    if (chosen > resolver->waiting[LOOKUP_CHOSEN].count)
        chosen = resolver->waiting[LOOKUP_CHOSEN].count;
    unsigned wanted = resolver->waiting[LOOKUP_FIXED].count + chosen + (chosen > 0); /* one is never a chosen name's */
    if (wanted > resolver->idle && resolver->threads < resolver->threads_max)
        (void)start_thread(resolver);
    while (chosen > 0 && room_for_chosen(resolver) == 0 && resolver->threads < resolver->threads_max &&
           start_thread(resolver))
        continue; /* threads that wait for a silent name server leave no room yet */
    if (resolver->idle > 0)
        pthread_cond_signal(&resolver->work);
}

/* ---- asking ---- */

/* A fixed name does not wait behind chosen ones because one of them is the same. */
static void promote(struct resolver *resolver, struct job *job, enum lookup_class class)
{
    if (job->step != JOB_QUEUED || job->class == LOOKUP_FIXED || class == LOOKUP_CHOSEN)
        return;
    queue_remove(&resolver->waiting[job->class], job);
    job->class = LOOKUP_FIXED;
    queue_add(&resolver->waiting[job->class], job);
}

/* False: no memory. */
static bool ask(struct resolver *resolver, const char *name, enum lookup_class class, struct lookup *lookup)
{
    struct job *job = job_find(resolver, name);
    if (job != NULL && job->step == JOB_KNOWN) {
        if ((uint64_t)(time(NULL) - job->found_s) < KNOWN_S) {
            post(resolver, lookup, job->addresses, NULL);
            return true;
        }
        forget(resolver, job);
        job = NULL;
    }
    if (job == NULL)
        job = job_new(resolver, name, class);
    if (job == NULL)
        return false;
    promote(resolver, job, class);
    lookup->job = job;
    lookup_into(&job->lookups, lookup);
    if (job->step == JOB_QUEUED)
        see_to_threads(resolver);
    return true;
}

struct lookup *resolver_ask(struct resolver *resolver, const char *name, enum lookup_class class, struct inbox *inbox,
                            lookup_done *done, void *arg)
{
    struct lookup *lookup = calloc(1, sizeof *lookup);
    if (lookup == NULL)
        return NULL;
    lookup->item.run = on_home;
    lookup->resolver = resolver;
    lookup->inbox = inbox;
    lookup->done = done;
    lookup->arg = arg;
    pthread_mutex_lock(&resolver->mutex);
    bool asked = ask(resolver, name, class, lookup);
    pthread_mutex_unlock(&resolver->mutex);
    if (!asked) {
        free(lookup);
        return NULL;
    }
    return lookup;
}

void lookup_cancel(struct lookup **which)
{
    struct lookup *lookup = *which;
    *which = NULL;
    if (lookup == NULL)
        return;
    struct resolver *resolver = lookup->resolver;
    pthread_mutex_lock(&resolver->mutex);
    struct job *job = lookup->job;
    lookup->done = NULL;
    if (job != NULL)
        lookup_out(lookup);
    if (job != NULL && job->lookups == NULL && job->step == JOB_QUEUED) { /* nobody wants it any more */
        queue_remove(&resolver->waiting[job->class], job);
        job_free(job);
    }
    pthread_mutex_unlock(&resolver->mutex);
    if (job != NULL)
        free(lookup);
}

/* ---- beginning and end ---- */

static bool set_up(struct resolver *resolver)
{
    pthread_condattr_t attributes;
    if (pthread_condattr_init(&attributes) != 0)
        return false;
    bool done = pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC) == 0 &&
                pthread_cond_init(&resolver->work, &attributes) == 0;
    pthread_condattr_destroy(&attributes);
    return done && pthread_mutex_init(&resolver->mutex, NULL) == 0;
}

struct resolver *resolver_new(unsigned threads)
{
    struct resolver *resolver = calloc(1, sizeof *resolver);
    if (resolver == NULL)
        return NULL;
    if (!set_up(resolver)) {
        free(resolver);
        return NULL;
    }
    resolver->references = 1;
    resolver->threads_max = threads;
    pthread_mutex_lock(&resolver->mutex);
    bool started = start_thread(resolver);
    pthread_mutex_unlock(&resolver->mutex);
    if (!started)
        resolver_free(&resolver);
    return resolver;
}

void resolver_limit(struct resolver *resolver, unsigned threads)
{
    pthread_mutex_lock(&resolver->mutex);
    resolver->threads_max = threads;
    pthread_cond_broadcast(&resolver->work);
    pthread_mutex_unlock(&resolver->mutex);
}

void resolver_free(struct resolver **which)
{
    struct resolver *resolver = *which;
    struct lookup *lookup;
    *which = NULL;
    if (resolver == NULL)
        return;
    pthread_mutex_lock(&resolver->mutex);
    resolver->stopping = true;
    while ((lookup = resolver->posted) != NULL) { /* their inbox is not run any more */
        lookup_out(lookup);
        free(lookup->addresses);
        free(lookup);
    }
    while (resolver->known.first != NULL)
        forget(resolver, resolver->known.first);
    pthread_cond_broadcast(&resolver->work);
    drop_reference(resolver);
}
