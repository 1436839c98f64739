/*
 * The environments of zygotes and ranks: the daemon's own, the group's settings, and what the
 * engine needs.
 */
#define _GNU_SOURCE
#include "agent/agent.h"
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A zygote forks, so no library may start threads in it; a rank gets what the user wants. */
static const char *const thread_counts[] = {"OMP_NUM_THREADS", "MKL_NUM_THREADS",
    "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS", "BLIS_NUM_THREADS", "VECLIB_MAXIMUM_THREADS"};

/* Is text K=V (or K alone), where K is this key of n bytes? */
static bool
is_key(const char *text, const char *key, size_t n)
{
	return !strncmp(text, key, n) && (text[n] == '=' || text[n] == '\0');
}

const char *
env_get(const struct buf *env, const char *key)
{
	const char *found = NULL;
	size_t n = strlen(key);

	for (size_t at = 0; at < env->n; at += strlen(env->p + at) + 1)
		if (is_key(env->p + at, key, n) && env->p[at + n] == '=')
			found = env->p + at + n + 1;
	return found;
}

void
env_add(struct buf *env, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	buf_vaddf(env, fmt, ap);
	va_end(ap);
	buf_addc(env, '\0');
}

char **
env_overlay(const struct buf *env)
{
	size_t n = 0, capacity = 1;
	char **all;

	for (char **at = environ; *at; at++)
		capacity++;
	for (size_t at = 0; at < env->n; at += strlen(env->p + at) + 1)
		capacity++;
	all = xcalloc(capacity, sizeof(*all));
	for (char **at = environ; *at; at++)
		all[n++] = *at;
	for (size_t at = 0; at < env->n; at += strlen(env->p + at) + 1) {
		size_t i = 0;

		while (i < n && !is_key(all[i], env->p + at, strcspn(env->p + at, "=")))
			i++;
		all[i] = env->p + at;
		n = MAX(n, i + 1);
		if (!strchr(all[i], '='))
			all[i] = all[--n];
	}
	all[n] = NULL;
	return all;
}

void
env_add_threads(struct buf *to, const struct zygote_pool *pool, bool for_zygote)
{
	for (size_t i = 0; i < ARRAY_LEN(thread_counts); i++) {
		const char *key = thread_counts[i], *value = env_get(&pool->env, key);

		if (!value)
			value = getenv(key);
		if (!value && i == 0)
			value = "1";
		if (for_zygote)
			env_add(to, "%s=1", key);
		else if (value)
			env_add(to, "%s=%s", key, value);
		else
			env_add(to, "%s", key);
	}
}
