/*
 * What tests can do with the fake NCCL besides calling it. It is a separate library: look these
 * functions up with dlsym or ctypes. It works on the memory and the streams of the fake CUDA
 * runtime ($DDIP_CUDART). Ranks are processes, which meet in the file that the communicator's id
 * names. Words of $FAKE_NCCL, separated by blanks:
 *   fail=CALL:ERROR[:AFTER[:TIMES]]  as fake_nccl_fail()
 *   slow=A-B:MICROSECONDS            each piece from rank A to rank B takes this much longer
 *   wrong=A-B                        the first byte of each piece from A to B is corrupted
 *   async=ERROR                      ncclCommGetAsyncError returns this once all ranks have joined
 */
#ifndef FAKE_NCCL_H
#define FAKE_NCCL_H

struct ncclComm;

/* After `after` more successful calls, the call of this name fails with this error `times` times
 * (-1: always). */
void fake_nccl_fail(const char *call, unsigned error, int after, int times);
/* Number of communicators of this process: created, not yet freed, aborted, revoked. */
int fake_nccl_made(void);
int fake_nccl_live(void);
int fake_nccl_aborted(void);
int fake_nccl_revoked(void);
/* Blocks until no operation of this communicator is in flight. */
void fake_nccl_wait(struct ncclComm *c);
/* 1: ncclCommRevoke blocks; 0: it returns. */
void fake_nccl_stall_revoke(int on);
int fake_nccl_stalled(void); /* calls that are blocked by that */

#endif
