/* store/folder.h - the store's folder: made, judged, locked. LMDB's own files in it are lmdb.c's. */
#ifndef FENCEGATE_STORE_FOLDER_H
#define FENCEGATE_STORE_FOLDER_H

#include "store/store.h"

struct folder; /* holds the locks until folder_leave() */

/* For serving: makes the folder, but none above it, refuses remote file systems, takes gateway.lock. For reading: makes
 * nothing and takes no lock file. Either way the folder is entered once per process: LMDB drops its locks when opened
 * twice. */
enum store_error folder_enter(const char *path, bool readonly, struct folder **out, char *why, size_t why_cap)
    __attribute__((warn_unused_result));
/* Removes what folder_enter() made: gateway.lock, then the folder if it is empty. Before folder_leave(). May be NULL.
 */
void folder_undo(const struct folder *folder, const char *path);
void folder_leave(struct folder **folder); /* after LMDB has closed its files */

/* Makes what is missing of the path, with mode 0700. 0 or an errno. *made (may be NULL): how many bytes of the path
 * name the first folder that it made; 0: none was missing. */
int folder_make(const char *path, size_t *made) __attribute__((warn_unused_result));
/* Removes what it made, as far as that is empty. */
void folder_unmake(const char *path, size_t made);
/* 0 when the folder holds nothing but files with these names (and what a file system puts into its root); EEXIST with
 * the first other name in `found`, or another errno. */
int folder_holds_only(const char *path, const char *const *names, size_t count, char found[256])
    __attribute__((warn_unused_result));
/* Is gateway.lock taken by somebody? */
bool folder_served(const char *path);

/* Makes the names of new files in the folder survive a power cut. */
enum store_error folder_sync(const char *path, char *why, size_t why_cap) __attribute__((warn_unused_result));

/* Name of a remote file system by statfs's f_type, NULL for a local one. */
const char *folder_remote_type(uint64_t magic);

#endif
