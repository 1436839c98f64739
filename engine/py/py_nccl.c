/* The engine's own communicator, for the module: calls rank_nccl.c. */
#define _GNU_SOURCE
#include <Python.h>
#include "py/py.h"
#include "rank/nccl_measure.h"
#include <string.h>

enum { SLICE_MS = 20 }; /* between two checks for signals */

PyObject *
py_nccl_open(PyObject *module, PyObject *folders)
{
	const char *text = PyUnicode_AsUTF8AndSize(folders, NULL);
	struct err e;
	int r;

	if (!text || !py_device_usable())
		return NULL;
	Py_BEGIN_ALLOW_THREADS r = nccl_open(text, &e);
	Py_END_ALLOW_THREADS return r < 0 ? py_raise(&e) : PyUnicode_FromString(nccl_version());
}

PyObject *
py_nccl_id(PyObject *module, PyObject *unused)
{
	char id[NCCL_ID_SIZE];
	struct err e;
	int r;

	if (!py_device_usable())
		return NULL;
	Py_BEGIN_ALLOW_THREADS r = nccl_id(id, &e);
	Py_END_ALLOW_THREADS return r < 0 ? py_raise(&e)
					  : PyBytes_FromStringAndSize(id, sizeof(id));
}

/* Runs a job; a signal whose handler raises cancels it. Returns false with an exception set. */
static bool
run(const struct nccl_job *job)
{
	struct err e = {0};
	int r;

	Py_BEGIN_ALLOW_THREADS r = rank_nccl_begin(job, &e);
	Py_END_ALLOW_THREADS while (r == 0)
	{
		Py_BEGIN_ALLOW_THREADS r = rank_nccl_wait(SLICE_MS, &e);
		Py_END_ALLOW_THREADS if (r == 0 && PyErr_CheckSignals() < 0)
		{
			Py_BEGIN_ALLOW_THREADS rank_nccl_cancel();
			Py_END_ALLOW_THREADS return false;
		}
	}
	if (r < 0)
		py_raise(&e);
	return r > 0;
}

PyObject *
py_nccl_join(PyObject *module, PyObject *args)
{
	struct nccl_job job = {.kind = NCCL_JOIN};
	PyObject *bytes;
	char *id;
	Py_ssize_t n;

	if (!PyArg_ParseTuple(args, "Oiii:nccl_join", &bytes, &job.rank, &job.ranks, &job.device) ||
	    PyBytes_AsStringAndSize(bytes, &id, &n) < 0 || !py_device_usable())
		return NULL;
	if (n != NCCL_ID_SIZE) {
		PyErr_SetString(PyExc_ValueError, "nccl_join: not the id of a communicator");
		return NULL;
	}
	memcpy(job.id, id, NCCL_ID_SIZE);
	return run(&job) ? Py_NewRef(Py_None) : NULL;
}

PyObject *
py_nccl_combines(PyObject *module, PyObject *args)
{
	const char *op, *dtype;
	struct combine c;

	if (!PyArg_ParseTuple(args, "ss:nccl_combines", &op, &dtype))
		return NULL;
	return PyBool_FromLong(nccl_combine_plan(&c, op, dtype));
}

PyObject *
py_nccl_can_revoke(PyObject *module, PyObject *owner)
{
	const char *name = PyUnicode_AsUTF8AndSize(owner, NULL);
	struct err e;

	return name ? PyBool_FromLong(nccl_can_revoke(name, &e) == 0) : NULL;
}

PyObject *
py_nccl_revocable(PyObject *module, PyObject *args)
{
	struct revocable rows[REVOCABLE_MAX];
	unsigned claims;
	PyObject *list;
	Py_ssize_t n;

	if (!PyArg_ParseTuple(args, "IO:nccl_revocable", &claims, &list) ||
	    (n = PyList_Size(list)) < 0 || !py_device_usable())
		return NULL;
	n = MIN(n, (Py_ssize_t)REVOCABLE_MAX);
	for (Py_ssize_t i = 0; i < n; i++) {
		unsigned long long address;

		if (!PyArg_ParseTuple(
			PyList_GetItem(list, i), "Ki:nccl_revocable", &address, &rows[i].device))
			return NULL;
		rows[i].comm = (struct ncclComm *)(uintptr_t)address;
	}
	rank_revoke_set(rows, (int)n, claims);
	Py_RETURN_NONE;
}

PyObject *
py_nccl_claims(PyObject *module, PyObject *unused)
{
	return PyLong_FromUnsignedLong(rank_revoke_claims());
}

PyObject *
py_nccl_release(PyObject *module, PyObject *unused)
{
	if (!rank_forked())
		rank_revoke_release();
	Py_RETURN_NONE;
}

PyObject *
py_nccl_claim(PyObject *module, PyObject *unused)
{
	bool ended = true;

	if (!rank_forked()) {
		Py_BEGIN_ALLOW_THREADS ended = rank_revoke_claim();
		Py_END_ALLOW_THREADS
	}
	return PyBool_FromLong(ended);
}

PyObject *
py_nccl_leave(PyObject *module, PyObject *unused)
{
	static const struct nccl_job job = {.kind = NCCL_LEAVE};

	return py_device_usable() && run(&job) ? Py_NewRef(Py_None) : NULL;
}

PyObject *
py_nccl_abort(PyObject *module, PyObject *unused)
{
	static const struct nccl_job job = {.kind = NCCL_ABORT};

	return py_device_usable() && run(&job) ? Py_NewRef(Py_None) : NULL;
}

PyObject *
py_nccl_measure(PyObject *module, PyObject *args)
{
	struct measure m = {0};
	struct nccl_job job = {.kind = NCCL_MEASURE, .measure = &m};
	unsigned long long count;
	const char *name;

	if (!PyArg_ParseTuple(
		args, "sKIii:nccl_measure", &name, &count, &m.repeats, &m.receiver, &m.sender) ||
	    !py_device_usable())
		return NULL;
	m.kind = nccl_measure_kind(name);
	m.count = count;
	if (m.kind == MEASURE_KINDS) {
		PyErr_Format(PyExc_ValueError, "nccl_measure: no collective %s", name);
		return NULL;
	}
	return run(&job) ? Py_BuildValue("(dK)", m.us, (unsigned long long)m.wrong) : NULL;
}
