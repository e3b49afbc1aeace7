/* gateway/phrase.h - the words behind a status: "Not Found". Pure. */
#ifndef FENCEGATE_PHRASE_H
#define FENCEGATE_PHRASE_H

const char *status_phrase(unsigned status); /* "" for one that has none; the status line is right without */

#endif
