/* An object's size is known by its header or end record, never by half of it, and never wrongly. */
#include "object/whole.h"
#include "check.h"
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

static uint64_t
size_of(const void *p, size_t n, const char *view)
{
	int fd = memfd_create("whole", MFD_CLOEXEC);
	uint64_t size;

	CHECK(fd >= 0 && write(fd, p, n) == (ssize_t)n);
	size = whole_size(fd, n, view);
	close(fd);
	return size;
}

static uint64_t
npy(const char *header)
{
	char p[512];
	size_t n = strlen(header);

	memcpy(p, "\x93NUMPY\1\0", 8);
	p[8] = (char)n;
	p[9] = 0;
	memcpy(p + 10, header, n);
	CHECK(size_of(p, 10 + n - 1, "npy") == 0);
	return size_of(p, 10 + n, "npy") ? size_of(p, 10 + n, "npy") - 10 - n : 0;
}

static void
test_npy(void)
{
	CHECK(npy("{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }\n") == 48);
	CHECK(npy("{'descr': '|b1', 'fortran_order': False, 'shape': (5,), }\n") == 5);
	CHECK(npy("{'descr': '<U7', 'fortran_order': True, 'shape': (), }\n") == 28);
	CHECK(npy("{'descr': '<M8[ns]', 'fortran_order': False, 'shape': (2,), }\n") == 16);
	CHECK(npy("{'descr': '|O', 'fortran_order': False, 'shape': (3,), }\n") == 0);
	CHECK(npy("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (3,), }\n") == 0);
	CHECK(npy("{'descr': '<f4', 'shape': (4294967296, 4294967296, 4294967296), }\n") == 0);
	CHECK(npy("{'descr': '<f4', 'shape': (3, -4), }\n") == 0);
	CHECK(npy("{'descr': '<f4'}\n") == 0 && npy("{'shape': (3,)}\n") == 0 && npy("\n") == 0);
	CHECK(size_of("\x93NUMPY\2\0\xff\xff\xff\xff....", 16, "npy") == 0);
	CHECK(size_of("", 0, "npy") == 0 && size_of("no array at all", 15, "npy") == 0);
}

static uint64_t
safetensors(const char *header)
{
	char p[512] = {(char)strlen(header)};

	memcpy(p + 8, header, strlen(header));
	CHECK(size_of(p, 8 + strlen(header) - 1, "safetensors") == 0);
	return size_of(p, 8 + strlen(header), "safetensors");
}

static void
test_safetensors(void)
{
	const char *two = "{\"a\":{\"data_offsets\":[16,40]},\"b\":{\"data_offsets\" :[0,16]}}";
	const char *quoted = "{\"\\\"data_offsets\\\":[0,99]\":{\"data_offsets\": [0, 16]}}";

	CHECK(safetensors(two) == 8 + strlen(two) + 40);
	CHECK(safetensors(quoted) == 8 + strlen(quoted) + 16);
	CHECK(safetensors("{}") == 0);
	CHECK(size_of("\xff\xff\xff\xff\xff\xff\xff\xff", 8, "safetensors") == 0);
}

static void
test_zip(void)
{
	/* a directory of 5 bytes at 3, the end record; then the same behind one byte more */
	char p[64] = "ab.dirs.PK\5\6";

	p[8 + 12] = 5;
	p[8 + 16] = 3;
	CHECK(size_of(p, 30, "pt") == 30 && size_of(p, 29, "pt") == 0);
	CHECK(size_of(p, 30, "txt") == 0);
	p[8 + 16] = 4;
	CHECK(size_of(p, 30, "pt") == 0);
	CHECK(size_of("", 0, "pt") == 0);
}

int
main(void)
{
	test_npy();
	test_safetensors();
	test_zip();
	return 0;
}
