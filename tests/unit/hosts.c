/* Tests of fs/host/hostlist.c and launcher.c: lists of hosts and launcher commands are parsed as
 * documented. */
#include "check.h"
#include "host/gpus.h"
#include "host/hostlist.h"
#include "host/launcher.h"
#include <errno.h>
#include <stdlib.h>

/* Compares a list in text form; "-": refused, with the words of `why` in the error's text. */
static void
check_list(struct hostlist *l, int r, const struct err *e, const char *want, const char *why)
{
	struct buf b = {0};

	if (r == 0)
		hostlist_print(l, &b);
	else
		buf_adds(&b, "-");
	CHECK_STR(b.p, want);
	if (r < 0)
		CHECK(r == -EINVAL && strstr(e->text, why));
	buf_free(&b);
	hostlist_free(l);
}

static void
words(const char *text, const char *want, const char *why)
{
	struct hostlist l;
	struct err e = {0};

	check_list(&l, hostlist_words(text, &l, &e), &e, want, why);
}

static void
file(const char *text, const char *want, const char *why)
{
	struct hostlist l;
	struct err e = {0};

	check_list(&l, hostlist_text(text, "/f", &l, &e), &e, want, why);
}

static void
slurm(const char *nodes, const char *tasks, const char *want, const char *why)
{
	struct hostlist l;
	struct err e = {0};

	check_list(&l, hostlist_slurm(nodes, tasks, &l, &e), &e, want, why);
}

static void
test_words(void)
{
	words("a:2 b:4", "a:2 b:4", "");
	words("a,b:1", "a:2 b:1", "");
	words("me@a.example:3 pod/x-1", "me@a.example:3 pod/x-1:2", "");
	words("[fe80::1]:3 [::1]", "[fe80::1]:3 [::1]:2", "");
	words("me@[::1] [fe80::1%eth0]:3", "me@[::1]:2 [fe80::1%eth0]:3", "");
	words("fe80::ab", "-", "in brackets, [::1] or [::1]:2");
	words("::1", "-", "in brackets");
	words("[]", "-", "is not a host name");
	words("[-o]", "-", "is not a host name");
	words("[::1%]", "-", "is not a host name");
	words("[::1%e;x]", "-", "is not a host name");
	words("me@[::1", "-", "in brackets");
	words("-me@a", "-", "is not a host name");
	words("", "-", "want e.g. a:2 b:2");
	words("a:0", "-", "1..4096 ranks for a host, not 'a:0'");
	words("a:2x", "-", "not 'a:2x'");
	words("a:", "-", "not 'a:'");
	words("a:4097", "-", "not 'a:4097'");
	words("b a:2 a:4", "-", "a appears twice");
	words("-oProxyCommand=x", "-", "is not a host name");
	words("a;b", "-", "is not a host name");
	words("$(x)", "-", "is not a host name");
	words("me@", "-", "is not a host name");
	words("@a", "-", "is not a host name");
	words("me@-oProxyCommand", "-", "is not a host name");
	words("me@a@b", "-", "is not a host name");
}

static void
test_file(void)
{
	file("a slots=2\n# none\n\n  b\tslots=4 # four\nc\r\n", "a:2 b:4 c:2", "");
	file("a slots=2\nb 4\n", "-", "/f:2: want NAME slots=N");
	file("a slots=2 max=4", "-", "/f:1: want NAME slots=N");
	file("a slots=no", "-", "not 'slots=no'");
	file("# nothing\n", "-", "want e.g. a:2 b:2");
}

/* A host is found by its name, wherever it is in the list. */
static void
test_index(void)
{
	struct hostlist l;
	struct hostlist_index *x;
	struct err e;

	CHECK(hostlist_words("b:1 a:2 d:4 c:3", &l, &e) == 0);
	x = hostlist_index(&l);
	for (size_t i = 0; i < l.n; i++)
		CHECK(hostlist_find(x, l.host[i].name) == &l.host[i]);
	CHECK(!hostlist_find(x, "") && !hostlist_find(x, "aa") && !hostlist_find(x, "e"));
	hostlist_index_free(x);
	hostlist_free(&l);
}

static void
test_slurm(void)
{
	slurm("n1", NULL, "n1:2", "");
	slurm("n[1-3,07],m", "2(x3),1,4", "n1:2 n2:2 n3:2 n07:1 m:4", "");
	slurm("n[09-11]", "1(x3)", "n09:1 n10:1 n11:1", "");
	slurm("r[1-2]n[3-4]-ib", "2(x4)", "r1n3-ib:2 r1n4-ib:2 r2n3-ib:2 r2n4-ib:2", "");
	slurm(NULL, NULL, "-", "SLURM_JOB_NODELIST is not set");
	slurm("n[1-3", NULL, "-", "can't read the list of nodes n[1-3");
	slurm("n[3-1]", NULL, "-", "can't read the list of nodes");
	slurm("n[]", NULL, "-", "can't read the list of nodes");
	slurm("n[1-2]", "2", "-", "SLURM_TASKS_PER_NODE=2 for 2 nodes");
	slurm("n[1-2]", "x", "-", "SLURM_TASKS_PER_NODE=x");
}

