/*
 * The protocol between daemon, agent, zygote and engines, after Plan 9's intro(5).
 *
 *   size[4] type[1] flags[1] slot[2] tag[4] body
 *
 * Little-endian; size counts all of the frame. In a body: 1 2 4 8 are integers of that many bytes,
 * s is a text, d are bytes, both as length[4] and then that many bytes. A T expects one R (or
 * Error) with the same tag; an N is a notice, tag 0, no answer. slot names an engine of the agent
 * (the daemon chooses it in Tspawn, and again only after its Nexit); SLOT_AGENT is the agent
 * itself. FLAG_FD: one descriptor comes with the frame (Unix sockets only). Daemon and engine are
 * of one build: another WIRE_VERSION is refused.
 *
 * An Rerror with tag 0 is the last word of an agent, or of what leads to it: why it ends now.
 *
 * The agent passes messages to and from an engine on without looking inside, with two exceptions.
 * Before it passes on a Trun (or Tput, Tinit …: any T with FLAG_MARK), it drains the engine's pipes
 * and sends Nmark. Before it passes on an R with FLAG_MARK, it drains them and writes the place
 * into the last 32 bytes of the R.
 *
 * Nmany is one message to, or of, many engines of a host: frame is a whole one without a
 * descriptor, whose own slot and tag say nothing; who has slot[2] tag[4] of each engine, and as
 * many bytes as tail says, which are the last ones of the frame's body for it. It stands for its
 * messages in this order.
 *
 * Nintr is one SIGINT. Nsignalled answers it as soon as it has arrived, which may be never: raised
 * 1, KeyboardInterrupt was raised in the cell's code, whose `except` and `finally` run now, however
 * long they take; raised 0, the main thread runs Python and the signal went to a handler of the
 * program's own (or it ignores SIGINT). No Nsignalled: the main thread is in C code that checks no
 * signals, such as a collective, or it blocks SIGINT. 0 may be followed by 1. No Nsignalled comes
 * once the cell is over.
 */
#ifndef WIRE_H
#define WIRE_H
#include "err.h"

enum { WIRE_VERSION = 1, WIRE_HEADER = 12, WIRE_MAX = 17 << 20, SLOT_AGENT = 0xffff };

enum { FLAG_FD = 1, FLAG_MARK = 2 };

/* What the agent is told in its environment: the umask (octal) and the limit of open files
 * (decimal) of the user, which zygotes and ranks get in place of the daemon's. Not set: the agent's
 * own. */
#define ENGINE_ENV_UMASK "DDIP_UMASK"
#define ENGINE_ENV_FILES "DDIP_OPEN_FILES"

/* How a cell ended on a rank (Rrun outcome). */
enum outcome { OUT_OK, OUT_RAISED, OUT_INTERRUPTED, OUT_SYNTAX, OUT_EXIT, OUT_COUNT };

/* Numbers from here on are those of self-tests, which are interrupted as cells are. */
enum { SELFTEST_FIRST = 0x40000000 };

/* Who an engine process is (Tspawn kind). */
enum { ENGINE_RANK, ENGINE_STORE };

/* Why output is lost (Ndropped why). */
enum dropped {
	DROPPED_NO_ROOM,     /* on the disk of the agent */
	DROPPED_UNSENT,	     /* by a rank that ended, told to: not in time */
	DROPPED_NO_ROOM_HERE /* on the disk of the daemon, which a relay writes to */
};

/* What Rget brings. */
enum {
	GET_BYTES, /* head is all of it */
	GET_FD,	   /* a memfd comes with the frame: head, then its bytes */
	GET_LIVE, /* head, then size - len(head) bytes at addr in process pid, pinned until Nfree */
	GET_DEVICE, /* head, then size - len(head) bytes of GPU addr, pinned until Nfree, which
		     * Tcopy brings into the memfd that comes with the frame: the same for all
		     * objects of a rank, DEVICE_SLOTS times DEVICE_SLOT bytes, where the daemon
		     * chooses a place, and sealed against shrinking */
	GET_READ    /* head, then size - len(head) bytes that Tread brings, pinned until Nfree: of a
		     * rank on another host */
};

enum { DEVICE_SLOT = 1 << 20, DEVICE_SLOTS = 32 };

/*
 *    name     type  body         fields
 */
