/* Calls: created, parked, answered. The front end for requests that arrive over 9P. */
#include "ninep/call.h"
#include "base/ahead.h"
#include "base/daemon.h"
#include "front/open_file.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { DATA_HEAD = NINEP_HEADER + 4 };

static void
call_free(struct call *c)
{
	struct connection *conn = c->conn;

	TAILQ_REMOVE(&conn->calls, c, link);
	conn->call_count--;
	conn->promised -= c->promised;
	if (c->waited)
		fid_unref_later(c->fid);
	else
		fid_unref(c->fid);
	if (c->walk.node)
		tree_forget(c->walk.node, 1);
	if (c->walk.asked)
		tree_forget(c->walk.asked, 1);
	free(c->walk.text);
	buf_free(&c->body);
	free(c->block);
	free(c);
	connection_changed(conn);
}

/* ---- answers ---- */

static void
put_header(char head[NINEP_HEADER], size_t size, uint8_t type, uint16_t tag)
{
	for (int i = 0; i < 4; i++)
		head[i] = (char)(size >> 8 * i);
	head[4] = (char)type;
	head[5] = (char)tag;
	head[6] = (char)(tag >> 8);
}

static void
send_body(struct call *c, uint8_t type)
{
	char head[NINEP_HEADER];

	put_header(head, NINEP_HEADER + c->body.n, type, c->tag);
	output_add(&c->conn->out, head, sizeof(head));
	if (c->body.n)
		output_add(&c->conn->out, c->body.p, c->body.n);
}

static void
send_error(struct call *c, int no)
{
	buf_clear(&c->body);
	no = front_errno(no);
	if (c->conn->dialect == NINEP_L) {
		ninep_put(&c->body, 4, (uint64_t)no);
		send_body(c, NINEP_RLERROR);
	} else {
		ninep_put_text(&c->body, c->r.err.text[0] ? c->r.err.text : strerror(no));
		send_body(c, NINEP_RERROR);
	}
}

static bool
is_lost(const struct call *c)
{
	return c->conn->lost;
}

/* Answers the Tflush calls that wait for this one, after its own reply, if it had one. */
static void
answer_flushes(struct call *c)
{
	struct call *by;

	while ((by = TAILQ_FIRST(&c->flushes))) {
		TAILQ_REMOVE(&c->flushes, by, parked_link);
		call_answer(by, 0);
	}
}

void
call_answer(struct call *c, int result)
{
	ahead_expire(); /* it may tell of a change */
	if (!is_lost(c) && result < 0)
		send_error(c, -result);
	else if (!is_lost(c))
		send_body(c, (uint8_t)(c->type + 1));
	answer_flushes(c);
	call_free(c);
}

static void
done(struct req *r, int result)
{
	struct call *c = (struct call *)r;

	front_failed(r, result);
	if (is_lost(c) && result >= 0)
		result = -ECONNRESET;
	if (c->finish)
		result = c->finish(c, result);
	if (result != PARKED)
		call_answer(c, result);
}

static void
data(struct req *r, const void *p, size_t n)
{
	struct call *c = (struct call *)r;

	ninep_put(&c->body, 4, n);
	buf_add(&c->body, p, n);
	call_answer(c, 0);
}

/* Runs on a copy thread. Makes the reply in a block that the output can own, without copying. */
static void
copied(void *arg, const char *p, ssize_t n)
{
	struct call *c = arg;

	c->block_n = n;
	if (n >= 0) {
		c->block = xmalloc(DATA_HEAD + (size_t)n);
		memcpy(c->block + DATA_HEAD, p, (size_t)n);
	}
	loop_post(daemon_.loop, &c->copied);
}

/* Runs on the loop again. */
static void
answer_copied(void *arg)
{
	struct call *c = arg;
	size_t n = (size_t)c->block_n;

	ahead_expire();
	if (c->block_n < 0 || is_lost(c)) {
		call_answer(c, c->block_n < 0 ? -req_copy_errno(c->block_n) : 0);
		return;
	}
	put_header(c->block, DATA_HEAD + n, (uint8_t)(c->type + 1), c->tag);
	for (int i = 0; i < 4; i++)
		c->block[NINEP_HEADER + i] = (char)(n >> 8 * i);
	output_give(&c->conn->out, c->block, DATA_HEAD + n);
	c->block = NULL;
	answer_flushes(c);
	call_free(c);
}

static void
copy(struct req *r, const struct source *s, uint64_t offset, size_t n)
{
	struct call *c = (struct call *)r;

	c->promised = n;
	c->conn->promised += n;
	c->copied = (struct loop_call){.fn = answer_copied, .arg = c};
	copy_later(s, offset, n, copied, c);
}

void
call_stop(void)
{
	loop_make_posted(daemon_.loop, answer_copied);
}

/* ---- waiting ---- */

static void
park(struct req *r)
{
	struct call *c = (struct call *)r;

	c->waited = true;
	TAILQ_INSERT_TAIL(&c->conn->parked, c, parked_link);
}

static void
unpark(struct req *r)
{
	struct call *c = (struct call *)r;

	TAILQ_REMOVE(&c->conn->parked, c, parked_link);
}

void
call_flush(struct call *c, struct call *by)
{
	TAILQ_INSERT_TAIL(&c->flushes, by, parked_link);
	if (c->r.parked)
		req_interrupt(&c->r, STOP_WORK);
}

void
call_end_parked(struct connection *conn)
{
	struct call *c;

	while ((c = TAILQ_FIRST(&conn->parked))) {
		enum interrupt how = c->told ? DETACH : CLIENT_ENDS;

		c->told = true;
		req_interrupt(&c->r, how);
	}
}

/* ---- the client ---- */

static pid_t
process(const struct req *r)
{
	return ((const struct call *)r)->conn->peer;
}

/* Never needed: each flush of a file says itself who closes it. */
static struct req_client
client(const struct req *r)
{
	return (struct req_client){.process = process(r)};
}

static const struct req_ops ninep_front = {
    .done = done,
    .data = data,
    .copy = copy,
    .park = park,
    .unpark = unpark,
    .process = process,
    .client = client,
};

struct call *
call_new(struct connection *conn, const struct ninep_message *m)
{
	struct call *c = xcalloc(1, sizeof(*c));

	c->r.ops = &ninep_front;
	c->r.uid = geteuid(); /* no other user may connect */
	c->conn = conn;
	c->tag = m->tag;
	c->type = m->type;
	TAILQ_INIT(&c->flushes);
	TAILQ_INSERT_TAIL(&conn->calls, c, link);
	conn->call_count++;
	return c;
}

int
call_take_fid(struct call *c, uint64_t number)
{
	struct fid *f = fid_find(&c->conn->fids, (uint32_t)number);

	if (!f)
		return fail(&c->r.err, EBADF, "unknown fid");
	c->fid = fid_ref(f);
	return 0;
}

struct call *
call_find(struct connection *conn, uint16_t tag, const struct call *self)
{
	struct call *c;

	TAILQ_FOREACH (c, &conn->calls, link)
		if (c != self && c->tag == tag)
			return c;
	return NULL;
}
