/*
 * Says a line on the standard error of whoever wrote a cell, an object or a verb, if that failed
 * and the writer would not see it: shells and many programs ignore errors of close(2). Nothing is
 * said in groups that are `quiet`, nor to programs that open the file with O_NOFOLLOW.
 */
#ifndef TELL_H
#define TELL_H
#include "tree/tree.h"

struct task;
struct stderr_of;

void tell_init(void);
/* An on_done() for a request that closes a file, whose task, if there is one, it waits for. A
 * closer whose program reports errors of close(2) is told nothing. */
bool tell_closer(struct req *r, int result);
/* The same with a text of which the errno says too little, to any program. */
bool tell_text(struct req *r, int result, const char *text);
/* A failure that no request waits for. */
void tell_error(struct file *f, const struct err *e);
/* Nobody waits for the task of what was written to f: if it fails, its writer is told, even if that
 * has exited. */
void tell_leaver(struct file *f, struct task *w);
/* If the task fails, that is told here. NULL: nowhere. */
void tell_later(struct stderr_of *to, struct task *w);

#endif
