/* Converts wire messages to Python tuples and back, field by field. */
#define _GNU_SOURCE
#include <Python.h>
#include "py/py.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The last four fields of a reply, which the agent fills in. */
static const char marks[] = "out err disp records";

/* Returns the type with that name, or -1 with an exception set. */
static int
by_name(PyObject *name)
{
	const char *text = name ? PyUnicode_AsUTF8AndSize(name, NULL) : NULL;
	int type = text ? wire_type(text) : -1;

	if (text && type < 0)
		PyErr_Format(PyExc_ValueError, "there is no message %s", text);
	return type;
}

/* Returns the field at *p as an object, or NULL with an exception set. */
static PyObject *
field(char format, const char **p, size_t *left)
{
	struct slice s;
	uint64_t v;

	if (!wire_get(format, p, left, &v, &s)) {
		PyErr_SetString(PyExc_ValueError, "a message is shorter than its form");
		return NULL;
	}
	if (format == 's')
		return PyUnicode_DecodeUTF8(s.p, (Py_ssize_t)s.n, "surrogateescape");
	if (format == 'd')
		return PyBytes_FromStringAndSize(s.p, (Py_ssize_t)s.n);
	return PyLong_FromUnsignedLongLong(v);
}

PyObject *
py_message_tuple(struct item *it)
{
	const char *format = wire_format(it->m.type), *p = it->m.body;
	size_t left = it->m.len;
	Py_ssize_t n = (Py_ssize_t)strlen(format);
	PyObject *tuple = PyTuple_New(3 + n);
	PyObject *head[] = {PyUnicode_InternFromString(wire_name(it->m.type)),
	    PyLong_FromUnsignedLong(it->m.tag), PyLong_FromLong(it->m.fd)};

	for (Py_ssize_t i = 0; tuple && i < 3 + n; i++) {
		PyObject *o = i < 3 ? head[i] : field(format[i - 3], &p, &left);

		if (!o || PyTuple_SetItem(tuple, i, o) < 0)
			Py_CLEAR(tuple);
	}
	if (!tuple && it->m.fd >= 0)
		close(it->m.fd);
	free(it);
	return tuple;
}

/* Converts a str, bytes, or anything that bytes() accepts. Returns a new reference. */
static PyObject *
as_bytes(PyObject *o)
{
	PyObject *bytes;

	if (!PyUnicode_Check(o))
		return PyBytes_FromObject(o);
	bytes = PyUnicode_AsEncodedString(o, "utf-8", "surrogateescape");
	if (bytes || !PyErr_ExceptionMatches(PyExc_UnicodeEncodeError))
		return bytes;
	PyErr_Clear();
	return PyUnicode_AsEncodedString(o, "utf-8", "backslashreplace");
}

/* Appends o in this format. Returns false with an exception set on failure. */
static bool
add_field(struct buf *b, char format, PyObject *o)
{
	PyObject *bytes;
	char *p;
	Py_ssize_t n;
	uint64_t v;

	if (format != 's' && format != 'd') {
		size_t size = (size_t)(format - '0');

		v = PyLong_AsUnsignedLongLong(o);
		if (PyErr_Occurred())
			return false;
		if (size < 8 && v >> (8 * size)) {
			PyErr_Format(PyExc_OverflowError, "a field of %zu bytes can't hold %llu",
			    size, (unsigned long long)v);
			return false;
		}
		wire_put_number(b, format, v);
		return true;
	}
	bytes = as_bytes(o);
	if (!bytes || PyBytes_AsStringAndSize(bytes, &p, &n) < 0) {
		Py_XDECREF(bytes);
		return false;
	}
	if (n <= WIRE_MAX)
		wire_put_bytes(b, (struct slice){p, (size_t)n});
	else
		PyErr_Format(PyExc_OverflowError,
		    "%zd bytes do not go into one message (at most %d)", n, WIRE_MAX);
	Py_DECREF(bytes);
	return n <= WIRE_MAX;
}

static bool
pack(struct buf *b, int type, PyObject *args, Py_ssize_t first, bool *marked)
{
	const char *format = wire_format(type), *fields = wire_fields(type);
	Py_ssize_t want = (Py_ssize_t)strlen(format), have = PyTuple_Size(args) - first;
	size_t all = strlen(fields), tail = sizeof(marks) - 1;

	*marked = wire_kind(type) == 'R' && all >= tail && !strcmp(fields + all - tail, marks);
	if (have != want - (*marked ? 4 : 0)) {
		PyErr_Format(PyExc_TypeError, "%s has the fields (%s), but %zd were given",
		    wire_name(type), fields, have);
		return false;
	}
	for (Py_ssize_t i = 0; i < have; i++)
		if (!add_field(b, format[i], PyTuple_GetItem(args, first + i)))
			return false;
	for (int i = 0; *marked && i < 4; i++)
		wire_put_number(b, '8', 0);
	if (b->n <= WIRE_MAX - WIRE_HEADER)
		return true;
	PyErr_Format(PyExc_OverflowError, "%s of %zu bytes (at most %d)", wire_name(type), b->n,
	    WIRE_MAX - WIRE_HEADER);
	return false;
}

bool
py_message_send(PyObject *type, uint64_t tag, int fd, PyObject *args, Py_ssize_t first)
{
	int number = by_name(type);
	struct buf b = {0};
	bool marked, ok, ordered = gettid() == getpid(); /* the main thread's */

	if (number < 0)
		return false;
	ok = pack(&b, number, args, first, &marked);
	if (ok)
		rank_link_send(&(struct msg){.type = (uint8_t)number,
		    .flags = (uint8_t)((marked ? FLAG_MARK : 0) | (ordered ? FLAG_ORDERED : 0)),
		    .tag = tag,
		    .fd = fd,
		    .body = b.p,
		    .len = (uint32_t)b.n});
	buf_free(&b);
	return ok;
}
