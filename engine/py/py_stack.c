/* The Python stacks of the rank, for rank/rank_stack.c and rank/rank_look.c, which see. */
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

/* Objects that live as long as Python. */
static PyObject *describe, *current_frames;

/* As sys._current_frames(). CPython 3.11 collects garbage within that, while it holds a lock which
 * each thread needs that starts or ends: a finalizer that waits for one would wait for ever. */
static PyObject *
frames_of_threads(void)
{
	int collects = PyGC_Disable();
	PyObject *frames = PyObject_CallNoArgs(current_frames);

	if (collects)
		PyGC_Enable();
	return frames;
}

PyObject *
py_current_frames(PyObject *module, PyObject *unused)
{
	return frames_of_threads();
}

/* Appends the attribute, a string, in ASCII as faulthandler does. */
static void
add_attribute(struct buf *out, PyObject *of, const char *name)
{
	PyObject *text = PyObject_GetAttrString(of, name), *ascii = NULL;
	char *p;
	Py_ssize_t n;

	if (text)
		ascii = PyUnicode_AsEncodedString(text, "ascii", "backslashreplace");
	if (ascii && PyBytes_AsStringAndSize(ascii, &p, &n) == 0)
		buf_add(out, p, (size_t)n);
	else
		buf_adds(out, "???");
	PyErr_Clear();
	Py_XDECREF(ascii);
	Py_XDECREF(text);
}

/* Appends the frames, innermost first, as faulthandler writes them. Takes over the reference. */
static void
add_frames(struct buf *out, PyObject *frame)
{
	enum { MOST = 100 }; /* as in faulthandler: of a deep recursion the rest tells nothing */

	for (int depth = 0; frame && frame != Py_None; depth++) {
		PyObject *code = (PyObject *)PyFrame_GetCode((PyFrameObject *)frame), *back;
		int line = PyFrame_GetLineNumber((PyFrameObject *)frame);

		if (depth == MOST) {
			buf_adds(out, "  ...\n");
			Py_DECREF(code);
			break;
		}
		buf_adds(out, "  File \"");
		add_attribute(out, code, "co_filename");
		buf_addf(out, "\", line %d in ", MAX(line, 0));
		add_attribute(out, code, "co_name");
		buf_addc(out, '\n');
		Py_DECREF(code);
		back = PyObject_GetAttrString(frame, "f_back");
		Py_DECREF(frame);
		frame = back;
	}
	PyErr_Clear();
	Py_XDECREF(frame);
}

/* The frame of a thread in what sys._current_frames() has returned, NULL: it has none. A new
 * reference. */
static PyObject *
frame_of(PyObject *frames, unsigned long thread)
{
	PyObject *key = PyLong_FromUnsignedLong(thread);
	PyObject *frame = key ? PyDict_GetItemWithError(frames, key) : NULL;

	PyErr_Clear();
	Py_XINCREF(frame);
	Py_XDECREF(key);
	return frame;
}

static unsigned long main_thread;

/* Appends the stacks of all threads but this one: the main thread's is the last. */
static void
add_stacks(struct buf *out, PyObject *frames)
{
	PyObject *key, *value;
	Py_ssize_t at = 0;

	while (PyDict_Next(frames, &at, &key, &value)) {
		unsigned long thread = PyLong_AsUnsignedLong(key);

		if (thread == main_thread || thread == PyThread_get_thread_ident())
			continue;
		buf_addf(out, "Thread 0x%016lx (most recent call first):\n", thread);
		add_frames(out, Py_NewRef(value));
		buf_addc(out, '\n');
	}
	buf_addf(out, "Current thread 0x%016lx (most recent call first):\n", main_thread);
	add_frames(out, frame_of(frames, main_thread));
}

