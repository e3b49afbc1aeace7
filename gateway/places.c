/* gateway/places.c - see places.h: idle places in the order in which they became so, one list of all and one for each
 * address. */
#include "gateway/places.h"

#include <netinet/in.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

enum { ADDRESS_ROWS = 4096, ADDRESS_BYTES = 16, CALLS_AT_ONCE = 2 };

struct place_address {
    struct place_address *next;
    unsigned char bytes[ADDRESS_BYTES];
    unsigned taken;
    unsigned users; /* who points here: `taken`, and those that were called and have not left */
    struct place_ends idle;
};

/* ---- lists ---- */

static void ends_init(struct place_ends *ends)
{
    ends->oldest = (struct place_link){.older = NULL, .newer = &ends->newest};
    ends->newest = (struct place_link){.older = &ends->oldest, .newer = NULL};
}

static void link_newest(struct place_ends *ends, struct place_link *link)
{
    link->older = ends->newest.older;
    link->newer = &ends->newest;
    link->older->newer = link;
    link->newer->older = link;
}

static void cut(struct place_link *link)
{
    link->older->newer = link->newer;
    link->newer->older = link->older;
}

static struct client_place *oldest_of_all(struct places *places)
{
    struct place_link *link = places->idle.oldest.newer;
    return link == &places->idle.newest
               ? NULL
               : (struct client_place *)((char *)link - offsetof(struct client_place, among_all));
}

static struct client_place *oldest_of(struct place_address *address)
{
    struct place_link *link = address->idle.oldest.newer;
    return link == &address->idle.newest
               ? NULL
               : (struct client_place *)((char *)link - offsetof(struct client_place, among_own));
}

/* ---- addresses ---- */

static bool address_bytes(unsigned char out[ADDRESS_BYTES], const struct sockaddr *address)
{
    static const unsigned char mapped[12] = {[10] = 0xff, [11] = 0xff};
    if (address->sa_family == AF_INET) {
        memcpy(out, mapped, sizeof mapped);
        memcpy(out + sizeof mapped, &((const struct sockaddr_in *)(const void *)address)->sin_addr, 4);
    } else if (address->sa_family == AF_INET6) {
        memcpy(out, &((const struct sockaddr_in6 *)(const void *)address)->sin6_addr, ADDRESS_BYTES);
    }
    return address->sa_family == AF_INET || address->sa_family == AF_INET6;
}

/* Seeded: who owns many addresses does not choose the row that they fall into. */
static size_t row_of(const struct places *places, const unsigned char bytes[ADDRESS_BYTES])
{
    uint64_t half[2], mixed = places->seed;
    memcpy(half, bytes, sizeof half);
    for (int i = 0; i < 2; i++) {
        mixed = (mixed ^ half[i]) * 0x9e3779b97f4a7c15u;
        mixed ^= mixed >> 29;
        mixed *= 0xbf58476d1ce4e5b9u ^ (places->seed | 1);
        mixed ^= mixed >> 32;
    }
    return mixed % ADDRESS_ROWS;
}

static struct place_address *find_address(struct places *places, const unsigned char bytes[ADDRESS_BYTES])
{
    struct place_address **row = &places->addresses[row_of(places, bytes)];
    struct place_address *address = *row;
    while (address != NULL && memcmp(address->bytes, bytes, ADDRESS_BYTES) != 0)
        address = address->next;
    if (address == NULL && (address = calloc(1, sizeof *address)) != NULL) {
        memcpy(address->bytes, bytes, ADDRESS_BYTES);
        ends_init(&address->idle);
        address->next = *row;
        *row = address;
    }
    return address;
}

static void forget_address(struct places *places, struct place_address *address)
{
    struct place_address **at = &places->addresses[row_of(places, address->bytes)];
    while (*at != address)
        at = &(*at)->next;
    *at = address->next;
    free(address);
}

/* ---- states ---- */

static void count(struct places *places, struct client_place *place)
{
    places->taken++;
    if (place->address != NULL)
        place->address->taken++;
}

static void uncount(struct places *places, struct client_place *place)
{
    places->taken--;
    if (place->address != NULL)
        place->address->taken--;
}

static void enter_idle(struct places *places, struct client_place *place)
{
    place->state = PLACE_IDLE;
    link_newest(&places->idle, &place->among_all);
    if (place->address != NULL)
        link_newest(&place->address->idle, &place->among_own);
}

static void leave_idle(struct client_place *place)
{
    cut(&place->among_all);
    if (place->address != NULL)
        cut(&place->among_own);
}

static void leave_called(struct client_place *place)
{
    if (place->prev_called != NULL)
        place->prev_called->next_called = place->next_called;
    else if (place->caller->called == place)
        place->caller->called = place->next_called;
    if (place->next_called != NULL)
        place->next_called->prev_called = place->prev_called;
    place->next_called = place->prev_called = NULL;
}

