// Makes system calls of a process fail on request. Loaded with LD_PRELOAD; controlled by environment variables:
//
//   EPO_FAULT_DIR     calls on files in this folder are counted
//   EPO_FAULT_AT      number of the call that fails, from 1
//   EPO_FAULT_KIND    ENOSPC, EIO, EMFILE, SHORT (half of a write), KILL (SIGKILL to the process itself);
//                     ENOSPC+, EIO+, EMFILE+: all later calls fail too
//   EPO_FAULT_MARK    file that is made when the fault happens
//   EPO_FAULT_BYTES   number of bytes that may be written to the folder; then it is full for good
//   EPO_CLOCK_JUMP    if set, the clock of the day jumps by up to ten days, back or forth, at every reading

#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define MOST_FILES 4096
enum { SHORT = -1, KILL = -2 };

static const char *dir, *mark;
static long at, count, budget = -1, jumps;
static int kind, stays, jumping, ready;
static char inside[MOST_FILES]; // whether a descriptor is of a file in the folder

static void begin(void) {
  if (__atomic_load_n(&ready, __ATOMIC_ACQUIRE)) return;
  dir = getenv("EPO_FAULT_DIR"), mark = getenv("EPO_FAULT_MARK"), jumping = getenv("EPO_CLOCK_JUMP") != NULL;
  const char *text = getenv("EPO_FAULT_AT");
  at = text ? atol(text) : 0;
  if ((text = getenv("EPO_FAULT_BYTES"))) budget = atol(text);
  text = getenv("EPO_FAULT_KIND");
  if (!text) text = "EIO";
  kind = !strncmp(text, "ENOSPC", 6) ? ENOSPC : !strncmp(text, "EMFILE", 6) ? EMFILE : !strcmp(text, "SHORT") ? SHORT
       : !strcmp(text, "KILL") ? KILL : EIO;
  stays = strchr(text, '+') != NULL;
  __atomic_store_n(&ready, 1, __ATOMIC_RELEASE);
}

#define NEXT(name) static __typeof__(&name) next; if (!next) next = (__typeof__(&name))dlsym(RTLD_NEXT, #name); begin()

static int is_inside(const char *path) { return dir && path && !strncmp(path, dir, strlen(dir)); }
static int has(int fd) { return fd >= 0 && fd < MOST_FILES && inside[fd]; }
static int track(int fd, int in) {
  if (fd >= 0 && fd < MOST_FILES) inside[fd] = in;
  return fd;
}

// Whether this call fails. A short write is left to `write`.
static int strikes(int counted) {
  if (!counted || !at) return 0;
  long n = __atomic_add_fetch(&count, 1, __ATOMIC_SEQ_CST);
  if (n < at || (n > at && !stays)) return 0;
  if (mark) syscall(SYS_close, syscall(SYS_openat, AT_FDCWD, mark, O_CREAT | O_WRONLY, 0600));
  if (kind == KILL) syscall(SYS_kill, getpid(), SIGKILL);
  return 1;
}
static int fails(int counted) {
  if (!strikes(counted) || kind < 0) return 0;
  errno = kind;
  return 1;
}

#define OPEN(name)                                                        \
  int name(const char *path, int flags, ...) {                            \
    NEXT(name);                                                           \
    va_list list;                                                         \
    va_start(list, flags);                                                \
    mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(list, mode_t) : 0; \
    va_end(list);                                                         \
    int in = is_inside(path);                                             \
    return fails(in) ? -1 : track(next(path, flags, mode), in);           \
  }
OPEN(open)
OPEN(open64)

#define OPENAT(name)                                                      \
  int name(int parent, const char *path, int flags, ...) {                \
    NEXT(name);                                                           \
    va_list list;                                                         \
    va_start(list, flags);                                                \
    mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(list, mode_t) : 0; \
    va_end(list);                                                         \
    int in = is_inside(path) || has(parent);                              \
    return fails(in) ? -1 : track(next(parent, path, flags, mode), in);   \
  }
OPENAT(openat)
OPENAT(openat64)

int close(int fd) {
  NEXT(close);
  track(fd, 0);
  return next(fd);
}

ssize_t write(int fd, const void *data, size_t length) {
  NEXT(write);
  if (!has(fd)) return next(fd, data, length);
  if (budget >= 0) {
    if (length && !budget) return errno = ENOSPC, -1;
    if (length > (size_t)budget) length = budget;
    budget -= length;
  }
  if (!strikes(1)) return next(fd, data, length);
  if (kind == SHORT) return next(fd, data, (length + 1) / 2);
  return errno = kind, -1;
}

#define ON_FD(type, error, name, given, passed) \
  type name given { NEXT(name); return fails(has(fd)) ? error : next passed; }
#define ON_PATH(type, error, name, given, passed) \
  type name given { NEXT(name); return fails(is_inside(path)) ? error : next passed; }

ON_FD(ssize_t, -1, read, (int fd, void *data, size_t length), (fd, data, length))
ON_FD(int, -1, fsync, (int fd), (fd))
ON_FD(int, -1, fdatasync, (int fd), (fd))
ON_FD(int, -1, ftruncate, (int fd, off_t length), (fd, length))
ON_FD(int, -1, ftruncate64, (int fd, off64_t length), (fd, length))
ON_FD(int, -1, flock, (int fd, int what), (fd, what))
ON_FD(off64_t, -1, lseek64, (int fd, off64_t offset, int whence), (fd, offset, whence))
ON_FD(DIR *, NULL, fdopendir, (int fd), (fd))
ON_FD(int, -1, unlinkat, (int fd, const char *path, int flags), (fd, path, flags))
ON_PATH(int, -1, mkdir, (const char *path, mode_t mode), (path, mode))
ON_PATH(int, -1, rename, (const char *path, const char *to), (path, to))
ON_PATH(int, -1, unlink, (const char *path), (path))
ON_PATH(int, -1, rmdir, (const char *path), (path))
ON_PATH(DIR *, NULL, opendir, (const char *path), (path))

int statx(int fd, const char *restrict path, int flags, unsigned mask, struct statx *restrict out) {
  NEXT(statx);
  return fails(is_inside(path) || has(fd)) ? -1 : next(fd, path, flags, mask, out);
}

int clock_gettime(clockid_t clock, struct timespec *time) {
  NEXT(clock_gettime);
  int result = next(clock, time);
  if (jumping && clock == CLOCK_REALTIME && !result) {
    unsigned long n = __atomic_add_fetch(&jumps, 1, __ATOMIC_RELAXED) * 6364136223846793005UL + 1442695040888963407UL;
    time->tv_sec += (long)(n >> 40) % 864000 * (n & 1 ? 1 : -1);
  }
  return result;
}
