/*
 * The protocol between daemon, agent, zygote and engines, modelled on Plan 9's intro(5).
 *
 *   size[4] type[1] flags[1] slot[4] tag[8] body
 *
 * Integers are little-endian; size counts the whole frame. In the format of a body, 1 2 4 8 are
 * integers of that many bytes, s is a text and d are bytes; s and d are a length[4] and then that
 * many bytes. A T is a request: it is answered by one R (or Rerror) with the same tag. An N is a
 * notice: its tag is 0 and it is not answered. slot identifies an engine of the agent: the daemon
 * chooses it in Tspawn, and no other engine of this agent will have it. Its low 16 bits are a
 * place, the index in arrays, which is used again; the high ones count the uses of the place.
 * SLOT_AGENT is the agent itself. FLAG_FD: one descriptor comes with the frame (Unix sockets only).
 * Daemon and engine must come from the same build: a different WIRE_VERSION is refused.
 *
 * The agent forwards messages to and from an engine without looking inside, with three exceptions.
 * Before it forwards a Trun (or Tput, Tinit …: any T with FLAG_MARK), it drains the engine's pipes
 * and sends Nmark. Before it forwards an R with FLAG_MARK, it drains them and writes the position
 * in the output into the last 32 bytes of the R. If it is on another host than the daemon, it reads
 * ranks' objects itself: it answers Tread and Treduce, and an Rget becomes one of GET_READ or
 * GET_FD.
 *
 * Three streams of frames (enum lane) lead to an agent on another host, over a line. A frame on the
 * first one arrives before the frames that are sent on the others later. A
 * descriptor becomes a blob: its bytes (Nblob), which may be in any order, and then each message
 * that it would have come with (Nwith), until it is forgotten (Nforget); all on LANE_OBJECTS.
 *
 * Nmany stands for one message to, or from, many engines of a host. frame is a whole frame without
 * a descriptor; its own slot and tag are ignored. For each engine, who contains slot[4] tag[8] and
 * `tail` bytes, which replace the last bytes of the frame's body. The messages are in this order.
 *
 * Nintr is one SIGINT. Nsignalled reports that it has arrived, which may never happen. raised 1:
 * KeyboardInterrupt was raised in the cell's code, whose `except` and `finally` clauses now run,
 * however long they take, or it is held while that code is prepared or has ended. raised 0: the
 * main thread runs Python and the signal went to the program's own handler (or the program ignores
 * SIGINT). No Nsignalled: the main thread is in C code that does not check for signals, such as a
 * collective, or it blocks SIGINT. A 0 may be followed by a 1. No Nsignalled is sent once the cell
 * is over.
 */
#ifndef WIRE_H
#define WIRE_H
#include "err.h"

enum { WIRE_VERSION = 8, WIRE_HEADER = 18, WIRE_MAX = 17 << 20, SLOT_AGENT = 0xffff };

/* LANE_OBJECTS: what is large, and so is read, or made, when there is room. LANE_OUTPUT: only from
 * the agent, what ranks print and the messages with FLAG_ORDERED. */
enum lane { LANE_CONTROL, LANE_OBJECTS, LANE_OUTPUT, LANES };

enum { LANE_FD = 2 }; /* an agent that is away has lane i > 0 at descriptor LANE_FD + i */

/* Bits of the place in a slot. No engine has the place of SLOT_AGENT. */
enum { SLOT_PLACE = 16 };

static inline unsigned
slot_place(uint32_t slot)
{
	return slot & ((1u << SLOT_PLACE) - 1);
}

/* FLAG_MARK, in a request: the agent says by Nmark how much output came before it; in the answer:
 * the last WIRE_MARK bytes say that, the sizes of a rank's streams and its number of records.
 * FLAG_ORDERED: it must not overtake the marks, and so the output, before it. What the main thread
 * says has this flag, and what the agent says of the output. What a rank's other threads say has
 * not: they answer also while the output is slow. */
enum { FLAG_FD = 1, FLAG_MARK = 2, FLAG_ORDERED = 4, WIRE_MARK = 32 };

/* The user's umask (octal) and open file limit (decimal), in the agent's environment. Zygotes and
 * ranks get these in place of the daemon's. If not set, they get the agent's own. */
