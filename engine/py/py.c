/* The functions of the module `_ddip`, one row each; py.h documents them. */
#define _GNU_SOURCE
#include <Python.h>
#include "py/py.h"
#include "memory.h"
#include "rank/peer.h"
#include <dlfcn.h>
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

PyMODINIT_FUNC PyInit__ddip(void);

/* How many this thread has sent: a signal handler of the user's may raise just after one. */
static __thread unsigned long replies;

/* Releases an object that nobody reads any more. */
static void
unpin(struct item *it)
{
	uint32_t handle;

	if (wire_unpack(&it->m, Nfree, NULL, &handle) == 0)
		Py_XDECREF((PyObject *)rank_pin_drop(handle));
	free(it);
}

/* take() for threads other than the main one, which also release pins. */
static PyObject *
take_aside(struct rank_queue *q)
{
	static __thread bool blocked;
	sigset_t all;

	if (!blocked) { /* signals are for the main thread */
		sigfillset(&all);
		pthread_sigmask(SIG_SETMASK, &all, NULL);
		blocked = true;
	}
	for (;;) {
		struct item *it = NULL;
		int r;

		if (rank_forked())
			Py_RETURN_NONE;
		Py_BEGIN_ALLOW_THREADS r = rank_queue_take(q, &it);
		Py_END_ALLOW_THREADS if (r == 0) Py_RETURN_NONE;
		if (r < 0)
			continue;
		if (it->m.type != Nfree)
			return py_message_tuple(it);
		unpin(it);
	}
}

static PyObject *
py_serve(PyObject *module, PyObject *unused)
{
	return take_aside(&rank_service);
}

static PyObject *
py_rescue(PyObject *module, PyObject *unused)
{
	return take_aside(&rank_rescue);
}

/* Reads args[i], a number from 0 to max. Returns false with an exception set on failure. */
static bool
number_at(PyObject *args, Py_ssize_t i, uint64_t max, uint64_t *v)
{
	PyObject *o = PyTuple_GetItem(args, i);

	if (!o)
		return false;
	*v = PyLong_AsUnsignedLongLong(o);
	if (PyErr_Occurred())
		return false;
	if (*v <= max)
		return true;
	PyErr_Format(
	    PyExc_ValueError, "argument %zd: want 0..%llu", i + 1, (unsigned long long)max);
	return false;
}

static PyObject *
py_reply(PyObject *module, PyObject *args)
{
	uint64_t tag;

	if (!number_at(args, 1, UINT64_MAX, &tag) ||
	    !py_message_send(PyTuple_GetItem(args, 0), tag, -1, args, 2))
		return NULL;
	replies++;
	Py_RETURN_NONE;
}

static PyObject *
py_reply_fd(PyObject *module, PyObject *args)
{
	uint64_t tag, fd;

	if (!number_at(args, 1, UINT64_MAX, &tag) || !number_at(args, 2, INT32_MAX, &fd) ||
	    !py_message_send(PyTuple_GetItem(args, 0), tag, (int)fd, args, 3))
		return NULL;
	replies++;
	Py_RETURN_NONE;
}

static PyObject *
py_notify(PyObject *module, PyObject *args)
{
	PyObject *type = PyTuple_GetItem(args, 0);

	if (!type || !py_message_send(type, 0, -1, args, 1))
		return NULL;
	Py_RETURN_NONE;
}

static PyObject *
py_error(PyObject *module, PyObject *args)
{
	PyObject *type, *fields, *text, *trace = NULL;
	unsigned long long tag;
	unsigned int no;
	bool sent;

	if (!PyArg_ParseTuple(args, "KIO|O:error", &tag, &no, &text, &trace))
		return NULL;
	type = PyUnicode_FromString("Rerror");
	fields =
	    trace ? Py_BuildValue("(IOO)", no, text, trace) : Py_BuildValue("(IOs)", no, text, "");
	sent = type && fields && py_message_send(type, tag, -1, fields, 0);
	Py_XDECREF(type);
	Py_XDECREF(fields);
	if (!sent)
		return NULL;
	replies++;
	Py_RETURN_NONE;
}

static PyObject *
py_replies(PyObject *module, PyObject *unused)
{
	return PyLong_FromUnsignedLong(replies);
}

static PyObject *
py_store_socket(PyObject *module, PyObject *args)
{
	int fd, is_open;

	if (!PyArg_ParseTuple(args, "ip:store_socket", &fd, &is_open))
		return NULL;
	if (rank_forked())
		Py_RETURN_NONE;
	if (is_open)
		rank_store_open(fd);
	else
		rank_store_close(fd);
	Py_RETURN_NONE;
}

