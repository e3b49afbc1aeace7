/* store/overlay.c - see overlay.h. A hash table over one run of bytes, both used again after each clearing. */
#include "store/overlay.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "store/change.h"

#define HEADS 4096 /* a power of two; about as many fences change between two clearings at most */
#define NONE UINT32_MAX

struct entry {
    uint32_t next; /* in `bytes` */
    uint16_t key_len;
    uint8_t value_len; /* of a value that does not fit, one more than fits */
    bool gone;
    char value[OVERLAY_VALUE_BYTES];
    char key[];
};

struct overlay {
    pthread_mutex_t lock;
    atomic_bool any; /* so that a look at an empty one takes no lock */
    bool blind;
    struct buffer bytes;
    uint32_t heads[HEADS];
};

struct overlay *overlay_new(void)
{
    struct overlay *overlay = calloc(1, sizeof *overlay);
    if (overlay == NULL || pthread_mutex_init(&overlay->lock, NULL) != 0) {
        free(overlay);
        return NULL;
    }
    memset(overlay->heads, 0xff, sizeof overlay->heads);
    return overlay;
}

void overlay_free(struct overlay **overlay)
{
    if (*overlay == NULL)
        return;
    pthread_mutex_destroy(&(*overlay)->lock);
    buffer_free(&(*overlay)->bytes);
    free(*overlay);
    *overlay = NULL;
}

/* FNV-1a */
static uint32_t *head_of(struct overlay *overlay, struct slice key)
{
    uint64_t hash = 0xcbf29ce484222325u;
    for (size_t i = 0; i < key.len; i++)
        hash = (hash ^ (unsigned char)key.data[i]) * 0x100000001b3u;
    return &overlay->heads[(hash ^ hash >> 32) & (HEADS - 1)];
}

static struct entry *entry_at(struct overlay *overlay, uint32_t at)
{
    return (struct entry *)(void *)(overlay->bytes.data + at);
}

static struct entry *find(struct overlay *overlay, struct slice key)
{
    for (uint32_t at = *head_of(overlay, key); at != NONE; at = entry_at(overlay, at)->next) {
        struct entry *entry = entry_at(overlay, at);
        if (entry->key_len == key.len && memcmp(entry->key, key.data, key.len) == 0)
            return entry;
    }
    return NULL;
}

static struct entry *add(struct overlay *overlay, struct slice key)
{
    size_t at = overlay->bytes.len, size = (sizeof(struct entry) + key.len + 7) / 8 * 8;
    if (at + size >= NONE || !buffer_reserve(&overlay->bytes, at + size))
        return NULL;
    overlay->bytes.len += size;
    uint32_t *head = head_of(overlay, key);
    struct entry *entry = entry_at(overlay, (uint32_t)at);
    *entry = (struct entry){.next = *head, .key_len = (uint16_t)key.len};
    memcpy(entry->key, key.data, key.len);
    *head = (uint32_t)at;
    return entry;
}

static void set(struct overlay *overlay, const struct change *change)
{
    struct entry *entry = find(overlay, change->key);
    if (entry == NULL)
        entry = add(overlay, change->key);
    if (entry == NULL) {
        overlay->blind = true;
        return;
    }
    size_t len = change->value.len;
    entry->gone = change->kind == CHANGE_DELETE;
    entry->value_len = (uint8_t)(len > OVERLAY_VALUE_BYTES ? OVERLAY_VALUE_BYTES + 1 : len);
    if (len > 0 && len <= OVERLAY_VALUE_BYTES)
        memcpy(entry->value, change->value.data, len);
}

void overlay_take(struct overlay *overlay, struct slice changes)
{
    struct change change;
    bool some = false;
    while (change_read(&changes, &change)) {
        if (change.table != DB_FENCES)
            continue;
        if (!some)
            pthread_mutex_lock(&overlay->lock);
        some = true;
        set(overlay, &change);
    }
    if (!some)
        return;
    atomic_store_explicit(&overlay->any, true, memory_order_release);
    pthread_mutex_unlock(&overlay->lock);
}

void overlay_clear(struct overlay *overlay)
{
    if (!atomic_load_explicit(&overlay->any, memory_order_relaxed))
        return;
    pthread_mutex_lock(&overlay->lock);
    memset(overlay->heads, 0xff, sizeof overlay->heads);
    overlay->bytes.len = 0;
    overlay->blind = false;
    atomic_store_explicit(&overlay->any, false, memory_order_release);
    pthread_mutex_unlock(&overlay->lock);
}

enum overlay_says overlay_find(struct overlay *overlay, struct slice key, char value[OVERLAY_VALUE_BYTES], size_t *len)
{
    enum overlay_says says = OVERLAY_NOTHING;
    *len = 0;
    if (!atomic_load_explicit(&overlay->any, memory_order_acquire))
        return says;
    pthread_mutex_lock(&overlay->lock);
    const struct entry *entry = find(overlay, key);
    if (overlay->blind) {
        says = OVERLAY_BLIND;
    } else if (entry != NULL) {
        says = entry->gone ? OVERLAY_GONE : OVERLAY_VALUE;
        *len = entry->value_len;
        memcpy(value, entry->value, sizeof entry->value);
    }
    pthread_mutex_unlock(&overlay->lock);
    return says;
}
