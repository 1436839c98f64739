/* GPUs are chosen as settings and environment say, on a machine of 8 that a fake NVML describes;
 * NVML's own failures are reported. */
#include "check.h"
#include "agent/nvml.h"
#include "host/gpus.h"
#include <errno.h>
#include <stdlib.h>

#define UUID(k) "GPU-000000a" #k "-0000-4000-8000-00000000000" #k
#define MIG(g, k) "MIG-000000b" #g "-0000-5000-8000-00000000000" #k

static char *fakes; /* the directory that they were built into */

static void
use_fake(const char *library, const char *what)
{
	char *path = *library == '/' ? xstrdup(library) : xasprintf("%s/%s", fakes, library);

	setenv("DDIP_NVML", path, 1);
	setenv("FAKE_NVML", what, 1);
	free(path);
}

/* "0 3:1 …": the chosen GPUs, or the name of the errno. */
static const char *
chosen(const struct nvml_gpu *list, size_t n, const char *visible, const char *words)
{
	static struct buf out;
	struct gpus from, gpus;
	struct err e = {0}, why;
	char label[GPUS_LABEL];

	buf_clear(&out);
	gpus_visible(list, n, visible, &from, &why);
	if (gpus_choose(&from, words, &gpus, &e) < 0)
		buf_adds(&out, err_name(e.no));
	for (int i = 0; !e.no && i < gpus.n; i++)
		buf_addf(&out, "%s%s", i ? " " : "", gpus_label(gpus.gpu[i], label));
	if (!e.no && gpus.alone)
		buf_adds(&out, " alone");
	if (!e.no && gpus.crowded)
		buf_adds(&out, " crowded");
	return out.n ? out.p : "";
}

static const struct {
	const char *visible, *words, *want;
} choices[] = {
    {NULL, "all", "0 1 2 3 4 5 6 7"},
    {NULL, "none", ""},
    {NULL, "3,1", "3 1"},
    {NULL, "3 1", "3 1"},
    {NULL, "7,0,3", "7 0 3"},
    {NULL, UUID(5) "," UUID(2), "5 2"},
    {NULL, "GPU-000000a6,1", "6 1"},
    {NULL, "gpu-000000A6", "6"},
    {NULL, "GPU-000000a", "EINVAL"}, /* matches more than one */
    {NULL, "GPU-", "EINVAL"},
    {NULL, "8", "EINVAL"},
    {NULL, "-1", "EINVAL"},
    {NULL, "0,9", "EINVAL"},
    {NULL, "cuda:0", "EINVAL"},
    {NULL, "0x1", "EINVAL"},
    {NULL, "", "EINVAL"},
    {NULL, "all,1", "EINVAL"},
    {NULL, "none,1", "EINVAL"},
    {NULL, "0,0", "0 0 alone crowded"},
    {NULL, "1,0,1", "1 0 1 alone crowded"},
    {NULL, "0," UUID(0), "EINVAL"}, /* a typing error */
    {NULL, UUID(4) "," UUID(4), "4 4 alone crowded"},
    {"", "all", ""},
    {"", "0", "EINVAL"},
    {"-1", "all", ""},
    {"5,2,7", "all", "5 2 7"},
    {"5,2,7", "1,0", "2 5"},
    {"5,2,7", "3", "EINVAL"},
    {"5,2,7", UUID(7), "7"},
    {"5,2,7", UUID(3), "EINVAL"}, /* not among the visible ones */
    {"5,2,9,7", "all", "5 2"},	  /* as CUDA does: up to the first bad entry */
    {"5,2,5", "all", ""},
    {UUID(6) "," UUID(1), "all", "6 1"},
    {"GPU-000000a3", "0", "3"},
};

static const struct {
	const char *visible, *words, *want;
} divided[] = {
    /* 2 and 4 are in MIG mode, with 3 and 1 instances */
    {NULL, "all", "0 1 2:0 2:1 2:2 3 4:0 5 6 7 alone crowded"},
    {NULL, "2", "EINVAL"},
    {NULL, "2:1", "2:1 alone"},
    {NULL, "2:3", "EINVAL"},
    {NULL, "3:0", "EINVAL"},
    {NULL, MIG(4, 0) "," MIG(2, 2), "4:0 2:2 alone"},
    {NULL, "2:0,2:1", "2:0 2:1 alone crowded"},
    {NULL, "2:0,2:0", "2:0 2:0 alone crowded"},
    {NULL, "3,5", "3 5"},
    {NULL, MIG(4, 1), "EINVAL"},
    {MIG(2, 1) "," MIG(4, 0), "all", "2:1 4:0 alone"},
    {MIG(2, 1) "," MIG(4, 0), "1", "4:0 alone"},
    {"1,2", "all", "1 2:0 2:1 2:2 alone crowded"},
    {"1,2", "0", "1"},
};

