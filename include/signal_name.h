/* Signals by their names. */
#ifndef SIGNAL_NAME_H
#define SIGNAL_NAME_H
#include "err.h"

/* What zygotes and ranks find in their environment: the name of the signal that says that their
 * host is about to be taken away, which is not for them but for their agent. */
#define ENGINE_ENV_ON_PREEMPT "DDIP_ON_PREEMPT"

/* The number of a signal by its name, with or without SIG; 0: there is none. */
int signal_name_find(const char *name);
/* The name without SIG; "-": there is none. */
const char *signal_name(int signo);
/* Those that may say that a host is about to be taken away, ended by 0. */
extern const int signal_preempts[];
/* The signal that ENGINE_ENV_ON_PREEMPT names in env (K=V, each ended by NUL); 0: none. */
int signal_on_preempt(struct slice env);

#endif
