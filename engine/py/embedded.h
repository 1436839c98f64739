/* The engine's Python in the shared object, which scripts/embed writes. */
#ifndef PY_EMBEDDED_H
#define PY_EMBEDDED_H
#include <stddef.h>

struct embedded {
	const char *name; /* of the module, without the package's */
	const char *text; /* its source in UTF-8 */
	size_t n_text;
	const char *code; /* marshalled */
	size_t n_code;
};
extern const struct embedded embedded_sources[]; /* ended by a row of NULL */
extern const char
    embedded_magic[4]; /* importlib.util.MAGIC_NUMBER of those that can load the code */

#endif
