/* What the main thread does: messages in order, the code of cells, and the signals of both. */
#define _GNU_SOURCE
#include <Python.h>
#include "py/py.h"
#include <errno.h>

/* Runs the handlers of the signals that Python has noticed. Returns false with an exception set:
 * one that was set before, else the first that they raise. Python shows the others. */
static bool
run_handlers(void)
{
	enum { AT_MOST = 64 }; /* a handler that makes Python notice another would never end */

	PyObject *type, *value, *trace;

	PyErr_Fetch(&type, &value, &trace);
	for (int i = 0; i < AT_MOST && PyErr_CheckSignals() < 0; i++) {
		if (type)
			PyErr_WriteUnraisable(NULL);
		else
			PyErr_Fetch(&type, &value, &trace);
	}
	if (!type)
		return true;
	PyErr_Restore(type, value, trace);
	return false;
}

/* Each request gets an answer, even if the code that makes it was ended. */
static bool
fail_unanswered(void)
{
	uint64_t tag = rank_queue_unanswered();
	PyObject *type, *fields;
	bool sent;

	if (!tag)
		return true;
	type = PyUnicode_FromString("Rerror");
	fields = Py_BuildValue("(iss)", EIO, "an exception has ended the rank's answer", "");
	sent = type && fields && py_message_send(type, tag, -1, fields, 0);
	Py_XDECREF(type);
	Py_XDECREF(fields);
	if (sent)
		rank_request_forget(tag);
	return sent;
}

/* Returns the next message as a tuple, None at the end; NULL if a handler raises meanwhile. */
static PyObject *
take(void)
{
	struct item *it = NULL;
	int r = rank_queue_try(&rank_main, &it);

	while (r != 1) {
		Py_BEGIN_ALLOW_THREADS r = rank_queue_take(&rank_main, &it);
		Py_END_ALLOW_THREADS if (r == 0) Py_RETURN_NONE;
		if (r < 0 && PyErr_CheckSignals() < 0)
			return NULL;
		if (r < 0 && rank_forked())
			Py_RETURN_NONE;
	}
	return py_message_tuple(it);
}

/* Is what the program does at its exit all that remains? */
static bool
is_at_exit(const PyObject *message)
{
	return message ? message == Py_None : PyErr_ExceptionMatches(PyExc_SystemExit);
}

PyObject *
py_next(PyObject *module, PyObject *unused)
{
	static PyObject *message; /* stays here if a handler raises as it comes */
	PyObject *next;

	if (rank_forked())
		Py_RETURN_NONE;
	if (!message) {
		if (!fail_unanswered())
			return NULL;
		rank_handlers_release();
		if (run_handlers())
			message = take();
		if (!is_at_exit(message))
			rank_handlers_hold();
	}
	if (!run_handlers())
		return NULL;
	if (rank_forked()) /* by a handler */
		Py_RETURN_NONE;
	next = message;
	message = NULL;
	if (next != Py_None) {
		Py_BEGIN_ALLOW_THREADS rank_nccl_settle();
		Py_END_ALLOW_THREADS
	}
	return next;
}

PyObject *
py_enter(PyObject *module, PyObject *args)
{
	unsigned int cell;
	int users;

	if (!PyArg_ParseTuple(args, "Ip:enter", &cell, &users))
		return NULL;
	rank_sigint_begin();
	rank_cell_enter(cell);
	if (users)
		rank_handlers_release();
	if (PyErr_CheckSignals() < 0)
		return NULL;
	Py_RETURN_NONE;
}

PyObject *
py_resume(PyObject *module, PyObject *number)
{
	unsigned long cell = PyLong_AsUnsignedLong(number);

	if (PyErr_Occurred())
		return NULL;
	rank_cell_enter((uint32_t)cell);
	rank_handlers_release();
	if (PyErr_CheckSignals() < 0)
		return NULL;
	Py_RETURN_NONE;
}

/* Raises what is left of the cell's own handlers: the second call does not. */
PyObject *
py_pause(PyObject *module, PyObject *unused)
{
	rank_handlers_hold();
	return run_handlers() ? PyLong_FromLong(rank_cell_leave()) : NULL;
}

PyObject *
py_leave(PyObject *module, PyObject *unused)
{
	PyObject *missed = py_pause(module, unused);

	if (missed)
		rank_stdin_cell_ended();
	return missed;
}

PyObject *
py_handles(PyObject *module, PyObject *args)
{
	int signo, own;

	if (!PyArg_ParseTuple(args, "ip:handles", &signo, &own))
		return NULL;
	rank_handlers_set(signo, own);
	Py_RETURN_NONE;
}

PyObject *
py_probe_signal(PyObject *module, PyObject *unused)
{
	return PyLong_FromLong(rank_cell_probe_signal());
}

PyObject *
py_probed(PyObject *module, PyObject *args)
{
	if (!rank_forked())
		rank_cell_probed();
	Py_RETURN_NONE;
}

PyObject *
py_interrupt_wanted(PyObject *module, PyObject *unused)
{
	return PyLong_FromLong(rank_forked() ? 0 : rank_cell_wanted());
}

PyObject *
py_own_handler(PyObject *module, PyObject *args)
{
	int own, ours;

	if (!PyArg_ParseTuple(args, "pp:own_handler", &own, &ours))
		return NULL;
	rank_sigint_set(own, ours);
	Py_RETURN_NONE;
}

PyObject *
py_repeat(PyObject *module, PyObject *number)
{
	unsigned long cell = PyLong_AsUnsignedLong(number);

	if (PyErr_Occurred())
		return NULL;
	return PyBool_FromLong(!rank_forked() && rank_cell_repeat((uint32_t)cell));
}

PyObject *
py_probe(PyObject *module, PyObject *unused)
{
	return PyBool_FromLong(!rank_forked() && rank_cell_probe());
}
