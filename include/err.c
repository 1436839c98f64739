/* Makes errors: errno and text together. */
#include "err.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>

static int
vfail(struct err *e, int no, const char *fmt, va_list ap)
{
	if (e) {
		e->no = no;
		vsnprintf(e->text, sizeof(e->text), fmt, ap);
	}
	return -no;
}

int
fail(struct err *e, int no, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vfail(e, no, fmt, ap);
	va_end(ap);
	return -no;
}

int
fail_errno(struct err *e, const char *fmt, ...)
{
	int no = errno;
	va_list ap;

	va_start(ap, fmt);
	vfail(e, no, fmt, ap);
	va_end(ap);
	if (e) {
		size_t n = strlen(e->text);

		snprintf(e->text + n, sizeof(e->text) - n, ": %s", strerrordesc_np(no));
	}
	return -no;
}

const char *
err_name(int no)
{
	static _Thread_local char unknown[16];
	/* two names for one number: ours is that of the manual */
	const char *name = no == EOPNOTSUPP ? "EOPNOTSUPP" : strerrorname_np(no);

	if (name)
		return name;
	snprintf(unknown, sizeof(unknown), "E%d", no);
	return unknown;
}
