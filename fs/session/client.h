/* The process behind a request: which one it is, whether it is exiting, what its signals ask
 * for. */
#ifndef CLIENT_H
#define CLIENT_H
#include "base/req.h"
#include <stdbool.h>
#include <sys/types.h>

/* What the signals of a waiting client ask for. */
enum client_wish {
	CLIENT_NONE,  /* signals that mean nothing to us (SIGCHLD, SIGWINCH, …) */
	CLIENT_PAUSE, /* Ctrl-Z: the client leaves, its work goes on */
	CLIENT_STOP,  /* Ctrl-C and the like: stop the work */
	CLIENT_DYING, /* likewise, and this process will never see a reply */
	CLIENT_GONE   /* likewise, at once: only SIGKILL is pending, or it has exited */
};

/* The process (tgid) of a thread. 0, which stands for a foreign pid namespace, stays 0. */
pid_t client_process(pid_t tid);
/* Is it an SFTP server? It handles one request at a time: while one is parked, all requests of its
 * client (a whole sshfs) wait, and signals to the programs that wait there do not reach us. */
bool client_is_sftp(pid_t tid);
/* What the pending signals of a client ask for. */
enum client_wish client_wish(pid_t tid);
/* The process of a thread, and whether it is exiting. */
struct req_client client_now(pid_t tid);

#endif
