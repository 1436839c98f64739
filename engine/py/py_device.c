/* GPU memory, for the module: calls rank_device.c, without the GIL where that takes time. */
#define _GNU_SOURCE
#include <Python.h>
#include "py/py.h"
#include "rank/cuda.h"

PyObject *
py_raise(const struct err *e)
{
	PyObject *args = Py_BuildValue("(is)", e->no, e->text);

	if (args)
		PyErr_SetObject(PyExc_OSError, args);
	Py_XDECREF(args);
	return NULL;
}

bool
py_device_usable(void)
{
	struct err e;

	if (!rank_forked() && rank_device_is_open())
		return true;
	fail(&e, EOPNOTSUPP, rank_forked() ? "a forked process has no GPU" : "no CUDA yet");
	py_raise(&e);
	return false;
}

PyObject *
py_device_open(PyObject *module, PyObject *folders)
{
	const char *text = PyUnicode_AsUTF8AndSize(folders, NULL);
	struct err e;
	int r;

	if (!text)
		return NULL;
	if (rank_forked())
		return py_device_usable() ? Py_NewRef(Py_None) : NULL;
	Py_BEGIN_ALLOW_THREADS r = rank_device_open(text, &e);
	Py_END_ALLOW_THREADS return r < 0 ? py_raise(&e) : PyUnicode_FromString(cuda_version());
}

PyObject *
py_device_is_open(PyObject *module, PyObject *unused)
{
	return PyBool_FromLong(!rank_forked() && rank_device_is_open());
}

PyObject *
py_device_memfd(PyObject *module, PyObject *unused)
{
	return PyLong_FromLong(rank_device_memfd());
}

PyObject *
py_device_owner(PyObject *module, PyObject *args)
{
	unsigned long long address;
	int near, device, r;
	struct err e;

	if (!PyArg_ParseTuple(args, "Ki:device_owner", &address, &near) || !py_device_usable())
		return NULL;
	Py_BEGIN_ALLOW_THREADS r = rank_device_owner(address, near, &device, &e);
	Py_END_ALLOW_THREADS if (r == -EAGAIN) Py_RETURN_NONE;
	return r < 0 ? py_raise(&e) : PyLong_FromLong(device);
}

PyObject *
py_device_pin(PyObject *module, PyObject *args)
{
	unsigned long long address, size;
	PyObject *obj;
	int device;

	if (!PyArg_ParseTuple(args, "OKKi:device_pin", &obj, &address, &size, &device))
		return NULL;
	return PyLong_FromUnsignedLong(rank_pin_add(Py_NewRef(obj), address, size, device));
}

PyObject *
py_device_unpin(PyObject *module, PyObject *number)
{
	unsigned long handle = PyLong_AsUnsignedLong(number);

	if (PyErr_Occurred())
		return NULL;
	Py_XDECREF((PyObject *)rank_pin_drop((uint32_t)handle));
	Py_RETURN_NONE;
}

PyObject *
py_device_copy(PyObject *module, PyObject *args)
{
	unsigned long long address, host, size;
	unsigned pin;
	int device, into;
	struct err e;
	ssize_t n;

	if (!PyArg_ParseTuple(
		args, "iKKKIp:device_copy", &device, &address, &host, &size, &pin, &into) ||
	    !py_device_usable())
		return NULL;
	Py_BEGIN_ALLOW_THREADS n =
	    rank_device_copy(device, address, (char *)(uintptr_t)host, size, pin, into, &e);
	Py_END_ALLOW_THREADS return n < 0 ? py_raise(&e) : PyLong_FromSsize_t(n);
}

PyObject *
py_device_mark(PyObject *module, PyObject *args)
{
	unsigned long long stream;
	struct err e;
	int device, r;

	if (!PyArg_ParseTuple(args, "iK:device_mark", &device, &stream) || !py_device_usable())
		return NULL;
	Py_BEGIN_ALLOW_THREADS r =
	    rank_device_mark(device, (struct CUstream_st *)(uintptr_t)stream, &e);
	Py_END_ALLOW_THREADS if (r < 0 && r != -EAGAIN) return py_raise(&e);
	return PyBool_FromLong(r == 0);
}

PyObject *
py_device_lost(PyObject *module, PyObject *unused)
{
	return PyUnicode_FromString(rank_forked() ? "" : cuda_lost_text());
}

PyObject *
py_device_memory(PyObject *module, PyObject *number)
{
	long device = PyLong_AsLong(number);
	uint64_t free_bytes = 0, total = 0;
	struct err e;
	int r;

	if (PyErr_Occurred() || !py_device_usable())
		return NULL;
	Py_BEGIN_ALLOW_THREADS r = rank_device_memory((int)device, &free_bytes, &total, &e);
	Py_END_ALLOW_THREADS return r < 0 ? py_raise(&e) : Py_BuildValue("(KK)", free_bytes, total);
}
