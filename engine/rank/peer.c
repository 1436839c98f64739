/*
 * Finds the user at the other end of a TCP connection within this machine.
 *
 * The kernel knows the other end's socket by the same two addresses, exchanged. Its user comes from
 * sock_diag(7), or where that is missing from /proc/net/tcp and tcp6, whose columns are in the
 * kernel's Documentation/networking/proc_net_tcp.rst. A socket that no process has open any more is
 * shown without an inode, and then as root's.
 */
#define _GNU_SOURCE
#include "rank/peer.h"
#include "util.h"
#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

union address {
	struct sockaddr any;
	struct sockaddr_in v4;
	struct sockaddr_in6 v6;
};

/* The two ends of a connection; family is that of our socket. */
struct ends {
	int family;
	struct in6_addr ours, theirs; /* IPv4 is mapped into IPv6 */
	in_port_t our_port, their_port;
	unsigned interface; /* of a link-local address */
};

static struct in6_addr
mapped(in_addr_t v4)
{
	struct in6_addr a = {.s6_addr = {[10] = 0xff, [11] = 0xff}};

	memcpy(&a.s6_addr[12], &v4, sizeof(v4));
	return a;
}

static in_addr_t
v4_of(const struct in6_addr *a)
{
	in_addr_t v4;

	memcpy(&v4, &a->s6_addr[12], sizeof(v4));
	return v4;
}

static bool
split(const union address *a, struct in6_addr *host, in_port_t *port)
{
	if (a->any.sa_family == AF_INET) {
		*host = mapped(a->v4.sin_addr.s_addr);
		*port = a->v4.sin_port;
	} else if (a->any.sa_family == AF_INET6) {
		*host = a->v6.sin6_addr;
		*port = a->v6.sin6_port;
	} else {
		return false;
	}
	return true;
}

static bool
find_ends(int fd, struct ends *e)
{
	union address us, them;
	socklen_t n = sizeof(us), m = sizeof(them);

	if (getsockname(fd, &us.any, &n) < 0 || getpeername(fd, &them.any, &m) < 0)
		return false;
	*e = (struct ends){.family = us.any.sa_family};
	if (e->family == AF_INET6)
		e->interface = us.v6.sin6_scope_id;
	return split(&us, &e->ours, &e->our_port) && split(&them, &e->theirs, &e->their_port);
}

