/* What is known of an .npy file without asking the rank that would make it: NumPy's header of an
 * array with a plain type and a short shape has always the same length. */
#include "object/npy.h"
#include "object/var_table.h"
#include <ctype.h>
#include <stdlib.h>

enum {
	HEAD_SIZE = 128, /* NumPy pads to a multiple of 64, and a header with an empty shape has
			    more than 64 already */
	/* Characters of a shape, as Python writes it, that fit into that: of the 128 the rest of
	 * the header has 54 at most, and 20 blanks are left for the array to grow. */
	SHAPE_MAX = 43,
	DECIMAL = 10
};

/* Of NumPy and torch alike; of others, as bfloat16 or '>f8', there is no .npy, or a longer header.
 */
static const char *const types[] = {"bool", "int8", "int16", "int32", "int64", "uint8", "uint16",
    "uint32", "uint64", "float16", "float32", "float64", "complex64", "complex128"};

/* "2,3", "()" without dimensions. */
static bool
is_short_shape(struct slice s)
{
	size_t commas = 0;

	if (slice_eq(s, "()"))
		return true;
	for (size_t i = 0; i < s.n; i++) {
		if (!isdigit((unsigned char)s.p[i]) && s.p[i] != ',')
			return false;
		commas += s.p[i] == ',';
	}
	return s.n > 0 && s.n + commas + 3 <= SHAPE_MAX; /* "(2, 3)", "(5,)" */
}

bool
npy_size(struct slice row, uint64_t *size)
{
	struct slice type = var_row_column(row, VAR_DTYPE), bytes = var_row_column(row, VAR_BYTES);
	bool plain = false;

	for (size_t i = 0; i < ARRAY_LEN(types); i++)
		plain |= slice_eq(type, types[i]);
	if (!plain || !is_short_shape(var_row_column(row, VAR_SHAPE)) || bytes.n == 0 ||
	    !isdigit((unsigned char)*bytes.p))
		return false;
	*size =
	    HEAD_SIZE + strtoull(bytes.p, NULL, DECIMAL); /* a tab or the line's end is behind it */
	return true;
}
