/* Names of signals. */
#ifndef SIGNAL_NAME_H
#define SIGNAL_NAME_H
#include "err.h"

/* In the environment of zygotes and ranks: the name of the signal that announces that their host is
 * about to be taken away. It is meant for their agent, not for them. */
#define ENGINE_ENV_ON_PREEMPT "DDIP_ON_PREEMPT"

/* The number of the signal with this name, with or without SIG; 0 if there is none. */
int signal_name_find(const char *name);
/* The name without SIG; "-" if unknown. */
const char *signal_name(int signo);
/* Signals that may announce that a host is about to be taken away, terminated by 0. */
extern const int signal_preempts[];
/* The signal that ENGINE_ENV_ON_PREEMPT names in env (K=V, each ended by NUL); 0: none. */
int signal_on_preempt(struct slice env);

#endif
