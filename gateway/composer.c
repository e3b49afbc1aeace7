/* gateway/composer.c - the queue and the thread behind composer.h. */
#include "gateway/composer.h"

#include <pthread.h>
#include <stdlib.h>

struct composer {
    pthread_mutex_t mutex;
    pthread_cond_t more;
    struct composer_job *first, **last;
    bool running, ending;
    pthread_t thread;
};

/* NULL: the end. */
static struct composer_job *wait_for_job(struct composer *composer)
{
    pthread_mutex_lock(&composer->mutex);
    while (composer->first == NULL && !composer->ending)
        pthread_cond_wait(&composer->more, &composer->mutex);
    struct composer_job *job = composer->ending ? NULL : composer->first;
    if (job != NULL) {
        composer->first = job->next;
        if (composer->first == NULL)
            composer->last = &composer->first;
    }
    pthread_mutex_unlock(&composer->mutex);
    return job;
}

static void *run(void *arg)
{
    struct composer *composer = arg;
    struct composer_job *job;
    pthread_setname_np(pthread_self(), "fg-composer");
    while ((job = wait_for_job(composer)) != NULL) {
        job->work(job);
        inbox_post(job->home, &job->item);
    }
    return NULL;
}

struct composer *composer_new(void)
{
    struct composer *composer = calloc(1, sizeof *composer);
    if (composer == NULL)
        return NULL;
    pthread_mutex_init(&composer->mutex, NULL);
    pthread_cond_init(&composer->more, NULL);
    composer->last = &composer->first;
    return composer;
}

bool composer_submit(struct composer *composer, struct composer_job *job)
{
    pthread_mutex_lock(&composer->mutex);
    if (!composer->running)
        composer->running = pthread_create(&composer->thread, NULL, run, composer) == 0;
    bool taken = composer->running;
    if (taken) {
        job->next = NULL;
        *composer->last = job;
        composer->last = &job->next;
        pthread_cond_signal(&composer->more);
    }
    pthread_mutex_unlock(&composer->mutex);
    return taken;
}

void composer_free(struct composer **composer)
{
    struct composer *gone = *composer;
    *composer = NULL;
    if (gone == NULL)
        return;
    pthread_mutex_lock(&gone->mutex);
    gone->ending = true;
    bool running = gone->running;
    pthread_cond_signal(&gone->more);
    pthread_mutex_unlock(&gone->mutex);
    if (running)
        pthread_join(gone->thread, NULL);
    pthread_cond_destroy(&gone->more);
    pthread_mutex_destroy(&gone->mutex);
    free(gone);
}