#define ENGINE_ENV_UMASK "DDIP_UMASK"
#define ENGINE_ENV_FILES "DDIP_OPEN_FILES"

/* How a cell ended on a rank (Rrun outcome). OUT_CUT_OFF: it raised because the operation that it
 * waited for was ended, and had taken no interrupt itself. */
enum outcome { OUT_OK, OUT_RAISED, OUT_INTERRUPTED, OUT_SYNTAX, OUT_EXIT, OUT_CUT_OFF, OUT_COUNT };

/* Why a cell is interrupted (Nintr why): decides which exception is raised in it. */
enum interrupt_why {
	WHY_USER,      /* somebody asked for it */
	WHY_TIMEOUT,   /* of the group's setting */
	WHY_PEER,      /* it ended on another rank, and `grace` has passed */
	WHY_STOPPED,   /* the group ends */
	WHY_RESTARTED, /* so does it, to begin again */
	WHY_PREEMPTED, /* the hosts are about to be taken away: SIGINT to the main thread alone */
	WHY_WRITER,    /* who wrote the cell, and waited for it, has ended */
	WHY_COUNT
};

/* Cell numbers from here on are those of self-tests, which are interrupted like cells. */
enum { SELFTEST_FIRST = 0x40000000 };

/* What counts the steps of a cell, the best first: a step of an optimizer, the forward of a model
 * that is trained, the entry of a collective of the default group. In an Nsteer, CLOCKS: the next
 * tick, whatever it is of. */
enum clock { CLOCK_OPTIMIZER, CLOCK_FORWARD, CLOCK_COLLECTIVE, CLOCKS };

/* What the expression of a watch is on a rank: it has raised. */
enum watched { WATCHED_FALSE, WATCHED_TRUE, WATCHED_FAILED, WATCHED_COUNT };

/* What Ninput says that the main thread waits for: nothing any longer, input, a password, or a
 * front end whose debugger has stopped it. */
enum input_wait { INPUT_NONE, INPUT_TEXT, INPUT_PASSWORD, INPUT_DEBUGGER };

/* What an engine process is (Tspawn kind). */
enum { ENGINE_RANK, ENGINE_STORE };

/* Why output was lost (Ndropped why). */
enum dropped {
	DROPPED_NO_ROOM, /* on the agent's disk */
	DROPPED_UNSENT	 /* the rank was told to quit; not sent in time */
};

/* What Nabort ends: collectives if the rank has been in one for ms; collectives in any case; as the
 * first, or else those of NCCL, which torch's calls only queue: a rank waits for them elsewhere;
 * the connections of a rank whose program has ended, as the end of its process would. */
enum abort { ABORT_KNOWN, ABORT_ALL, ABORT_NCCL, ABORT_ENDED };

/* What Rrun and Rselftest say of the default group's collectives: how many have completed; how many
 * have raised; whether one of them did because a connection is gone. */
enum { COLLECTIVES_DONE = 0xffffff, COLLECTIVES_RAISED = 0x3f << 24, COLLECTIVES_LOST = 1 << 30 };

/* What Rget carries. */
enum {
	/* head is the whole object */
	GET_BYTES,
	/* head, then the bytes of the memfd that comes with the frame */
	GET_FD,
	/* head, then size - len(head) bytes at addr in the rank's process, pinned until Nfree */
	GET_LIVE,
	/* head, then size - len(head) bytes of GPU addr, pinned until Nfree. Tcopy copies them into
	 * the memfd that comes with the frame. All objects of a rank share one memfd, sealed
	 * against shrinking: DEVICE_SLOTS slots of DEVICE_SLOT bytes, which the daemon assigns. */
	GET_DEVICE,
	/* head, then size - len(head) bytes to fetch by Tread, pinned until Nfree: from a rank on
	 * another host */
	GET_READ,
	/* head, then the size - len(head) bytes that "blank" in the Tget is about: the daemon has
	 * them */
	GET_HEAD
};

enum { DEVICE_SLOT = 1 << 20, DEVICE_SLOTS = 32 };

/*
 *    name     type  many  body   fields
 *
 * many: 1, many engines receive or send it at once, so that equal ones go as one (Nmany).
 */
