/* Tests of engine/rank/peer.c: it knows whose connection arrives over IPv4 and IPv6, by sock_diag
 * and without it, and takes nobody for ours who has closed it. As root, also that of another user.
 */
#include "rank/peer.h"
#include "check.h"
#include <arpa/inet.h>
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <netinet/in.h>
#include <signal.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { NOBODY = 65534 };

/* Where a test listens, and where it connects to. */
static const struct place {
	const char *listens, *reached;
} places[] = {{"127.0.0.1", "127.0.0.1"}, {"0.0.0.0", "127.0.0.1"}, {"0.0.0.0", "127.0.0.2"},
    {"::1", "::1"}, {"::", "::1"}, {"::", "::ffff:127.0.0.1"}, {"::", "127.0.0.1"}};

union address {
	struct sockaddr any;
	struct sockaddr_in v4;
	struct sockaddr_in6 v6;
};

static union address
address_of(const char *text, in_port_t port)
{
	union address a = {0};

	if (inet_pton(AF_INET, text, &a.v4.sin_addr) == 1) {
		a.v4.sin_family = AF_INET;
		a.v4.sin_port = port;
	} else {
		inet_pton(AF_INET6, text, &a.v6.sin6_addr);
		a.v6.sin6_family = AF_INET6;
		a.v6.sin6_port = port;
	}
	return a;
}

static int
listener_at(const char *text, in_port_t *port)
{
	union address a = address_of(text, 0);
	socklen_t n = sizeof(a);
	int fd = socket(a.any.sa_family, SOCK_STREAM, 0);

	if (fd < 0 || bind(fd, &a.any, sizeof(a)) < 0 || listen(fd, 1) < 0 ||
	    getsockname(fd, &a.any, &n) < 0)
		return -1; /* a machine without IPv6 */
	*port = a.any.sa_family == AF_INET ? a.v4.sin_port : a.v6.sin6_port;
	return fd;
}

/* A process of this user that connects, and closes at once if `closes`. Returns its pid. */
static pid_t
start_client(uid_t uid, const char *to, in_port_t port, bool closes, const int ready[2])
{
	union address a = address_of(to, port);
	pid_t pid = fork();
	char done = 1;
	int fd;

	if (pid != 0)
		return pid;
	if (setresuid(uid, uid, uid) < 0)
		_exit(1);
	fd = socket(a.any.sa_family, SOCK_STREAM, 0);
	if (connect(fd, &a.any, sizeof(a)) < 0 || write(fd, "12345678", 8) != 8)
		_exit(1);
	if (closes)
		close(fd);
	if (write(ready[1], &done, 1) != 1)
		_exit(1);
	pause();
	_exit(0);
}

/* What peer_of says of a connection that a process of this user makes; -1: it cannot be made. */
static int
ask(const struct place *where, uid_t uid, bool closes, char *who, size_t n)
{
	in_port_t port;
	int listener = listener_at(where->listens, &port), ready[2], fd, kind;
	pid_t pid;
	char byte;

	if (listener < 0 || pipe(ready) < 0)
		return -1;
	pid = start_client(uid, where->reached, port, closes, ready);
	close(ready[1]);
	*who = '\0';
	kind = read(ready[0], &byte, 1) == 1 ? 0 : -1;
	fd = kind < 0 ? -1 : accept(listener, NULL, NULL);
	if (fd >= 0)
		kind = (int)peer_of(fd, who, n);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	close(fd);
	close(listener);
	close(ready[0]);
	return kind;
}

