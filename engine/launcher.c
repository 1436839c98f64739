/*
 * Loads the user's Python unchanged. If the interpreter is a thin program over libpythonX.Y.so,
 * this process takes its place (dlopen of that library, then Py_BytesMain with the interpreter's
 * argv[0], by which Python finds a virtual environment). A static interpreter is executed, because
 * it is faster than its distribution's shared library.
 */
#define _GNU_SOURCE
#include "launcher.h"
#include "util.h"
#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* The shared object becomes a module only by its own loader: it is in no directory of sys.path.
 * Nothing is imported from the current directory, which python -c puts first. A build without the
 * GIL ('t') has a different ABI. */
#define BOOT                                                                                       \
	"import sys; sys.path[:] = [d for d in sys.path if d]\n"                                   \
	"if sys.version_info < (3, 10) or sys.implementation.name != 'cpython' or"                 \
	" 't' in sys.abiflags:\n"                                                                  \
	"    sys.exit('want CPython 3.10 or newer with its GIL, this is ' + sys.version)\n"        \
	"import importlib.machinery as m, importlib.util as u, os\n"                               \
	"p = os.environ['DDIP_ENGINE_SO']\n"                                                       \
	"s = u.spec_from_file_location('_ddip', p, loader=m.ExtensionFileLoader('_ddip', p))\n"    \
	"d = u.module_from_spec(s); sys.modules['_ddip'] = d; s.loader.exec_module(d)\n"           \
	"del m, u, p, s; d.boot('%s')\n"

typedef int main_fn(int argc, char **argv);

/* Finds a program's file, by PATH if the name has no slash. NULL if there is none. The caller frees
 * it. */
static char *
find_program(const char *name)
{
	const char *path = getenv("PATH");

	if (strchr(name, '/'))
		return access(name, X_OK) == 0 ? xstrdup(name) : NULL;
	for (const char *at = path ? path : "/usr/bin:/bin"; *at;) {
		size_t n = strcspn(at, ":");
		char *file = xasprintf("%.*s/%s", (int)n, at, name);

		if (n && access(file, X_OK) == 0)
			return file;
		free(file);
		at += n + (at[n] == ':');
	}
	return NULL;
}

/* Sets DDIP_ENGINE_SO to the shared object that belongs to this program. */
static void
name_shared_object(void)
{
	static const char *const places[] = {"ddip_engine.so", "../libexec/ddipfs/ddip_engine.so"};
	char *self;

	if (getenv("DDIP_ENGINE_SO"))
		return;
	self = own_folder();
	for (size_t i = 0; i < ARRAY_LEN(places); i++) {
		char *file = xasprintf("%s/%s", self, places[i]);

		if (access(file, R_OK) == 0)
			setenv("DDIP_ENGINE_SO", file, 1);
		free(file);
	}
	if (!getenv("DDIP_ENGINE_SO"))
		die("ddip_engine.so is missing: looked for %s/%s and %s/%s", self, places[0], self,
		    places[1]);
	free(self);
}

/* A dynamic program's file, mapped; offsets into it are checked against n. */
struct image {
	const char *p;
	size_t n;
};

/* Maps a virtual address to its place in the mapped file; NULL if it is not there. */
static const char *
at_address(struct image im, const ElfW(Ehdr) * eh, uint64_t address)
{
	const ElfW(Phdr) *ph = (const void *)(im.p + eh->e_phoff);

	for (int i = 0; i < eh->e_phnum; i++)
		if (ph[i].p_type == PT_LOAD && address >= ph[i].p_vaddr &&
		    address - ph[i].p_vaddr < ph[i].p_filesz &&
		    ph[i].p_offset + (address - ph[i].p_vaddr) < im.n)
			return im.p + ph[i].p_offset + (address - ph[i].p_vaddr);
	return NULL;
}

