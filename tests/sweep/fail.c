/*
 * tests/sweep/fail.c - a library to preload: counts the calls of each function below that the gateway and its
 * libraries make, and lets the Nth call of one of them fail, as the control page says.
 *
 * SWEEP_CONTROL names a file of sizeof(struct control) bytes that sweep.py maps too: it sets what fails, arms and
 * disarms it while the gateway runs, and reads the counts. SWEEP_TRACE names a file that gets the stack of the call
 * that failed. `armed` may be set from the beginning: counting begins with main(), so that the start of libraries
 * before it is left alone.
 *
 * Writes to an eventfd never fail here: the kernel knows no failure of theirs but a full counter. Calls that the C
 * library makes inside itself are not seen, apart from those of its allocator.
 */
#include <dlfcn.h>
#include <errno.h>
#include <execinfo.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

/* Name and errno, in the order of the counts in the control page: sweep.py reads this list. */
#define FUNCTIONS(X)                                                                                                   \
    X(malloc, ENOMEM)                                                                                                  \
    X(calloc, ENOMEM)                                                                                                  \
    X(realloc, ENOMEM)                                                                                                 \
    X(posix_memalign, ENOMEM)                                                                                          \
    X(mmap, ENOMEM)                                                                                                    \
    X(write, EIO)                                                                                                      \
    X(pwrite, ENOSPC)                                                                                                  \
    X(pwritev, ENOSPC)                                                                                                 \
    X(writev, EIO)                                                                                                     \
    X(fdatasync, EIO)                                                                                                  \
    X(fsync, EIO)                                                                                                      \
    X(ftruncate, ENOSPC)                                                                                               \
    X(posix_fallocate, ENOSPC)                                                                                         \
    X(open, EMFILE)                                                                                                    \
    X(fopen, EMFILE)                                                                                                   \
    X(mkdir, EACCES)                                                                                                   \
    X(read, EIO)                                                                                                       \
    X(pread, EIO)                                                                                                      \
    X(fcntl, ENOLCK)                                                                                                   \
    X(flock, ENOLCK)                                                                                                   \
    X(socket, EMFILE)                                                                                                  \
    X(socketpair, EMFILE)                                                                                              \
    X(setsockopt, ENOBUFS)                                                                                             \
    X(bind, EADDRINUSE)                                                                                                \
    X(listen, EADDRINUSE)                                                                                              \
    X(getsockname, ENOBUFS)                                                                                            \
    X(connect, ENETUNREACH)                                                                                            \
    X(accept, EMFILE)                                                                                                  \
    X(send, ECONNRESET)                                                                                                \
    X(sendmsg, ECONNRESET)                                                                                             \
    X(recv, ECONNRESET)                                                                                                \
    X(epoll_create1, EMFILE)                                                                                           \
    X(epoll_ctl, ENOMEM)                                                                                               \
    X(eventfd, EMFILE)                                                                                                 \
    X(signalfd, EMFILE)                                                                                                \
    X(pthread_create, EAGAIN)                                                                                          \
    X(getrandom, EAGAIN)

#define ID(name, number) F_##name,
enum function { FUNCTIONS(ID) F_COUNT };
#undef ID

#define NUMBER(name, number) number,
static const int failure[F_COUNT] = {FUNCTIONS(NUMBER)};
#undef NUMBER

struct control {
    _Atomic int32_t armed;
    _Atomic int32_t target; /* index into FUNCTIONS, -1: none */
    _Atomic uint64_t nth;   /* first call that fails, from 1 */
    _Atomic uint64_t many;  /* how many fail, from that one on */
    _Atomic int32_t number; /* errno; 0: the one of the list */
    _Atomic int32_t fired;
    _Atomic uint64_t counts[64];
};
_Static_assert(F_COUNT <= 64, "counts");

enum { FRAMES = 24, EVENT_FDS = 4096 };

static struct control *control;
static int trace_fd = -1;
static atomic_bool in_main;
static _Thread_local bool exempt;
static atomic_bool is_eventfd[EVENT_FDS];

static void trace(void)
{
    int before = errno;
    void *frames[FRAMES];
    if (trace_fd >= 0)
        backtrace_symbols_fd(frames, backtrace(frames, FRAMES), trace_fd);
    errno = before;
}

/* True: the caller fails with errno set. */
static bool fails(enum function f)
{
    if (!atomic_load_explicit(&in_main, memory_order_relaxed) || exempt || control == NULL ||
        atomic_load(&control->armed) == 0)
        return false;
    uint64_t call = atomic_fetch_add(&control->counts[f], 1) + 1, nth = atomic_load(&control->nth);
    if (atomic_load(&control->target) != (int32_t)f || call < nth || call - nth >= atomic_load(&control->many))
        return false;
    if (atomic_fetch_add(&control->fired, 1) == 0)
        trace();
    int number = atomic_load(&control->number);
    errno = number != 0 ? number : failure[f];
    return true;
}

