/*
 * What NVML reports of this host's GPUs. A child process queries it, because a driver may be slow
 * or never respond. The child stays for a while: initializing NVML takes about 100 ms.
 */
#define _GNU_SOURCE
#include "agent/agent.h"
#include "agent/nvml.h"
#include "proc.h"
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

enum { STAY_MS = 10000 }; /* after the last answer */

/* ---- the child ---- */

static struct loop *loop;
static struct conn *up;
static struct nvml_gpu *list; /* does not change while NVML is open */
static size_t n;
static bool is_open;

static uint32_t
or_zero(int v)
{
	return (uint32_t)v + 1u;
}

static void
pack_gpu(size_t i, struct buf *out)
{
	uint32_t card = 0;

	while (card < i && list[card].card != list[i].card)
		card++;
	wire_pack(out, Ngpu, 0, SLOT_AGENT, 0, (uint32_t)list[i].index, or_zero(list[i].mig),
	    (uint32_t)list[i].split, card, slice_text(list[i].uuid), slice_text(list[i].name));
}

static void
pack_use(const struct nvml_gpu *gpu, struct buf *out)
{
	struct buf processes = {0};
	struct nvml_use u;

	nvml_use(gpu, &u);
	for (int i = 0; i < u.n; i++) {
		wire_put_number(&processes, '4', u.process[i].pid);
		wire_put_number(&processes, '8', u.process[i].bytes);
	}
	wire_pack(out, Nuse, 0, SLOT_AGENT, 0, (uint32_t)u.has_memory, u.used, u.total,
	    or_zero(u.util), or_zero(u.temp), or_zero(u.milliwatts), or_zero(u.mhz),
	    (uint32_t)(u.n >= 0), ((struct slice){processes.p, processes.n}), slice_text(u.error));
	buf_free(&processes);
	free(u.process);
}

/* Opens NVML, unless it is open. */
static void
look(struct err *why)
{
	*why = (struct err){0};
	if (is_open || nvml_open(why) < 0)
		return;
	is_open = nvml_list(&list, &n, why) == 0;
	if (!is_open)
		nvml_close();
}

static void
on_question(void *arg, struct msg *m)
{
	const char *visible = getenv("CUDA_VISIBLE_DEVICES");
	struct buf gpus = {0};
	struct err why;
	uint8_t use = 0;

	look(&why);
	wire_unpack(m, Tgpus, NULL, &use);
	for (size_t i = 0; i < n; i++) {
		pack_gpu(i, &gpus);
		if (use)
			pack_use(&list[i], &gpus);
	}
	conn_send(up, Rgpus, 0, m->slot, m->tag, -1, (uint32_t)why.no,
	    slice_text(why.no ? why.text : ""), (uint32_t)(visible != NULL),
	    slice_text(visible ? visible : ""), ((struct slice){gpus.p, gpus.n}));
	buf_free(&gpus);
}

static void
on_eof(void *arg, const struct err *why)
{
	loop_stop(loop);
}

int
gpus_main(void)
{
	proc_close_from(3); /* what is the agent's */
	prctl(PR_SET_NAME, "ddip-gpus");
	note_as("ddip-gpus");
	loop = loop_new();
	up = conn_new(loop, 0, 0, on_question, on_eof, NULL);
	loop_run(loop);
	if (is_open)
		nvml_close();
	return 0;
}

/* ---- the agent's side: it passes questions and answers on ---- */

static struct conn *child; /* NULL: there is none */
static uint64_t asked;	   /* tag of the question that the child has not answered; 0: none */
static struct timer *leave;

static void
end_child(void *arg)
{
	leave = NULL;
	conn_free(child); /* it exits at the end of its input */
	child = NULL;
}

static void
on_answer(void *arg, struct msg *m)
{
	asked = 0;
	leave = loop_timer(agent.loop, STAY_MS, end_child, NULL);
	conn_forward(agent.up, m);
}

static void
on_end(void *arg, const struct err *why)
{
	struct err e;

	loop_timer_del(leave);
	end_child(NULL);
	fail(&e, EIO, "the process that asks NVML has ended");
	if (asked)
		agent_refuse(SLOT_AGENT, asked, &e);
	asked = 0;
}

/* Runs between fork and exec: only calls that need no lock. */
_Noreturn static void
become(int fd, pid_t parent)
{
	char self[] = "/proc/self/exe", program[] = "ddip-engine", option[] = "--gpus";
	char *argv[] = {program, option, NULL};
	sigset_t none;

	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() == parent && dup2(fd, 0) == 0)
		execv(self, argv);
	_exit(1);
}

/* Starts the child. Returns 0, or -errno with *e set. */
static int
start(struct err *e)
{
	pid_t us = getpid(), pid;
	int ends[2] = {-1, -1};

	pid = socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) < 0 ||
		      fault("gpus.fork", EAGAIN)
		  ? -1
		  : fork();
	if (pid < 0) {
		fail_start(e, "a process that asks NVML");
		close(ends[0]);
		close(ends[1]);
		return -e->no;
	}
	if (pid == 0)
		become(ends[1], us);
	close(ends[1]);
	child = conn_new(agent.loop, ends[0], ends[0], on_answer, on_end, NULL);
	return 0;
}

void
gpus_ask(struct msg *m)
{
	struct err e;

	if (asked) {
		fail(&e, EBUSY, "NVML has not answered the last question");
		agent_refuse(SLOT_AGENT, m->tag, &e);
		return;
	}
	if (!child && start(&e) < 0) {
		agent_refuse(SLOT_AGENT, m->tag, &e);
		return;
	}
	loop_timer_del(leave);
	leave = NULL;
	asked = m->tag;
	conn_forward(child, m);
}
