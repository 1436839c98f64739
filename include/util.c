/* Memory, growing buffers, clocks, and the debug log. */
#include "util.h"
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

static const char *program = "ddipfs";

void *
xmalloc(size_t n)
{
	return xrealloc(NULL, n);
}

void *
xcalloc(size_t n, size_t size)
{
	void *p = fault("alloc", ENOMEM) ? NULL : calloc(n ? n : 1, size ? size : 1);

	if (!p)
		die("out of memory (%zu x %zu bytes)", n, size);
	return p;
}

void *
xrealloc(void *old, size_t n)
{
	void *p = fault("alloc", ENOMEM) ? NULL : realloc(old, n ? n : 1);

	if (!p)
		die("out of memory (%zu bytes)", n);
	return p;
}

char *
xstrdup(const char *s)
{
	return xstrndup(s, strlen(s));
}

void
xreplace(char **to, const char *s)
{
	char *copy = xstrdup(s);

	free(*to);
	*to = copy;
}

char *
xstrndup(const char *s, size_t n)
{
	char *p = xmalloc(n + 1);

	if (n)
		memcpy(p, s, n);
	p[n] = '\0';
	return p;
}

char *
xasprintf(const char *fmt, ...)
{
	struct buf b = {0};
	va_list ap;

	va_start(ap, fmt);
	buf_vaddf(&b, fmt, ap);
	va_end(ap);
	return buf_take(&b);
}

bool
slice_eq(struct slice s, const char *text)
{
	return s.n == strlen(text) && memcmp(s.p, text, s.n) == 0;
}

char *
slice_dup(struct slice s)
{
	return xstrndup(s.p, s.n);
}

struct slice
slice_text(const char *s)
{
	return (struct slice){s, strlen(s)};
}

uint64_t
hash_add(uint64_t hash, const void *p, size_t n)
{
	static const uint64_t prime = 1099511628211u;
	const unsigned char *at = p;

	for (size_t i = 0; i < n; i++)
		hash = (hash ^ at[i]) * prime;
	return hash;
}

char *
buf_reserve(struct buf *b, size_t n)
{
	if (b->n + n + 1 > b->cap) {
		b->cap = MAX(b->cap * 2, b->n + n + 1);
		b->cap = MAX(b->cap, (size_t)64);
		b->p = xrealloc(b->p, b->cap);
	}
	return b->p + b->n;
}

void
buf_add(struct buf *b, const void *p, size_t n)
{
	buf_reserve(b, n);
	if (n)
		memcpy(b->p + b->n, p, n);
	b->n += n;
	b->p[b->n] = '\0';
}

void
buf_adds(struct buf *b, const char *s)
{
	buf_add(b, s, strlen(s));
}

void
buf_addc(struct buf *b, char c)
{
	buf_add(b, &c, 1);
}

void
buf_vaddf(struct buf *b, const char *fmt, va_list ap)
{
	size_t room;
	va_list again;
	int n;

	buf_reserve(b, 0);
	room = b->cap - b->n;
	va_copy(again, ap);
	n = vsnprintf(b->p + b->n, room, fmt, again);
	va_end(again);
	if (n < 0)
		die("bad format '%s'", fmt);
	if ((size_t)n >= room)
		vsnprintf(buf_reserve(b, (size_t)n), (size_t)n + 1, fmt, ap);
	b->n += (size_t)n;
}

void
buf_addf(struct buf *b, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	buf_vaddf(b, fmt, ap);
	va_end(ap);
}

void
buf_drop(struct buf *b, size_t n)
{
	if (n == 0)
		return;
	memmove(b->p, b->p + n, b->n - n);
	b->n -= n;
	b->p[b->n] = '\0';
}

void
buf_clear(struct buf *b)
{
	b->n = 0;
	if (b->p)
		b->p[0] = '\0';
}

void
buf_free(struct buf *b)
{
	free(b->p);
	*b = (struct buf){0};
}

char *
buf_take(struct buf *b)
{
	char *p;

	buf_reserve(b, 0);
	b->p[b->n] = '\0';
	p = b->p;
	*b = (struct buf){0};
	return p;
}

uint64_t
now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * NS_PER_S + (uint64_t)t.tv_nsec;
}

struct timespec
after_ns(uint64_t ns)
{
	uint64_t at = now_ns() + ns;

	return (struct timespec){(time_t)(at / NS_PER_S), (long)(at % NS_PER_S)};
}

double
in_seconds(uint64_t ns)
{
	return (double)ns / 1e9;
}

double
now_wall(void)
{
	struct timespec t;

	clock_gettime(CLOCK_REALTIME, &t);
	return (double)t.tv_sec + in_seconds((uint64_t)t.tv_nsec);
}

int
fd_cloexec(int fd, bool on)
{
	return fcntl(fd, F_SETFD, on ? FD_CLOEXEC : 0) < 0 ? -errno : 0;
}

int
fd_nonblock(int fd, bool on)
{
	int flags = fcntl(fd, F_GETFL);

	if (flags < 0)
		return -errno;
	flags = on ? flags | O_NONBLOCK : flags & ~O_NONBLOCK;
	return fcntl(fd, F_SETFL, flags) < 0 ? -errno : 0;
}

int
write_all(int fd, const void *p, size_t n)
{
	const char *at = p;

	while (n > 0) {
		ssize_t w = fault("file.write", ENOSPC) ? -1 : write(fd, at, n);

		if (w < 0 && errno == EINTR)
			continue;
		if (w < 0)
			return -errno;
		at += w;
		n -= (size_t)w;
	}
	return 0;
}

