/* G/stall: open waits for a sample of all ranks. group/stall.c generates the text. */
#include "tree/stall_file.h"
#include "group/stall.h"
#include <errno.h>

static void
on_sample(void *arg, struct slice text)
{
	struct req *r = arg;

	buf_add(&r->file->text, text.p, text.n);
	req_done(r, 0);
}

static void
open_interrupted(struct req *r, enum interrupt how)
{
	stall_cancel(r->waits_for);
	req_done(r, -EINTR);
}

static int
ask(struct file *f, struct req *r, enum record_form form)
{
	int parked = req_park(r, open_interrupted);

	r->waits_for = stall_prepare(f->node->at.g, form, 0, on_sample, r);
	stall_ask(r->waits_for);
	return parked;
}

static int
open_text(struct file *f, struct req *r)
{
	return ask(f, r, RECORD_WORDS);
}

static int
open_json(struct file *f, struct req *r)
{
	return ask(f, r, RECORD_JSON);
}

const struct file_ops stall_file_ops = {.open = open_text};
const struct file_ops stall_file_json_ops = {.open = open_json};
