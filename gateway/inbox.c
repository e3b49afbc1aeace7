/* gateway/inbox.c - the queue behind inbox.h: a mutex held for a few instructions, one wake-up per burst. */
#include "gateway/inbox.h"

#include <stdint.h>
#include <sys/eventfd.h>
#include <unistd.h>

bool inbox_init(struct inbox *inbox)
{
    inbox->head = NULL;
    inbox->tail = &inbox->head;
    inbox->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (inbox->event_fd < 0)
        return false;
    pthread_mutex_init(&inbox->mutex, NULL);
    return true;
}

void inbox_destroy(struct inbox *inbox)
{
    if (inbox->event_fd >= 0) {
        close(inbox->event_fd);
        pthread_mutex_destroy(&inbox->mutex);
    }
    inbox->event_fd = -1;
}

void inbox_post(struct inbox *inbox, struct inbox_item *item)
{
    inbox_post_list(inbox, item, item);
}

void inbox_post_list(struct inbox *inbox, struct inbox_item *first, struct inbox_item *last)
{
    last->next = NULL;
    pthread_mutex_lock(&inbox->mutex);
    bool was_empty = inbox->head == NULL;
    *inbox->tail = first;
    inbox->tail = &last->next;
    pthread_mutex_unlock(&inbox->mutex);
    if (was_empty) { /* else the wake-up of the first item is still on its way */
        uint64_t one = 1;
        ssize_t written = write(inbox->event_fd, &one, sizeof one);
        (void)written; /* full counter: it is readable, which is all we want */
    }
}

bool inbox_drain(struct inbox *inbox)
{
    uint64_t count;
    ssize_t got = read(inbox->event_fd, &count, sizeof count); /* before the swap: a later post wakes us again */
    (void)got;
    pthread_mutex_lock(&inbox->mutex);
    struct inbox_item *item = inbox->head;
    inbox->head = NULL;
    inbox->tail = &inbox->head;
    pthread_mutex_unlock(&inbox->mutex);
    bool ran = item != NULL;
    while (item != NULL) {
        struct inbox_item *next = item->next;
        item->run(item);
        item = next;
    }
    return ran;
}
