/* What each message does: a function a message, of the table in message.h. */
#ifndef OPS_H
#define OPS_H
#include "ninep/call.h"

/* f: the fields of its body. 0: c->body is the reply; -errno; PARKED: it is answered elsewhere. */
typedef int ninep_op_fn(struct call *c, struct ninep_field *f);

#define X(name, type, dialect, format, fields) ninep_op_fn op_##name;
NINEP_MESSAGES(X)
#undef X

/* The result of an operation of the tree becomes that of the call, now or later. Returns PARKED. */
int op_settle(struct call *c, int result);
/* The call's fid gets another name in its directory. */
int op_rename_in_place(struct call *c, struct slice to);
/* Reads of an open directory, of 9P2000. */
int op_read_dir(struct call *c, uint64_t offset, size_t count);
/* What was written to it and not submitted goes: its writer is gone. */
void op_discard(const struct fid *f);

#endif