static PyObject *
py_pin(PyObject *module, PyObject *args)
{
	unsigned long long addr, size;
	PyObject *obj;

	if (!PyArg_ParseTuple(args, "OKK:pin", &obj, &addr, &size))
		return NULL;
	return PyLong_FromUnsignedLong(rank_pin_add(Py_NewRef(obj), addr, size, PIN_HOST));
}

static PyObject *
py_stdin_read(PyObject *module, PyObject *args)
{
	struct buf b = {0};
	PyObject *bytes = NULL;
	Py_ssize_t most;
	int line, secret, r;
	bool waits = !rank_stdin_ready();

	if (!PyArg_ParseTuple(args, "npp:stdin_read", &most, &line, &secret))
		return NULL;
	if (waits)
		rank_stdin_tell(secret ? INPUT_PASSWORD : INPUT_TEXT);
	do {
		Py_BEGIN_ALLOW_THREADS r = rank_stdin_take(&b, (size_t)most, line);
		Py_END_ALLOW_THREADS
	} while (r == -EINTR && PyErr_CheckSignals() == 0);
	if (r == 0 && PyErr_CheckSignals() < 0)
		r = -EINTR; /* nobody answers any more, because of that signal */
	if (r >= 0) {
		bytes = PyBytes_FromStringAndSize(b.p, (Py_ssize_t)b.n);
	} else if (r != -EINTR) {
		errno = -r;
		PyErr_SetFromErrno(PyExc_OSError);
	}
	if (waits)
		rank_stdin_tell(INPUT_NONE);
	buf_free(&b);
	return bytes;
}

static PyObject *
py_stdin_ready(PyObject *module, PyObject *unused)
{
	return PyBool_FromLong(rank_stdin_ready());
}

static PyObject *
py_stdin_begin_program(PyObject *module, PyObject *ended)
{
	rank_stdin_begin_program(PyObject_IsTrue(ended));
	Py_RETURN_NONE;
}

static PyObject *
py_stdin_end_program(PyObject *module, PyObject *unused)
{
	rank_stdin_end_program();
	Py_RETURN_NONE;
}

static PyObject *
py_title(PyObject *module, PyObject *text)
{
	const char *title = PyUnicode_AsUTF8AndSize(text, NULL);

	if (!title)
		return NULL;
	rank_title(title);
	Py_RETURN_NONE;
}

/* The I/O thread may read the name at any time, so names are never freed; programs use few of them,
 * over and over. NULL with an exception if it is no string. */
static const char *
collective_name(PyObject *name)
{
	static struct {
		PyObject *object;
		const char *text;
	} known[64];

	static size_t n;
	const char *text;

	for (size_t i = 0; i < n; i++)
		if (known[i].object == name)
			return known[i].text;
	text = PyUnicode_AsUTF8AndSize(name, NULL);
	if (!text || n == ARRAY_LEN(known))
		return text ? "collective" : NULL;
	known[n].object = Py_NewRef(name);
	known[n].text = text;
	return known[n++].text;
}

/* Python could not do this: an interrupt that comes as a call fails is raised in the `finally`
 * clause, before that has done anything. */
static PyObject *
py_within(PyObject *module, PyObject *args)
{
	PyObject *name, *function, *positional, *named, *result;
	struct collective here;
	const char *text;

	if (!PyArg_ParseTuple(
		args, "OOO!O!", &name, &function, &PyTuple_Type, &positional, &PyDict_Type, &named))
		return NULL;
	text = collective_name(name);
	if (!text)
		return NULL;
	rank_collective_enter(&here, text);
	result = PyObject_Call(function, positional, named);
	rank_collective_leave(&here);
	return result;
}

static PyObject *
py_collective_done(PyObject *module, PyObject *unused)
{
	rank_collective_done();
	Py_RETURN_NONE;
}

static PyObject *
py_profile(PyObject *module, PyObject *unused)
{
	struct buf lines = {0};
	PyObject *made;

	rank_collective_profile(&lines);
	made = PyBytes_FromStringAndSize(lines.p, (Py_ssize_t)lines.n);
	buf_free(&lines);
	return made;
}

static PyObject *
py_tick(PyObject *module, PyObject *clock)
{
	long which = PyLong_AsLong(clock);

	if (PyErr_Occurred())
		return NULL;
	return PyBool_FromLong(!rank_forked() && which >= 0 && which < CLOCKS &&
			       rank_collective_tick((enum clock)which));
}

