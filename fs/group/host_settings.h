/* The verbs of `ctl` that set where ranks run: hosts, launcher, engine, master_addr, linger. */
#ifndef HOST_SETTINGS_H
#define HOST_SETTINGS_H
#include "base/verb.h"

/* For the table in settings.c: the function that sets each one, and the one that prints it. */
int host_settings_hosts(struct verb_call *c);
int host_settings_launcher(struct verb_call *c);
int host_settings_engine(struct verb_call *c);
int host_settings_master_addr(struct verb_call *c);
int host_settings_linger(struct verb_call *c);
void host_settings_print_hosts(const void *settings, struct buf *out);
void host_settings_print_launcher(const void *settings, struct buf *out);
void host_settings_print_engine(const void *settings, struct buf *out);
void host_settings_print_master_addr(const void *settings, struct buf *out);
void host_settings_print_linger(const void *settings, struct buf *out);

#endif
