/* The Python stacks of the rank, for rank/rank_stack.c and rank/rank_look.c, which see. */
#define _GNU_SOURCE
#include <Python.h>
#include "py/py.h"
#include <dlfcn.h>
#include <stdatomic.h>
#include <unistd.h>

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

static void
find_stacks(void)
{
	PyObject *text = PyObject_CallNoArgs(describe); /* others may run meanwhile */
	PyObject *frames = PyObject_CallNoArgs(current_frames);
	struct buf stacks = {0};
	char *p = NULL;
	Py_ssize_t n = 0;

	if (!text || PyBytes_AsStringAndSize(text, &p, &n) < 0)
		PyErr_Clear(); /* the answer goes without it */
	if (frames)
		add_stacks(&stacks, frames);
	PyErr_Clear();
	rank_stack_describe((struct slice){stacks.p, stacks.n}, (struct slice){p, (size_t)n});
	buf_free(&stacks);
	Py_XDECREF(frames);
	Py_XDECREF(text);
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
	PyObject *frames = PyObject_CallNoArgs(current_frames);

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
		find_stacks();
	PyGILState_Release(state);
}

static _Atomic bool is_called; /* Python has been asked to call on_call() */

/* In the main thread, between two instructions; also in a child that it has forked meanwhile. */
static int
on_call(void *pid)
{
	is_called = false;
	if ((intptr_t)pid == (intptr_t)getpid() && rank_look_is_wanted())
		see((PyObject *)PyThreadState_GetFrame(PyThreadState_Get()));
	return 0;
}

static void
call_main_thread(void)
{
	if (!atomic_exchange(&is_called, true) &&
	    Py_AddPendingCall(on_call, (void *)(intptr_t)getpid()) < 0)
		is_called = false; /* too many are waiting */
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
	rank_look_begin(call_main_thread);
	Py_RETURN_NONE;
}