/* Checks a launcher's command for a host, its words separated by |. */
static void
command_for(const char *host, const char *launcher, const char *want)
{
	char **argv = launcher_argv(launcher, host);
	struct buf b = {0};

	for (size_t i = 0; argv[i]; i++)
		buf_addf(&b, "%s%s", i ? "|" : "", argv[i]);
	CHECK_STR(b.p, want);
	buf_free(&b);
	launcher_free(argv);
}

static void
command(const char *launcher, const char *want)
{
	command_for("a", launcher, want);
}

static void
refused(const char *launcher, const char *why)
{
	struct err e = {0};

	CHECK(launcher_check(launcher, &e) == -EINVAL && strstr(e.text, why));
}

static void
test_launchers(void)
{
	struct err e = {0};

	command("ssh", "ssh|-T|-o|BatchMode=yes|a");
	command("ssh -p 2222", "ssh|-T|-o|BatchMode=yes|-p|2222|a");
	command("srun --gpus 1", "srun|-N1|-n1|-w|a|-u|--overlap|--gpus|1|sh|-c");
	command("srun-only --gpus 1", "srun|-N1|-n1|-w|a|-u|--overlap|--gpus|1|sh|-c");
	command("kubectl -n ml", "kubectl|-n|ml|exec|-i|a|--|sh|-c");
	command("docker", "docker|exec|-i|a|sh|-c");
	command("podman", "podman|exec|-i|a|sh|-c");
	command("/bin/x 'to {host} and {host}' -", "/bin/x|to a and a|-");
	command("sh -c", "sh|-c");
	command_for("me@[fe80::1%e]", "ssh", "ssh|-T|-o|BatchMode=yes|me@fe80::1%e");
	command_for("[::1]", "x to={host}", "x|to=::1");
	CHECK(launcher_check("ssh -p 22", &e) == 0 && launcher_check("rsh {host}", &e) == 0);
	CHECK(launcher_check("here", &e) == 0);
	CHECK_STR(launcher_direct("srun --gpus 1"), "SLURM_LAUNCH_NODE_IPADDR");
	CHECK(
	    !launcher_direct("srun-only") && !launcher_direct("ssh") && !launcher_direct("/bin/x"));
	refused("", "want ssh, srun");
	refused("here now", "takes no options");
	refused("ssh {host}", "a place for the host of its own");
	refused("x 'y", "a quote ' is not closed");
}

/* What a rank of a host that has not been queried gets; "-": the words are refused. */
static void
gpus(const char *words_, int local_rank, const char *want)
{
	struct nvml_gpu *list;
	struct buf b = {0};
	struct err e = {0};
	struct gpus g;

	if (gpus_unlisted(words_, &list, &g, &e) == 0)
		gpus_env(&g, local_rank, local_rank + 4, &b);
	else
		buf_adds(&b, "-");
	for (size_t i = 0; i + 1 < b.n; i++)
		if (!b.p[i])
			b.p[i] = ' ';
	CHECK_STR(b.n ? b.p : "", want);
	buf_free(&b);
	free(list);
}

static void
test_gpus(void)
{
	char *longest = xasprintf("%0*d", NVML_TEXT, 0);

	gpus("all", 0, "");
	gpus("none", 0, "CUDA_VISIBLE_DEVICES=");
	gpus("3 1", 1, "CUDA_DEVICE_ORDER=PCI_BUS_ID CUDA_VISIBLE_DEVICES=3,1");
	gpus("0,0", 1,
	    "CUDA_DEVICE_ORDER=PCI_BUS_ID CUDA_VISIBLE_DEVICES=0 NCCL_HOSTID=rank5 "
	    "NCCL_MULTI_RANK_GPU_ENABLE=1 NCCL_MNNVL_ENABLE=0");
	gpus("GPU-abc,1,gpu-ABC", 2,
	    "CUDA_DEVICE_ORDER=PCI_BUS_ID CUDA_VISIBLE_DEVICES=gpu-ABC NCCL_HOSTID=rank6 "
	    "NCCL_MULTI_RANK_GPU_ENABLE=1 NCCL_MNNVL_ENABLE=0");
	gpus(" ", 0, "-");
	gpus(longest, 0, "-");
	free(longest);
}

int
main(void)
{
	test_words();
	test_file();
	test_index();
	test_slurm();
	test_launchers();
	test_gpus();
	return CHECK_DONE();
}
