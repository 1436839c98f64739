/*
 * ddip-engine: the program that runs on each host for ddipfs. Depending on its first argument it is
 * the agent, or starts a Python that becomes a zygote or a rank. agent/agent.c is the agent;
 * rank/zygote.c and rank/rank.c run in Python's process.
 */
#define _GNU_SOURCE
#include "agent/agent.h"
#include "launcher.h"
#include "proc.h"
#include "line/line.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int
run_agent(char **args)
{
	return agent_main(NULL);
}

static int
run_away(char **args)
{
	return agent_main(args[0]);
}

static int
run_zygote(char **args)
{
	return launch_python(args[0], "zygote");
}

static int
run_rank(char **args)
{
	return launch_python(args[0], "rank");
}

static int
run_gpus(char **args)
{
	return gpus_main();
}

static int
run_version(char **args)
{
	printf("ddip-engine %s wire %d\n", DDIP_VERSION, WIRE_VERSION);
	return 0;
}

_Static_assert(
    (int)LINE_LANES == (int)LANES && (int)LINE_FD == (int)LANE_FD, "a line has an agent's lanes");

static int
run_near(char **args)
{
	return near_main(args, WIRE_VERSION);
}

static int
run_far(char **args)
{
	return far_main(args, WIRE_VERSION);
}

static int run_help(char **args);

static const char OPTIONS[] = "…";

static const struct mode {
	const char *option,
	    *argument; /* NULL: none; OPTIONS: any number, parsed by the mode itself */
	int (*run)(char **args);
	const char *help;
} modes[] = {
    {"--agent", NULL, run_agent, "serve a ddipfs daemon on standard input and output"},
    {"--away", "DIR", run_away, "the same for a daemon on another host (started by a relay)"},
    {"--zygote", "PYTHON", run_zygote,
	"load PYTHON and torch, and fork ranks (started by an agent)"},
    {"--rank", "PYTHON", run_rank, "load PYTHON and run cells (started by an agent)"},
    {"--gpus", NULL, run_gpus, "answer what NVML says of GPUs (started by an agent)"},
    {"relay", OPTIONS, run_near, "serve a ddipfs daemon by an agent on another host"},
    {"far", OPTIONS, run_far, "the other end of a relay (started by it)"},
    {"--version", NULL, run_version, "print the version and the wire's"},
    {"--help", NULL, run_help, "print this"},
};

static void
usage(FILE *out)
{
	fputs("usage: ddip-engine OPTION\n", out);
	for (size_t i = 0; i < ARRAY_LEN(modes); i++) {
		const struct mode *m = &modes[i];
		char left[40];

		snprintf(left, sizeof(left), "%s %s", m->option, m->argument ? m->argument : "");
		fprintf(out, "  %-18s %s\n", left, m->help);
	}
}

static int
run_help(char **args)
{
	usage(stdout);
	return 0;
}

int
main(int argc, char **argv)
{
	note_as("ddip-engine");
	proc_begin();
	for (size_t i = 0; argc > 1 && i < ARRAY_LEN(modes); i++)
		if (!strcmp(argv[1], modes[i].option) &&
		    (modes[i].argument == OPTIONS || argc == 2 + (modes[i].argument != NULL)))
			return modes[i].run(argv + 2);
	if (argc > 1)
		fprintf(
		    stderr, "ddip-engine: '%s' is no option, or its argument is wrong\n", argv[1]);
	usage(stderr);
	return 2;
}
