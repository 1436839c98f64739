/* What each message does: one function per message in the table of message.h. */
#ifndef OPS_H
#define OPS_H
#include "ninep/call.h"

/* f: the fields of its body. Returns 0 with the reply in c->body, -errno, or PARKED if the call is
 * answered elsewhere. */
typedef int ninep_op_fn(struct call *c, struct ninep_field *f);

#define X(name, type, dialect, format, fields) ninep_op_fn op_##name;
NINEP_MESSAGES(X)
#undef X

/* Makes the result of a tree operation that of the call, immediately or, if PARKED, later. Returns
 * PARKED. */
int op_settle(struct call *c, int result);
/* Renames the file of the call's fid within its directory. */
int op_rename_in_place(struct call *c, struct slice to);
/* Reads an open directory, for 9P2000. */
int op_read_dir(struct call *c, uint64_t offset, size_t count);
/* Discards what was written to f and not submitted: its writer is gone. */
void op_discard(const struct fid *f);

#endif
