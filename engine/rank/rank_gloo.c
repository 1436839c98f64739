/*
 * Replaces calls of libtorch into the C library in a rank.
 *
 * writev: gloo loses a send. When a peer dies, gloo's Pair::write gets EPIPE or ECONNRESET and puts
 * the operation back into its queue; Pair::signalException, which runs next, notifies all
 * operations except those in that queue (gloo/transport/tcp/pair.cc). A wait for that send would
 * never end, and no socket is left to shut down. So a write to a dead peer succeeds here, as it
 * would have a moment earlier, when the kernel still accepted the bytes; the next receive reports
 * that the connection is closed.
 *
 * socket, accept, accept4: record the sockets that torch creates, so that those of the program are
 * left alone when a rank is unblocked (rank_unblock.c). A stranger's connection is not accepted
 * (rank_accept.c).
 *
 * libtorch makes these calls through the slots of its procedure linkage table, which are patched
 * here.
 */
#define _GNU_SOURCE
#include "rank/rank.h"
#include <errno.h>
#include <link.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

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

static int
make_socket(int domain, int type, int protocol)
{
	int fd = socket(domain, type, protocol);

	rank_unblock_remember(fd);
	return fd;
}

typedef void function(void);

enum { SLOT_WRITEV, SLOT_SOCKET, SLOT_ACCEPT, SLOT_ACCEPT4, SLOTS };

static const struct {
	const char *name;
	function *ours;
} slots[SLOTS] = {
    [SLOT_WRITEV] = {"writev", (function *)write_or_forget},
    [SLOT_SOCKET] = {"socket", (function *)make_socket},
    [SLOT_ACCEPT] = {"accept", (function *)rank_accept},
    [SLOT_ACCEPT4] = {"accept4", (function *)rank_accept4},
};

/* The tables of calls into other libraries, from the dynamic section. */
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

/* Is the page in the part of the library that the loader has made read-only (-z relro)? The loader
 * leaves out an incomplete last page. */
static bool
is_read_only(const struct dl_phdr_info *info, uintptr_t page, size_t page_size)
{
	for (int i = 0; i < info->dlpi_phnum; i++) {
		const ElfW(Phdr) *p = &info->dlpi_phdr[i];
		uintptr_t from = (info->dlpi_addr + p->p_vaddr) & ~(page_size - 1);
		uintptr_t end = (info->dlpi_addr + p->p_vaddr + p->p_memsz) & ~(page_size - 1);

		if (p->p_type == PT_GNU_RELRO && page >= from && page < end)
			return true;
	}
	return false;
}

static bool
change_slot(const struct dl_phdr_info *info, function **slot, function *ours)
{
	size_t size = (size_t)sysconf(_SC_PAGESIZE);
	uintptr_t page = (uintptr_t)slot & ~(size - 1);
	bool read_only = is_read_only(info, page, size);

	if (read_only && mprotect((void *)page, size, PROT_READ | PROT_WRITE) < 0)
		return false;
	*slot = ours;
	if (read_only && mprotect((void *)page, size, PROT_READ) < 0)
		note("a page of libtorch stays writable: %s", strerror(errno));
	return true;
}

/* Is it the library that contains gloo and the store, in whatever directory? */
static bool
is_libtorch(const char *path)
{
	const char *base = strrchr(path, '/');

	base = base ? base + 1 : path;
	return strcmp(base, "libtorch_cpu.so") == 0 || strcmp(base, "libtorch.so") == 0;
}

static int
mend_library(struct dl_phdr_info *info, size_t size, void *arg)
{
	bool *mended = arg;

	if (!is_libtorch(info->dlpi_name))
		return 0;
	for (int i = 0; i < info->dlpi_phnum; i++) {
		struct calls c;

		if (info->dlpi_phdr[i].p_type != PT_DYNAMIC)
			continue;
		c = calls_of((const void *)(info->dlpi_addr + info->dlpi_phdr[i].p_vaddr));
		for (size_t k = 0; c.slots && c.symbols && c.strings && k < c.n; k++) {
			const ElfW(Sym) *s = &c.symbols[ELF64_R_SYM(c.slots[k].r_info)];
			void *at = (void *)(info->dlpi_addr + c.slots[k].r_offset);

			for (size_t n = 0; n < SLOTS; n++)
				if (strcmp(c.strings + s->st_name, slots[n].name) == 0)
					mended[n] |= change_slot(info, at, slots[n].ours);
		}
	}
	return 0;
}

unsigned
rank_gloo_mend(void)
{
	bool mended[SLOTS] = {false};

	dl_iterate_phdr(mend_library, mended);
	if (mended[SLOT_SOCKET] && (mended[SLOT_ACCEPT] || mended[SLOT_ACCEPT4]))
		rank_unblock_remembers();
	return (mended[SLOT_WRITEV] && mended[SLOT_SOCKET] ? GLOO_SENDS : 0) |
	       (mended[SLOT_ACCEPT] ? GLOO_ACCEPTS : 0);
}
