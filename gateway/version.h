/* gateway/version.h - what `fencegate version` prints. */
#ifndef FENCEGATE_VERSION_H
#define FENCEGATE_VERSION_H
#define FENCEGATE_VERSION "0.1.0"
#endif
