/* Writes records of named values, the same for people as text and for programs as JSON. */
#ifndef RECORD_H
#define RECORD_H
#include "util.h"

enum record_form {
	RECORD_LINES, /* a line `key value` for each value */
	RECORD_WORDS, /* a line for each record: its first value, then key=value words */
	RECORD_JSON
};

/* What to write to; initially, the rest is zero. Lists and keys of records are shown in JSON
 * only. */
struct record {
	struct buf *out;
	enum record_form form;
	bool is_more; /* something precedes in the same record or list */
	int depth;
};

/* key: NULL in a list, and for the outermost. */
void record_begin(struct record *r, const char *key);
void record_end(struct record *r);
void record_begin_list(struct record *r, const char *key);
void record_end_list(struct record *r);
/* A text may have any bytes in JSON; as text it is written as it is. NULL: as record_none(). */
void record_text(struct record *r, const char *key, const char *value);
void record_number(struct record *r, const char *key, long long value);
void record_real(struct record *r, const char *key, double value, int decimals);
void record_none(struct record *r, const char *key); /* "-", or null */
/* Values that are given as lines `key value`; numbers are numbers in JSON, too. prefix: of each
 * key. */
void record_lines(struct record *r, const char *prefix, const char *lines);

#endif
