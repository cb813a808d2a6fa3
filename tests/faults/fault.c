// A disk that fails on demand: preloaded into a process (LD_PRELOAD), it makes calls on files below $FAULT_FOLDER fail at random.
// $FAULT_CONTROL is a file of four 32-bit numbers, shared with the test: how many calls of a thousand fail, with which errno,
// which calls (1 write, 2 sync, 4 truncate, 8 create, rename and remove), and how many failed.
// With $FAULT_UNDO, a file, it also records there how to undo each write and truncation, and what a sync made durable, so a
// test can take back what a loss of power would (see power.rs): records of seven 64-bit numbers, then the bytes from before.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

enum { WRITE = 1, SYNC = 2, TRUNCATE = 4, NAME = 8 };
struct control { volatile int32_t permille, error, calls, failed; };
static struct control *control;
static const char *folder;
static int undo = -1;

__attribute__((constructor)) static void begin(void) {
  const char *path = getenv("FAULT_CONTROL");
  folder = getenv("FAULT_FOLDER");
  if (!path || !folder) return;
  int file = open(path, O_RDWR);
  if (file < 0) return;
  void *shared = mmap(0, sizeof *control, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  close(file);
  if (shared != MAP_FAILED) control = shared;
  if (getenv("FAULT_UNDO")) undo = open(getenv("FAULT_UNDO"), O_RDWR | O_CREAT | O_APPEND, 0600);
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

enum { WROTE = 1, CUT = 2, SYNCED = 3 };
// `at`, `count`: the range that changes (a new size for CUT, a position in this record for SYNCED). `size`: the size before.
struct record { uint64_t kind, device, inode, at, count, size, before; };
static pthread_mutex_t order = PTHREAD_MUTEX_INITIALIZER;
static ssize_t (*really_write)(int, const void *, size_t);

static void append(const void *bytes, size_t count) {
  if (really_write(undo, bytes, count) != (ssize_t)count) abort();
}
static int is_recorded(int file, struct stat *about) {
  if (undo < 0) return 0;
  char link[64], path[4096];
  snprintf(link, sizeof link, "/proc/self/fd/%d", file);
  ssize_t length = readlink(link, path, sizeof path - 1);
  if (length <= 0) return 0;
  path[length] = 0;
  return is_below(path) && fstat(file, about) == 0 && S_ISREG(about->st_mode);
}
// Records the bytes of a range before it changes. The caller holds `order` until it has changed.
static void remember(int file, const struct stat *about, int kind, uint64_t at, uint64_t count, uint64_t from, uint64_t to) {
  if (!really_write) really_write = (__typeof__(really_write))dlsym(RTLD_NEXT, "write");
  uint64_t size = (uint64_t)about->st_size, end = to < size ? to : size, before = from < end ? end - from : 0;
  char *bytes = malloc(before + 1), path[64];
  snprintf(path, sizeof path, "/proc/self/fd/%d", file);
  int reading = before ? open(path, O_RDONLY) : -1;
  if (before && pread(reading, bytes, before, (off_t)from) != (ssize_t)before) abort();
  if (reading >= 0) close(reading);
  struct record record = {(uint64_t)kind, about->st_dev, about->st_ino, at, count, size, before};
  append(&record, sizeof record);
  append(bytes, before);
  free(bytes);
}
#define CHANGE(kind, at, count, from, to, call)                             \
  struct stat about;                                                        \
  if (!is_recorded(file, &about)) return call;                              \
  pthread_mutex_lock(&order);                                               \
  fstat(file, &about);                                                      \
  remember(file, &about, kind, at, count, from, to);                        \
  __typeof__(call) changed = call;                                          \
  pthread_mutex_unlock(&order);                                             \
  return changed
static uint64_t position(int file, const struct stat *about) {
  return fcntl(file, F_GETFL) & O_APPEND ? (uint64_t)about->st_size : (uint64_t)lseek(file, 0, SEEK_CUR);
}
static void durable(const struct stat *about, uint64_t upto) {
  pthread_mutex_lock(&order);
  if (!really_write) really_write = (__typeof__(really_write))dlsym(RTLD_NEXT, "write");
  struct record record = {SYNCED, about->st_dev, about->st_ino, upto, 0, 0, 0};
  append(&record, sizeof record);
  pthread_mutex_unlock(&order);
}
// Notes that a file is about to be removed or replaced: another one may get its number.
static void forget(const char *path) {
  struct stat about;
  if (undo < 0 || !is_below(path) || stat(path, &about) < 0 || !S_ISREG(about.st_mode) || about.st_nlink > 1) return;
  durable(&about, (uint64_t)lseek(undo, 0, SEEK_END));
}
static int synced(int file, int (*real)(int)) {
  struct stat about;
  if (!is_recorded(file, &about)) return real(file);
  // Each write that is recorded before this position was made.
  pthread_mutex_lock(&order);
  uint64_t upto = (uint64_t)lseek(undo, 0, SEEK_END);
  pthread_mutex_unlock(&order);
  int done = real(file);
  if (done == 0) durable(&about, upto);
  return done;
}

ssize_t write(int file, const void *bytes, size_t count) {
  REAL(write);
  // Half of the writes that fail are short instead.
  if (file_fails(file, WRITE)) return count > 1 && (chance() & 1) ? real(file, bytes, count / 2) : -1;
  CHANGE(WROTE, position(file, &about), count, position(file, &about), position(file, &about) + count, real(file, bytes, count));
}
ssize_t pwrite64(int file, const void *bytes, size_t count, off64_t at) {
  REAL(pwrite64);
  if (file_fails(file, WRITE)) return -1;
  CHANGE(WROTE, (uint64_t)at, count, (uint64_t)at, (uint64_t)at + count, real(file, bytes, count, at));
}
ssize_t writev(int file, const struct iovec *parts, int count) {
  REAL(writev);
  if (file_fails(file, WRITE)) return -1;
  uint64_t sum = 0;
  for (int part = 0; part < count; part++) sum += parts[part].iov_len;
  CHANGE(WROTE, position(file, &about), sum, position(file, &about), position(file, &about) + sum, real(file, parts, count));
}
int ftruncate64(int file, off64_t size) {
  REAL(ftruncate64);
  if (file_fails(file, TRUNCATE)) return -1;
  CHANGE(CUT, (uint64_t)size, 0, (uint64_t)size, UINT64_MAX, real(file, size));
}
int fsync(int file) { REAL(fsync); return file_fails(file, SYNC) ? -1 : synced(file, real); }
int fdatasync(int file) { REAL(fdatasync); return file_fails(file, SYNC) ? -1 : synced(file, real); }
int open64(const char *path, int flags, ...) {
  REAL(open64);
  va_list more;
  va_start(more, flags);
  mode_t mode = va_arg(more, mode_t);
  va_end(more);
  return (flags & O_CREAT) && path_fails(path, NAME) ? -1 : real(path, flags, mode);
}
int rename(const char *from, const char *to) {
  REAL(rename);
  if (path_fails(from, NAME)) return -1;
  forget(to);
  return real(from, to);
}
int unlink(const char *path) {
  REAL(unlink);
  if (path_fails(path, NAME)) return -1;
  forget(path);
  return real(path);
}
