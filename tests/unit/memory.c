/* What cgroups of both versions, and a machine without any, leave to a process, by trees of files
 * as the kernel shows them. */
#include "memory.h"
#include "util.h"
#include "check.h"
#include <stdlib.h>
#include <sys/stat.h>

enum { MIB = 1 << 20 };

static char *root;

/* Writes a file of the tree, and makes the directories that it is in. */
static void
put(const char *path, const char *text)
{
	char *at = xasprintf("%s/%s", root, path);
	FILE *f;

	for (char *p = at + strlen(root) + 1; (p = strchr(p, '/')); p++) {
		*p = '\0';
		mkdir(at, 0700);
		*p = '/';
	}
	f = fopen(at, "w");
	CHECK(f && fputs(text, f) >= 0 && fclose(f) == 0);
	free(at);
}

static void
put_mib(const char *path, unsigned long mib)
{
	char *text = xasprintf("%lu\n", mib * MIB);

	put(path, text);
	free(text);
}

static void
begin(const char *name)
{
	free(root);
	root = xasprintf("%s/%s", getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp", name);
	mkdir(root, 0700);
}

static void
test_nothing(void)
{
	begin("nothing");
	CHECK(memory_available(root) == UINT64_MAX);
	CHECK(memory_limit(root) == UINT64_MAX);
	CHECK(memory_killed(root) == 0);
}

static void
test_machine(void)
{
	begin("machine");
	put("proc/meminfo", "MemTotal: 9 kB\nMemAvailable:    2048 kB\nSwapFree:  1024 kB\n");
	CHECK(memory_available(root) == 3 * MIB);
	put("proc/self/cgroup", "0::/\n");
	CHECK(memory_available(root) == 3 * MIB);
	CHECK(memory_limit(root) == UINT64_MAX);
	CHECK(memory_killed(root) == 0);
}

/* With strict overcommit. */
static void
test_commit(void)
{
	begin("commit");
	put("proc/meminfo",
	    "MemAvailable: 9216 kB\nSwapFree: 0 kB\nCommitLimit: 8192 kB\nCommitted_AS: 7168 kB\n");
	CHECK(memory_available(root) == 9 * MIB);
	put("proc/sys/vm/overcommit_memory", "1\n");
	CHECK(memory_available(root) == 9 * MIB);
	put("proc/sys/vm/overcommit_memory", "2\n");
	CHECK(memory_available(root) == MIB);
	put("proc/meminfo",
	    "MemAvailable: 9216 kB\nSwapFree: 0 kB\nCommitLimit: 8192 kB\nCommitted_AS: 9000 kB\n");
	CHECK(memory_available(root) == 0);
}

#define V2 "sys/fs/cgroup/"

static void
test_v2(void)
{
	begin("v2");
	put("proc/meminfo", "MemAvailable: 1048576 kB\nSwapFree: 0 kB\n");
	put("proc/self/cgroup", "0::/job.slice/step\n");
	put(V2 "job.slice/step/memory.max", "max\n");
	put_mib(V2 "job.slice/step/memory.current", 30);
	put(V2 "job.slice/step/memory.events", "low 0\noom 3\noom_kill 2\noom_group_kill 0\n");
	put_mib(V2 "job.slice/memory.max", 100);
	put_mib(V2 "job.slice/memory.current", 70);
	put(V2 "job.slice/memory.events", "oom_kill 9\n");
	CHECK(memory_available(root) == 30 * MIB);
	CHECK(memory_limit(root) == 100 * MIB);
	CHECK(memory_killed(root) == 2);
	put(V2 "job.slice/memory.stat", "anon 1\ninactive_file 10485760\nactive_file 1048576\n");
	CHECK(memory_available(root) == 41 * MIB);
	/* swap counts as far as there is some and the cgroup may have it */
	put(V2 "job.slice/memory.swap.max", "max\n");
	CHECK(memory_available(root) == 41 * MIB);
	put("proc/meminfo", "MemAvailable: 1048576 kB\nSwapFree: 5120 kB\n");
	CHECK(memory_available(root) == 46 * MIB);
	put_mib(V2 "job.slice/memory.swap.max", 4);
	put_mib(V2 "job.slice/memory.swap.current", 1);
	CHECK(memory_available(root) == 44 * MIB);
	put_mib(V2 "job.slice/memory.current", 200); /* the limit was lowered */
	CHECK(memory_available(root) == 3 * MIB);
	put("proc/meminfo", "MemAvailable: 1024 kB\nSwapFree: 0 kB\n");
	CHECK(memory_available(root) == 0);
}

#define V1 "sys/fs/cgroup/memory/"

static void
test_v1(void)
{
	begin("v1");
	put("proc/meminfo", "MemAvailable: 1048576 kB\nSwapFree: 1048576 kB\n");
	put("proc/self/cgroup", "5:cpu,memoryless:/x\n4:hugetlb,memory:/docker/c:1\n0::/other\n");
	put(V1 "memory.limit_in_bytes", "9223372036854771712\n");
	put_mib(V1 "memory.usage_in_bytes", 5000);
	put_mib(V1 "docker/c:1/memory.limit_in_bytes", 100);
	put_mib(V1 "docker/c:1/memory.usage_in_bytes", 70);
	put(V1 "docker/c:1/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 7\n");
	put(V1 "docker/c:1/memory.stat", "inactive_file 9\ntotal_inactive_file 1048576\n");
	CHECK(memory_available(root) == 1055 * MIB); /* nothing is said about swap */
	CHECK(memory_limit(root) == 100 * MIB);
	CHECK(memory_killed(root) == 7);
	put_mib(V1 "docker/c:1/memory.memsw.limit_in_bytes", 100);
	put_mib(V1 "docker/c:1/memory.memsw.usage_in_bytes", 75);
	CHECK(memory_available(root) == 26 * MIB);
}

/* A container has its own cgroup mounted in the place of the root, whose path it does not have. */
static void
test_container(void)
{
	begin("container");
	put("proc/meminfo", "MemAvailable: 1048576 kB\n");
	put("proc/self/cgroup", "4:memory:/docker/abc\n");
	put_mib(V1 "memory.limit_in_bytes", 64);
	put_mib(V1 "memory.usage_in_bytes", 60);
	put(V1 "memory.oom_control", "oom_kill 1\n");
	CHECK(memory_available(root) == 4 * MIB);
	CHECK(memory_killed(root) == 1);
}

int
main(void)
{
	test_nothing();
	test_machine();
	test_commit();
	test_v2();
	test_v1();
	test_container();
	free(root);
	return 0;
}