static void
test_choices(void)
{
	struct nvml_gpu *list;
	struct err e = {0};
	size_t n;

	use_fake("libnvidia-ml.so.1", "gpus=8");
	CHECK(nvml_open(&e) == 0);
	CHECK(nvml_list(&list, &n, &e) == 0 && n == 8);
	for (size_t i = 0; i < ARRAY_LEN(choices); i++) {
		const char *got = chosen(list, n, choices[i].visible, choices[i].words);

		if (strcmp(got, choices[i].want) != 0)
			printf("'%s' of '%s'\n", choices[i].words,
			    choices[i].visible ? choices[i].visible : "(all)");
		CHECK_STR(got, choices[i].want);
	}
	free(list);
	nvml_close();
	use_fake("libnvidia-ml.so.1", "gpus=8 mig=2:3 mig=4:1");
	CHECK(nvml_open(&e) == 0);
	CHECK(nvml_list(&list, &n, &e) == 0 && n == 12);
	for (size_t i = 0; i < ARRAY_LEN(divided); i++) {
		const char *got = chosen(list, n, divided[i].visible, divided[i].words);

		if (strcmp(got, divided[i].want) != 0)
			printf("'%s' of '%s', divided\n", divided[i].words,
			    divided[i].visible ? divided[i].visible : "(all)");
		CHECK_STR(got, divided[i].want);
	}
	free(list);
	nvml_close();
}

/* A rank's environment as one line. */
static const char *
environment(const struct gpus *gpus, int rank)
{
	static struct buf b;

	buf_clear(&b);
	gpus_env(gpus, rank, rank, &b);
	for (size_t i = 0; i + 1 < b.n; i++)
		if (!b.p[i])
			b.p[i] = ' ';
	return b.n ? b.p : "";
}

static void
test_environment(void)
{
	struct nvml_gpu *list;
	struct gpus from, gpus;
	struct err e = {0};
	size_t n;

	use_fake("libnvidia-ml.so.1", "gpus=8 mig=2:2");
	CHECK(nvml_open(&e) == 0 && nvml_list(&list, &n, &e) == 0);
	gpus_visible(list, n, NULL, &from, &e);
	CHECK(gpus_choose(&from, "3,1", &gpus, &e) == 0);
	for (int k = 0; k < 2; k++)
		CHECK_STR(environment(&gpus, k),
		    "CUDA_DEVICE_ORDER=PCI_BUS_ID CUDA_VISIBLE_DEVICES=" UUID(3) "," UUID(1));
	CHECK(!gpus.alone && gpus_default_size(&gpus) == 2);
	CHECK(gpus_check_size(&gpus, 2, "3,1", &e) == 0);
	CHECK(gpus_check_size(&gpus, 0, "3,1", &e) == 0);
	CHECK(gpus_check_size(&gpus, 3, "3,1", &e) == -EINVAL && strstr(e.text, "size 3"));
	CHECK(gpus_choose(&from, "2:1,2:0", &gpus, &e) == 0);
	CHECK_STR(environment(&gpus, 1),
	    "CUDA_DEVICE_ORDER=PCI_BUS_ID CUDA_VISIBLE_DEVICES=" MIG(
		2, 0) " NCCL_HOSTID=rank1 NCCL_MULTI_RANK_GPU_ENABLE=1 NCCL_MNNVL_ENABLE=0");
	CHECK(gpus.alone);
	CHECK(gpus_choose(&from, "0,0", &gpus, &e) == 0);
	CHECK_STR(environment(&gpus, 1),
	    "CUDA_DEVICE_ORDER=PCI_BUS_ID CUDA_VISIBLE_DEVICES=" UUID(
		0) " NCCL_HOSTID=rank1 NCCL_MULTI_RANK_GPU_ENABLE=1 NCCL_MNNVL_ENABLE=0");
	CHECK(gpus_choose(&from, "none", &gpus, &e) == 0);
	CHECK_STR(environment(&gpus, 0), "CUDA_VISIBLE_DEVICES=");
	CHECK(gpus_default_size(&gpus) == 2 && gpus_check_size(&gpus, 9, "none", &e) == 0);
	CHECK(gpus_choose(&from, "9", &gpus, &e) == -EINVAL);
	CHECK(strstr(e.text, "'9'") && strstr(e.text, "7 " UUID(7)) &&
	      strstr(e.text, "2:1 " MIG(2, 1)));
	CHECK(gpus_choose(&from, "2", &gpus, &e) == -EINVAL && strstr(e.text, "MIG mode"));
	CHECK(strstr(e.text, "2:0 (" MIG(2, 0) ")") != NULL);
	free(list);
	nvml_close();
}

