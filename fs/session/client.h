/* The process behind a request: which one it is, whether it is ending, what its signals ask for. */
#ifndef CLIENT_H
#define CLIENT_H
#include "base/req.h"
#include <stdbool.h>
#include <sys/types.h>

/* What the signals of a waiting client ask for. */
enum client_wish {
	CLIENT_NONE,  /* a signal that says nothing to us (SIGCHLD, SIGWINCH …) */
	CLIENT_PAUSE, /* Ctrl-Z: it goes, the work stays */
	CLIENT_STOP,  /* Ctrl-C and its like: the work shall stop */
	CLIENT_DYING, /* the same, and this process will never see an answer */
	CLIENT_GONE   /* the same, at once: SIGKILL alone, or it is no more */
};

/* The process (tgid) of a thread; 0 stays 0: a foreign pid namespace. */
pid_t client_process(pid_t tid);
/* The same, and whether the program is a shell whose redirections hide errors of close(2)
 * (fish and yash tell of them). */
pid_t client_program(pid_t tid, bool *shell);
/* Is it a server of SFTP? It works at one request at a time: while one waits, all of its client's
 * wait (a whole sshfs), and no signal of who waits there comes here. */
bool client_is_sftp(pid_t tid);
/* By the signals that are pending now. */
enum client_wish client_wish(pid_t tid);
/* The process of a thread, and whether it is ending. */
struct req_client client_now(pid_t tid);

#endif