static PyObject *
py_arm(PyObject *module, PyObject *on)
{
	unsigned long long period =
	    rank_collective_arm(on == Py_None ? rank_collective_armed() : PyObject_IsTrue(on) == 1);

	return Py_BuildValue("IIIK", rank_collective_ticks(CLOCK_OPTIMIZER),
	    rank_collective_ticks(CLOCK_FORWARD), rank_collective_ticks(CLOCK_COLLECTIVE),
	    period / 1000);
}

/* Before CPython 3.13, `f_locals` of a function is a copy. This is what pdb does with it; the
 * function is not in the limited API. */
static PyObject *
py_set_locals(PyObject *module, PyObject *args)
{
	void (*to_fast)(PyObject * frame, int clear);
	PyObject *frame, *changed, *names;

	*(void **)&to_fast = dlsym(RTLD_DEFAULT, "PyFrame_LocalsToFast");
	if (!PyArg_ParseTuple(args, "OO!:set_locals", &frame, &PyDict_Type, &changed))
		return NULL;
	names = PyObject_GetAttrString(frame, "f_locals");
	if (!names || PyDict_Update(names, changed) < 0) {
		Py_XDECREF(names);
		return NULL;
	}
	if (to_fast)
		to_fast(frame, 0);
	if (Py_REFCNT(names) == 2) /* the frame's and ours: nobody else needs what it holds */
		PyDict_Clear(names);
	Py_DECREF(names);
	return PyBool_FromLong(to_fast != NULL);
}

/* Of each item of a dictionary, which keeps its order, the addresses of its key, its value and the
 * value's type. Ten times as fast as Python's id() of each. */
static PyObject *
py_identities(PyObject *module, PyObject *items)
{
	const void *each[3];
	PyObject *key, *value, *found;
	Py_ssize_t at = 0, n = PyDict_Size(items);
	char *p;

	if (n < 0 || !(found = PyBytes_FromStringAndSize(NULL, n * (Py_ssize_t)sizeof each)))
		return NULL;
	for (p = PyBytes_AsString(found); PyDict_Next(items, &at, &key, &value); p += sizeof each) {
		each[0] = key, each[1] = value, each[2] = Py_TYPE(value);
		memcpy(p, each, sizeof each);
	}
	return found;
}

/* Adds those of all that are of this class. Runs no Python. */
static int
add_instances(PyObject *found, PyObject *all, PyObject *class)
{
	for (Py_ssize_t i = 0, n = PyList_Size(all); i < n; i++) {
		PyObject *each = PyList_GetItem(all, i);

		if (PyType_IsSubtype(Py_TYPE(each), (PyTypeObject *)class) &&
		    PyList_Append(found, each) < 0)
			return -1;
	}
	return 0;
}

/* The objects of a class that the garbage collector knows. No other thread runs Python before the
 * list of all is gone: if one drops a tensor that it holds, torch 2.7 prints a warning, and the
 * Python object is dead. */
static PyObject *
py_instances(PyObject *module, PyObject *class)
{
	PyObject *gc = PyImport_ImportModule("gc");
	PyObject *all = gc ? PyObject_CallMethod(gc, "get_objects", NULL) : NULL;
	PyObject *found = all ? PyList_New(0) : NULL;

	if (found && add_instances(found, all, class) < 0) {
		Py_DECREF(found);
		found = NULL;
	}
	Py_XDECREF(all);
	Py_XDECREF(gc);
	return found;
}

static PyObject *
py_collectives(PyObject *module, PyObject *unused)
{
	return PyLong_FromUnsignedLong(rank_collective_count());
}

static PyObject *
py_mend_gloo(PyObject *module, PyObject *unused)
{
	return PyLong_FromUnsignedLong(rank_gloo_mend());
}

static PyObject *
py_disconnect(PyObject *module, PyObject *unused)
{
	rank_unblock_disconnect();
	Py_RETURN_NONE;
}

static PyObject *
py_display_fd(PyObject *module, PyObject *unused)
{
	return PyLong_FromLong(rank_display());
}

static PyObject *
py_addresses(PyObject *module, PyObject *unused)
{
	struct buf b = {0};
	PyObject *text;

	if (peer_addresses(&b) < 0) {
		buf_free(&b);
		return PyErr_SetFromErrno(PyExc_OSError);
	}
	text = PyUnicode_FromString(b.p);
	buf_free(&b);
	return text;
}

static PyObject *
py_version(PyObject *module, PyObject *unused)
{
	return PyUnicode_FromString(DDIP_VERSION);
}

