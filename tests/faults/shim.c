/* Faults at the calls of one process, for LD_PRELOAD. tests/faults/shim.py compiles it and sets its variables.
 *
 * Disk calls are those that change something at or below FAULT_PATH; sends are those whose bytes hold FAULT_SEND.
 * The FAULT_NTH of them (from 1) has the fault FAULT_DO: an errno's number, or kill_before, kill_after, stop_before,
 * stop_after: SIGKILL or SIGSTOP of the process just before or after the call. With FAULT_STAYS each later one has it
 * too. FAULT_MARK is a file that is created when the first fault lands; where it is there already none does.
 * FAULT_PROCESS: only processes whose command line holds it.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

enum when { BEFORE, AFTER, ERROR };

static char path[PATH_MAX], sent[256], mark[PATH_MAX];
static int signal_number, error_number, stays, landed;
static enum when when;
static long nth, num_calls;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

#define REAL(name) ((__typeof__(&name))real(#name))
static void *real(const char *name) {
    void *found = dlsym(RTLD_NEXT, name);
    if (!found) abort();
    return found;
}

static void copy(char *to, const char *from, size_t size) { snprintf(to, size, "%s", from ? from : ""); }

/* Kept apart from the constructor: a process may also arm itself anew, by ctypes. */
void fault_arm(const char *at, const char *bytes, const char *what, long which, int keeps, const char *file) {
    pthread_mutex_lock(&lock);
    copy(path, at, sizeof path), copy(sent, bytes, sizeof sent), copy(mark, file, sizeof mark);
    signal_number = strncmp(what, "kill", 4) == 0 ? SIGKILL : strncmp(what, "stop", 4) == 0 ? SIGSTOP : 0;
    error_number = signal_number ? 0 : atoi(what);
    when = !signal_number ? ERROR : strstr(what, "before") ? BEFORE : AFTER;
    nth = which, stays = keeps, num_calls = landed = 0;
    pthread_mutex_unlock(&lock);
}

long fault_num_calls(void) { return num_calls; }
int fault_landed(void) { return landed; }

static int is_meant(const char *part) {
    char line[4096];
    int file = REAL(open)("/proc/self/cmdline", O_RDONLY);
    ssize_t size = file < 0 ? 0 : read(file, line, sizeof line);
    if (file >= 0) close(file);
    return size > 0 && memmem(line, size, part, strlen(part)) != NULL;
}

__attribute__((constructor)) static void arm_from_environment(void) {
    const char *what = getenv("FAULT_DO"), *part = getenv("FAULT_PROCESS"), *which = getenv("FAULT_NTH");
    if (!what || (part && !is_meant(part))) return;
    fault_arm(getenv("FAULT_PATH"), getenv("FAULT_SEND"), what, which ? atol(which) : 1, getenv("FAULT_STAYS") != NULL,
              getenv("FAULT_MARK"));
}

/* Whether this call is the one. Counts it. */
static int is_due(void) {
    pthread_mutex_lock(&lock);
    long number = ++num_calls;
    int due = nth && (number == nth || (stays && number > nth)) && (!landed || stays);
    if (due && !landed && mark[0]) {
        int file = syscall(SYS_openat, AT_FDCWD, mark, O_CREAT | O_EXCL | O_WRONLY, 0644);
        due = file >= 0;
        if (due) syscall(SYS_close, file);
    }
    if (due) landed = 1;
    pthread_mutex_unlock(&lock);
    return due;
}

/* 0: go on; -1: the call fails. */
static int before(int due) {
    if (!due || when == AFTER) return 0;
    if (when == BEFORE) { kill(getpid(), signal_number); return 0; }
    errno = error_number;
    return -1;
}

static void after(int due) {
    int kept = errno;
    if (due && when == AFTER) kill(getpid(), signal_number);
    errno = kept;
}

static int is_below(const char *name) {
    size_t size = strlen(path);
    return size && strncmp(name, path, size) == 0 && (name[size] == '/' || name[size] == 0);
}

static int is_below_at(int directory, const char *name) {
    char whole[2 * PATH_MAX], link[64];
    if (!path[0]) return 0;
    if (name[0] == '/') return is_below(name);
    if (directory == AT_FDCWD) { if (!getcwd(whole, PATH_MAX)) return 0; }
    else {
        snprintf(link, sizeof link, "/proc/self/fd/%d", directory);
        ssize_t size = readlink(link, whole, PATH_MAX - 1);
        if (size < 0) return 0;
        whole[size] = 0;
    }
    strcat(whole, "/");
    strncat(whole, name, PATH_MAX - 1);
    return is_below(whole);
}

