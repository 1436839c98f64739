/*
 * The ring that a rank shares with its agent (a memfd): it carries the bytes that Python prints.
 *
 * One ring serves all kinds (stdout, stderr, display), so their order is kept: `switches` records
 * of which kind the bytes from a position on are. The rank writes tail, the agent head. The bytes
 * before tail belong to the agent, whatever happens to the rank: a SIGKILL neither loses nor
 * duplicates any. The agent does not trust what it reads here: user code could overwrite it.
 */
#ifndef OUTPUT_RING_H
#define OUTPUT_RING_H
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum { RING_KINDS = 3, RING_SIZE = 256 << 10, RING_SWITCHES = 1024, RING_POLL_MS = 2 };

/* By these variables an exec'ed engine finds what the agent gave it (numbers are decimal). */
#define ENGINE_ENV_CTL "DDIP_FD_CTL"
#define ENGINE_ENV_WAKEUP "DDIP_FD_WAKEUP"
#define ENGINE_ENV_RING "DDIP_FD_RING"
#define ENGINE_ENV_DISPLAY "DDIP_FD_DISPLAY"
#define ENGINE_ENV_AGENT "DDIP_AGENT_PID"
#define ENGINE_ENV_KIND "DDIP_KIND"
#define ENGINE_ENV_NAME "DDIP_NAME"

/* Which descriptor an Nfd carries, before Tfork (which carries the control socket itself). */
enum engine_fd {
	ENGINE_FD_OUT,
	ENGINE_FD_ERR,
	ENGINE_FD_DISPLAY,
	ENGINE_FD_RING,
	ENGINE_FD_WAKEUP,
	ENGINE_FDS
};

/* Tfork kinds in addition to ENGINE_RANK and ENGINE_STORE: a zygote that takes over, and a process
 * that later becomes, without a fork, what the next Tfork on its own socket requests. */
enum { ENGINE_SUCCESSOR = 2, ENGINE_SPARE };

struct ring_switch {
	_Atomic uint64_t position;
	_Atomic uint32_t kind;
};

struct output_ring {
	/* Written by the agent. */
	_Alignas(64) _Atomic uint64_t head; /* bytes before it are in the spool */
	_Atomic uint32_t switch_head;
	_Atomic uint32_t epoch; /* incremented at each look; a futex for waiters */
	/* Incremented each time the agent sees that stream's pipe empty. */
	_Atomic uint32_t drained[RING_KINDS];
	/* Written by the rank. */
	_Alignas(64) _Atomic uint64_t tail;
	_Atomic uint32_t switch_tail;
	/* Written by both. watching: the agent looks again by itself and need not be woken. urgent:
	 * it was woken to look now. waiting: a thread of the rank sleeps on epoch. */
	_Alignas(64) _Atomic uint32_t watching;
	_Atomic uint32_t urgent, waiting;
	struct ring_switch switches[RING_SWITCHES];
	_Alignas(4096) char ring[RING_SIZE];
};

#endif