static void call(struct places *places, struct client_place *place)
{
    struct place_caller *caller = place->caller;
    leave_idle(place);
    uncount(places, place);
    place->state = PLACE_CALLED;
    place->prev_called = NULL;
    place->next_called = caller->called;
    if (caller->called != NULL)
        caller->called->prev_called = place;
    caller->called = place;
    if (!caller->posted) {
        caller->posted = true;
        inbox_post(caller->inbox, &caller->item);
    }
}

/* ---- the interface ---- */

bool places_init(struct places *places)
{
    *places = (struct places){.taken = 0};
    places->addresses = calloc(ADDRESS_ROWS, sizeof *places->addresses);
    if (places->addresses == NULL)
        return false;
    ends_init(&places->idle);
    if (getrandom(&places->seed, sizeof places->seed, 0) != (ssize_t)sizeof places->seed)
        places->seed = (uintptr_t)places->addresses;
    pthread_mutex_init(&places->mutex, NULL);
    return true;
}

void places_destroy(struct places *places)
{
    if (places->addresses == NULL)
        return;
    free(places->addresses);
    places->addresses = NULL;
    pthread_mutex_destroy(&places->mutex);
}

/* Makes room for one more, if calling helps. */
static enum place_verdict make_room(struct places *places, struct place_address *address, unsigned max,
                                    unsigned max_of_address)
{
    struct client_place *oldest;
    if (address != NULL && max_of_address > 0) {
        for (int i = 0; i < CALLS_AT_ONCE && address->taken >= max_of_address && (oldest = oldest_of(address)); i++)
            call(places, oldest);
        if (address->taken >= max_of_address)
            return PLACE_ADDRESS_FULL;
    }
    for (int i = 0; i < CALLS_AT_ONCE && places->taken >= max && (oldest = oldest_of_all(places)); i++)
        call(places, oldest);
    return places->taken >= max ? PLACE_FULL : PLACE_TAKEN;
}

enum place_verdict places_take(struct places *places, struct client_place *place, struct place_caller *caller,
                               const struct sockaddr *address, unsigned max, unsigned max_of_address)
{
    unsigned char bytes[ADDRESS_BYTES];
    bool known = address_bytes(bytes, address);
    pthread_mutex_lock(&places->mutex);
    struct place_address *own = known ? find_address(places, bytes) : NULL;
    enum place_verdict verdict = known && own == NULL ? PLACE_NO_MEMORY : make_room(places, own, max, max_of_address);
    if (verdict == PLACE_TAKEN) {
        place->address = own;
        place->caller = caller;
        if (own != NULL)
            own->users++;
        count(places, place);
        enter_idle(places, place);
    } else if (own != NULL && own->users == 0) {
        forget_address(places, own);
    }
    pthread_mutex_unlock(&places->mutex);
    return verdict;
}

bool places_call_one(struct places *places)
{
    pthread_mutex_lock(&places->mutex);
    struct client_place *oldest = oldest_of_all(places);
    if (oldest != NULL)
        call(places, oldest);
    pthread_mutex_unlock(&places->mutex);
    return oldest != NULL;
}

unsigned places_taken(struct places *places)
{
    pthread_mutex_lock(&places->mutex);
    unsigned taken = places->taken;
    pthread_mutex_unlock(&places->mutex);
    return taken;
}

void place_busy(struct places *places, struct client_place *place)
{
    if (place->caller == NULL)
        return;
    pthread_mutex_lock(&places->mutex);
    if (place->state == PLACE_IDLE) {
        leave_idle(place);
    } else if (place->state == PLACE_CALLED) {
        leave_called(place);
        count(places, place);
    }
    place->state = PLACE_BUSY;
    pthread_mutex_unlock(&places->mutex);
}

void place_idle(struct places *places, struct client_place *place)
{
    if (place->caller == NULL)
        return;
    pthread_mutex_lock(&places->mutex);
    if (place->state == PLACE_BUSY)
        enter_idle(places, place);
    pthread_mutex_unlock(&places->mutex);
}

void place_leave(struct places *places, struct client_place *place)
{
    if (place->caller == NULL)
        return;
    pthread_mutex_lock(&places->mutex);
    if (place->state == PLACE_CALLED) {
        leave_called(place);
    } else {
        if (place->state == PLACE_IDLE)
            leave_idle(place);
        uncount(places, place);
    }
    struct place_address *own = place->address;
    if (own != NULL && --own->users == 0)
        forget_address(places, own);
    *place = (struct client_place){.state = PLACE_NONE};
    pthread_mutex_unlock(&places->mutex);
}

struct client_place *places_next_called(struct places *places, struct place_caller *caller)
{
    pthread_mutex_lock(&places->mutex);
    struct client_place *place = caller->called;
    if (place != NULL)
        leave_called(place);
    else
        caller->posted = false; /* not before: the item would be posted while it is in the inbox */
    pthread_mutex_unlock(&places->mutex);
    return place;
}
