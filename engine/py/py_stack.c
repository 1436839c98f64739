/* The Python stacks of the rank: what faulthandler needs, and the GIL (rank/rank_stack.c). */
#define _GNU_SOURCE
#include <Python.h>
#include "py/py.h"

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

static int
take_gil(void)
{
	return (int)PyGILState_Ensure();
}

static void
drop_gil(int state)
{
	PyGILState_Release((PyGILState_STATE)state);
}

PyObject *
py_stack_begin(PyObject *module, PyObject *unused)
{
	rank_stack_begin(take_gil, drop_gil);
	Py_RETURN_NONE;
}
