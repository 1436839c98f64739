/* Chooses GPUs, and builds the environment of the ranks. */
#include "host/gpus.h"
#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define WANT_WORDS "gpus: want all, none, or GPUs by number or UUID: 3,1"

const char *
gpus_label(const struct nvml_gpu *gpu, char label[GPUS_LABEL])
{
	if (gpu->mig == NVML_WHOLE)
		snprintf(label, GPUS_LABEL, "%d", gpu->index);
	else
		snprintf(label, GPUS_LABEL, "%d:%d", gpu->index, gpu->mig);
	return label;
}

static void
add(struct gpus *to, const struct nvml_gpu *gpu)
{
	if (to->n < GPUS_MAX)
		to->gpu[to->n++] = gpu;
}

static bool
is_number(const char *word)
{
	return *word && strspn(word, "0123456789") == strlen(word);
}

/* By UUID or the beginning of one, as in CUDA; NULL if none or several match. */
static const struct nvml_gpu *
by_uuid(const struct gpus *from, const char *word)
{
	const struct nvml_gpu *found = NULL;
	size_t n = strlen(word);

	if (n <= 4 || (strncasecmp(word, "GPU-", 4) != 0 && strncasecmp(word, "MIG-", 4) != 0))
		return NULL;
	for (int i = 0; i < from->n; i++) {
		if (strncasecmp(from->gpu[i]->uuid, word, n) != 0)
			continue;
		if (from->gpu[i]->uuid[n] == '\0')
			return from->gpu[i];
		if (found && found != from->gpu[i])
			return NULL;
		found = from->gpu[i];
	}
	return found;
}

/* "3:1": instance 1 of the GPU that nvidia-smi calls 3. */
static const struct nvml_gpu *
by_label(const struct gpus *from, const char *word)
{
	char label[GPUS_LABEL];

	for (int i = 0; i < from->n; i++)
		if (from->gpu[i]->mig != NVML_WHOLE &&
		    strcmp(gpus_label(from->gpu[i], label), word) == 0)
			return from->gpu[i];
	return NULL;
}

/* Numbers count the cards in `from` but not MIG instances: without an inherited
 * CUDA_VISIBLE_DEVICES they are nvidia-smi's numbers. If only instances were inherited, numbers
 * count those. */
static const struct nvml_gpu *
by_number(const struct gpus *from, const char *word)
{
	long k = strtol(word, NULL, 10);
	bool cards = false;

	for (int i = 0; i < from->n; i++)
		cards |= from->gpu[i]->mig == NVML_WHOLE;
	for (int i = 0; i < from->n; i++)
		if ((from->gpu[i]->mig == NVML_WHOLE || !cards) && k-- == 0)
			return from->gpu[i];
	return NULL;
}

static const struct nvml_gpu *
find(const struct gpus *from, const char *word)
{
	if (is_number(word))
		return by_number(from, word);
	return strchr(word, ':') ? by_label(from, word) : by_uuid(from, word);
}

/* "0 GPU-…, 1 GPU-…": the names that the user may write. */
static void
print_all(const struct gpus *from, struct buf *out)
{
	char label[GPUS_LABEL];
	int number = 0;

	for (int i = 0; i < from->n; i++) {
		const struct nvml_gpu *g = from->gpu[i];

		buf_adds(out, i ? ", " : "");
		if (g->mig == NVML_WHOLE)
			buf_addf(out, "%d %s%s", number++, g->uuid, g->split ? " (split)" : "");
		else
			buf_addf(out, "%s %s", gpus_label(g, label), g->uuid);
	}
	if (!from->n)
		buf_adds(out, "no GPU at all");
}

static int
unknown_word(const struct gpus *from, const char *word, struct err *e)
{
	struct buf all = {0};
	int r;

	print_all(from, &all);
	r = fail(e, EINVAL,
	    "gpus: no GPU '%.100s' here: want all, none, or some of what there is: %s", word,
	    all.p);
	buf_free(&all);
	return r;
}

