/*
 * store/owner.h - files that root makes in a folder of another user get that user, or its gateway could not open them.
 *
 * Only what lies in the folder under one of the store's names, is root's, is a plain file and has no second name: a
 * user who owns the folder must not get a file of root's by putting a link there. Does nothing for other users.
 */
#ifndef FENCEGATE_STORE_OWNER_H
#define FENCEGATE_STORE_OWNER_H

#include <stdbool.h>

/* A folder that was just made gets the owner of the one above it. */
void owner_of_folder(const char *path);
/* All files of a store in this folder. Without opening them: that would cost LMDB its locks. */
void owner_of_files(const char *folder);

#endif