/* clang-format off */
#define WIRE_MESSAGES(X) \
	/* ---- daemon and agent ---- */ \
	X(Rerror,    1, 0, "4sd",      "errno text traceback") \
	/* base: the directory that dir of Tspawn is in; one that is away has its own */ \
	X(Thello,    2, 0, "4s",       "version base") \
	/* away: 1, the daemon is on another host, and gets output as Noutput */ \
	X(Rhello,    3, 0, "44s1",     "version pid host away") \
	/* start a zygote for (python, env, preload); env: K=V, each NUL-terminated */ \
	X(Tzygote,     4, 0, "4sdss",    "zygote python env cwd preload") \
	/* the zygote can fork ranks */ \
	X(Rzygote,     5, 0, "4s",       "zygote phases") \
	X(Nrelease,  6, 0, "4",        "zygote") /* it is no longer needed */ \
	/* a successor has imported the modules of preload; failed: a line for each that it could \
	 * not. A zygote leaves its number to the agent. */ \
	X(Npreload, 19, 0, "4s",       "zygote failed") \
	/* start an engine at header.slot; name: of its spool in dir, the group's run directory, \
	 * which the engine has as DDIP_RUN_DIR */ \
	/* cold: 0, forked by the zygote; 1, executed as a new process */ \
	X(Tspawn,    8, 0, "14ssd1",   "kind zygote dir name env cold") \
	/* how: zygote successor cold; pid: of the new process */ \
	X(Rspawn,    9, 0, "4s",       "pid how") \
	X(Nsignal,  10, 1, "41",       "signo all") /* to the engine (0) or to all its processes (1) */ \
	/* status: from wait(2); memory: what the kernel did meanwhile for want of it; all output is \
	 * drained */ \
	X(Nexit,    12, 0, "44ss8888", "pid status memory lasterr out err disp records") \
	/* the agent received signo: this host may soon be taken away */ \
	X(Npreempted, 13, 0, "4",      "signo") \
	/* the T with this tag is forwarded now */ \
	X(Nmark,    14, 1, "88888",    "tag out err disp records") \
	X(Nmany,    18, 0, "1dd",      "tail who frame") /* see above */ \
	X(Nblob,     7, 0, "488d",     "blob size offset data") /* these three: see above */ \
	X(Nwith,    15, 0, "4d",       "blob frame") \
	X(Nforget,  17, 0, "4",        "blob") \
	/* from the agent of another host: what a rank has printed. All before a message with a mark */ \
	/* comes before that: the mark is where the daemon then is in its own files. */ \
	X(Noutput,  11, 0, "1d",       "stream data") \
	X(Ndropped, 16, 0, "81",       "bytes why") /* output lost (enum dropped) */ \
	/* a process that descends from a rank of this group which has ended, and has not ended */ \
	X(Nleft,    28, 0, "ss",       "group process") \
	/* use: 1, also what they do now */ \
	X(Tgpus,    26, 0, "1",        "use") \
	/* no, why: NVML does not work; visible: CUDA_VISIBLE_DEVICES there; gpus: an Ngpu for each */ \
	/* device, and its Nuse if asked for. Numbers that may be -1 are one greater there. */ \
	X(Rgpus,    27, 0, "4s1sd",    "no why has_visible visible gpus") \
	X(Ngpu,     29, 0, "4414ss",   "index mig split card uuid name") /* card: place of its GPU */ \
	/* processes: pid[4] bytes[8] of each */ \
	X(Nuse,     25, 0, "18844441ds", "has_memory used total util temp milliwatts mhz has_processes processes error") \
	/* ---- agent and zygote ---- */ \
	/* a Tfork carries the control socket, the Nfds before it carry the other descriptors */ \
	X(Tfork,    20, 0, "1sd",      "kind name env") \
	X(Rfork,    21, 0, "4",        "pid") \
	/* imports are done; paths: NUL-terminated, the zygote is stale if one's mtime changes */ \
	X(Nready,   22, 0, "ssd",      "phases python paths") \
	X(Nfd,      23, 0, "1",        "which") /* one of the descriptors for the next Tfork */ \
	X(Nquit,    24, 1, "",         "") /* exit in an orderly way (engines and zygotes) */ \
	/* ---- daemon and engine: main thread, in order ---- */ \
	/* first message; port: of the store; facts: lines of what its Python has, of a rank; of a \
	 * store, why it ends */ \
	X(Nstarted,    30, 0, "44ss",     "pid port phases facts") \
	X(Tinit,    32, 0, "4444sd",   "rank size local generation backend env") \
	X(Rinit,    33, 0, "sd",       "phases table") \
	X(Trun,     34, 1, "44d",      "cell generation source") \
	/* digest: lines, see digest.py */ \
	X(Rrun,     35, 1, "1dsddd48888", "outcome value error traceback table digest collectives out err disp records") \
	/* FD: the bytes; decoded, held until Tcommit */ \
	X(Tput,     36, 0, "sss8",     "name view op size") \
	X(Rput,     37, 1, "",         "") \
	/* keep: 1, bind what Tput decoded, rename what Tmove looked up; 0, discard it */ \
	X(Tcommit,  38, 1, "1",        "keep") \
	X(Rcommit,  39, 1, "d",        "table") \
	X(Tdel,     40, 1, "s",        "name") \
	X(Rdel,     41, 1, "d",        "table") \
	X(Tmove,    42, 1, "ss",       "from to") /* looked up, held until Tcommit */ \
	X(Rmove,    43, 1, "",         "") \
	X(Treset,   44, 1, "",         "") /* empty the namespace */ \
	X(Rreset,   45, 1, "d",        "table") \
	/* FD: the namespace of another rank, from its view `clone` */ \
	X(Tclone,   86, 0, "8",        "size") \
	/* failures: a line for each name that was not copied; wrapped: 1, a DistributedDataParallel */ \
	/* is new here, so that its peers need new reducers */ \
	X(Rclone,   87, 0, "dd41",     "table failures names wrapped") \
	/* a new process group, namespace kept; env as in Tinit: where the group is */ \
	X(Trebuild, 46, 0, "4d",       "generation env") \
	/* lines: what could not be repaired, and what the user can write instead */ \
	X(Rrebuild, 47, 1, "s",        "not_repaired") \
	X(Nautogc,  48, 1, "1",        "on") /* release memory after each cell */ \
	/* number: for interrupts; sizes: in bytes, separated by blanks */ \
	X(Tselftest, 54, 1, "4s",      "number sizes") \
	/* lines: see fs/group/selftest.c; wrong: wrong elements in results */ \
	X(Rselftest, 55, 0, "d44",     "lines wrong collectives") \
	/* ---- service threads: also while a cell runs, and concurrently ---- */ \
	/* name: for dir and doc with attributes, "a.b.c"; "SCOPE:a": in a frame, see frames.py */ \
	/* op: "gpu OP" for a part that may stay on its GPU if Tcombine can combine it; "blank SIZE */ \
	/* LINE", with a line of reduce.h, for GET_HEAD of a view of that object, or an empty */ \
	/* GET_BYTES if the view needs the SIZE bytes or is something else */ \
	X(Tget,     50, 0, "sss",      "name view op") \
	X(Rget,     51, 0, "1488d",    "kind handle addr size head") \
	X(Nfree,    52, 0, "4",        "handle") \
	/* to the agent of another host: answered by Rget with one part, combined from ranks: */ \
	/* number[4] slot[4] each */ \
	X(Treduce,  76, 0, "sssd",     "name view op ranks") \
	/* the Tget, Tput … with this tag is no longer wanted: it ends soon, EINTR if not done */ \
	X(Ncancel,  53, 0, "8",        "asked") \
	/* is there a variable with this name? hint: where else there is one, or "" */ \
	X(Thas,     58, 0, "s",        "name") \
	X(Rhas,     59, 0, "1s",       "has hint") \
	X(Tgc,      56, 1, "",         "") \
	X(Rgc,      57, 1, "s",        "freed") \
	/* ---- the I/O thread itself: it answers whatever Python is doing ---- */ \
	X(Tread,    60, 0, "484",      "handle offset count") \
	X(Rread,    61, 0, "d",        "data") \
	X(Tstack,   62, 1, "",         "") \
	/* collective: "" if in none; count, steps: collectives completed, and steps of optimizers, in */ \
	/* this cell; described: see flight.py, empty if Python could not be asked */ \
	X(Rstack,   63, 0, "s844dd",   "collective microseconds count steps text described") \
	/* where the main thread is at several looks, in about this time, outside of waits for other */ \
	/* ranks; or what was found in the last few seconds. text: the stacks, as faulthandler has them */ \
	X(Tlook,    88, 0, "4",        "span_ms") \
	X(Rlook,    89, 0, "4d",       "span_ms text") \
	X(Nintr,    64, 1, "41",       "cell why") /* SIGINT to the rank's processes if this cell runs; see enum interrupt_why */ \
	/* an interrupt of this cell has reached Python: see above */ \
	X(Nsignalled, 65, 1, "41",     "cell raised") \
	/* end collectives: see enum abort */ \
	X(Nabort,   66, 1, "14",       "what ms") \
	/* copy bytes of a GPU to offset `to` of GET_DEVICE's memfd */ \
	X(Tcopy,    72, 0, "4848",     "handle offset count to") \
	X(Rcopy,    73, 0, "",         "") \
	/* ---- NCCL: EBUSY unless the main thread is idle, EINTR if it gets work ---- */ \
	X(Tncclid,  78, 0, "",         "") \
	X(Rncclid,  79, 0, "d",        "id") \
	/* all ranks combine the objects of their handles; FD, rank 0 only: takes the result */ \
	X(Tcombine, 80, 0, "4448ssd",  "handle rank ranks numbers op dtype id") \
	X(Rcombine, 81, 0, "",         "") \
	X(Nstdin,   68, 0, "d",        "data") \
	X(Ntaken,   69, 0, "4",        "bytes") /* of Nstdin, read by the program or dropped */ \
	X(Ninput,   70, 0, "1",        "waits") /* enum input_wait */ \
	/* ---- steering: see fs/group/steer.h ---- */ \
	/* the source `number` shall run within the cell; until an Nsteer comes, the main thread */ \
	/* does not pass the next tick. The ticks so far in that cell, and the last time between two; */ \
	/* runs: 0, the rank does not run the cell (any longer), and waits for nothing */ \
	/* watches: the source is an expression that is evaluated at each tick from that step on */ \
	X(Tsteer,   90, 0, "441d",     "cell number watches source") \
	X(Rsteer,   91, 0, "14448",    "runs optimizer forward collective period_us") \
	/* the step at which it runs; 0: it is withdrawn */ \
	X(Nsteer,   92, 0, "414",      "number clock step") \
	/* the main thread waits at this step; 0: it has been interrupted and wants to go on */ \
	X(Nsteered, 93, 0, "414",      "number clock step") \
	/* it runs now; fields of the reply as in Rrun */ \
	X(Tsteerrun, 94, 0, "4",       "number") \
	X(Rsteerrun, 95, 0, "1dsddd48888", "outcome value error traceback table digest collectives out err disp records") \
	/* of the I/O thread: the ticks so far */ \
	X(Tsteps,   96, 0, "",         "") \
	X(Rsteps,   97, 0, "444",      "optimizer forward collective") \
	/* the main thread waits at this step for an Nwatch, or an Nsteer of step 0; what: enum watched, */ \
	/* where: FILE:N, text: of the error */ \
	X(Nwatched, 98, 0, "4141ss",   "number clock step what where text") \
	X(Nwatch,   99, 0, "4",        "number") \
	X(Nclock,  100, 1, "1",        "clock") /* counts the steps of the next cells; CLOCKS: see enum clock */ \
	/* memory ran out in the cell; in_use: the rest of a line in `events` */ \
	X(Nmemory,  71, 0, "4s",       "cell in_use") \
	X(Nknownbad, 75, 0, "s",       "why") /* a version in use is known to fail */ \
	/* how: torch's listener has `refused` a connection, or took one `unchecked`; who made it */ \
	X(Nstranger, 82, 0, "ss",      "how who") \
	/* other machines whose connections torch's listeners take: see peer.h */ \
	X(Naddresses, 84, 0, "s",      "addresses") \
	X(Npatch,   83, 0, "s",        "line") /* of `status`: see magics/ddip/patches.py */ \
	/* to the agent: the engine has sent what it never sends; from it: what it is killed for */ \
	X(Nwrong,   85, 0, "s",        "why")