/* Is it an address of this machine? Then it is also the source of what is sent there. */
static bool
is_here(const struct ends *e)
{
	bool v4 = IN6_IS_ADDR_V4MAPPED(&e->theirs), here = true;
	union address to = {.v6 = {.sin6_family = AF_INET6,
				.sin6_addr = e->theirs,
				.sin6_port = e->their_port,
				.sin6_scope_id = e->interface}},
		      from;
	socklen_t n = sizeof(from);
	struct in6_addr host;
	in_port_t port;
	int fd;

	if (IN6_ARE_ADDR_EQUAL(&e->ours, &e->theirs) || IN6_IS_ADDR_LOOPBACK(&e->theirs) ||
	    (v4 && e->theirs.s6_addr[12] == IN_LOOPBACKNET))
		return true;
	if (v4)
		to.v4 = (struct sockaddr_in){AF_INET, e->their_port, {v4_of(&e->theirs)}, {0}};
	fd = socket(to.any.sa_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (fd >= 0 && (connect(fd, &to.any, sizeof(to)) < 0 ||
			   (getsockname(fd, &from.any, &n) == 0 && split(&from, &host, &port) &&
			       !IN6_ARE_ADDR_EQUAL(&host, &e->theirs))))
		here = false;
	if (fd >= 0)
		close(fd);
	return here;
}

/* What the kernel says of a socket. */
struct owner {
	uid_t uid;
	unsigned long inode; /* 0: no process has it open */
};

static void
fill(const struct ends *e, struct inet_diag_sockid *id)
{
	size_t skip = e->family == AF_INET ? 12 : 0;

	*id = (struct inet_diag_sockid){.idiag_sport = e->their_port,
	    .idiag_dport = e->our_port,
	    .idiag_if = e->interface,
	    .idiag_cookie = {INET_DIAG_NOCOOKIE, INET_DIAG_NOCOOKIE}};
	memcpy(id->idiag_src, e->theirs.s6_addr + skip, 16 - skip);
	memcpy(id->idiag_dst, e->ours.s6_addr + skip, 16 - skip);
}

/* Returns 0, or -errno; -ENOENT also if this kernel has no sock_diag for TCP. */
static int
ask_netlink(const struct ends *e, struct owner *o)
{
	struct {
		struct nlmsghdr head;
		struct inet_diag_req_v2 req;
	} ask = {.head = {.nlmsg_len = sizeof(ask),
		     .nlmsg_type = SOCK_DIAG_BY_FAMILY,
		     .nlmsg_flags = NLM_F_REQUEST},
	    .req = {.sdiag_family = (unsigned char)e->family,
		.sdiag_protocol = IPPROTO_TCP,
		.idiag_states = ~0u}};

	union {
		struct nlmsghdr head;
		char bytes[4096];
	} reply;

	const struct inet_diag_msg *m = NLMSG_DATA(&reply.head);
	const struct nlmsgerr *error = NLMSG_DATA(&reply.head);
	int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_SOCK_DIAG), r = 0;
	ssize_t n;

	if (fd < 0)
		return -errno;
	fill(e, &ask.req.id);
	n = send(fd, &ask, sizeof(ask), 0);
	/* the kernel has answered when send returns */
	if (n >= 0)
		n = recv(fd, &reply, sizeof(reply), MSG_DONTWAIT);
	if (n < 0)
		r = -errno;
	else if ((size_t)n >= NLMSG_LENGTH(sizeof(*error)) && reply.head.nlmsg_type == NLMSG_ERROR)
		r = error->error ? error->error : -EBADMSG;
	else if ((size_t)n < NLMSG_LENGTH(sizeof(*m)) ||
		 reply.head.nlmsg_type != SOCK_DIAG_BY_FAMILY)
		r = -EBADMSG;
	else if (m->idiag_state == TCP_LISTEN || m->id.idiag_sport != e->their_port ||
		 m->id.idiag_dport != e->our_port)
		r = -ENOENT; /* a listener at that port, because there is no such connection */
	else
		*o = (struct owner){m->idiag_uid, m->idiag_inode};
	close(fd);
	return r;
}

/* An address of /proc/net/tcp{,6}: 32-bit words, each printed as this machine's number. */
static bool
parse_address(const char *hex, struct in6_addr *a)
{
	size_t words = strspn(hex, "0123456789ABCDEF") / 8;
	uint32_t w[4] = {0};

	if (words != 1 && words != 4)
		return false;
	for (size_t i = 0; i < words; i++)
		if (sscanf(hex + 8 * i, "%8x", &w[i]) != 1)
			return false;
	if (words == 1)
		*a = mapped(w[0]);
	else
		memcpy(a, w, sizeof(*a));
	return true;
}

/* Looks for the socket in a line of the table. */
static bool
is_line_of(const char *line, const struct ends *e, struct owner *o)
{
	char local[33], remote[33];
	struct in6_addr src, dst;
	unsigned sport, dport, uid;
	unsigned long inode;

	if (sscanf(line, " %*d: %32[0-9A-F]:%4x %32[0-9A-F]:%4x %*x %*x:%*x %*x:%*x %*x %u %*u %lu",
		local, &sport, remote, &dport, &uid, &inode) != 6 ||
	    sport != ntohs(e->their_port) || dport != ntohs(e->our_port) ||
	    !parse_address(local, &src) || !parse_address(remote, &dst) ||
	    !IN6_ARE_ADDR_EQUAL(&src, &e->theirs) || !IN6_ARE_ADDR_EQUAL(&dst, &e->ours))
		return false;
	*o = (struct owner){(uid_t)uid, inode};
	return true;
}

/* Returns 0, or -errno: -ENOENT if there is no such socket. *tables: how many could be read. */
static int
read_table(const char *path, const struct ends *e, struct owner *o, int *tables)
{
	FILE *f = fopen(path, "re");
	char line[512];
	int r = -ENOENT;

	if (!f)
		return -errno;
	++*tables;
	while (r < 0 && fgets(line, sizeof(line), f))
		if (is_line_of(line, e, o))
			r = 0;
	fclose(f);
	return r;
}

