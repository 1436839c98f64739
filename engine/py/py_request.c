/*
 * Cancels a request: raises a Python exception in the thread that works on it.
 *
 * Python raises such an exception between two bytecode instructions, perhaps much later. The code
 * here holds the GIL and runs no bytecode except the call itself, so none is raised after the call.
 */
#define _GNU_SOURCE
#include <Python.h>
#include "py/py.h"

enum { AT_ONCE = 64 }; /* threads that one call cancels */

/* An exception that was sent to this thread may not have been raised yet. It cannot be withdrawn
 * (Python would keep looking for it), so it is raised here, in a function that waits for it. It is
 * sent again if another thread got it, one that this thread started and that has not run yet, and
 * if another exception came first, from a signal handler. */
static void
raise_what_is_left(unsigned long thread, PyObject *exception, PyObject *wait)
{
	PyObject *waited;

	do {
		PyErr_Clear();
		PyThreadState_SetAsyncExc(thread, exception);
		waited = PyObject_CallObject(wait, NULL);
		Py_XDECREF(waited);
	} while (waited || !PyErr_ExceptionMatches(exception));
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
	if (rank_request_begin(tag, thread))
		result = PyObject_Call(PyTuple_GetItem(args, FUNCTION), rest, NULL);
	Py_DECREF(rest);
	if (!rank_request_end(tag))
		return result;
	Py_CLEAR(result); /* this may run code, too */
	PyErr_Clear();
	if (!rank_request_leave(tag))
		raise_what_is_left(
		    thread, PyTuple_GetItem(args, EXCEPTION), PyTuple_GetItem(args, WAIT));
	PyErr_SetNone(PyTuple_GetItem(args, EXCEPTION));
	return NULL;
}

/* Raises the exception in this thread, unless it is one of the spared. Returns the thread's ident,
 * or NULL with an exception set. In the main thread a signal handler raises it: this also ends
 * waits, and no thread that was just started gets the exception meant for the main one. */
static PyObject *
cancel_thread(const struct rank_worker *w, PyObject *exception, PyObject *spared)
{
	PyObject *name = PyLong_FromUnsignedLong(w->thread);
	int is_spared = name ? PySequence_Contains(spared, name) : -1;

	if (is_spared < 0)
		Py_CLEAR(name);
	else if (w->thread && !is_spared && w->main)
		rank_cell_signal_main();
	else if (w->thread && !is_spared)
		PyThreadState_SetAsyncExc(w->thread, exception);
	return name;
}

/* cancel(exception, spared): once it has looked up the threads, it runs no bytecode, not even
 * through the garbage collector, so they still work on those requests. */
PyObject *
py_cancel(PyObject *module, PyObject *args)
{
	struct rank_worker workers[AT_ONCE];
	PyObject *exception, *spared, *name, *list;
	size_t n;

	if (!PyArg_ParseTuple(args, "OO", &exception, &spared))
		return NULL;
	list = PyList_New(0);
	n = rank_request_cancelled(workers, AT_ONCE);
	for (size_t i = 0; list && i < n; i++) {
		name = cancel_thread(&workers[i], exception, spared);
		if (!name || PyList_Append(list, name) < 0)
			Py_CLEAR(list);
		Py_XDECREF(name);
	}
	return list;
}

PyObject *
py_cancelled(PyObject *module, PyObject *tag)
{
	unsigned long number = PyLong_AsUnsignedLong(tag);

	if (PyErr_Occurred())
		return NULL;
	return PyBool_FromLong(!rank_request_begin((uint32_t)number, 0));
}

PyObject *
py_forget(PyObject *module, PyObject *tag)
{
	unsigned long number = PyLong_AsUnsignedLong(tag);

	if (PyErr_Occurred())
		return NULL;
	rank_request_forget(number);
	Py_RETURN_NONE;
}

PyObject *
py_is_cancelled(PyObject *module, PyObject *unused)
{
	return PyBool_FromLong(rank_request_main_cancelled());
}
