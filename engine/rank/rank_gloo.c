/*
 * A send that gloo forgets.
 *
 * When a peer dies, gloo's Pair::write meets EPIPE or ECONNRESET and puts the operation back into
 * its queue; Pair::signalException, which comes next, tells everybody but that queue
 * (gloo/transport/tcp/ pair.cc). Who waits for such a send waits for ever, and no socket is left to
 * be shut down. So a write to a peer that is gone succeeds here, as it would have a moment earlier,
 * when the kernel still took the bytes: the next receive says that the connection is closed.
 *
 * libtorch calls writev(2) through a slot of its procedure linkage table; that slot is changed.
 */
#define _GNU_SOURCE
#include "rank/rank.h"
#include <errno.h>
#include <link.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

typedef ssize_t writev_fn(int fd, const struct iovec *iov, int n);

static ssize_t
write_or_forget(int fd, const struct iovec *iov, int n)
{
	ssize_t k = writev(fd, iov, n), all = 0;

	if (k >= 0 || (errno != EPIPE && errno != ECONNRESET))
		return k;
	debug("cell", "socket %d: a send to a peer that is gone", fd);
	for (int i = 0; i < n; i++)
		all += (ssize_t)iov[i].iov_len;
	return all;
}

/* What the dynamic section says of calls into other libraries. */
struct calls {
	const ElfW(Rela) * slots;
	size_t n;
	const ElfW(Sym) * symbols;
	const char *strings;
};

static struct calls
calls_of(const ElfW(Dyn) * d)
{
	struct calls c = {0};

	for (; d->d_tag != DT_NULL; d++) {
		switch (d->d_tag) {
		case DT_JMPREL:
			c.slots = (const void *)d->d_un.d_ptr;
			break;
		case DT_PLTRELSZ:
			c.n = d->d_un.d_val / sizeof(*c.slots);
			break;
		case DT_SYMTAB:
			c.symbols = (const void *)d->d_un.d_ptr;
			break;
		case DT_STRTAB:
			c.strings = (const void *)d->d_un.d_ptr;
			break;
		}
	}
	return c;
}

static bool
change_slot(writev_fn **slot)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	void *at = (void *)((uintptr_t)slot & ~(page - 1));

	/* it is read-only where the library was linked with -z now, and stays writable now */
	if (mprotect(at, page, PROT_READ | PROT_WRITE) < 0)
		return false;
	*slot = write_or_forget;
	return true;
}

static int
mend_library(struct dl_phdr_info *info, size_t size, void *arg)
{
	bool *mended = arg;

	if (!strstr(info->dlpi_name, "libtorch"))
		return 0;
	for (int i = 0; i < info->dlpi_phnum; i++) {
		struct calls c;

		if (info->dlpi_phdr[i].p_type != PT_DYNAMIC)
			continue;
		c = calls_of((const void *)(info->dlpi_addr + info->dlpi_phdr[i].p_vaddr));
		for (size_t k = 0; c.slots && c.symbols && c.strings && k < c.n; k++) {
			const ElfW(Sym) *s = &c.symbols[ELF64_R_SYM(c.slots[k].r_info)];

			if (strcmp(c.strings + s->st_name, "writev") == 0)
				*mended |=
				    change_slot((void *)(info->dlpi_addr + c.slots[k].r_offset));
		}
	}
	return 0;
}

bool
rank_gloo_mend(void)
{
	bool mended = false;

	dl_iterate_phdr(mend_library, &mended);
	return mended;
}
