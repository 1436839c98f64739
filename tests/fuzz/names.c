/* Fuzzes names below vars, and the tables of variables that ranks report: the first line of the
 * input is a name, the rest a table. */
#include "object/varname.h"
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* A good name is made of its parts again. */
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
		if (v.op)
			buf_addf(&again, ".%s", v.op->name);
		if (*v.view->name)
			buf_addf(&again, ".%s", v.view->name);
		if (strcmp(again.p, name) != 0 || (v.op && !group))
			abort();
	}
	buf_free(&again);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *name = malloc(size + 1), *table, listed[256];
	struct slice row;

	memcpy(name, data, size);
	name[size] = '\0';
	table = strchr(name, '\n');
	table = xstrdup(table ? table + 1 : "");
	name[strcspn(name, "\n")] = '\0';
	parse(name, true);
	parse(name, false);
	var_is_staging(name);
	row = var_row(table, name);
	if (row.p && (row.p < table || row.p + row.n > table + strlen(table)))
		abort();
	for (size_t i = 0; var_name_at(table, i, listed, sizeof(listed)); i++)
		if (strpbrk(listed, "\t\n"))
			abort();
	free(table);
	free(name);
	return 0;
}
