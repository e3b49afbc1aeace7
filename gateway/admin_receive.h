/*
 * gateway/admin_receive.h - connections of the admin listener with a body on its way, or whose client has ended its
 * sending: for how long, and whether more will come. Admin thread.
 */
#ifndef FENCEGATE_ADMIN_RECEIVE_H
#define FENCEGATE_ADMIN_RECEIVE_H

#include <stdbool.h>
#include <stdint.h>

#define ADMIN_RECEIVE_IDLE UINT64_MAX /* no request is under way: nobody is to be told */

/* One connection; zeroed at first. */
struct admin_receive {
    struct admin_receive *next, **link; /* link NULL: not on the list */
    int fd;
    uint64_t end_ms;
    bool ended, refused;
};

void admin_receive_begin(struct admin_receive **list, struct admin_receive *receive, int fd, uint64_t end_ms);
bool admin_receive_at_end(int fd); /* the client has ended its sending, and all that it sent was taken */
void admin_receive_end(struct admin_receive *receive); /* also when it has not begun */
/* To be called when the library has taken what there was. Refuses what is late or cut short, and lets the library
 * notice that nothing more comes: it then closes. Returns after how many milliseconds it wants to be called again; -1:
 * no need. `hint` as in struct admin_answer. */
int admin_receive_run(struct admin_receive *list, const char *hint);

#endif
