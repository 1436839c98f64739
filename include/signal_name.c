/* The table of signals. */
#include "signal_name.h"
#include <signal.h>
#include <string.h>

/* clang-format off */
/* glibc provides these names since 2.32. */
#define S(name) {#name, SIG##name}
static const struct {
	const char *name;
	int number;
} signals[] = {
	S(HUP), S(INT), S(QUIT), S(ILL), S(TRAP), S(ABRT), S(BUS), S(FPE), S(KILL), S(USR1), S(SEGV),
	S(USR2), S(PIPE), S(ALRM), S(TERM), S(STKFLT), S(CHLD), S(CONT), S(STOP), S(TSTP), S(TTIN),
	S(TTOU), S(URG), S(XCPU), S(XFSZ), S(VTALRM), S(PROF), S(WINCH), S(POLL), S(PWR), S(SYS),
};

/* clang-format on */
#undef S

const int signal_preempts[] = {SIGUSR1, SIGUSR2, SIGXCPU, SIGPWR, SIGTERM, 0};

int
signal_name_find(const char *name)
{
	const char *bare = strncmp(name, "SIG", 3) == 0 ? name + 3 : name;

	for (size_t i = 0; i < ARRAY_LEN(signals); i++)
		if (strcmp(signals[i].name, bare) == 0)
			return signals[i].number;
	return 0;
}

const char *
signal_name(int signo)
{
	for (size_t i = 0; i < ARRAY_LEN(signals); i++)
		if (signals[i].number == signo)
			return signals[i].name;
	return "-";
}

int
signal_on_preempt(struct slice env)
{
	static const char key[] = ENGINE_ENV_ON_PREEMPT "=";

	while (env.n) {
		const char *end = memchr(env.p, '\0', env.n);
		size_t n = end ? (size_t)(end - env.p) : env.n;

		if (end && n >= sizeof(key) - 1 && memcmp(env.p, key, sizeof(key) - 1) == 0)
			return signal_name_find(env.p + sizeof(key) - 1);
		n = MIN(n + 1, env.n);
		env.p += n;
		env.n -= n;
	}
	return 0;
}