static void
test_use(void)
{
	struct nvml_gpu *list;
	struct nvml_use u;
	struct err e = {0};
	size_t n;

	use_fake("libnvidia-ml.so.1",
	    "gpus=2 mig=1:1 busy=0:71,72,73 fail=nvmlDeviceGetTemperature:15:1");
	CHECK(nvml_open(&e) == 0 && nvml_list(&list, &n, &e) == 0 && n == 3);
	nvml_use(&list[0], &u);
	CHECK(u.has_memory && u.used == 1 << 20 && u.total == 80ull << 30);
	CHECK(u.util == 0 && u.temp == 40 && u.n == 3 && u.process[2].pid == 73);
	CHECK(u.process[1].bytes == 72 << 10);
	CHECK_STR(u.error, "");
	free(u.process);
	nvml_use(&list[2],
	    &u); /* the instance: no utilization; the card's temperature, whose query fails */
	CHECK(u.has_memory && u.total == 10ull << 30 && u.util == -1 && u.temp == -1 && u.n == 0);
	CHECK_STR(u.error, "NVML: nvmlDeviceGetTemperature: GPU is lost");
	free(u.process);
	free(list);
	nvml_close();
}

/* An old driver reports less, and that is no error. */
static void
test_old(void)
{
	struct nvml_gpu *list;
	struct nvml_use u;
	struct err e = {0};
	size_t n;

	use_fake("libnvidia-ml-old.so.1", "gpus=2 mig=1:1 busy=1:5,6");
	CHECK(nvml_open(&e) == 0 && nvml_list(&list, &n, &e) == 0 && n == 2);
	CHECK(!list[1].split);
	nvml_use(&list[1], &u);
	CHECK(u.has_memory && u.util == 10 && u.temp == -1 && u.n == 2 && u.process[1].pid == 6);
	CHECK_STR(u.error, "");
	free(u.process);
	free(list);
	nvml_close();
}

static void
test_failures(void)
{
	struct nvml_gpu *list;
	struct err e = {0};
	size_t n;

	use_fake("/nonexistent/libnvidia-ml.so.1", "");
	CHECK(nvml_open(&e) == -ENOENT && strstr(e.text, "/nonexistent/libnvidia-ml.so.1"));
	unsetenv("DDIP_NVML");
	setenv("DDIP_NVML", "libm.so.6", 1); /* exists, but is another library */
	CHECK(nvml_open(&e) == -ENOSYS && strstr(e.text, "nvmlInit_v2"));
	use_fake("libnvidia-ml.so.1", "fail=nvmlInit_v2:18");
	CHECK(nvml_open(&e) == -EIO && strstr(e.text, "version mismatch"));
	use_fake("libnvidia-ml.so.1", "fail=nvmlDeviceGetCount_v2:9");
	CHECK(nvml_open(&e) == 0);
	CHECK(nvml_list(&list, &n, &e) == -EIO && strstr(e.text, "Driver Not Loaded"));
	CHECK(n == 0);
	nvml_close();
	use_fake("libnvidia-ml.so.1",
	    "gpus=4 fail=nvmlDeviceGetHandleByIndex_v2:15:1 fail=nvmlDeviceGetUUID:4:3");
	CHECK(nvml_open(&e) == 0 && nvml_list(&list, &n, &e) == 0);
	CHECK(n == 2 && list[0].index == 0 && list[1].index == 2);
	free(list);
	nvml_close();
	nvml_close(); /* closing twice is harmless */
}

int
main(int argc, char **argv)
{
	char *self = xstrdup(argv[0]);

	*strrchr(self, '/') = '\0'; /* …/unit: the fakes are in the parent directory */
	fakes = xasprintf("%s/../fake", self);
	free(self);
	test_choices();
	test_environment();
	test_use();
	test_old();
	test_failures();
	free(fakes);
	return CHECK_DONE();
}