static int
split_card(const struct gpus *from, const struct nvml_gpu *card, struct err *e)
{
	struct buf all = {0};
	char label[GPUS_LABEL];
	int r;

	for (int i = 0; i < from->n; i++)
		if (from->gpu[i]->card == card->card && from->gpu[i] != card)
			buf_addf(
			    &all, " %s (%s)", gpus_label(from->gpu[i], label), from->gpu[i]->uuid);
	r = fail(e, EINVAL,
	    "gpus: GPU %d is in MIG mode and computes by its instances only: want some of%s",
	    card->index,
	    all.n ? all.p : " those that you make on it with nvidia-smi mig (it has none)");
	buf_free(&all);
	return r;
}

/* Splits a list into word[], which points into copy. Returns the number of words. */
static int
divide(char *copy, char **word, struct err *e)
{
	char *save, *w;
	int n = 0;

	for (w = strtok_r(copy, ", \t", &save); w; w = strtok_r(NULL, ", \t", &save)) {
		if (n == GPUS_MAX)
			return fail(e, EINVAL, "gpus: more than %d names", GPUS_MAX);
		word[n++] = w;
	}
	return n;
}

/* Is the i-th GPU already chosen? Repeating one name is deliberate; two names for one GPU are a
 * mistake. */
static int
check_repeated(char **word, struct gpus *out, int i, struct err *e)
{
	for (int k = 0; k < i; k++) {
		out->crowded |= out->gpu[k]->card == out->gpu[i]->card;
		if (out->gpu[k] != out->gpu[i])
			continue;
		if (strcasecmp(word[k], word[i]) != 0)
			return fail(e, EINVAL,
			    "gpus: %.60s and %.60s are the same GPU: to put two ranks on it write "
			    "%.60s,%.60s",
			    word[k], word[i], word[k], word[k]);
		out->alone = true;
	}
	return 0;
}

static int
choose_words(const struct gpus *from, char **word, int n, struct gpus *out, struct err *e)
{
	for (int i = 0; i < n; i++) {
		const struct nvml_gpu *gpu = find(from, word[i]);
		int r;

		if (!gpu)
			return unknown_word(from, word[i], e);
		if (gpu->split)
			return split_card(from, gpu, e);
		add(out, gpu);
		out->alone |= gpu->mig != NVML_WHOLE;
		r = check_repeated(word, out, i, e);
		if (r < 0)
			return r;
	}
	return 0;
}

/* Chooses everything that computes: of a GPU in MIG mode, its instances. */
static void
choose_all(const struct gpus *from, struct gpus *out)
{
	out->unknown = from->unknown;
	for (int i = 0; i < from->n; i++) {
		if (from->gpu[i]->split)
			continue;
		for (int k = 0; k < out->n; k++)
			out->crowded |= out->gpu[k]->card == from->gpu[i]->card;
		add(out, from->gpu[i]);
		out->alone |= from->gpu[i]->mig != NVML_WHOLE;
	}
}

int
gpus_choose(const struct gpus *from, const char *words, struct gpus *out, struct err *e)
{
	char *copy = xstrdup(words), *word[GPUS_MAX];
	int n = divide(copy, word, e), r = MIN(n, 0);

	*out = (struct gpus){0};
	if (r < 0)
		goto done;
	if (n == 1 && strcmp(word[0], "none") == 0)
		out->none = true;
	else if (n == 1 && strcmp(word[0], "all") == 0)
		choose_all(from, out);
	else if (n == 0)
		r = fail(e, EINVAL, WANT_WORDS);
	else
		r = choose_words(from, word, n, out, e);
done:
	free(copy);
	return r;
}