/* The libpython among the image's needed libraries, or NULL; sets *runpath to its RUNPATH. */
static const char *
needed_libpython(struct image im, const char **runpath)
{
	const ElfW(Ehdr) *eh = (const void *)im.p;
	const ElfW(Phdr) *ph = (const void *)(im.p + eh->e_phoff);
	const ElfW(Dyn) *dyn = NULL, *end = NULL;
	const char *strings = NULL, *found = NULL;

	for (int i = 0; i < eh->e_phnum; i++)
		if (ph[i].p_type == PT_DYNAMIC && ph[i].p_offset + ph[i].p_filesz <= im.n) {
			dyn = (const void *)(im.p + ph[i].p_offset);
			end = dyn + ph[i].p_filesz / sizeof(*dyn);
		}
	for (const ElfW(Dyn) *d = dyn; d < end; d++)
		if (d->d_tag == DT_STRTAB)
			strings = at_address(im, eh, d->d_un.d_ptr);
	for (const ElfW(Dyn) *d = dyn; strings && d < end && d->d_tag != DT_NULL; d++) {
		const char *s = strings + d->d_un.d_val;

		if (s < im.p || s >= im.p + im.n || !memchr(s, '\0', (size_t)(im.p + im.n - s)))
			continue;
		if (d->d_tag == DT_NEEDED && !strncmp(s, "libpython3.", 11))
			found = s;
		if (d->d_tag == DT_RUNPATH || d->d_tag == DT_RPATH)
			*runpath = s;
	}
	return found;
}

/* Expands $ORIGIN at the beginning of dir. The caller frees the result. */
static char *
expand_origin(struct slice dir, const char *origin)
{
	static const char *const words[] = {"$ORIGIN", "${ORIGIN}"};

	for (size_t i = 0; i < ARRAY_LEN(words); i++) {
		size_t n = strlen(words[i]);

		if (dir.n >= n && !memcmp(dir.p, words[i], n))
			return xasprintf("%s%.*s", origin, (int)(dir.n - n), dir.p + n);
	}
	return xasprintf("%.*s", (int)dir.n, dir.p);
}

static void *
open_in(const char *dir, const char *name)
{
	char *file = xasprintf("%s/%s", dir, name);
	void *lib = access(file, R_OK) == 0 ? dlopen(file, RTLD_NOW | RTLD_GLOBAL) : NULL;

	free(file);
	return lib;
}

/* Opens the library as the interpreter itself would: from its run path, from ../lib next to it,
 * from the system's directories. */
static void *
open_libpython(const char *name, const char *runpath, const char *real)
{
	char *origin = xstrndup(real, (size_t)(strrchr(real, '/') - real));
	char *beside = xasprintf("%s/../lib", origin);
	void *lib = NULL;

	for (const char *at = runpath; at && *at && !lib;) {
		size_t n = strcspn(at, ":");
		char *dir = expand_origin((struct slice){at, n}, origin);

		lib = open_in(dir, name);
		free(dir);
		at += n + (at[n] == ':');
	}
	if (!lib)
		lib = open_in(beside, name);
	if (!lib)
		lib = dlopen(name, RTLD_NOW | RTLD_GLOBAL);
	free(beside);
	free(origin);
	return lib;
}

/* Py_BytesMain of the shared library that this interpreter is built on; NULL: execute the
 * interpreter. */
static main_fn *
load_shared(const char *program)
{
	char real[PATH_MAX];
	struct image im = {0};
	struct stat st;
	const char *runpath = NULL, *name = NULL;
	void *lib = NULL, *sym = NULL;
	main_fn *fn;
	int fd;

	if (getenv("DDIP_EXEC") || !realpath(program, real))
		return NULL;
	fd = open(real, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return NULL;
	if (fstat(fd, &st) == 0 && st.st_size > (off_t)sizeof(ElfW(Ehdr)))
		im = (struct image){mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0),
		    (size_t)st.st_size};
	close(fd);
	if (!im.n || im.p == MAP_FAILED)
		return NULL;
	if (!memcmp(im.p, ELFMAG, SELFMAG) && im.p[EI_CLASS] == ELFCLASS64) {
		const ElfW(Ehdr) *eh = (const void *)im.p;

		if (eh->e_phoff + eh->e_phnum * sizeof(ElfW(Phdr)) <= im.n)
			name = needed_libpython(im, &runpath);
	}
	if (name)
		lib = open_libpython(name, runpath, real);
	if (lib)
		sym = dlsym(lib, "Py_BytesMain");
	memcpy(&fn, &sym, sizeof(fn)); /* ISO C has no cast between the two kinds of pointers */
	/* The file stays mapped: name and runpath point into it, and its pages are in the page
	 * cache anyway. */
	return fn;
}

int
launch_python(const char *python, const char *role)
{
	char *program = find_program(python), *boot = xasprintf(BOOT, role);
	char option[] = "-c";
	char *argv[] = {program, option, boot, NULL};
	main_fn *shared;

	if (!program) {
		note("there is no Python at '%s': set python to an interpreter that can be run",
		    python);
		return 127;
	}
	name_shared_object();
	shared = load_shared(program);
	if (shared)
		return shared(3, argv);
	execv(program, argv);
	note("cannot run the Python '%s': %s", program, strerror(errno));
	return 127;
}
