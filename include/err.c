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

static int
vfail_errno(struct err *e, int no, const char *hint, const char *fmt, va_list ap)
{
	vfail(e, no, fmt, ap);
	if (e) {
		size_t n = strlen(e->text);

		snprintf(e->text + n, sizeof(e->text) - n, ": %s%s", strerror(no), hint);
	}
	return -no;
}

int
fail_errno(struct err *e, const char *fmt, ...)
{
	int no = errno;
	va_list ap;

	va_start(ap, fmt);
	vfail_errno(e, no, "", fmt, ap);
	va_end(ap);
	return -no;
}

int
fail_start(struct err *e, const char *fmt, ...)
{
	int no = errno;
	va_list ap;

	va_start(ap, fmt);
	vfail_errno(e, no,
	    no == EAGAIN ? ": see ulimit -u, pids.max of its cgroup, kernel.threads-max" : "", fmt,
	    ap);
	va_end(ap);
	return -no;
}

/* clang-format off */
/* glibc provides these names since 2.32. If two names share a number, we use the one in the
 * manual. */
#define E(name) [name] = #name
static const char *const names[] = {
	[0] = "0",
	E(EPERM), E(ENOENT), E(ESRCH), E(EINTR), E(EIO), E(ENXIO), E(E2BIG), E(ENOEXEC), E(EBADF),
	E(ECHILD), E(EAGAIN), E(ENOMEM), E(EACCES), E(EFAULT), E(ENOTBLK), E(EBUSY), E(EEXIST),
	E(EXDEV), E(ENODEV), E(ENOTDIR), E(EISDIR), E(EINVAL), E(ENFILE), E(EMFILE), E(ENOTTY),
	E(ETXTBSY), E(EFBIG), E(ENOSPC), E(ESPIPE), E(EROFS), E(EMLINK), E(EPIPE), E(EDOM), E(ERANGE),
	E(EDEADLK), E(ENAMETOOLONG), E(ENOLCK), E(ENOSYS), E(ENOTEMPTY), E(ELOOP), E(ENOMSG), E(EIDRM),
	E(ECHRNG), E(EL2NSYNC), E(EL3HLT), E(EL3RST), E(ELNRNG), E(EUNATCH), E(ENOCSI), E(EL2HLT),
	E(EBADE), E(EBADR), E(EXFULL), E(ENOANO), E(EBADRQC), E(EBADSLT), E(EBFONT), E(ENOSTR),
	E(ENODATA), E(ETIME), E(ENOSR), E(ENONET), E(ENOPKG), E(EREMOTE), E(ENOLINK), E(EADV),
	E(ESRMNT), E(ECOMM), E(EPROTO), E(EMULTIHOP), E(EDOTDOT), E(EBADMSG), E(EOVERFLOW),
	E(ENOTUNIQ), E(EBADFD), E(EREMCHG), E(ELIBACC), E(ELIBBAD), E(ELIBSCN), E(ELIBMAX),
	E(ELIBEXEC), E(EILSEQ), E(ERESTART), E(ESTRPIPE), E(EUSERS), E(ENOTSOCK), E(EDESTADDRREQ),
	E(EMSGSIZE), E(EPROTOTYPE), E(ENOPROTOOPT), E(EPROTONOSUPPORT), E(ESOCKTNOSUPPORT),
	E(EOPNOTSUPP), E(EPFNOSUPPORT), E(EAFNOSUPPORT), E(EADDRINUSE), E(EADDRNOTAVAIL), E(ENETDOWN),
	E(ENETUNREACH), E(ENETRESET), E(ECONNABORTED), E(ECONNRESET), E(ENOBUFS), E(EISCONN),
	E(ENOTCONN), E(ESHUTDOWN), E(ETOOMANYREFS), E(ETIMEDOUT), E(ECONNREFUSED), E(EHOSTDOWN),
	E(EHOSTUNREACH), E(EALREADY), E(EINPROGRESS), E(ESTALE), E(EUCLEAN), E(ENOTNAM), E(ENAVAIL),
	E(EISNAM), E(EREMOTEIO), E(EDQUOT), E(ENOMEDIUM), E(EMEDIUMTYPE), E(ECANCELED), E(ENOKEY),
	E(EKEYEXPIRED), E(EKEYREVOKED), E(EKEYREJECTED), E(EOWNERDEAD), E(ENOTRECOVERABLE), E(ERFKILL),
	E(EHWPOISON),
};
/* clang-format on */
#undef E

const char *
err_name(int no)
{
	static _Thread_local char unknown[16];

	if (no >= 0 && no < (int)ARRAY_LEN(names) && names[no])
		return names[no];
	snprintf(unknown, sizeof(unknown), "E%d", no);
	return unknown;
}
