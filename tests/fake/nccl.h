/*
 * What tests can do with the fake NCCL beside its calls. A library of its own: these are looked up
 * with dlsym or ctypes. It works on the memory and the streams of the fake CUDA runtime
 * ($DDIP_CUDART). Ranks are processes, which meet in a file that the communicator's id names.
 * Words of $FAKE_NCCL, divided by blanks:
 *   fail=CALL:ERROR[:AFTER[:TIMES]]  as fake_nccl_fail()
 *   slow=A-B:MICROSECONDS            each piece from rank A to rank B takes so much longer
 *   wrong=A-B                        the first byte of each piece from A to B is another one
 *   async=ERROR                      ncclCommGetAsyncError tells this once all ranks are there
 */
#ifndef FAKE_NCCL_H
#define FAKE_NCCL_H

struct ncclComm;

/* The call of this name fails with this error, after `after` more that work, `times` times (-1:
 * always). */
void fake_nccl_fail(const char *call, unsigned error, int after, int times);
/* Communicators of this process: that were made, that are not freed, and that were aborted. */
int fake_nccl_made(void);
int fake_nccl_live(void);
int fake_nccl_aborted(void);
int fake_nccl_revoked(void);
/* Blocks until no operation of this communicator is under way. */
void fake_nccl_wait(struct ncclComm *c);
/* ncclCommRevoke (1) does not return, (0) does. */
void fake_nccl_stall_revoke(int on);
int fake_nccl_stalled(void); /* calls that do not return for that */

#endif