/* clang-format on */

enum {

#define X(name, type, many, format, fields) name = (type),
	WIRE_MESSAGES(X)
#undef X
};

struct msg {
	uint8_t type, flags;
	uint32_t slot;
	uint64_t tag;
	int fd; /* -1: none; else owned by the receiver */
	const char *body;
	uint32_t len;
};

/* Appends a whole frame. The arguments follow the message's format: uint32_t for 1 2 4 (promoted),
 * uint64_t for 8, struct slice for s and d. */
void wire_pack(struct buf *b, int type, int flags, unsigned slot, uint64_t tag, ...);
void wire_vpack(struct buf *b, int type, int flags, unsigned slot, uint64_t tag, va_list ap);
/* Fills e with the error for a request that was cancelled by Ncancel. */
void wire_cancelled(struct err *e);
/* Appends an Rerror in reply to the request with this tag. */
void wire_pack_error(struct buf *b, unsigned slot, uint64_t tag, const struct err *e);
/* Appends a frame whose body is already packed. */
void wire_pack_raw(struct buf *b, const struct msg *m);
/* The last field of the frame at `at`, the last one in b, is d, and empty: it has the n bytes that
 * will follow. */
void wire_goes_on(struct buf *b, size_t at, size_t n);
/* Clears FLAG_FD in the frame at p: no descriptor comes with it. */
void wire_drop_fd(char *p);
/* Parses the frame at p. Returns its length, 0 if more bytes are needed, or -EBADMSG. Fills in m
 * (fd is -1), which points into p. */
