/*
 * Files that wait for anything: G/wait, wait.REASONS, cells/N/wait.REASONS. A line for each thing
 * that happens, from the open on; what holds at the open comes first.
 */
#ifndef WAIT_FILE_H
#define WAIT_FILE_H
#include "tree/tree.h"

/* The reasons for a line: a set of bits, and for silence a time. */
struct wait_reasons {
	unsigned set;
	double quiet; /* seconds without output */
};

/* Parses REASONS: words separated by commas, such as "failed,quiet=60". NULL: all but quiet.
 * Returns 0 or -EINVAL. */
int wait_file_parse(const char *text, struct wait_reasons *why, struct err *e);
/* Connects the files to the groups' hooks. Call once, before any group is created. */
void wait_file_init(void);
/* The daemon ends: readers of the files of all groups get ENODEV. */
void wait_file_answer(void);

extern const struct file_ops wait_file_ops;

#endif
