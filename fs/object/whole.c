/*
 * npy: numpy.org/doc/stable/reference/generated/numpy.lib.format.html; safetensors:
 * github.com/huggingface/safetensors, "Format"; zip: APPNOTE.TXT 4.3.16, the end of central
 * directory record.
 */
#include "object/whole.h"
#include "util.h"
#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
	NPY_MAX = 64 << 10,	     /* bytes of a header that are looked at */
	SAFETENSORS_MAX = 100 << 20, /* as the library has it */
	ZIP_END = 22,
	ZIP64_LOCATOR = 20,
	ZIP64_ENDS =
	    56 + ZIP64_LOCATOR /* both records of zip64, as they are written without extensions */
};

static uint64_t
little(const unsigned char *p, int bytes)
{
	uint64_t n = 0;

	for (int i = bytes; i-- > 0;)
		n = n << 8 | p[i];
	return n;
}

/* Reads a part of the file as a string. NULL if it is not all there. */
static char *
text_at(int fd, uint64_t offset, size_t n)
{
	char *text = xmalloc(n + 1);

	if (pread(fd, text, n, (off_t)offset) == (ssize_t)n) {
		text[n] = '\0';
		return text;
	}
	free(text);
	return NULL;
}

/* What follows a key of the header, behind its colon and blanks. */
static const char *
behind(const char *text, const char *key)
{
	const char *at = strstr(text, key);

	return at ? at + strlen(key) + strspn(at + strlen(key), " ") : NULL;
}

/* The bytes of an element by its descr, '<f4'. 0: not known, as of records and objects. */
static uint64_t
item_size(const char *descr)
{
	char kind, *end;
	uint64_t n;

	if (!descr || descr[0] != '\'' || !descr[1] || !strchr("<>|=", descr[1]))
		return 0;
	kind = descr[2];
	if (!kind || !strchr("biufcmMSUV", kind) || !isdigit((unsigned char)descr[3]))
		return 0;
	n = strtoull(descr + 3, &end, 10);
	return n > 1 << 20 ? 0 : kind == 'U' ? n * 4 : n;
}

/* The bytes of the array that a header describes. 0: not known. */
static uint64_t
npy_bytes(const char *header)
{
	const char *shape = behind(header, "'shape':");
	uint64_t n = item_size(behind(header, "'descr':"));

	if (!n || !shape || *shape++ != '(')
		return 0;
	while (isdigit((unsigned char)*shape)) {
		char *end;
		uint64_t side = strtoull(shape, &end, 10);

		if (__builtin_mul_overflow(n, side, &n))
			return 0;
		shape = end + strspn(end, ", ");
	}
	return *shape == ')' && n ? n
				  : 0; /* of an empty array the header is all: the close tells */
}

static uint64_t
npy_size(int fd, uint64_t n)
{
	unsigned char head[12] = {0};
	uint64_t start, length, bytes;
	char *text;

	if (n < sizeof(head) || pread(fd, head, sizeof(head), 0) != (ssize_t)sizeof(head) ||
	    memcmp(head, "\x93NUMPY", 6) != 0)
		return 0;
	start = head[6] == 1 ? 10 : 12;
	length = little(head + 8, head[6] == 1 ? 2 : 4);
	if (length > NPY_MAX || start + length > n || !(text = text_at(fd, start, (size_t)length)))
		return 0;
	bytes = npy_bytes(text);
	free(text);
	return bytes ? start + length + bytes : 0;
}

/* The end of the last tensor. A quote within a string of the header has a backslash before it, so
 * the key is one. */
static uint64_t
last_offset(const char *header)
{
	static const char key[] = "\"data_offsets\":";
	uint64_t last = 0;

	for (const char *at = header; (at = strstr(at, key));) {
		char *end;

		at += strlen(key);
		at += strspn(at, " \n\t\r[");
		strtoull(at, &end, 10);
		end += strspn(end, " \n\t\r,");
		last = MAX(last, (uint64_t)strtoull(end, NULL, 10));
	}
	return last;
}

static uint64_t
safetensors_size(int fd, uint64_t n)
{
	unsigned char head[8];
	uint64_t length, last;
	char *text;

	if (n < sizeof(head) || pread(fd, head, sizeof(head), 0) != (ssize_t)sizeof(head))
		return 0;
	length = little(head, 8);
	if (length > SAFETENSORS_MAX || n - sizeof(head) < length ||
	    !(text = text_at(fd, sizeof(head), (size_t)length)))
		return 0;
	last = last_offset(text);
	free(text);
	return last ? sizeof(head) + length + last : 0;
}

/* The end record says where the directory is, which ends where the record begins, or the two
 * records of zip64 before it, the second of which says where the first is. So that of a zip file
 * within this one is not taken for its end. */
static uint64_t
zip_size(int fd, uint64_t n)
{
	unsigned char end[ZIP64_ENDS + ZIP_END] = {0};
	size_t take = (size_t)MIN(n, (uint64_t)sizeof(end));
	const unsigned char *locator = end + ZIP64_ENDS - ZIP64_LOCATOR, *last = end + ZIP64_ENDS;
	uint64_t directory;

	if (n < ZIP_END ||
	    pread(fd, end + sizeof(end) - take, take, (off_t)(n - take)) != (ssize_t)take ||
	    memcmp(last, "PK\5\6", 4) != 0 || little(last + 20, 2) != 0)
		return 0;
	if (memcmp(locator, "PK\6\7", 4) == 0)
		return little(locator + 8, 8) + sizeof(end) == n ? n : 0;
	directory = little(last + 12, 4) + little(last + 16, 4);
	return directory + ZIP_END == n ? n : 0;
}

bool
whole_may_state(const char *view, uint64_t offset, const char *p, size_t n)
{
	if (strcmp(view, "npy") == 0)
		return offset <= NPY_MAX;
	if (strcmp(view, "safetensors") == 0)
		return offset <= SAFETENSORS_MAX;
	return strcmp(view, "pt") == 0 &&
	       (n < ZIP_END || memcmp(p + n - ZIP_END, "PK\5\6", 4) == 0);
}

uint64_t
whole_size(int fd, uint64_t n, const char *view)
{
	if (strcmp(view, "npy") == 0)
		return npy_size(fd, n);
	if (strcmp(view, "safetensors") == 0)
		return safetensors_size(fd, n);
	if (strcmp(view, "pt") == 0)
		return zip_size(fd, n);
	return 0;
}
