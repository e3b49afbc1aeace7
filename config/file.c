/*
 * config/file.c - reads the configuration file, secrets and certificates.
 *
 * Only regular files: a pipe or a device named by mistake would block a SIGHUP for ever.
 */
#include "config/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Reads to the end; one byte more than `limit` is enough to know that the file is too large. */
static char *read_all(int fd, size_t limit, size_t *len, const char **problem)
{
    char *data = malloc(limit + 2);
    size_t used = 0;
    if (data == NULL) {
        *problem = "out of memory";
        return NULL;
    }
    for (;;) {
        ssize_t got = read(fd, data + used, limit + 1 - used);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0) {
            *problem = strerror(errno);
            break;
        }
        used += (size_t)got;
        if (used > limit) {
            *problem = "the file is too large";
            break;
        }
        if (got == 0) {
            data[used] = '\0';
            *len = used;
            return data;
        }
    }
    conf_file_free(data, used);
    return NULL;
}

char *conf_file_read(const char *path, size_t limit, size_t *len, const char **problem)
{
    struct stat st;
    char *data = NULL;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0) {
        *problem = strerror(errno);
        return NULL;
    }
    if (fstat(fd, &st) != 0)
        *problem = strerror(errno);
    else if (!S_ISREG(st.st_mode))
        *problem = "not a regular file";
    else
        data = read_all(fd, limit, len, problem);
    close(fd);
    return data;
}

void conf_file_free(char *data, size_t len)
{
    if (data != NULL)
        explicit_bzero(data, len);
    free(data);
}