size_t
pwrite_all(const char *place, int fd, const void *p, size_t n, uint64_t offset)
{
	size_t done = 0;

	while (done < n) {
		ssize_t w = fault(place, ENOSPC) ? -1
						 : pwrite(fd, (const char *)p + done, n - done,
						       (off_t)(offset + done));

		if (w < 0 && errno == EINTR)
			continue;
		if (w == 0)
			errno = ENOSPC;
		if (w <= 0)
			break;
		done += (size_t)w;
	}
	return done;
}

int
read_file(const char *path, struct buf *out)
{
	int fd = fault("file.open", EMFILE) ? -1 : open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n;

	if (fd < 0)
		return -errno;
	while ((n = read(fd, buf_reserve(out, 4096), 4096)) != 0) {
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0) {
			int no = errno;

			close(fd);
			return -no;
		}
		out->n += (size_t)n;
		out->p[out->n] = '\0';
	}
	close(fd);
	return 0;
}

bool
same_secret(const void *said, const void *secret, size_t n)
{
	const unsigned char *a = said, *b = secret;
	unsigned char differs = 0;

	for (size_t i = 0; i < n; i++)
		differs |= (unsigned char)(a[i] ^ b[i]);
	return !differs;
}

const char *
session_root(unsigned i)
{
	const char *const roots[] = {
	    getenv("DDIP_STATE"), getenv("TMPDIR"), "/var/tmp", "/tmp", getenv("XDG_RUNTIME_DIR")};

	if (i == 0 && roots[0] && *roots[0] && mkdir(roots[0], 0700) == 0)
		note("%s was missing, and is made", roots[0]);
	for (unsigned at = 0; at < ARRAY_LEN(roots); at++)
		if (roots[at] && *roots[at] && i-- == 0)
			return roots[at];
	return NULL;
}

void
dir_keep(const char *dir)
{
	int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (fd < 0 || flock(fd, LOCK_SH | LOCK_NB) < 0)
		debug("files", "%s: cannot be locked: %s", dir, strerror(errno));
	/* cppcheck-suppress resourceLeak */
}

char *
own_folder(void)
{
	char self[PATH_MAX];
	ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);

	if (n < 0)
		die("/proc/self/exe: %s", strerror(errno));
	self[n] = '\0';
	*strrchr(self, '/') = '\0';
	return xstrdup(self);
}

void
note_as(const char *name)
{
	program = name;
}

const char *
note_name(void)
{
	return program;
}

static void
say(const char *fmt, va_list ap)
{
	struct buf b = {0};
	struct timespec t;
	struct tm tm;
	char when[32];

	clock_gettime(CLOCK_REALTIME, &t);
	localtime_r(&t.tv_sec, &tm);
	strftime(when, sizeof(when), "%H:%M:%S", &tm);
	buf_addf(&b, "%s.%03ld %s[%d]: ", when, t.tv_nsec / 1000000, program, (int)getpid());
	buf_vaddf(&b, fmt, ap);
	buf_addc(&b, '\n');
	/* If stderr fails, the error cannot be reported. */
	(void)!write(STDERR_FILENO, b.p, b.n);
	buf_free(&b);
}

void
note(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	say(fmt, ap);
	va_end(ap);
}

void
die(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	/* neither stdio nor exit(): in a forked child, another thread of the parent may have held
	 * a lock for ever, and exit handlers are the parent's business */
	dprintf(STDERR_FILENO, "%s: ", program);
	vdprintf(STDERR_FILENO, fmt, ap);
	dprintf(STDERR_FILENO, "\n");
	va_end(ap);
	_exit(1);
}

#ifdef DDIP_FAULT
/* Does [PROGRAM/]PLACE:N of DDIP_FAULT name this place of this program? */
static bool
fault_wanted(const char *s, const char *place)
{
	size_t n = strlen(program);

	if (strchr(s, '/') && (strncmp(s, program, n) != 0 || s[n] != '/'))
		return false;
	s = strchr(s, '/') ? s + n + 1 : s;
	n = strcspn(s, ":");
	if (n == 3 && strncmp(s, "any", 3) == 0)
		return strcmp(place, "alloc") != 0 && strncmp(place, "fuse.", 5) != 0;
	return n == strlen(place) && strncmp(s, place, n) == 0;
}

bool
fault(const char *place, int no)
{
	static atomic_ulong passed; /* copy threads call this too */
	const char *s = getenv("DDIP_FAULT"), *n = s ? strchr(s, ':') : NULL;
	const char *once = getenv("DDIP_FAULT_ONCE");

	if (!n || !fault_wanted(s, place) ||
	    atomic_fetch_add(&passed, 1) + 1 != strtoul(n + 1, NULL, 10))
		return false;
	if (once && unlink(once) < 0)
		return false;
	/* does not allocate: that may be what is to fail */
	dprintf(STDERR_FILENO, "%s[%d]: injected: %s: %s\n", program, (int)getpid(), place,
	    strerror(no));
	errno = no;
	return true;
}
#endif

bool
debug_on(const char *area)
{
	const char *s = getenv("DDIP_DEBUG");
	size_t n = strlen(area);

	while (s && *s) {
		size_t k = strcspn(s, ",");

		if ((k == n && strncmp(s, area, n) == 0) || (k == 3 && strncmp(s, "all", 3) == 0))
			return true;
		s += k + (s[k] == ',');
	}
	return false;
}

void
debug(const char *area, const char *fmt, ...)
{
	va_list ap;

	if (!debug_on(area))
		return;
	va_start(ap, fmt);
	say(fmt, ap);
	va_end(ap);
}
