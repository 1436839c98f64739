/*
 * Cancels a request for a view: raises a Python exception in the thread that makes the view.
 *
 * Python raises such an exception between two bytecode instructions, perhaps much later. All code
 * here holds the GIL and runs no bytecode but the call itself, so none is raised after the call.
 */
#define _GNU_SOURCE
#include <Python.h>
#include "py/py.h"

enum { AT_ONCE = 64 }; /* threads that are told by one call */

/* An exception that was sent to this thread may not have been raised yet. It cannot be taken back
 * (Python would go on looking for it), so it is raised, in a function that waits for that: again,
 * if another thread got it, one that this thread has started and that has not run yet. */
static void
raise_what_is_left(unsigned long thread, PyObject *exception, PyObject *wait)
{
	PyObject *waited;

	do {
		PyThreadState_SetAsyncExc(thread, exception);
		waited = PyObject_CallObject(wait, NULL);
		Py_XDECREF(waited);
	} while (waited);
	PyErr_Clear();
}

/* cancellable(tag, thread, exception, wait, function, *args) */
PyObject *
py_cancellable(PyObject *module, PyObject *args)
{
	enum { TAG, THREAD, EXCEPTION, WAIT, FUNCTION, REST };

	Py_ssize_t n = PyTuple_Size(args);
	unsigned long tag, thread;
	PyObject *rest, *result = NULL;

	if (n < REST)
		return PyErr_Format(PyExc_TypeError, "cancellable: want %d arguments", REST);
	tag = PyLong_AsUnsignedLong(PyTuple_GetItem(args, TAG));
	thread = PyLong_AsUnsignedLong(PyTuple_GetItem(args, THREAD));
	rest = PyErr_Occurred() ? NULL : PyTuple_GetSlice(args, REST, n);
	if (!rest)
		return NULL;
	if (rank_request_begin((uint32_t)tag, thread))
		result = PyObject_Call(PyTuple_GetItem(args, FUNCTION), rest, NULL);
	Py_DECREF(rest);
	if (!rank_request_end((uint32_t)tag))
		return result;
	Py_CLEAR(result);
	PyErr_Clear();
	raise_what_is_left(thread, PyTuple_GetItem(args, EXCEPTION), PyTuple_GetItem(args, WAIT));
	PyErr_SetNone(PyTuple_GetItem(args, EXCEPTION));
	return NULL;
}

PyObject *
py_cancel(PyObject *module, PyObject *exception)
{
	unsigned long threads[AT_ONCE];
	size_t n = rank_request_cancelled(threads, AT_ONCE);

	for (size_t i = 0; i < n; i++)
		PyThreadState_SetAsyncExc(threads[i], exception);
	return PyLong_FromSize_t(n);
}

PyObject *
py_cancelled(PyObject *module, PyObject *tag)
{
	unsigned long number = PyLong_AsUnsignedLong(tag);

	if (PyErr_Occurred())
		return NULL;
	return PyBool_FromLong(!rank_request_begin((uint32_t)number, 0));
}
