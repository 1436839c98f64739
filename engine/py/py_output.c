/*
 * The type `_ddip.Out`, the base of a rank's sys.stdout and sys.stderr. Its C part follows that of
 * _io._TextIOBase, whose size only the running interpreter knows.
 */
#define _GNU_SOURCE
#include <Python.h>
#include "py/py.h"
#include "rank/output.h"
#include <string.h>

static Py_ssize_t offset; /* of our part in an object */

static struct out *
out_of(PyObject *self)
{
	return (struct out *)(void *)((char *)self + offset);
}

/* Writes to the descriptor itself. Returns false with an exception set on failure. */
static bool
write_direct(struct out *o, const char *p, size_t n, bool all)
{
	struct buf now = {0};
	int r = 0;

	out_direct(o, p, n, all, &now);
	if (now.n) {
		Py_BEGIN_ALLOW_THREADS r = write_all(o->fd, now.p, now.n);
		Py_END_ALLOW_THREADS
	}
	buf_free(&now);
	if (r == 0)
		return true;
	errno = -r;
	PyErr_SetFromErrno(PyExc_OSError);
	return false;
}

/* Passes all of it to the agent, or to the descriptor if that is not the agent's. Returns false
 * with an exception set on failure. */
static bool
put_all(struct out *o, const char *p, size_t n)
{
	while (n > 0) {
		ssize_t done = out_put(o, p, n);

		if (done < 0)
			return write_direct(o, p, n, false);
		p += done;
		n -= (size_t)done;
		if (done > 0)
			continue;
		Py_BEGIN_ALLOW_THREADS out_wait();
		Py_END_ALLOW_THREADS if (PyErr_CheckSignals() < 0) return false;
	}
	return true;
}

/* First writes what was begun while another file was on this descriptor. */
static bool
put(struct out *o, const char *p, size_t n)
{
	struct buf held = o->line;
	bool ok;

	if (!held.n || out_put(o, "", 0) < 0)
		return put_all(o, p, n);
	o->line = (struct buf){0};
	ok = put_all(o, held.p, held.n) && put_all(o, p, n);
	buf_free(&held);
	return ok;
}

/* Encodes a text that has surrogates. On stdout, those that stand for bytes which were no UTF-8
 * become these bytes again; all others are escaped. */
static PyObject *
encode(const struct out *o, PyObject *text)
{
	PyObject *bytes = NULL;

	if (o->kind == 0)
		bytes = PyUnicode_AsEncodedString(text, "utf-8", "surrogateescape");
	if (bytes)
		return bytes;
	PyErr_Clear();
	return PyUnicode_AsEncodedString(text, "utf-8", "backslashreplace");
}

static PyObject *
out_type_write(PyObject *self, PyObject *text)
{
	struct out *o = out_of(self);
	Py_ssize_t n;
	const char *p = PyUnicode_AsUTF8AndSize(text, &n);
	PyObject *bytes = NULL;
	char *escaped;
	bool ok;

	if (p) {
		if (!put(o, p, (size_t)n))
			return NULL;
		return PyLong_FromSsize_t(PyUnicode_GetLength(text));
	}
	if (!PyUnicode_Check(text))
		PyErr_Format(PyExc_TypeError, "write() wants a str");
	if (!PyErr_ExceptionMatches(PyExc_UnicodeEncodeError))
		return NULL;
	PyErr_Clear();
	bytes = encode(o, text);
	if (!bytes || PyBytes_AsStringAndSize(bytes, &escaped, &n) < 0) {
		Py_XDECREF(bytes);
		return NULL;
	}
	ok = put(o, escaped, (size_t)n);
	Py_DECREF(bytes);
	return ok ? PyLong_FromSsize_t(PyUnicode_GetLength(text)) : NULL;
}

static PyObject *
out_type_flush(PyObject *self, PyObject *unused)
{
	struct out *o = out_of(self);

	if (o->line.n && !write_direct(o, "", 0, true))
		return NULL;
	out_flush();
	Py_RETURN_NONE;
}

static PyObject *
out_type_fileno(PyObject *self, PyObject *unused)
{
	return PyLong_FromLong(out_of(self)->fd);
}

static int
out_type_init(PyObject *self, PyObject *args, PyObject *kwargs)
{
	struct out *o = out_of(self);
	int fd, kind;

	if (!PyArg_ParseTuple(args, "ii:Out", &fd, &kind))
		return -1;
	if (kind < 0 || kind > 2) {
		PyErr_Format(
		    PyExc_ValueError, "kind: want 0 stdout, 1 stderr or 2 display, not %d", kind);
		return -1;
	}
	o->fd = kind == 2 && fd < 0 ? rank_display() : fd;
	o->kind = kind;
	return 0;
}

static PyMethodDef out_methods[] = {
    {"write", out_type_write, METH_O, "write(text): number of characters"},
    {"flush", out_type_flush, METH_NOARGS, "What was written is seen outside now"},
    {"fileno", out_type_fileno, METH_NOARGS, "The descriptor of this stream"},
    {NULL, NULL, 0, NULL},
};

bool
py_out_add(PyObject *module)
{
	static PyType_Slot slots[] = {
	    {Py_tp_methods, out_methods},
	    {Py_tp_init, (void *)out_type_init},
	    {Py_tp_doc, (void *)(uintptr_t) "Out(fd, kind): text on its way to the agent"},
	    {0, NULL},
	};
	static PyType_Spec spec = {
	    .name = "_ddip.Out", .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, .slots = slots};
	PyObject *io = PyImport_ImportModule("_io"), *base = NULL, *size = NULL, *bases = NULL;
	PyObject *type = NULL;
	bool ok = false;

	if (io)
		base = PyObject_GetAttrString(io, "_TextIOBase");
	if (base)
		size = PyObject_GetAttrString(base, "__basicsize__");
	if (size) {
		offset = PyLong_AsSsize_t(size);
		offset = (offset + 15) & ~(Py_ssize_t)15;
		spec.basicsize = (int)(offset + (Py_ssize_t)sizeof(struct out));
		bases = PyTuple_Pack(1, base);
	}
	if (bases)
		type = PyType_FromSpecWithBases(&spec, bases);
	if (type)
		ok = PyModule_AddObjectRef(module, "Out", type) == 0;
	Py_XDECREF(io);
	Py_XDECREF(base);
	Py_XDECREF(size);
	Py_XDECREF(bases);
	Py_XDECREF(type);
	return ok;
}
