/* This rank's connections to the store of its group: shutting them down ends a wait there. */
#define _GNU_SOURCE
#include "rank/rank.h"
#include <sys/socket.h>

enum { SOCKETS_MAX = 64 }; /* a wait on one beyond these ends only by its timeout */

static struct {
	pthread_mutex_t lock;
	int fds[SOCKETS_MAX];
	size_t n;
} self = {.lock = PTHREAD_MUTEX_INITIALIZER};

void
rank_store_open(int fd)
{
	pthread_mutex_lock(&self.lock);
	if (self.n < SOCKETS_MAX)
		self.fds[self.n++] = fd;
	pthread_mutex_unlock(&self.lock);
}

void
rank_store_close(int fd)
{
	pthread_mutex_lock(&self.lock);
	for (size_t i = 0; i < self.n; i++)
		if (self.fds[i] == fd)
			self.fds[i--] = self.fds[--self.n];
	pthread_mutex_unlock(&self.lock);
}

void
rank_store_shut(void)
{
	pthread_mutex_lock(&self.lock);
	for (size_t i = 0; i < self.n; i++)
		shutdown(self.fds[i], SHUT_RDWR);
	pthread_mutex_unlock(&self.lock);
}