/* clang-format off */
#define WIRE_MESSAGES(X) \
	/* daemon and agent */ \
	X(Rerror,    1, "4sd",      "errno text traceback") \
	X(Thello,    2, "4s",       "version debug") \
	X(Rhello,    3, "44s",      "version pid host") \
	/* a zygote for (python, env, preload); env is K=V lines ended by NUL each. Rzygote: it can fork ranks */ \
	X(Tzygote,     4, "4sdss",    "zygote python env cwd preload") \
	X(Rzygote,     5, "4s",       "zygote phases") \
	X(Nrelease,  6, "4",        "zygote") /* nobody wants it any more */ \
	/* an engine at header.slot; name is the spool's in dir (the group's run directory); "" cold: fork */ \
	X(Tspawn,    8, "14ssd1",   "kind zygote dir name env cold") \
	X(Rspawn,    9, "4s",       "pid how") /* how: zygote successor cold; pid of the new process */ \
	X(Nsignal,  10, "41",       "signo all") /* to the engine (0) or to all its processes (1) */ \
	X(Nexit,    12, "44s8888",  "pid status lasterr out err disp records") /* wait(2) status; all is drained */ \
	X(Npreempted, 13, "4",      "signo") /* came to the agent: who runs this host may take it away soon */ \
	X(Nmark,    14, "48888",    "tag out err disp records") /* the T with this tag is passed on now */ \
	X(Nmany,    18, "1dd",      "tail who frame") /* see above */ \
	X(Ndropped, 16, "81",       "bytes why") /* output lost (enum dropped) */ \
	/* a relay: packets go by a connection beside its launcher (1), or (0) by the launcher, and why */ \
	X(Ndirect,  17, "1s",       "direct why") \
	X(Tgpus,    26, "",         "") \
	X(Rgpus,    27, "d",        "gpus") /* what NVML says there: nvml_frame.h */ \
	/* agent and zygote; each Tfork brings the control socket, the Nfd before it the other descriptors */ \
	X(Tfork,    20, "1sd",      "kind name env") \
	X(Rfork,    21, "4",        "pid") \
	X(Nready,   22, "ssd",      "phases python paths") /* imports done; paths whose mtime ages it, NUL each */ \
	X(Nfd,      23, "1",        "which") /* one of the descriptors of the Tfork that follows */ \
	X(Nquit,    24, "",         "") /* end politely (engines and zygotes) */ \
	/* daemon and engine; main thread, in order */ \
	X(Nstarted,    30, "44s",      "pid port phases") /* first of each engine; port: the store's */ \
	X(Tinit,    32, "4444sd",   "rank size local generation backend env") \
	X(Rinit,    33, "sd",       "phases table") \
	X(Trun,     34, "44d",      "cell generation source") \
	X(Rrun,     35, "1dsdd48888", "outcome value error traceback table collectives out err disp records") \
	X(Tput,     36, "sss8",     "name view op size") /* FD: the bytes. Decoded and kept until Tcommit */ \
	X(Rput,     37, "",         "") \
	X(Tcommit,  38, "1",        "keep") /* 1: bind what Tput decoded, rename as Tmove said; 0: forget it */ \
	X(Rcommit,  39, "d",        "table") \
	X(Tdel,     40, "s",        "name") \
	X(Rdel,     41, "d",        "table") \
	X(Tmove,    42, "ss",       "from to") /* looked up and kept until Tcommit */ \
	X(Rmove,    43, "",         "") \
	X(Treset,   44, "",         "") /* an empty namespace */ \
	X(Rreset,   45, "d",        "table") \
	X(Trebuild, 46, "4d",       "generation env") /* a new process group, namespace kept; env: where it is, as in Tinit */ \
	X(Rrebuild, 47, "s",        "not_repaired") /* lines: what could not be repaired, and what to write */ \
	X(Nautogc,  48, "1",        "on") /* give memory back after each cell */ \
	/* an interrupt names the number; sizes: bytes, divided by blanks; lines: group/selftest.c */ \
	X(Tselftest, 54, "4s",      "number sizes") \
	X(Rselftest, 55, "d44",     "lines wrong collectives") /* wrong: elements of results */ \
	/* service threads: also while a cell runs, and beside each other */ \
	/* name: of dir and doc with attributes, "a.b.c"; op: "gpu OP" for a part that stays on its GPU if Tcombine suits it */ \
	X(Tget,     50, "sss",      "name view op") \
	X(Rget,     51, "1488d",    "kind handle addr size head") \
	X(Nfree,    52, "4",        "handle") \
	/* answered by Rget, of a part of all of them; ranks: number[4] slot[2] pid[4] each. For the relay of another host */ \
	X(Treduce,  76, "sssd",     "name view op ranks") \
	X(Ncancel,  53, "4",        "asked") /* nobody wants what the Tget, Tput … of this tag is for: soon answered, EINTR if not done */ \
	X(Thas,     58, "s",        "name") /* is there a variable of this name now? */ \
	X(Rhas,     59, "1",        "has") \
	X(Tgc,      56, "",         "") \
	X(Rgc,      57, "s",        "freed") \
	/* the I/O thread itself: answers whatever Python does */ \
	X(Tread,    60, "484",      "handle offset count") \
	X(Rread,    61, "d",        "data") \
	X(Tstack,   62, "",         "") \
	X(Rstack,   63, "s84d",     "collective microseconds count text") /* "": in none; count: done in this cell */ \
	X(Nintr,    64, "4",        "cell") /* SIGINT to the rank's processes if this cell runs */ \
	X(Npreempt, 74, "4",        "cell") /* the same by a SIGINT to the main thread alone, for which ddip.Preempted is raised */ \
	X(Nsignalled, 65, "41",     "cell raised") /* an interrupt of this cell reached Python: see above */ \
	X(Nabort,   66, "14",       "always ms") /* end collectives: 0 only if the rank is in one, for ms at least, 1 anyway */ \
	X(Tcopy,    72, "4848",     "handle offset count to") /* bytes of a GPU to this place of the memfd of GET_DEVICE */ \
	X(Rcopy,    73, "",         "") \
	/* NCCL, while the main thread has nothing to do: else EBUSY, or EINTR when it gets something */ \
	X(Tncclid,  78, "",         "") \
	X(Rncclid,  79, "d",        "id") \
	/* all ranks combine what each of them keeps under its handle. FD, of rank 0: where the result goes */ \
	X(Tcombine, 80, "4448ssd",  "handle rank ranks numbers op dtype id") \
	X(Rcombine, 81, "",         "") \
	X(Nstdin,   68, "d",        "data") \
	X(Ntaken,   69, "4",        "bytes") /* of Nstdin have reached the program, or were dropped */ \
	X(Ninput,   70, "1",        "waits") /* the rank waits for stdin (1), or no more (0) */ \
	X(Nmemory,  71, "4s",       "cell in_use") /* memory ran out in the cell; in_use: the rest of a line of events */