void
gpus_visible(
    const struct nvml_gpu *list, size_t n, const char *visible, struct gpus *out, struct err *why)
{
	struct gpus all = {0};
	char *copy, *word[GPUS_MAX];
	int words;

	*out = (struct gpus){0};
	*why = (struct err){0};
	for (size_t i = 0; i < n; i++)
		add(&all, &list[i]);
	if (!visible) {
		*out = all;
		return;
	}
	copy = xstrdup(visible);
	words = divide(copy, word, why);
	for (int i = 0; i < words; i++) {
		const struct nvml_gpu *gpu = find(&all, word[i]);
		bool again = false;

		for (int k = 0; k < out->n; k++)
			again |= out->gpu[k] == gpu;
		if (again) { /* then CUDA sees none, and neither do the daemon's other children */
			out->n = 0;
			fail(why, EINVAL,
			    "CUDA_VISIBLE_DEVICES=%.200s names %.60s twice: CUDA sees no GPU",
			    visible, word[i]);
			break;
		}
		if (!gpu) {
			fail(why, EINVAL,
			    "CUDA_VISIBLE_DEVICES=%.200s: there is no '%.60s', and CUDA stops "
			    "there",
			    visible, word[i]);
			break;
		}
		add(out, gpu);
		for (size_t k = 0; gpu->split && k < n; k++) /* and its instances */
			if (list[k].card == gpu->card && list[k].mig != NVML_WHOLE)
				add(out, &list[k]);
	}
	free(copy);
}

int
gpus_check_size(const struct gpus *gpus, long size, const char *words, struct err *e)
{
	if (gpus->n == 0 || size <= gpus->n)
		return 0;
	return fail(e, EINVAL,
	    "size %ld, but gpus %.200s %s %d: want size %d or less, gpus none, "
	    "or GPUs named as often as ranks shall share them (gpus 0,0)",
	    size, words, strcmp(words, "all") == 0 ? "are" : "names", gpus->n, gpus->n);
}

int
gpus_default_size(const struct gpus *gpus)
{
	return gpus->n ? gpus->n : 2;
}

/* NCCL refuses two ranks on one card: the first variable is for versions before 2.30, the second
 * for later ones. With the third it does not take the ranks for hosts that NVLink connects, and
 * fail if this host cannot share memory in that way. */
static void
share_card(int rank, struct buf *env)
{
	buf_addf(env, "NCCL_HOSTID=rank%d%cNCCL_MULTI_RANK_GPU_ENABLE=1%cNCCL_MNNVL_ENABLE=0%c",
	    rank, 0, 0, 0);
}

void
gpus_env(const struct gpus *gpus, int local_rank, int rank, struct buf *env)
{
	const char *comma = "";

	if (gpus->none)
		buf_addf(env, "CUDA_VISIBLE_DEVICES=%c", 0);
	if (gpus->n == 0)
		return; /* what the daemon inherited applies */
	buf_addf(env, "CUDA_DEVICE_ORDER=PCI_BUS_ID%cCUDA_VISIBLE_DEVICES=", 0);
	for (int i = 0; i < gpus->n; i++) {
		if (gpus->alone && i != local_rank % gpus->n)
			continue;
		buf_addf(env, "%s%s", comma, gpus->gpu[i]->uuid);
		comma = ",";
	}
	buf_addc(env, '\0');
	if (gpus->crowded)
		share_card(rank, env);
}

int
gpus_unlisted(const char *words, struct nvml_gpu **list, struct gpus *out, struct err *e)
{
	char *copy = xstrdup(words), *word[GPUS_MAX];
	int n = divide(copy, word, e), r = MIN(n, 0);

	*list = NULL;
	*out = (struct gpus){0};
	if (n == 1 && (strcmp(word[0], "all") == 0 || strcmp(word[0], "none") == 0)) {
		out->none = strcmp(word[0], "none") == 0;
		n = 0;
	} else if (n == 0) {
		r = fail(e, EINVAL, WANT_WORDS);
	}
	*list = n > 0 ? xcalloc((size_t)n, sizeof(**list)) : NULL;
	for (int i = 0; i < n; i++) {
		if (strlen(word[i]) >= NVML_TEXT)
			r = fail(e, EINVAL, "gpus: no GPU has a name as long as %.100s", word[i]);
		snprintf((*list)[i].uuid, NVML_TEXT, "%s", word[i]);
		add(out, &(*list)[i]);
		for (int k = 0; k < i; k++)
			out->alone |= strcasecmp(word[k], word[i]) == 0;
	}
	out->crowded = out->alone;
	free(copy);
	return r;
}
