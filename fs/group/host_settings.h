/* The verbs of `ctl` that set where ranks run: hosts, launcher, engine, master_addr. */
#ifndef HOST_SETTINGS_H
#define HOST_SETTINGS_H
#include "base/verb.h"

/* For the table in settings.c. */
int host_settings_hosts(struct verb_call *c);
int host_settings_launcher(struct verb_call *c);
int host_settings_engine(struct verb_call *c);
int host_settings_master_addr(struct verb_call *c);

#endif