long wire_frame(const char *p, size_t n, struct msg *m, struct err *e);
/* Stores the fields through pointers, by the format of `type`: uint8_t *, uint16_t *, uint32_t *,
 * uint64_t *, struct slice *. NULL skips a field. Returns -EBADMSG if m is of another type, or its
 * body does not match the format exactly. */
int wire_unpack(const struct msg *m, int type, struct err *e, ...);
/* Does the body match its format exactly? Returns 0 or -EBADMSG. */
int wire_check(const struct msg *m, struct err *e);
/* Reads the error of an Rerror into e, and its traceback (NULL: not wanted), which points into m.
 * e->no is never 0: EBADMSG if m is damaged or has no such number. */
void wire_read_error(const struct msg *m, struct err *e, struct slice *trace);
/* The type of the reply to a request, if it does not fail: the next one, but that of Treduce is an
 * Rget. */
int wire_reply(int request);
/* For code that packs and unpacks field by field, such as the Python module. */
void wire_put_number(struct buf *b, char field, uint64_t v); /* field: 1 2 4 8 */
void wire_put_bytes(struct buf *b, struct slice s);
/* Reads the field at *p into *v, and for s and d into *s, and advances *p. Returns false if the
 * field is longer than *left. */
bool wire_get(char field, const char **p, size_t *left, uint64_t *v, struct slice *s);
/* The format of a message, and the names of its fields, separated by blanks. */
const char *wire_format(int type);
const char *wire_fields(int type);
bool wire_is_many(int type);
int wire_type(const char *name); /* -1: no such message */
const char *wire_name(int type); /* NULL: no such message */
/* 'T': a request, 'R': a reply, 'N': a notice. */
char wire_kind(int type);

/* Iterates over the messages that an Nmany stands for. */
struct wire_many {
	struct msg each; /* its body may be our copy */
	struct slice who;
	size_t tail;
	char *copy; /* NULL: all have the same body */
};

/* m is an Nmany, which must outlive the iterator. Returns 0, or -EBADMSG if it is malformed. */
int wire_many_begin(struct wire_many *it, const struct msg *m, struct err *e);
/* Returns false at the end. What m points to is valid until the next call. */
bool wire_many_next(struct wire_many *it, struct msg *m);
void wire_many_end(struct wire_many *it);
/* Appends an engine to who, with a tail as long as the Nmany says. */
void wire_many_add(struct buf *who, unsigned slot, uint64_t tag, struct slice tail);

/* "Trun slot=1 tag=5 cell=17 generation=1 source='x = 1…'", for trace and debug. */
void wire_print(const struct msg *m, struct buf *out);

#endif
