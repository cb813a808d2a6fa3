// A disk that fails on demand: preloaded into a process (LD_PRELOAD), it makes calls on files below $FAULT_FOLDER fail at random.
// $FAULT_CONTROL is a file of four 32-bit numbers, shared with the test: how many calls of a thousand fail, with which errno,
// which calls (1 write, 2 sync, 4 truncate, 8 create, rename and remove), and how many failed.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

enum { WRITE = 1, SYNC = 2, TRUNCATE = 4, NAME = 8 };
struct control { volatile int32_t permille, error, calls, failed; };
static struct control *control;
static const char *folder;

__attribute__((constructor)) static void begin(void) {
  const char *path = getenv("FAULT_CONTROL");
  folder = getenv("FAULT_FOLDER");
  if (!path || !folder) return;
  int file = open(path, O_RDWR);
  if (file < 0) return;
  void *shared = mmap(0, sizeof *control, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  close(file);
  if (shared != MAP_FAILED) control = shared;
}

static uint64_t chance(void) {  // xorshift64, one state a thread
  static __thread uint64_t state;
  if (!state) state = (uintptr_t)&state ^ ((uint64_t)getpid() << 32) ^ 88172645463325252ull;
  state ^= state << 13, state ^= state >> 7, state ^= state << 17;
  return state;
}
static int is_below(const char *path) { return strncmp(path, folder, strlen(folder)) == 0; }
static int is_due(int call) {
  return control && (control->calls & call) && (int)(chance() % 1000) < control->permille;
}
static int refused(void) {
  __sync_fetch_and_add(&control->failed, 1);
  errno = control->error;
  return 1;
}
static int file_fails(int file, int call) {
  if (!is_due(call)) return 0;
  char link[64], path[4096];
  snprintf(link, sizeof link, "/proc/self/fd/%d", file);
  ssize_t length = readlink(link, path, sizeof path - 1);
  if (length <= 0) return 0;
  path[length] = 0;
  return is_below(path) && refused();
}
static int path_fails(const char *path, int call) { return path && is_due(call) && is_below(path) && refused(); }

#define REAL(name) static __typeof__(&name) real; if (!real) real = (__typeof__(&name))dlsym(RTLD_NEXT, #name)
ssize_t write(int file, const void *bytes, size_t count) {
  REAL(write);
  if (!file_fails(file, WRITE)) return real(file, bytes, count);
  // Half of the writes that fail are short instead.
  return count > 1 && (chance() & 1) ? real(file, bytes, count / 2) : -1;
}
ssize_t pwrite64(int file, const void *bytes, size_t count, off64_t at) { REAL(pwrite64); return file_fails(file, WRITE) ? -1 : real(file, bytes, count, at); }
ssize_t writev(int file, const struct iovec *parts, int count) { REAL(writev); return file_fails(file, WRITE) ? -1 : real(file, parts, count); }
int fsync(int file) { REAL(fsync); return file_fails(file, SYNC) ? -1 : real(file); }
int fdatasync(int file) { REAL(fdatasync); return file_fails(file, SYNC) ? -1 : real(file); }
int ftruncate64(int file, off64_t size) { REAL(ftruncate64); return file_fails(file, TRUNCATE) ? -1 : real(file, size); }
int open64(const char *path, int flags, ...) {
  REAL(open64);
  va_list more;
  va_start(more, flags);
  mode_t mode = va_arg(more, mode_t);
  va_end(more);
  return (flags & O_CREAT) && path_fails(path, NAME) ? -1 : real(path, flags, mode);
}
int rename(const char *from, const char *to) { REAL(rename); return path_fails(from, NAME) ? -1 : real(from, to); }
int unlink(const char *path) { REAL(unlink); return path_fails(path, NAME) ? -1 : real(path); }
