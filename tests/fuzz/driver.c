/*
 * Runs a fuzz target without libFuzzer: each file of the corpus as it is, then random mutations
 * until the time is up, or there were enough. usage: PROGRAM [-max_total_time=SECONDS] [-runs=N]
 * [-seed=N] CORPUS. Not guided by coverage; a crash leaves the input in ./crash-input.
 */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { INPUT_MAX = 4096, FILES_MAX = 256 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
void __sanitizer_set_death_callback(void (*fn)(void));

static struct input {
	uint8_t p[INPUT_MAX];
	size_t n;
} corpus[FILES_MAX], now;

static size_t count;
static uint64_t seed;

static uint64_t
draw(uint64_t below)
{
	seed ^= seed << 13;
	seed ^= seed >> 7;
	seed ^= seed << 17;
	return seed % below;
}

static void
keep_input(void)
{
	FILE *f = fopen("crash-input", "wb");

	if (f) {
		fwrite(now.p, 1, now.n, f);
		fclose(f);
	}
	fprintf(stderr, "the input (%zu bytes) is in crash-input\n", now.n);
}

static void
read_corpus(const char *dir)
{
	DIR *d = opendir(dir);
	struct dirent *e;
	char path[4096];

	if (!d) {
		fprintf(stderr, "%s: no such folder\n", dir);
		exit(2);
	}
	while ((e = readdir(d)) && count < FILES_MAX) {
		FILE *f;

		snprintf(path, sizeof(path), "%s/%s", dir, e->d_name);
		if (e->d_name[0] == '.' || !(f = fopen(path, "rb")))
			continue;
		corpus[count].n = fread(corpus[count].p, 1, INPUT_MAX, f);
		count++;
		fclose(f);
	}
	closedir(d);
}

/* Makes a few changes: a bit, a byte, a piece of another input copied over or inserted, a piece
 * removed. */
static void
mutate(void)
{
	now = count ? corpus[draw(count)] : (struct input){.n = draw(INPUT_MAX)};
	for (uint64_t i = draw(6) + 1; i > 0; i--) {
		const struct input *other = count ? &corpus[draw(count)] : &now;
		size_t at = draw(now.n + 1), n = draw(other->n + 1);

		switch (draw(5)) {
		case 0:
			if (now.n)
				now.p[draw(now.n)] ^= (uint8_t)(1u << draw(8));
			break;
		case 1:
			if (now.n)
				now.p[draw(now.n)] = (uint8_t)draw(256);
			break;
		case 2:
			now.n = at;
			break;
		case 3:
			n = n < INPUT_MAX - at ? n : INPUT_MAX - at;
			memmove(now.p + at, other->p, n);
			now.n = at + n > now.n ? at + n : now.n;
			break;
		default:
			n = n < INPUT_MAX - now.n ? n : INPUT_MAX - now.n;
			memmove(now.p + at + n, now.p + at, now.n - at);
			memmove(now.p + at, other == &now ? corpus[0].p : other->p, n);
			now.n += n;
		}
	}
}

int
main(int argc, char **argv)
{
	long seconds = 10;
	uint64_t runs = 0, most = 0; /* most 0: no limit but the time */
	time_t end;

	seed = (uint64_t)time(NULL) | 1;
	for (int i = 1; i < argc; i++) {
		if (strncmp(argv[i], "-max_total_time=", 16) == 0)
			seconds = atol(argv[i] + 16);
		else if (strncmp(argv[i], "-runs=", 6) == 0)
			most = strtoull(argv[i] + 6, NULL, 10);
		else if (strncmp(argv[i], "-seed=", 6) == 0)
			seed = strtoull(argv[i] + 6, NULL, 10) | 1;
		else if (argv[i][0] != '-')
			read_corpus(argv[i]);
	}
	printf("seed %llu, %zu files\n", (unsigned long long)seed, count);
	fflush(stdout);
	__sanitizer_set_death_callback(keep_input);
	for (size_t i = 0; i < count; i++) {
		now = corpus[i];
		LLVMFuzzerTestOneInput(now.p, now.n);
	}
	for (end = time(NULL) + seconds; most ? runs < most : time(NULL) < end; runs++) {
		mutate();
		LLVMFuzzerTestOneInput(now.p, now.n);
	}
	printf("%llu runs\n", (unsigned long long)runs);
	return 0;
}
