/* The Python stacks of the rank: what faulthandler needs, and the GIL (rank/rank_stack.c). */
#define _GNU_SOURCE
#include <Python.h>
#include "py/py.h"
#include <dlfcn.h>

PyObject *
py_stack_signal(PyObject *module, PyObject *unused)
{
	return PyLong_FromLong(rank_stack_signal());
}

PyObject *
py_stack_fd(PyObject *module, PyObject *unused)
{
	return PyLong_FromLong(rank_stack_fd());
}

PyObject *
py_look_signal(PyObject *module, PyObject *unused)
{
	return PyLong_FromLong(rank_look_signal());
}

PyObject *
py_look_fd(PyObject *module, PyObject *unused)
{
	return PyLong_FromLong(rank_look_fd());
}

static PyObject *describe;

/* Also asks Python for what goes with the stacks, before these stand still. */
static int
take_gil(void)
{
	int state = (int)PyGILState_Ensure();
	PyObject *text;
	char *p;
	Py_ssize_t n;

	rank_gil_runs(true);
	text = PyObject_CallNoArgs(describe);
	if (text && PyBytes_AsStringAndSize(text, &p, &n) == 0)
		rank_stack_describe((struct slice){p, (size_t)n});
	else
		PyErr_Clear(); /* the answer goes without it */
	Py_XDECREF(text);
	rank_gil_runs(false);
	return state;
}

static void
drop_gil(int state)
{
	PyGILState_Release((PyGILState_STATE)state);
}

PyObject *
py_flight_find(PyObject *module, PyObject *unused)
{
	return PyLong_FromUnsignedLong(rank_flight_find());
}

PyObject *
py_flight_groups(PyObject *module, PyObject *lines)
{
	char *p;
	Py_ssize_t n;

	if (PyBytes_AsStringAndSize(lines, &p, &n) < 0)
		return NULL;
	rank_flight_groups((struct slice){p, (size_t)n});
	Py_RETURN_NONE;
}

PyObject *
py_flight_text(PyObject *module, PyObject *args)
{
	unsigned which;
	const char *p;
	Py_ssize_t n;

	if (!PyArg_ParseTuple(args, "Iy#:flight_text", &which, &p, &n))
		return NULL;
	if (which < FLIGHT_RECORDERS)
		rank_flight_text((enum flight_recorder)which, (struct slice){p, (size_t)n});
	Py_RETURN_NONE;
}

PyObject *
py_stack_begin(PyObject *module, PyObject *function)
{
	int (*has_gil)(void);

	/* public, but no part of the stable ABI */
	*(void **)&has_gil = dlsym(RTLD_DEFAULT, "PyGILState_Check");
	describe = Py_NewRef(function);
	rank_stack_begin(take_gil, drop_gil, has_gil);
	rank_look_begin();
	Py_RETURN_NONE;
}