static PyObject *
py_memory_available(PyObject *module, PyObject *unused)
{
	return PyLong_FromUnsignedLongLong(memory_available(""));
}

static PyMethodDef methods[] = {
    {"next", py_next, METH_NOARGS, "The main thread's next message; None: end now."},
    {"serve", py_serve, METH_NOARGS, "A service thread's next message; None: end now."},
    {"rescue", py_rescue, METH_NOARGS, "The rescue thread's next message; None: end now."},
    {"cancellable", py_cancellable, METH_VARARGS, "cancellable(tag, thread, exc, wait, fn, *args)"},
    {"cancel", py_cancel, METH_VARARGS,
	"cancel(exc, spared): raises it where cancelled requests run"},
    {"cancelled", py_cancelled, METH_O, "cancelled(tag) -> bool"},
    {"forget", py_forget, METH_O, "forget(tag): the main thread has answered it"},
    {"is_cancelled", py_is_cancelled, METH_NOARGS, "Is what the main thread runs cancelled?"},
    {"reply", py_reply, METH_VARARGS, "reply(type, tag, *fields)"},
    {"reply_fd", py_reply_fd, METH_VARARGS, "reply_fd(type, tag, fd, *fields); fd stays open"},
    {"error", py_error, METH_VARARGS, "error(tag, errno, text, traceback='')"},
    {"replies", py_replies, METH_NOARGS, "The number of replies and errors of this thread"},
    {"notify", py_notify, METH_VARARGS, "notify(type, *fields)"},
    {"enter", py_enter, METH_VARARGS, "enter(cell, users): its code begins"},
    {"leave", py_leave, METH_NOARGS,
	"User code ends; 0, or 1 + the cause of an interrupt that was not raised"},
    {"probe_signal", py_probe_signal, METH_NOARGS, "The signal to register probed for"},
    {"probed", py_probed, METH_VARARGS, "Signal handler: Python runs handlers"},
    {"interrupt_wanted", py_interrupt_wanted, METH_NOARGS, "Is a SIGINT for user code?"},
    {"own_handler", py_own_handler, METH_VARARGS, "own_handler(own, ours): of SIGINT"},
    {"handles", py_handles, METH_VARARGS, "handles(signum, bool): the program handles it"},
    {"store_socket", py_store_socket, METH_VARARGS,
	"store_socket(fd, bool): fd is (not) a store connection"},
    {"repeat", py_repeat, METH_O, "repeat(cell): SIGINT again; False: it does not run"},
    {"probe", py_probe, METH_NOARGS, "After repeat; False: a handler has taken it"},
    {"pin", py_pin, METH_VARARGS, "pin(obj, addr, size) -> handle"},
    {"device_open", py_device_open, METH_O, "device_open(folders) -> version of CUDA"},
    {"nccl_open", py_nccl_open, METH_O, "nccl_open(folders) -> version of NCCL"},
    {"nccl_id", py_nccl_id, METH_NOARGS, "nccl_id() -> id of a new communicator"},
    {"nccl_join", py_nccl_join, METH_VARARGS, "nccl_join(id, rank, size, device)"},
    {"nccl_combines", py_nccl_combines, METH_VARARGS, "nccl_combines(op, dtype)"},
    {"nccl_can_revoke", py_nccl_can_revoke, METH_O, "nccl_can_revoke(owner)"},
    {"nccl_revocable", py_nccl_revocable, METH_VARARGS,
	"nccl_revocable(claims, [(address, device)])"},
    {"nccl_claims", py_nccl_claims, METH_NOARGS, "nccl_claims() -> number of claims so far"},
    {"nccl_claim", py_nccl_claim, METH_NOARGS, "nccl_claim(): call before one is freed"},
    {"nccl_release", py_nccl_release, METH_NOARGS, "nccl_release(): call when it is freed"},
    {"nccl_leave", py_nccl_leave, METH_NOARGS, "nccl_leave(): together with all ranks"},
    {"nccl_abort", py_nccl_abort, METH_NOARGS, "nccl_abort(): leaves at once"},
    {"nccl_measure", py_nccl_measure, METH_VARARGS, "nccl_measure(name, count, repeats, to, from)"},
    {"device_is_open", py_device_is_open, METH_NOARGS, "Is CUDA loaded?"},
    {"device_owner", py_device_owner, METH_VARARGS, "device_owner(addr, near) -> device"},
    {"device_pin", py_device_pin, METH_VARARGS, "device_pin(obj, addr, size, device) -> handle"},
    {"device_memfd", py_device_memfd, METH_NOARGS,
	"The memfd that device_pin's bytes are copied to"},
    {"device_unpin", py_device_unpin, METH_O, "device_unpin(handle): after copies in progress"},
    {"device_copy", py_device_copy, METH_VARARGS,
	"device_copy(device, addr, host, size, handle, into)"},
    {"device_mark", py_device_mark, METH_VARARGS,
	"device_mark(device, stream): copies come behind it"},
    {"device_lost", py_device_lost, METH_NOARGS, "The error that reported the loss of the context"},
    {"device_memory", py_device_memory, METH_O, "device_memory(device) -> (free, all)"},
    {"stdin_read", py_stdin_read, METH_VARARGS, "stdin_read(most, line, secret) -> bytes"},
    {"stdin_ready", py_stdin_ready, METH_NOARGS, "Does stdin_read() return at once?"},
    {"stdin_begin_program", py_stdin_begin_program, METH_O, "stdin_begin_program(ended)"},
    {"stdin_end_program", py_stdin_end_program, METH_NOARGS, "Drops what was not read"},
    {"title", py_title, METH_O, "title(text): sets what ps shows"},
    {"within", py_within, METH_VARARGS,
	"within(name, function, args, kwargs): calls it, recorded as a collective"},
    {"collective_done", py_collective_done, METH_NOARGS,
	"One that all ranks must do alike is done"},
    {"collectives", py_collectives, METH_NOARGS, "The number of those in this cell"},
    {"mend_gloo", py_mend_gloo, METH_NOARGS,
	"1: no send to a dead peer blocks; 2: no stranger is accepted"},
    {"disconnect", py_disconnect, METH_NOARGS, "Ends all connections of torch's gloo groups"},
    {"stack_signal", py_stack_signal, METH_NOARGS, "The signal to register faulthandler for"},
    {"stack_fd", py_stack_fd, METH_NOARGS, "The memfd for faulthandler to write to"},
    {"memory_available", py_memory_available, METH_NOARGS, "Bytes; see memory.h"},
    {"look_signal", py_look_signal, METH_NOARGS, "The signal whose handler is looked()"},
    {"looked", py_looked, METH_VARARGS, "looked(signo, frame)"},
    {"current_frames", py_current_frames, METH_NOARGS, "As sys._current_frames()"},
    {"noting_tracer", py_noting_tracer, METH_VARARGS, "noting_tracer(function, all)"},
    {"traced", py_traced, METH_O, "Is the main thread traced?"},
    {"empty_copy", py_empty_copy, METH_O, "empty_copy(names)"},
    {"flight_ready", py_flight_ready, METH_NOARGS, "May this thread ask the recorder of NCCL?"},
    {"stack_begin", py_stack_begin, METH_O, "Faulthandler has been registered"},
    {"flight_find", py_flight_find, METH_NOARGS, "Which recorders are asked without the GIL?"},
    {"flight_groups", py_flight_groups, METH_O, "flight_groups(lines)"},
    {"flight_text", py_flight_text, METH_VARARGS, "flight_text(which, json)"},
    {"pause", py_pause, METH_NOARGS, "As leave(), of a cell that goes on"},
    {"resume", py_resume, METH_O, "resume(cell): its user code goes on"},
    {"profile", py_profile, METH_NOARGS, "What the last steps of the cell took, as lines"},
    {"tick", py_tick, METH_O, "tick(clock) -> bool: armed"},
    {"arm", py_arm, METH_O, "arm(bool) -> (optimizer, forward, collective, period in us)"},
    {"set_locals", py_set_locals, METH_VARARGS, "set_locals(frame, names) -> bool"},
    {"identities", py_identities, METH_O, "identities(dict) -> bytes: keys, values, types"},
    {"instances", py_instances, METH_O, "instances(class) -> list"},
    {"display_fd", py_display_fd, METH_NOARGS, "The pipe for rich output, -1: none"},
    {"boot", py_boot, METH_O, "boot(role): runs ddip_engine.boot.main(role)"},
    {"zygote", py_zygote, METH_NOARGS, "Serves forks; returns (kind, name, env) in a child"},
    {"addresses", py_addresses, METH_NOARGS, "Those of this machine, for the daemon"},
    {"version", py_version, METH_NOARGS, "The version of ddipfs"},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "_ddip",
    .m_doc = "What the engine's C gives to its Python.",
    .m_size = -1,
    .m_methods = methods,
};

PyMODINIT_FUNC
PyInit__ddip(void)
{
	PyObject *module = PyModule_Create(&definition);

	if (module && !py_out_add(module)) {
		Py_DECREF(module);
		return NULL;
	}
	return module;
}
