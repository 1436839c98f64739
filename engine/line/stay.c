/* The stay's directory and socket, and the small process that each connection leaves there. */
#define _GNU_SOURCE
#include "line/stay.h"
#include "signal_name.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

enum {
	SECRET_BYTES = SECRET_SIZE / 2,
	ATTACH_MS = 20000, /* for a connection to send the secret */
	FILES_AT_ONCE = 8, /* that nftw(3) may open */
	BACKLOG = 8,
	LINGER_MAX = 1000000000 /* seconds */
};

static int
remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	remove(path);
	return 0;
}

static void
remove_tree(const char *dir)
{
	nftw(dir, remove_one, FILES_AT_ONCE, FTW_DEPTH | FTW_PHYS);
}

/* Removes the directories of stays whose process was killed: their lock is free. */
static void
remove_dead(const char *parent, const char *prefix)
{
	DIR *d = opendir(parent);

	for (struct dirent *entry; d && (entry = readdir(d));) {
		char *path = xasprintf("%s/%s", parent, entry->d_name);
		char *lock = xasprintf("%s/lock", path);
		struct stat st;
		int fd = -1;

		if (!strncmp(entry->d_name, prefix, strlen(prefix)) && lstat(path, &st) == 0 &&
		    S_ISDIR(st.st_mode) && st.st_uid == getuid())
			fd = open(lock, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
		if (fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) == 0)
			remove_tree(path);
		if (fd >= 0)
			close(fd);
		free(lock);
		free(path);
	}
	if (d)
		closedir(d);
}

/* The lock file gets its name once it is locked: another stay that starts now must not take this
 * one for dead. */
