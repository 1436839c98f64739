/* Messages of the wire as Python tuples, and back. Driven by the same table as the wire itself. */
#define _GNU_SOURCE
#include <Python.h>
#include "py/py.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const struct row {
	int type;
	const char *name, *format, *fields;
} rows[] = {

#define X(name, type, format, fields) {type, #name, format, fields},
    WIRE_MESSAGES(X)
#undef X
};

/* What the agent writes into a reply: its last four fields. */
static const char marks[] = "out err disp records";

static const struct row *
by_type(int type)
{
	for (size_t i = 0; i < ARRAY_LEN(rows); i++)
		if (rows[i].type == type)
			return &rows[i];
	return NULL;
}

static const struct row *
by_name(PyObject *name)
{
	const char *text = name ? PyUnicode_AsUTF8AndSize(name, NULL) : NULL;

	if (!text)
		return NULL;
	for (size_t i = 0; i < ARRAY_LEN(rows); i++)
		if (!strcmp(rows[i].name, text))
			return &rows[i];
	PyErr_Format(PyExc_ValueError, "there is no message %s", text);
	return NULL;
}

static uint64_t
get(const char *p, size_t n)
{
	uint64_t v = 0;

	for (size_t i = 0; i < n; i++)
		v |= (uint64_t)(uint8_t)p[i] << (8 * i);
	return v;
}

/* The field at *p as an object; NULL: an exception is set. */
static PyObject *
field(char format, const char **p, const char *end)
{
	bool text = format == 's' || format == 'd';
	size_t size = text ? 4 : (size_t)(format - '0');
	PyObject *o;
	uint64_t v;

	if ((size_t)(end - *p) < size)
		goto damaged;
	v = get(*p, size);
	*p += size;
	if (!text)
		return PyLong_FromUnsignedLongLong(v);
	if ((size_t)(end - *p) < v)
		goto damaged;
	o = format == 's' ? PyUnicode_DecodeUTF8(*p, (Py_ssize_t)v, "surrogateescape")
			  : PyBytes_FromStringAndSize(*p, (Py_ssize_t)v);
	*p += v;
	return o;
damaged:
	PyErr_SetString(PyExc_ValueError, "a message is shorter than its form");
	return NULL;
}

PyObject *
py_message_tuple(struct item *it)
{
	const struct row *r = by_type(it->m.type);
	const char *p = it->m.body, *end = p + it->m.len;
	Py_ssize_t n = (Py_ssize_t)strlen(r->format);
	PyObject *tuple = PyTuple_New(3 + n);
	PyObject *head[] = {PyUnicode_InternFromString(r->name), PyLong_FromUnsignedLong(it->m.tag),
	    PyLong_FromLong(it->m.fd)};

	for (Py_ssize_t i = 0; tuple && i < 3 + n; i++) {
		PyObject *o = i < 3 ? head[i] : field(r->format[i - 3], &p, end);

		if (!o || PyTuple_SetItem(tuple, i, o) < 0)
			Py_CLEAR(tuple);
	}
	if (!tuple && it->m.fd >= 0)
		close(it->m.fd);
	free(it);
	return tuple;
}

static void
put(struct buf *b, uint64_t v, size_t n)
{
	char *p = buf_room(b, n);

	for (size_t i = 0; i < n; i++)
		p[i] = (char)(v >> (8 * i));
	b->n += n;
}

/* Bytes of a str, bytes, or what bytes() takes; a new reference. */
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

/* Appends o in this form; false: an exception is set. */
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
		put(b, v, size);
		return true;
	}
	bytes = as_bytes(o);
	if (!bytes || PyBytes_AsStringAndSize(bytes, &p, &n) < 0) {
		Py_XDECREF(bytes);
		return false;
	}
	put(b, (uint64_t)MIN(n, (Py_ssize_t)UINT32_MAX), 4);
	if (n <= WIRE_MAX) /* else the whole is refused for its length */
		buf_add(b, p, (size_t)n);
	Py_DECREF(bytes);
	return n <= WIRE_MAX ||
	       (PyErr_Format(PyExc_OverflowError,
		    "%zd bytes do not go into one message (at most %d)", n, WIRE_MAX),
		   false);
}

static bool
pack(struct buf *b, const struct row *r, PyObject *args, Py_ssize_t first, bool *marked)
{
	Py_ssize_t want = (Py_ssize_t)strlen(r->format), have = PyTuple_Size(args) - first;
	size_t all = strlen(r->fields), tail = sizeof(marks) - 1;

	*marked = r->name[0] == 'R' && all >= tail && !strcmp(r->fields + all - tail, marks);
	if (have != want - (*marked ? 4 : 0)) {
		PyErr_Format(PyExc_TypeError, "%s has the fields (%s), but %zd were given", r->name,
		    r->fields, have);
		return false;
	}
	for (Py_ssize_t i = 0; i < have; i++)
		if (!add_field(b, r->format[i], PyTuple_GetItem(args, first + i)))
			return false;
	for (int i = 0; *marked && i < 4; i++)
		put(b, 0, 8);
	if (b->n <= WIRE_MAX - WIRE_HEADER)
		return true;
	PyErr_Format(PyExc_OverflowError, "%s of %zu bytes (at most %d)", r->name, b->n,
	    WIRE_MAX - WIRE_HEADER);
	return false;
}

bool
py_message_send(PyObject *type, uint32_t tag, int fd, PyObject *args, Py_ssize_t first)
{
	const struct row *r = by_name(type);
	struct buf b = {0};
	bool marked, ok;

	if (!r)
		return false;
	ok = pack(&b, r, args, first, &marked);
	if (ok)
		rank_link_send(&(struct msg){.type = (uint8_t)r->type,
		    .flags = marked ? FLAG_MARK : 0,
		    .tag = tag,
		    .fd = fd,
		    .body = b.p,
		    .len = (uint32_t)b.n});
	buf_free(&b);
	return ok;
}