static int is_file_below(int file) {
    char link[64], name[PATH_MAX];
    if (!path[0]) return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    ssize_t size = readlink(link, name, sizeof name - 1);
    if (size < 0) return 0;
    name[size] = 0;
    return is_below(name);
}

static int holds(const void *bytes, size_t size) {
    return sent[0] && memmem(bytes, size, sent, strlen(sent)) != NULL;
}

#define FAULTY(type, condition, call) \
    int kept = errno, due = (condition) && is_due(); \
    errno = kept; \
    if (before(due)) return -1; \
    type answer = call; \
    after(due); \
    return answer;

#define MODE int mode = 0; if (flags & O_CREAT) { va_list more; va_start(more, flags); mode = va_arg(more, int); va_end(more); }
int open(const char *name, int flags, ...) {
    MODE FAULTY(int, flags & O_CREAT && is_below_at(AT_FDCWD, name), REAL(open)(name, flags, mode)) }
int open64(const char *name, int flags, ...) {
    MODE FAULTY(int, flags & O_CREAT && is_below_at(AT_FDCWD, name), REAL(open64)(name, flags, mode)) }
int openat(int at, const char *name, int flags, ...) {
    MODE FAULTY(int, flags & O_CREAT && is_below_at(at, name), REAL(openat)(at, name, flags, mode)) }
int openat64(int at, const char *name, int flags, ...) {
    MODE FAULTY(int, flags & O_CREAT && is_below_at(at, name), REAL(openat64)(at, name, flags, mode)) }
ssize_t write(int file, const void *bytes, size_t size) {
    FAULTY(ssize_t, is_file_below(file), REAL(write)(file, bytes, size)) }
ssize_t pwrite(int file, const void *bytes, size_t size, off_t at) {
    FAULTY(ssize_t, is_file_below(file), REAL(pwrite)(file, bytes, size, at)) }
ssize_t pwrite64(int file, const void *bytes, size_t size, off64_t at) {
    FAULTY(ssize_t, is_file_below(file), REAL(pwrite64)(file, bytes, size, at)) }
ssize_t writev(int file, const struct iovec *parts, int num_parts) {
    FAULTY(ssize_t, is_file_below(file), REAL(writev)(file, parts, num_parts)) }
int fsync(int file) { FAULTY(int, is_file_below(file), REAL(fsync)(file)) }
int fdatasync(int file) { FAULTY(int, is_file_below(file), REAL(fdatasync)(file)) }
int ftruncate(int file, off_t size) { FAULTY(int, is_file_below(file), REAL(ftruncate)(file, size)) }
int ftruncate64(int file, off64_t size) { FAULTY(int, is_file_below(file), REAL(ftruncate64)(file, size)) }
int rename(const char *from, const char *to) {
    FAULTY(int, is_below_at(AT_FDCWD, to), REAL(rename)(from, to)) }
int renameat(int from_at, const char *from, int to_at, const char *to) {
    FAULTY(int, is_below_at(to_at, to), REAL(renameat)(from_at, from, to_at, to)) }
int link(const char *from, const char *to) { FAULTY(int, is_below_at(AT_FDCWD, to), REAL(link)(from, to)) }
int linkat(int from_at, const char *from, int to_at, const char *to, int flags) {
    FAULTY(int, is_below_at(to_at, to), REAL(linkat)(from_at, from, to_at, to, flags)) }
/* What takes no space does not lack it. */
static int removes(int at, const char *name) { return error_number != ENOSPC && is_below_at(at, name); }
int unlink(const char *name) { FAULTY(int, removes(AT_FDCWD, name), REAL(unlink)(name)) }
int unlinkat(int at, const char *name, int flags) { FAULTY(int, removes(at, name), REAL(unlinkat)(at, name, flags)) }
int rmdir(const char *name) { FAULTY(int, removes(AT_FDCWD, name), REAL(rmdir)(name)) }
int mkdir(const char *name, mode_t mode) { FAULTY(int, is_below_at(AT_FDCWD, name), REAL(mkdir)(name, mode)) }
int mkdirat(int at, const char *name, mode_t mode) { FAULTY(int, is_below_at(at, name), REAL(mkdirat)(at, name, mode)) }
ssize_t send(int socket, const void *bytes, size_t size, int flags) {
    FAULTY(ssize_t, holds(bytes, size), REAL(send)(socket, bytes, size, flags)) }
ssize_t sendto(int socket, const void *bytes, size_t size, int flags, const struct sockaddr *to, socklen_t to_size) {
    FAULTY(ssize_t, holds(bytes, size), REAL(sendto)(socket, bytes, size, flags, to, to_size)) }