static int
make_lock(struct stay *s, struct err *e)
{
	char *unlocked = xasprintf("%s/lock.new", s->dir), *lock = xasprintf("%s/lock", s->dir);

	s->lock = open(unlocked, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (s->lock < 0 || flock(s->lock, LOCK_EX | LOCK_NB) < 0 || rename(unlocked, lock) < 0)
		fail_errno(e, "%s", lock);
	dir_keep(s->dir);
	free(unlocked);
	free(lock);
	return -e->no;
}

static int
make_secret(struct stay *s, struct err *e)
{
	unsigned char bytes[SECRET_BYTES];

	if (getrandom(bytes, sizeof(bytes), 0) != sizeof(bytes))
		return fail_errno(e, "getrandom");
	for (size_t i = 0; i < sizeof(bytes); i++)
		snprintf(s->secret + 2 * i, 3, "%02x", bytes[i]);
	return 0;
}

/* The address of the socket in this directory, whose own name may be too long for it. dirfd must
 * stay open while the address is in use. */
static struct sockaddr_un
address_in(int dirfd)
{
	struct sockaddr_un a = {.sun_family = AF_UNIX};

	snprintf(a.sun_path, sizeof(a.sun_path), "/proc/self/fd/%d/socket", dirfd);
	return a;
}

static int
make_socket(struct stay *s, struct err *e)
{
	int dirfd = open(s->dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
	const struct sockaddr_un a = address_in(dirfd);

	s->listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (dirfd < 0 || s->listener < 0 ||
	    bind(s->listener, (const struct sockaddr *)&a, sizeof(a)) < 0 ||
	    listen(s->listener, BACKLOG) < 0)
		fail_errno(e, "%s/socket", s->dir);
	if (dirfd >= 0)
		close(dirfd);
	return -e->no;
}

int
stay_check_streams(struct err *e)
{
	static const char *const names[] = {"input", "output"};
	int epoll = epoll_create1(EPOLL_CLOEXEC);

	/* a descriptor that epoll refuses is /dev/null, or a file */
	for (int fd = 0; fd < (int)ARRAY_LEN(names) && !e->no; fd++)
		if (epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &(struct epoll_event){0}) < 0)
			fail(e, errno,
			    "the launcher passes no standard %s on, as ssh -n and docker exec "
			    "without -i",
			    names[fd]);
	if (e->no)
		note("%s", e->text); /* on standard error, too */
	close(epoll);
	return -e->no;
}

/* Makes the stay's directory, in the first place where one can be made. */
static int
make_dir(struct stay *s, struct err *e)
{
	const char *parent;
	char host[HOST_NAME_MAX + 1] = "", *prefix;

	/* hosts may share the parent, and need not see each other's locks */
	gethostname(host, HOST_NAME_MAX);
	prefix = xasprintf("ddipfs-far.%d.%s.", (int)getuid(), host);
	for (unsigned i = 0; !s->dir && (parent = session_root(i)); i++) {
		remove_dead(parent, prefix);
		s->dir = xasprintf("%s/%sXXXXXX", parent, prefix);
		if (mkdtemp(s->dir))
			continue;
		fail_errno(e, "%s, for output until it is sent", s->dir);
		note("%s", e->text);
		free(s->dir);
		s->dir = NULL;
	}
	free(prefix);
	if (!s->dir)
		return -e->no;
	*e = (struct err){0};
	return 0;
}

int
stay_open(struct stay *s, struct err *e)
{
	if (make_dir(s, e) < 0)
		return -e->no;
	if (make_lock(s, e) == 0 && make_secret(s, e) == 0)
		make_socket(s, e);
	if (e->no)
		stay_remove(s);
	return -e->no;
}

void
stay_remove(struct stay *s)
{
	remove_tree(s->dir);
}

/* ---- connections ---- */

/* A connection that has not sent the secret yet. It gives up by itself (ATTACH_MS). */
struct caller {
	struct stay *stay;
	int fd;
	struct watch *watch;
};

/* Receives the secret and the two streams of an attaching process. Returns false if incomplete. */
static bool
receive(int fd, char secret[SECRET_SIZE], int streams[2])
{
	union {
		struct cmsghdr h;
		char space[CMSG_SPACE(2 * sizeof(int))];
	} control;
	struct iovec iov = {secret, SECRET_SIZE};
	struct msghdr mh = {.msg_iov = &iov,
	    .msg_iovlen = 1,
	    .msg_control = &control,
	    .msg_controllen = sizeof(control)};
	ssize_t n = recvmsg(fd, &mh, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
	struct cmsghdr *c = n < 0 ? NULL : CMSG_FIRSTHDR(&mh);
	size_t count = 0;

	if (c && c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS)
		count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
	if (count)
		memcpy(streams, CMSG_DATA(c), count * sizeof(int));
	if (n == SECRET_SIZE && count == 2)
		return true;
	while (count)
		close(streams[--count]);
	return false;
}

/* It has sent something, or has ended. */
static void
on_word(void *arg, uint32_t events)
{
	struct caller *c = arg;
	struct stay *s = c->stay;
	int fd = c->fd, streams[2];
	char said[SECRET_SIZE];

	loop_fd_del(c->watch);
	free(c);
	if (!receive(fd, said, streams)) {
		close(fd);
	} else if (!same_secret(said, s->secret, SECRET_SIZE)) {
		note("a connection did not know the secret");
		close(streams[0]);
		close(streams[1]);
		close(fd);
	} else {
		s->attached(streams[0], streams[1], fd);
	}
}

/* The secret comes from far away: it is not waited for here. */
static void
on_connection(void *arg, uint32_t events)
{
	struct stay *s = arg;
	/* cppcheck-suppress nullPointer ; nobody's name is wanted */
	int fd = accept4(s->listener, NULL, NULL, SOCK_CLOEXEC);
	struct caller *c;

	if (fd < 0)
		return;
	c = xmalloc(sizeof(*c));
	*c = (struct caller){.stay = s, .fd = fd};
	c->watch = loop_fd(s->loop, fd, EPOLLIN, on_word, c);
}

void
stay_listen(struct stay *s, struct loop *loop, void (*attached)(int rfd, int wfd, int waiter))
{
	s->attached = attached;
	s->loop = loop;
	s->watch = loop_fd(loop, s->listener, EPOLLIN, on_connection, s);
}

int
stay_signal(int waiter)
{
	unsigned char signo;

	return recv(waiter, &signo, 1, MSG_DONTWAIT) == 1 ? signo : 0;
}

/* Blocks the signals that may announce a preemption, and returns a descriptor that reports them. */
static int
watch_signals(void)
{
	sigset_t set;

	sigemptyset(&set);
	for (const int *signo = signal_preempts; *signo; signo++)
		sigaddset(&set, *signo);
	sigprocmask(SIG_BLOCK, &set, NULL);
	return signalfd(-1, &set, SFD_CLOEXEC);
}

/* Some clusters signal only the process that they started, and none of its children. */
static void
pass_signal(int signals, int waiter)
{
	struct signalfd_siginfo si;
	unsigned char signo;

	if (read(signals, &si, sizeof(si)) != sizeof(si))
		return;
	signo = (unsigned char)si.ssi_signo;
	send(waiter, &signo, 1, MSG_DONTWAIT | MSG_NOSIGNAL);
}

int
stay_wait(int waiter)
{
	struct pollfd p[] = {{waiter, POLLIN, 0}, {watch_signals(), POLLIN, 0}};
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);

	/* the far end owns the streams: they must end when it closes them */
	dup2(null, 0);
	dup2(null, 1);
	while (!p[0].revents)
		if (poll(p, ARRAY_LEN(p), -1) > 0 && p[1].revents)
			pass_signal(p[1].fd, waiter);
	return 0;
}

/* Reads the secret from standard input, and nothing after it. */
static bool
read_secret(char secret[SECRET_SIZE])
{
	size_t done = 0;

	while (done < SECRET_SIZE) {
		struct pollfd p = {0, POLLIN, 0};
		ssize_t n;

		if (poll(&p, 1, ATTACH_MS) == 0)
			return false;
		n = read(0, secret + done, SECRET_SIZE - done);
		if (n == 0 || (n < 0 && errno != EINTR && errno != EAGAIN))
			return false;
		done += n > 0 ? (size_t)n : 0;
	}
	return true;
}

static bool
hand_over(int fd, char secret[SECRET_SIZE])
{
	union {
		struct cmsghdr h;
		char space[CMSG_SPACE(2 * sizeof(int))];
	} control = {0};
	struct iovec iov = {secret, SECRET_SIZE};
	struct msghdr mh = {.msg_iov = &iov,
	    .msg_iovlen = 1,
	    .msg_control = &control,
	    .msg_controllen = CMSG_SPACE(2 * sizeof(int))};
	const int streams[2] = {0, 1};

	control.h = (struct cmsghdr){.cmsg_len = CMSG_LEN(sizeof(streams)),
	    .cmsg_level = SOL_SOCKET,
	    .cmsg_type = SCM_RIGHTS};
	memcpy(CMSG_DATA(&control.h), streams, sizeof(streams));
	return sendmsg(fd, &mh, MSG_NOSIGNAL) == SECRET_SIZE;
}

/* Once a stay has removed its directory, another user can make one of that name. */
static bool
is_own(int dirfd)
{
	struct stat st;

	return fstat(dirfd, &st) == 0 && st.st_uid == getuid();
}

int
stay_attach(const char *dir)
{
	int dirfd = open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
	const struct sockaddr_un a = address_in(dirfd);
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	char secret[SECRET_SIZE];

	if (!is_own(dirfd) || fd < 0 || connect(fd, (const struct sockaddr *)&a, sizeof(a)) < 0) {
		printf("%s%s\n", BANNER, BANNER_GONE);
		return 1;
	}
	close(dirfd);
	printf("%s%s\n", BANNER, BANNER_ATTACH);
	fflush(stdout);
	if (!read_secret(secret) || !hand_over(fd, secret))
		return 1;
	return stay_wait(fd);
}

bool
stay_linger(const char *seconds, uint64_t *ms)
{
	char *rest;
	double s = strtod(seconds, &rest);

	if (rest == seconds || *rest || !(s >= 0 && s <= LINGER_MAX))
		return false;
	*ms = (uint64_t)(s * MS_PER_S);
	return true;
}
