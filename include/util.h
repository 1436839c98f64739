/* Memory, growing buffers, clocks, and the debug log, for every file. */
#ifndef UTIL_H
#define UTIL_H
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#define ARRAY_LEN(a) (sizeof(a) / sizeof((a)[0]))
#define MIN(a, b) ((a) < (b) ? (a) : (b))
#define MAX(a, b) ((a) > (b) ? (a) : (b))
#define PRINTF(f, a) __attribute__((format(printf, f, a)))

/* The x functions never return NULL: they end the program if memory runs out. */
void *xmalloc(size_t n);
void *xcalloc(size_t n, size_t size);
void *xrealloc(void *p, size_t n);
char *xstrdup(const char *s);
/* Frees *to and puts a copy of s there. */
void xreplace(char **to, const char *s);
char *xstrndup(const char *s, size_t n);
char *xasprintf(const char *fmt, ...) PRINTF(1, 2);

/* Borrowed bytes: a piece of a buffer or a message. */
struct slice {
	const char *p;
	size_t n;
};

bool slice_eq(struct slice s, const char *text);
char *slice_dup(struct slice s);	/* NUL-terminated copy, owned by the caller */
struct slice slice_text(const char *s); /* of a string, without its NUL */

/* FNV-1a, 64 bits: begin with HASH_START, then add bytes, piece by piece. */
#define HASH_START UINT64_C(14695981039346656037)
uint64_t hash_add(uint64_t hash, const void *p, size_t n);

/* A growing byte buffer; zero-initialised is empty. Once used, it always has a NUL at p[n]. */
struct buf {
	char *p;
	size_t n, cap;
};

void buf_add(struct buf *b, const void *p, size_t n);
void buf_adds(struct buf *b, const char *s);
void buf_addc(struct buf *b, char c);
void buf_addf(struct buf *b, const char *fmt, ...) PRINTF(2, 3);
void buf_vaddf(struct buf *b, const char *fmt, va_list ap);
/* Makes room for n more bytes and returns a pointer to it; the caller then adds to b->n. */
char *buf_reserve(struct buf *b, size_t n);
void buf_drop(struct buf *b, size_t n); /* forgets the first n bytes */
void buf_clear(struct buf *b);
void buf_free(struct buf *b);
char *buf_take(struct buf *b); /* the caller owns the string; empties b; never NULL */

/* units of time */
#define MS_PER_S 1000
#define NS_PER_US UINT64_C(1000)
#define NS_PER_MS UINT64_C(1000000)
#define NS_PER_S UINT64_C(1000000000)

uint64_t now_ns(void); /* CLOCK_MONOTONIC */
/* That long from now, on the same clock: for pthread_cond_timedwait(3). */
struct timespec after_ns(uint64_t ns);
double now_wall(void); /* seconds since 1970 */
double in_seconds(uint64_t ns);

int fd_cloexec(int fd, bool on);
int fd_nonblock(int fd, bool on);
/* Writes all n bytes to a blocking descriptor. Returns 0 or -errno. */
int write_all(int fd, const void *p, size_t n);
/* Writes as many of the n bytes at this offset of a file as fit. Returns the number written; if it
 * is less than n, errno is set. place: its name for failure injection. */
size_t pwrite_all(const char *place, int fd, const void *p, size_t n, uint64_t offset);
/* Reads a whole small file. Returns 0 or -errno. */
int read_file(const char *path, struct buf *out);
/* The directory of this program, with links resolved. The caller frees it. Calls die() if there is
 * no /proc. */
char *own_folder(void);

/* Compares n bytes in constant time. */
bool same_secret(const void *said, const void *secret, size_t n);

/* The i-th directory in which the files of a session may be made, the best first: $DDIP_STATE,
 * which is made if it is missing, $TMPDIR, /var/tmp, /tmp, $XDG_RUNTIME_DIR. A cluster may have
 * exported the first two from a machine where they exist. NULL: there are no more. */
const char *session_root(unsigned i);
/* While this process lives, systemd-tmpfiles(8) leaves what is in the directory, however old it is:
 * it does not enter one that is locked (tmpfiles.d(5)), which not all file systems can do. */
void dir_keep(const char *dir);

/* Failure injection, only in a build with -DDDIP_FAULT (make FAULT=1). DDIP_FAULT=[PROGRAM/]PLACE:N
 * makes the N-th pass through that place fail in each process of that program. PLACE `any` stands
 * for all places except alloc and fuse.*, which are passed very often. With DDIP_FAULT_ONCE=FILE,
 * only the process that removes this file fails. Returns true if the caller must fail here as the
 * kernel would with errno = no. */
#ifdef DDIP_FAULT
bool fault(const char *place, int no);
#else
static inline bool
fault(const char *place, int no)
{
	return false;
}
#endif

/* Ends the program with a line on stderr: for errors at startup and those it cannot survive. */
_Noreturn void die(const char *fmt, ...) PRINTF(1, 2);
/* Writes one line with the time and the program to stderr (of the daemon: ddipfs.log). */
void note(const char *fmt, ...) PRINTF(1, 2);
void note_as(const char *program); /* the name in lines of note() and die(); kept, not copied */
const char *note_name(void);
/* Like note(), if DDIP_DEBUG names this area or `all`: wire cell fuse agent gpus out files. */
bool debug_on(const char *area);
void debug(const char *area, const char *fmt, ...) PRINTF(2, 3);

#endif
