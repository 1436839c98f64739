/* Tests of fs/host/host_gpus.c: what an agent says of its GPUs is kept, and it is told when that is
 * old. The test plays the agent, see fake_agent.h. */
#include "fake_agent.h"
#include "host/host_gpus.h"
#include <errno.h>
#include <stdlib.h>

static void
add_gpu(struct buf *rows, uint32_t index, uint32_t util)
{
	char *uuid = xasprintf("GPU-%u", index);

	wire_pack(rows, Ngpu, 0, 0, 0, index, (uint32_t)(NVML_WHOLE + 1), (uint32_t)0, (uint32_t)0,
	    slice_text(uuid), slice_text("fake"));
	wire_pack(rows, Nuse, 0, 0, 0, (uint32_t)1, (uint64_t)2, (uint64_t)3, util + 1, (uint32_t)0,
	    (uint32_t)0, (uint32_t)0, (uint32_t)1, slice_text(""), slice_text(""));
	free(uuid);
}

/* Takes the question for what GPUs do. */
static const struct fake_msg *
asked(struct agent *a)
{
	const struct fake_msg *m;
	uint8_t use = 0;

	host_gpus_ask(a, true);
	fake_step();
	m = fake_take(Tgpus, FAKE_AGENT);
	CHECK(m && wire_unpack(&m->m, Tgpus, NULL, &use) == 0 && use == 1);
	CHECK(host_gpus_is_asked(a) && !host_gpus_is_fresh(a));
	return m;
}

static void
answer(const struct fake_msg *m, const char *gpus, uint32_t util)
{
	struct buf rows = {0};

	for (; *gpus; gpus++)
		add_gpu(&rows, (uint32_t)(*gpus - '0'), util);
	fake_answer(m, Rgpus, (uint32_t)0, fake_slice(""), (uint32_t)0, fake_slice(""),
	    ((struct slice){rows.p, rows.n}));
	buf_free(&rows);
}

/* "0=17 1=17!": the GPUs with their utilization, ! for an error of their own; then why that is old.
 */
static const char *
said(const struct agent *a)
{
	static struct buf b;
	char label[GPUS_LABEL];
	struct gpus gpus;
	struct err why;

	buf_clear(&b);
	host_gpus_chosen(a, "all", &gpus, &why);
	buf_adds(&b, why.no ? why.text : "");
	for (int i = 0; i < gpus.n; i++) {
		const struct nvml_use *u = host_gpus_seen(a, gpus.gpu[i]);

		buf_addf(&b, "%s%s=%d%s", i ? " " : "", gpus_label(gpus.gpu[i], label),
		    u ? u->util : -2, u && *u->error ? "!" : "");
	}
	if (host_gpus_is_old(a))
		buf_addf(&b, "; %s", host_gpus_is_old(a));
	return b.n ? b.p : "";
}

int
main(void)
{
	const struct fake_msg *m;
	struct agent *a;

	fake_begin(2);
	a = agent_here();
	CHECK_STR(said(a), "no NVML; no NVML");
	fake_mute = true;
	answer(asked(a), "012", 17);
	CHECK_STR(said(a), "0=17 1=17 2=17");
	CHECK(host_gpus_is_fresh(a) && host_gpus_is_known(a));
	fake_pass(1);
	CHECK(!host_gpus_is_fresh(a));
	/* a GPU that is lost keeps its place: ranks are numbered by them */
	answer(asked(a), "02", 18);
	CHECK_STR(said(a), "0=18 1=-1! 2=18");
	answer(asked(a), "012", 19);
	CHECK_STR(said(a), "0=19 1=19 2=19");
	/* a question without an answer blocks no second reader */
	m = asked(a);
	fake_pass(4);
	CHECK(host_gpus_is_fresh(a) && !host_gpus_is_asked(a));
	CHECK_STR(said(a), "0=19 1=19 2=19; NVML does not answer: this is what it said before");
	host_gpus_ask(a, true);
	fake_step();
	CHECK(fake_count(Tgpus, FAKE_AGENT) == 0);
	answer(m, "012", 20);
	CHECK_STR(said(a), "0=20 1=20 2=20");
	/* NVML fails, the agent refuses, the answer is damaged: the GPUs stay */
	fake_answer(asked(a), Rgpus, (uint32_t)EIO, fake_slice("mismatch"), (uint32_t)0,
	    fake_slice(""), fake_slice(""));
	CHECK_STR(said(a), "0=20 1=20 2=20; mismatch");
	fake_refuses(asked(a), EAGAIN, "no process");
	CHECK_STR(said(a), "0=20 1=20 2=20; no process");
	fake_answer(asked(a), Rgpus, (uint32_t)0, fake_slice(""), (uint32_t)0, fake_slice(""),
	    fake_slice("\x0d\0\0\0\x1dxxxxxxxx"));
	CHECK(strstr(said(a), "0=20 1=20 2=20; wire: ") != NULL);
	answer(asked(a), "012", 21);
	CHECK_STR(said(a), "0=21 1=21 2=21");
	fake_mute = false;
	fake_end();
	return CHECK_DONE();
}
