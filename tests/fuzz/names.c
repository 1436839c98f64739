/* Fuzzes names below vars and the tables of variables that ranks report: the first line of the
 * input is a name, the rest a table. */
#include "object/var_table.h"
#include "object/varname.h"
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* The parts of a valid name form the name again. */
static void
parse(const char *name, bool group)
{
	struct var_name v;
	struct buf again = {0};
	struct err e = {0};
	int r = var_parse(name, group, &v, &e);

	if (r < 0 && (!e.text[0] || e.no != -r))
		abort();
	if (r == 0) {
		buf_adds(&again, v.name);
		if (*v.attribute)
			buf_addf(&again, ".%s", v.attribute);
		if (v.op)
			buf_addf(&again, ".%s", v.op->name);
		if (*v.view->name)
			buf_addf(&again, ".%s", v.view->name);
		if (strcmp(again.p, name) != 0 || (v.op && !group))
			abort();
	}
	buf_free(&again);
}

/* The same of a key's name, which is never refused. */
static void
parse_key(const char *name, bool group)
{
	struct var_name v;
	struct buf again = {0};

	if (strlen(name) >= sizeof(v.name))
		return;
	var_parse_key(name, group, &v);
	buf_adds(&again, v.name);
	if (v.op)
		buf_addf(&again, ".%s", v.op->name);
	if (*v.view->name)
		buf_addf(&again, ".%s", v.view->name);
	if (strcmp(again.n ? again.p : "", name) != 0 || (v.op && !group) || *v.attribute ||
	    (*name && !*v.name) || var_directory(name) + 2 > MAX(strlen(name), (size_t)2))
		abort();
	buf_free(&again);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *name = malloc(size + 1), *text;
	struct var_table *table;

	memcpy(name, data, size);
	name[size] = '\0';
	text = strchr(name, '\n');
	table =
	    var_table_new(text ? (struct slice){text + 1, strlen(text + 1)} : (struct slice){0});
	name[strcspn(name, "\n")] = '\0';
	parse(name, true);
	parse(name, false);
	parse_key(name, true);
	parse_key(name, false);
	var_is_staging(name);
	var_is_probe(name);
	for (size_t i = 0; i < var_table_count(table); i++) {
		char *listed = slice_dup(var_table_name(table, i));
		struct slice row = var_table_find(table, listed);

		/* each listed name is found, and could be the name of a file */
		if (row.p != var_table_row(table, i).p || strpbrk(listed, "\t\n/") ||
		    var_row_column(row, VAR_DEVICE).n > row.n)
			abort();
		free(listed);
	}
	var_table_unref(table);
	free(name);
	return 0;
}