static void *next(const char *name)
{
    void *found = dlsym(RTLD_NEXT, name);
    if (found == NULL)
        abort();
    return found;
}

/* The function of that name behind us. */
#define REAL(type, name, ...)                                                                                          \
    static type (*_Atomic real)(__VA_ARGS__);                                                                          \
    if (real == NULL)                                                                                                  \
    real = (type(*)(__VA_ARGS__))next(#name)

typedef int main_function(int argc, char **argv, char **envp);
static main_function *real_main;

static int wrapped_main(int argc, char **argv, char **envp)
{
    const char *file = getenv("SWEEP_CONTROL"), *trace_file = getenv("SWEEP_TRACE");
    int fd = file == NULL ? -1 : open(file, O_RDWR | O_CLOEXEC);
    void *page = fd < 0 ? MAP_FAILED : mmap(NULL, sizeof *control, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (page == MAP_FAILED)
        abort(); /* a sweep without failures would pass */
    close(fd);
    if (trace_file != NULL)
        trace_fd = open(trace_file, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    void *frames[2];
    backtrace(frames, 2); /* the first call loads a library */
    control = page;
    atomic_store(&in_main, true);
    return real_main(argc, argv, envp);
}

int __libc_start_main(main_function *program, int argc, char **argv, void (*init)(void), void (*fini)(void),
                      void (*ld_fini)(void), void *stack_end);
int __libc_start_main(main_function *program, int argc, char **argv, void (*init)(void), void (*fini)(void),
                      void (*ld_fini)(void), void *stack_end)
{
    REAL(int, __libc_start_main, main_function *, int, char **, void (*)(void), void (*)(void), void (*)(void), void *);
    real_main = program;
    return real(wrapped_main, argc, argv, init, fini, ld_fini, stack_end);
}

/* ---- memory ---- */

void *malloc(size_t size)
{
    REAL(void *, malloc, size_t);
    return fails(F_malloc) ? NULL : real(size);
}

void *calloc(size_t count, size_t size)
{
    REAL(void *, calloc, size_t, size_t);
    return fails(F_calloc) ? NULL : real(count, size);
}

void *realloc(void *old, size_t size)
{
    REAL(void *, realloc, void *, size_t);
    return fails(F_realloc) ? NULL : real(old, size);
}

int posix_memalign(void **out, size_t align, size_t size)
{
    REAL(int, posix_memalign, void **, size_t, size_t);
    return fails(F_posix_memalign) ? errno : real(out, align, size);
}

void *mmap(void *address, size_t len, int prot, int flags, int fd, off_t offset)
{
    REAL(void *, mmap, void *, size_t, int, int, int, off_t);
    return fails(F_mmap) ? MAP_FAILED : real(address, len, prot, flags, fd, offset);
}

void *mmap64(void *address, size_t len, int prot, int flags, int fd, off_t offset)
{
    return mmap(address, len, prot, flags, fd, offset);
}

/* ---- files ---- */

static bool to_eventfd(int fd)
{
    return fd >= 0 && fd < EVENT_FDS && atomic_load_explicit(&is_eventfd[fd], memory_order_relaxed);
}

ssize_t write(int fd, const void *bytes, size_t len)
{
    REAL(ssize_t, write, int, const void *, size_t);
    return !to_eventfd(fd) && fails(F_write) ? -1 : real(fd, bytes, len);
}

ssize_t pwrite(int fd, const void *bytes, size_t len, off_t offset)
{
    REAL(ssize_t, pwrite, int, const void *, size_t, off_t);
    return fails(F_pwrite) ? -1 : real(fd, bytes, len, offset);
}

ssize_t pwrite64(int fd, const void *bytes, size_t len, off_t offset)
{
    return pwrite(fd, bytes, len, offset);
}

ssize_t pwritev(int fd, const struct iovec *parts, int count, off_t offset)
{
    REAL(ssize_t, pwritev, int, const struct iovec *, int, off_t);
    return fails(F_pwritev) ? -1 : real(fd, parts, count, offset);
}

ssize_t pwritev64(int fd, const struct iovec *parts, int count, off_t offset)
{
    return pwritev(fd, parts, count, offset);
}

ssize_t writev(int fd, const struct iovec *parts, int count)
{
    REAL(ssize_t, writev, int, const struct iovec *, int);
    return fails(F_writev) ? -1 : real(fd, parts, count);
}

int fdatasync(int fd)
{
    REAL(int, fdatasync, int);
    return fails(F_fdatasync) ? -1 : real(fd);
}

int fsync(int fd)
{
    REAL(int, fsync, int);
    return fails(F_fsync) ? -1 : real(fd);
}

int ftruncate(int fd, off_t len)
{
    REAL(int, ftruncate, int, off_t);
    return fails(F_ftruncate) ? -1 : real(fd, len);
}

int ftruncate64(int fd, off_t len)
{
    return ftruncate(fd, len);
}

int posix_fallocate(int fd, off_t offset, off_t len)
{
    REAL(int, posix_fallocate, int, off_t, off_t);
    return fails(F_posix_fallocate) ? errno : real(fd, offset, len);
}

static int open_at(int folder, const char *path, int flags, mode_t mode)
{
    REAL(int, openat, int, const char *, int, ...);
    return fails(F_open) ? -1 : real(folder, path, flags, mode);
}

/* A mode that was not given is read from a register that nobody set: it is passed on and not looked at. */
#define OPEN(name)                                                                                                     \
    int name(const char *path, int flags, ...)                                                                         \
    {                                                                                                                  \
        va_list more;                                                                                                  \
        va_start(more, flags);                                                                                         \
        mode_t mode = va_arg(more, mode_t);                                                                            \
        va_end(more);                                                                                                  \
        return open_at(AT_FDCWD, path, flags, mode);                                                                   \
    }
#define OPENAT(name)                                                                                                   \
    int name(int folder, const char *path, int flags, ...)                                                             \
    {                                                                                                                  \
        va_list more;                                                                                                  \
        va_start(more, flags);                                                                                         \
        mode_t mode = va_arg(more, mode_t);                                                                            \
        va_end(more);                                                                                                  \
        return open_at(folder, path, flags, mode);                                                                     \
    }
OPEN(open)
OPEN(open64)
OPENAT(openat)
OPENAT(openat64)

int __open_2(const char *path, int flags);
int __open_2(const char *path, int flags)
{
    return open_at(AT_FDCWD, path, flags, 0);
}

int __open64_2(const char *path, int flags);
int __open64_2(const char *path, int flags)
{
    return open_at(AT_FDCWD, path, flags, 0);
}

FILE *fopen(const char *path, const char *mode)
{
    REAL(FILE *, fopen, const char *, const char *);
    return fails(F_fopen) ? NULL : real(path, mode);
}

FILE *fopen64(const char *path, const char *mode)
{
    return fopen(path, mode);
}

int mkdir(const char *path, mode_t mode)
{
    REAL(int, mkdir, const char *, mode_t);
    return fails(F_mkdir) ? -1 : real(path, mode);
}

ssize_t read(int fd, void *bytes, size_t len)
{
    REAL(ssize_t, read, int, void *, size_t);
    return !to_eventfd(fd) && fails(F_read) ? -1 : real(fd, bytes, len);
}

ssize_t __read_chk(int fd, void *bytes, size_t len, size_t cap);
ssize_t __read_chk(int fd, void *bytes, size_t len, size_t cap)
{
    (void)cap;
    return read(fd, bytes, len);
}

ssize_t pread(int fd, void *bytes, size_t len, off_t offset)
{
    REAL(ssize_t, pread, int, void *, size_t, off_t);
    return fails(F_pread) ? -1 : real(fd, bytes, len, offset);
}

ssize_t pread64(int fd, void *bytes, size_t len, off_t offset)
{
    return pread(fd, bytes, len, offset);
}

int fcntl(int fd, int command, ...)
{
    REAL(int, fcntl, int, int, ...);
    va_list more;
    va_start(more, command);
    void *argument = va_arg(more, void *); /* an int fits, and so does none */
    va_end(more);
    return fails(F_fcntl) ? -1 : real(fd, command, argument);
}

int fcntl64(int fd, int command, ...)
{
    va_list more;
    va_start(more, command);
    void *argument = va_arg(more, void *);
    va_end(more);
    return fcntl(fd, command, argument);
}

int flock(int fd, int operation);
int flock(int fd, int operation)
{
    REAL(int, flock, int, int);
    return fails(F_flock) ? -1 : real(fd, operation);
}

/* ---- sockets ---- */

int socket(int domain, int type, int protocol)
{
    REAL(int, socket, int, int, int);
    return fails(F_socket) ? -1 : real(domain, type, protocol);
}

int socketpair(int domain, int type, int protocol, int fds[2])
{
    REAL(int, socketpair, int, int, int, int *);
    return fails(F_socketpair) ? -1 : real(domain, type, protocol, fds);
}

int setsockopt(int fd, int level, int name, const void *value, socklen_t len)
{
    REAL(int, setsockopt, int, int, int, const void *, socklen_t);
    return fails(F_setsockopt) ? -1 : real(fd, level, name, value, len);
}

int bind(int fd, const struct sockaddr *address, socklen_t len)
{
    REAL(int, bind, int, const struct sockaddr *, socklen_t);
    return fails(F_bind) ? -1 : real(fd, address, len);
}

int listen(int fd, int backlog)
{
    REAL(int, listen, int, int);
    return fails(F_listen) ? -1 : real(fd, backlog);
}

int getsockname(int fd, struct sockaddr *address, socklen_t *len)
{
    REAL(int, getsockname, int, struct sockaddr *, socklen_t *);
    return fails(F_getsockname) ? -1 : real(fd, address, len);
}

int connect(int fd, const struct sockaddr *address, socklen_t len)
{
    REAL(int, connect, int, const struct sockaddr *, socklen_t);
    return fails(F_connect) ? -1 : real(fd, address, len);
}

int accept4(int fd, struct sockaddr *address, socklen_t *len, int flags)
{
    REAL(int, accept4, int, struct sockaddr *, socklen_t *, int);
    return fails(F_accept) ? -1 : real(fd, address, len, flags);
}

int accept(int fd, struct sockaddr *address, socklen_t *len)
{
    return accept4(fd, address, len, 0);
}

ssize_t sendto(int fd, const void *bytes, size_t len, int flags, const struct sockaddr *to, socklen_t to_len)
{
    REAL(ssize_t, sendto, int, const void *, size_t, int, const struct sockaddr *, socklen_t);
    return fails(F_send) ? -1 : real(fd, bytes, len, flags, to, to_len);
}

ssize_t send(int fd, const void *bytes, size_t len, int flags)
{
    REAL(ssize_t, send, int, const void *, size_t, int);
    return fails(F_send) ? -1 : real(fd, bytes, len, flags);
}

ssize_t sendmsg(int fd, const struct msghdr *message, int flags)
{
    REAL(ssize_t, sendmsg, int, const struct msghdr *, int);
    return fails(F_sendmsg) ? -1 : real(fd, message, flags);
}

ssize_t recv(int fd, void *bytes, size_t len, int flags)
{
    REAL(ssize_t, recv, int, void *, size_t, int);
    return fails(F_recv) ? -1 : real(fd, bytes, len, flags);
}

ssize_t __recv_chk(int fd, void *bytes, size_t len, size_t cap, int flags);
ssize_t __recv_chk(int fd, void *bytes, size_t len, size_t cap, int flags)
{
    (void)cap;
    return recv(fd, bytes, len, flags);
}

ssize_t recvfrom(int fd, void *bytes, size_t len, int flags, struct sockaddr *from, socklen_t *from_len)
{
    REAL(ssize_t, recvfrom, int, void *, size_t, int, struct sockaddr *, socklen_t *);
    return fails(F_recv) ? -1 : real(fd, bytes, len, flags, from, from_len);
}

ssize_t recvmsg(int fd, struct msghdr *message, int flags)
{
    REAL(ssize_t, recvmsg, int, struct msghdr *, int);
    return fails(F_recv) ? -1 : real(fd, message, flags);
}

/* ---- events and threads ---- */

int epoll_create1(int flags)
{
    REAL(int, epoll_create1, int);
    return fails(F_epoll_create1) ? -1 : real(flags);
}

/* Taking a descriptor off can't fail for want of memory, only for want of the descriptor. */
int epoll_ctl(int epoll_fd, int operation, int fd, struct epoll_event *event)
{
    REAL(int, epoll_ctl, int, int, int, struct epoll_event *);
    return operation == EPOLL_CTL_ADD && fails(F_epoll_ctl) ? -1 : real(epoll_fd, operation, fd, event);
}

int eventfd(unsigned start, int flags)
{
    REAL(int, eventfd, unsigned, int);
    int fd = fails(F_eventfd) ? -1 : real(start, flags);
    if (fd >= 0 && fd < EVENT_FDS)
        atomic_store(&is_eventfd[fd], true);
    return fd;
}

int close(int fd)
{
    REAL(int, close, int);
    if (fd >= 0 && fd < EVENT_FDS)
        atomic_store(&is_eventfd[fd], false);
    return real(fd);
}

int signalfd(int fd, const sigset_t *set, int flags)
{
    REAL(int, signalfd, int, const sigset_t *, int);
    return fails(F_signalfd) ? -1 : real(fd, set, flags);
}

int pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*run)(void *), void *arg)
{
    REAL(int, pthread_create, pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
    return fails(F_pthread_create) ? errno : real(thread, attr, run, arg);
}

/* A sanitizer asks when a thread begins, and gives the whole process up when there is no memory for the answer. */
int pthread_getattr_np(pthread_t thread, pthread_attr_t *attr)
{
    REAL(int, pthread_getattr_np, pthread_t, pthread_attr_t *);
    exempt = true;
    int result = real(thread, attr);
    exempt = false;
    return result;
}

ssize_t getrandom(void *bytes, size_t len, unsigned flags)
{
    REAL(ssize_t, getrandom, void *, size_t, unsigned);
    return fails(F_getrandom) ? -1 : real(bytes, len, flags);
}