/* clang-format on */

enum {

#define X(name, type, format, fields) name = (type),
	WIRE_MESSAGES(X)
#undef X
};

struct msg {
	uint8_t type, flags;
	uint16_t slot;
	uint32_t tag;
	int fd; /* -1: none; else owned by who takes the message */
	const char *body;
	uint32_t len;
};

/* Appends a whole frame. Arguments by the message's format: uint32_t for 1 2 4 (promoted), uint64_t
 * for 8, struct slice for s and d. */
void wire_pack(struct buf *b, int type, int flags, unsigned slot, uint32_t tag, ...);
void wire_vpack(struct buf *b, int type, int flags, unsigned slot, uint32_t tag, va_list ap);
/* Appends Rerror to the question with this tag. */
void wire_pack_error(struct buf *b, unsigned slot, uint32_t tag, const struct err *e);
/* Appends a frame with a body that is packed already. */
void wire_pack_raw(struct buf *b, const struct msg *m);
/* Makes the whole frame at p one that no descriptor comes with. */
void wire_drop_fd(char *p);
/* The frame at p: 0 if more bytes are needed, its length, or -EBADMSG. Fills m (fd -1), which
 * points into p. */
long wire_frame(const char *p, size_t n, struct msg *m, struct err *e);
/* Fields into pointers by the format: uint8_t *, uint16_t *, uint32_t *, uint64_t *, struct slice
 * *. NULL skips a field. -EBADMSG if the body is not exactly of this form. */
int wire_unpack(const struct msg *m, struct err *e, ...);
/* For code that packs and unpacks field by field, as the module for Python does. */
void wire_put_number(struct buf *b, char field, uint64_t v); /* field: 1 2 4 8 */
void wire_put_bytes(struct buf *b, struct slice s);
/* The field at *p, which moves on: *v, and of s and d *s. False: it is longer than what is left. */
bool wire_get(char field, const char **p, size_t *left, uint64_t *v, struct slice *s);
/* The form of a message's fields and their names, divided by blanks. */
const char *wire_format(int type);
const char *wire_fields(int type);
int wire_type(const char *name); /* -1: no such message */
const char *wire_name(int type); /* NULL: no such message */
/* 'T' asks, 'R' answers, 'N' is a notice. */
char wire_kind(int type);

/* The messages that an Nmany stands for, one after the other. */
struct wire_many {
	struct msg each; /* its body may be our copy */
	struct slice who;
	size_t tail;
	char *copy; /* NULL: all have the same body */
};

/* m is an Nmany, which lives as long. -EBADMSG: it is none such. */
int wire_many_begin(struct wire_many *it, const struct msg *m, struct err *e);
/* False: there are no more. What m points to lives until the next call. */
bool wire_many_next(struct wire_many *it, struct msg *m);
void wire_many_end(struct wire_many *it);
/* An engine of who, with as many bytes of a tail as the Nmany says. */
void wire_many_add(struct buf *who, unsigned slot, uint32_t tag, struct slice tail);

/* "Trun slot=1 tag=5 cell=17 generation=1 source='x = 1…'", for trace and debug. */
void wire_print(const struct msg *m, struct buf *out);

#endif