static void
test_all(void)
{
	char who[80];

	for (size_t i = 0; i < sizeof(places) / sizeof(*places); i++) {
		const struct place *p = &places[i];
		int kind = ask(p, getuid(), false, who, sizeof(who));

		if (kind < 0 && strchr(p->listens, ':'))
			continue;
		CHECK(kind == PEER_OURS);
		CHECK(ask(p, getuid(), true, who, sizeof(who)) == PEER_GONE);
		CHECK(strncmp(who, "address=", 8) == 0);
		if (getuid() != 0)
			continue;
		CHECK(ask(p, NOBODY, false, who, sizeof(who)) == PEER_STRANGER);
		CHECK_STR(who, "uid=65534");
		CHECK(ask(p, NOBODY, true, who, sizeof(who)) == PEER_GONE);
	}
}

/* As root, whose number is also that of a socket without an owner, and as another user. */
static void
test_as(uid_t uid)
{
	int status;
	pid_t pid = fork();

	if (pid == 0) {
		if (setresuid(uid, uid, uid) < 0)
			_exit(1);
		test_all();
		_exit(CHECK_DONE());
	}
	CHECK(waitpid(pid, &status, 0) == pid && status == 0);
}

/* Connects to itself at `text`, and says whether the list has that address. */
static bool
is_among(const char *text, const char *list)
{
	in_port_t port = 0;
	int listener = listener_at(text, &port), fd;
	union address a = address_of(text, port);
	bool is;

	fd = socket(a.any.sa_family, SOCK_STREAM, 0);
	CHECK(connect(fd, &a.any, sizeof(a)) == 0);
	is = peer_is_among(fd, list);
	close(fd);
	close(listener);
	return is;
}

static void
test_addresses(void)
{
	struct buf own = {0};

	CHECK(peer_addresses(&own) == 0 && own.p && !strstr(own.p, "127."));
	buf_free(&own);
	CHECK(is_among("127.0.0.1", "127.0.0.1"));
	CHECK(is_among("127.0.0.1", "10.0.0.1,fd00::,127.0.0.1"));
	CHECK(is_among("127.0.0.1", "127.0.0.1,10.0.0.1"));
	CHECK(is_among("127.0.0.1", PEER_ANYWHERE));
	CHECK(!is_among("127.0.0.1", ""));
	CHECK(!is_among("127.0.0.1", "127.0.0.10,1127.0.0.1,127.0.0.1*"));
}

/* socket(AF_NETLINK, …) fails from now on, as in a sandbox. */
static void
forbid_netlink(void)
{
	struct sock_filter code[] = {
	    BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
	    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_socket, 0, 3),
	    BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[0])),
	    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, AF_NETLINK, 0, 1),
	    BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EAFNOSUPPORT),
	    BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
	struct sock_fprog filter = {sizeof(code) / sizeof(*code), code};

	CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
	CHECK(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0);
	CHECK(socket(AF_NETLINK, SOCK_RAW, 0) < 0 && errno == EAFNOSUPPORT);
}

/* The kernel says nothing: the caller has to know that. */
static void
test_without_proc(void)
{
	char who[80];
	int status;
	pid_t pid;

	if (getuid() != 0)
		return;
	pid = fork();
	if (pid == 0) {
		CHECK(chroot("/proc/self/task") == 0 && chdir("/") == 0);
		CHECK(ask(&places[0], 0, false, who, sizeof(who)) == PEER_UNKNOWN);
		CHECK_STR(who, "address=127.0.0.1");
		_exit(CHECK_DONE());
	}
	CHECK(waitpid(pid, &status, 0) == pid && status == 0);
}

/* Tensorpipe's are not of the internet. */
static void
test_unix(void)
{
	char who[80];
	int ends[2];

	CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
	CHECK(peer_of(ends[0], who, sizeof(who)) == PEER_OURS);
	CHECK_STR(who, "");
	close(ends[0]);
	close(ends[1]);
}

int
main(void)
{
	test_unix();
	test_addresses();
	test_all();
	if (getuid() == 0)
		test_as(NOBODY - 1);
	else
		fprintf(stderr, "no root: no other user connects\n");
	forbid_netlink();
	test_all();
	if (getuid() == 0)
		test_as(NOBODY - 1);
	test_without_proc();
	return CHECK_DONE();
}