/* The stacks of this request. described: what Python says beside them, or NULL. */
static void
find_stacks(uint64_t request, PyObject *described)
{
	PyObject *frames = frames_of_threads();
	struct buf stacks = {0};
	char *p = NULL;
	Py_ssize_t n = 0;

	if (!described || PyBytes_AsStringAndSize(described, &p, &n) < 0)
		PyErr_Clear(); /* the answer goes without it */
	if (frames)
		add_stacks(&stacks, frames);
	else
		buf_adds(&stacks, "(no stack: Python refuses it)\n");
	PyErr_Clear();
	rank_stack_describe(
	    request, (struct slice){stacks.p, stacks.n}, (struct slice){p, (size_t)n});
	buf_free(&stacks);
	Py_XDECREF(frames);
}

static void
find_all(void)
{
	uint64_t request = rank_stack_request();
	PyObject *described = PyObject_CallNoArgs(describe); /* others may run meanwhile */

	find_stacks(request, described);
	Py_XDECREF(described);
}

/* frame: of the main thread. Takes over the reference. */
static void
see(PyObject *frame)
{
	struct buf stack = {0};

	buf_adds(&stack, "Stack (most recent call first):\n");
	add_frames(&stack, frame);
	rank_look_seen((struct slice){stack.p, stack.n});
	buf_free(&stack);
}

static void
see_from_aside(void)
{
	PyObject *frames = frames_of_threads();

	if (frames)
		see(frame_of(frames, main_thread));
	PyErr_Clear();
	Py_XDECREF(frames);
}

static void
run_with_gil(void)
{
	PyGILState_STATE state = PyGILState_Ensure();
	unsigned jobs = rank_gil_take();

	if (jobs & GIL_LOOK && rank_look_is_wanted())
		see_from_aside();
	if (jobs & GIL_STACK)
		find_all();
	PyGILState_Release(state);
}

PyObject *
py_look_signal(PyObject *module, PyObject *unused)
{
	return PyLong_FromLong(rank_look_signal());
}

PyObject *
py_looked(PyObject *module, PyObject *args)
{
	int signo;
	PyObject *frame;

	if (!PyArg_ParseTuple(args, "iO:looked", &signo, &frame))
		return NULL;
	if (rank_stack_passed()) {
		find_stacks(rank_stack_request(), NULL);
		rank_gil_done();
	}
	if (rank_look_is_wanted())
		see(Py_NewRef(frame));
	Py_RETURN_NONE;
}

/* The main thread is traced or profiled, or was in this cell: what removes itself is still at work.
 * Written with the GIL. */
static bool traced;

PyObject *
py_traced(PyObject *module, PyObject *is)
{
	traced = PyObject_IsTrue(is) == 1;
	Py_RETURN_NONE;
}

/* Calls the function that sets a tracer, and notes that there is one. self: (function, all). */
static PyObject *
set_tracer(PyObject *self, PyObject *tracer)
{
	bool all = PyTuple_GetItem(self, 1) == Py_True;

	if (tracer != Py_None && (all || PyThread_get_thread_ident() == main_thread))
		traced = true;
	return PyObject_CallFunctionObjArgs(PyTuple_GetItem(self, 0), tracer, NULL);
}

PyObject *
py_noting_tracer(PyObject *module, PyObject *args)
{
	static PyMethodDef method = {"set_tracer", set_tracer, METH_O, NULL};

	return PyTuple_Size(args) == 2 ? PyCFunction_New(&method, args) : Py_NewRef(Py_None);
}

PyObject *
py_empty_copy(PyObject *module, PyObject *names)
{
	enum { UNSHARED = 3 }; /* references: the frame's, the caller's, this call's */

	if (!traced && PyDict_Check(names) && Py_REFCNT(names) <= UNSHARED)
		PyDict_Clear(names);
	Py_RETURN_NONE;
}

PyObject *
py_flight_ready(PyObject *module, PyObject *unused)
{
	return PyBool_FromLong(rank_flight_ready());
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
	current_frames = Py_XNewRef(PySys_GetObject("_current_frames"));
	if (!current_frames)
		return PyErr_Format(PyExc_RuntimeError, "there is no sys._current_frames");
	main_thread = PyThread_get_thread_ident();
	describe = Py_NewRef(function);
	rank_stack_begin(run_with_gil, has_gil);
	Py_RETURN_NONE;
}