static int
ask_proc(const struct ends *e, struct owner *o)
{
	struct owner again;
	int tables = 0, r = read_table("/proc/net/tcp", e, o, &tables);

	if (r < 0)
		r = read_table("/proc/net/tcp6", e, o, &tables);
	/* A line is not read at one moment: the user is certain if a process has it open later. */
	if (r == 0 && read_table("/proc/net/tcp", e, &again, &tables) < 0 &&
	    read_table("/proc/net/tcp6", e, &again, &tables) < 0)
		return -ENOENT;
	if (r == 0)
		o->inode = again.inode;
	return tables || r == -EMFILE || r == -ENFILE || r == -ENOMEM ? r : -EOPNOTSUPP;
}

/* Tensorpipe connects ranks of one host by Unix sockets: their kernel knows the other end. */
static bool
is_unix(int fd)
{
	int domain = 0;
	socklen_t size = sizeof(domain);

	return getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &size) == 0 && domain == AF_UNIX;
}

static enum peer
unix_peer(int fd, char *who, size_t n)
{
	struct ucred other;
	socklen_t size = sizeof(other);

	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &other, &size) < 0)
		return PEER_GONE;
	if (other.uid == geteuid())
		return PEER_OURS;
	snprintf(who, n, "uid=%u", other.uid);
	return PEER_STRANGER;
}

enum peer
peer_of(int fd, char *who, size_t n)
{
	char text[INET6_ADDRSTRLEN] = "?";
	struct ends e;
	struct owner o;
	int r;

	*who = '\0';
	if (is_unix(fd))
		return unix_peer(fd, who, n);
	if (!find_ends(fd, &e))
		return PEER_GONE;
	r = ask_netlink(&e, &o);
	if (r < 0)
		r = ask_proc(&e, &o);
	if (r == 0 && o.inode && o.uid == geteuid())
		return PEER_OURS;
	if (IN6_IS_ADDR_V4MAPPED(&e.theirs))
		inet_ntop(AF_INET, &e.theirs.s6_addr[12], text, sizeof(text));
	else
		inet_ntop(AF_INET6, &e.theirs, text, sizeof(text));
	if (r == 0 && o.inode) {
		snprintf(who, n, "uid=%u", o.uid);
		return PEER_STRANGER;
	}
	snprintf(who, n, "address=%s", text);
	if (r < 0 && !is_here(&e))
		return PEER_REMOTE;
	return r == -EOPNOTSUPP ? PEER_UNKNOWN : PEER_GONE;
}

/* The part of an address that does not change while a machine stays where it is. */
static void
print_lasting(const struct in6_addr *a, char text[INET6_ADDRSTRLEN])
{
	struct in6_addr network = {0};

	memcpy(&network, a, sizeof(network) / 2);
	if (IN6_IS_ADDR_V4MAPPED(a))
		inet_ntop(AF_INET, &a->s6_addr[12], text, INET6_ADDRSTRLEN);
	else
		inet_ntop(AF_INET6, &network, text, INET6_ADDRSTRLEN);
}

/* Is it one of the words between commas? */
static bool
is_listed(const char *list, const char *word)
{
	size_t n = strlen(word);

	for (const char *at = list; (at = strstr(at, word)); at += n)
		if ((at == list || at[-1] == ',') && (at[n] == ',' || at[n] == '\0'))
			return true;
	return false;
}

int
peer_addresses(struct buf *out)
{
	struct ifaddrs *all;

	if (getifaddrs(&all) < 0)
		return -errno;
	buf_adds(out, "");
	for (const struct ifaddrs *i = all; i; i = i->ifa_next) {
		const union address *a = (const void *)i->ifa_addr;
		char text[INET6_ADDRSTRLEN];
		struct in6_addr host;
		in_port_t port;

		if (!a || !split(a, &host, &port) || i->ifa_flags & IFF_LOOPBACK)
			continue;
		print_lasting(&host, text);
		if (!is_listed(out->p, text))
			buf_addf(out, "%s%s", out->n ? "," : "", text);
	}
	freeifaddrs(all);
	return 0;
}

bool
peer_is_among(int fd, const char *addresses)
{
	char text[INET6_ADDRSTRLEN];
	struct ends e;

	if (strcmp(addresses, PEER_ANYWHERE) == 0)
		return true;
	if (!find_ends(fd, &e))
		return false;
	print_lasting(&e.theirs, text);
	return is_listed(addresses, text);
}
