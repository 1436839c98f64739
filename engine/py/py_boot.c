/*
 * The first steps in a new interpreter: takes over what the agent passed, installs the importer of
 * `ddip_engine`, and starts forked engines.
 */
#define _GNU_SOURCE
#include <Python.h>
#include "py/py.h"
#include "py/embedded.h"
#include "output_ring.h"
#include "rank/zygote.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Finds the embedded modules, and provides their source for tracebacks. An interpreter that cannot
 * load their code compiles them. DDIP_ENGINE_PY names a directory to load them from instead. */
static const char importer[] =
    "import importlib.abc, importlib.util, marshal, os, sys\n"
    "folders = {name.rpartition('.')[0] for name in sources if '.' in name}\n"
    "packages = {'ddip_engine', *('ddip_engine.' + folder for folder in folders)}\n"
    "is_loadable = importlib.util.MAGIC_NUMBER == magic\n"
    "class Embedded(importlib.abc.MetaPathFinder, importlib.abc.InspectLoader):\n"
    "    def find_spec(self, name, path=None, target=None):\n"
    "        if name in packages or name.startswith('ddip_engine.') and name[12:] in sources:\n"
    "            return importlib.util.spec_from_loader(name, self, origin='<' + name + '>')\n"
    "    def is_package(self, name):\n"
    "        return name in packages\n"
    "    def get_source(self, name):\n"
    "        return sources.get(name[12:], ('', b''))[0]\n"
    "    def get_code(self, name):\n"
    "        if is_loadable and name[12:] in sources:\n"
    "            return marshal.loads(sources[name[12:]][1])\n"
    "        return compile(self.get_source(name), '<' + name + '>', 'exec', dont_inherit=True)\n"
    "place = os.environ.pop('DDIP_ENGINE_PY', None)\n"
    "for name in hidden:\n"
    "    os.environ.pop(name, None)\n"
    "if place:\n"
    "    spec = importlib.util.spec_from_loader('ddip_engine', None, is_package=True)\n"
    "    spec.submodule_search_locations[:] = [place]\n"
    "    sys.modules['ddip_engine'] = importlib.util.module_from_spec(spec)\n"
    "else:\n"
    "    sys.meta_path.insert(0, Embedded())\n"
    "from ddip_engine import boot\n"
    "boot.main(role)\n";

/* For the engine alone: user code and its children need not see them. */
static const char *const hidden[] = {ENGINE_ENV_CTL, ENGINE_ENV_WAKEUP, ENGINE_ENV_RING,
    ENGINE_ENV_DISPLAY, ENGINE_ENV_AGENT, ENGINE_ENV_KIND, ENGINE_ENV_NAME, "DDIP_ENGINE_SO"};

static int
number(const char *name)
{
	const char *text = getenv(name);

	return text ? atoi(text) : -1;
}

/* Takes over what the agent passed to a process that it exec'ed. Returns the role as boot.main
 * knows it, or NULL with an exception set. */
static const char *
take_fds(const char *role)
{
	const char *name = getenv(ENGINE_ENV_NAME);
	struct rank_fds g = {.ctl = number(ENGINE_ENV_CTL),
	    .display = number(ENGINE_ENV_DISPLAY),
	    .ring = number(ENGINE_ENV_RING),
	    .wakeup_fd = number(ENGINE_ENV_WAKEUP),
	    .agent = (pid_t)number(ENGINE_ENV_AGENT)};

	if (g.ctl < 0 || g.agent <= 0) {
		PyErr_Format(PyExc_RuntimeError, "%s is not set: an engine is started by its agent",
		    ENGINE_ENV_CTL);
		return NULL;
	}
	if (!strcmp(role, "zygote")) {
		zygote_open(g.ctl, g.agent);
		return role;
	}
	g.name = xasprintf("ddip-%s", name ? name : role);
	rank_start(&g);
	return number(ENGINE_ENV_KIND) == ENGINE_STORE ? "store" : role;
}

/* Returns a dict: the name of each module, its (source, marshalled code). */
static PyObject *
source_table(void)
{
	PyObject *all = PyDict_New();

	for (const struct embedded *s = embedded_sources; all && s->name; s++) {
		PyObject *row = Py_BuildValue(
		    "s#y#", s->text, (Py_ssize_t)s->n_text, s->code, (Py_ssize_t)s->n_code);

		if (!row || PyDict_SetItemString(all, s->name, row) < 0)
			Py_CLEAR(all);
		Py_XDECREF(row);
	}
	return all;
}

static PyObject *
hidden_names(void)
{
	PyObject *all = PyList_New(0);

	for (size_t i = 0; all && i < ARRAY_LEN(hidden); i++) {
		PyObject *name = PyUnicode_FromString(hidden[i]);

		if (!name || PyList_Append(all, name) < 0)
			Py_CLEAR(all);
		Py_XDECREF(name);
	}
	return all;
}

/* Moves o, a new reference or NULL, into the dict. Returns false if that fails. */
static bool
give(PyObject *dict, const char *key, PyObject *o)
{
	bool ok = o && PyDict_SetItemString(dict, key, o) == 0;

	Py_XDECREF(o);
	return ok;
}

PyObject *
py_boot(PyObject *module, PyObject *role)
{
	const char *text = PyUnicode_AsUTF8AndSize(role, NULL);
	PyObject *names, *code, *result = NULL;

	if (!text || !(text = take_fds(text)))
		return NULL;
	names = PyDict_New();
	code = Py_CompileString(importer, "<ddip_engine importer>", Py_file_input);
	if (names && code && give(names, "__name__", PyUnicode_FromString("ddip_engine")) &&
	    give(names, "sources", source_table()) &&
	    give(names, "magic",
		PyBytes_FromStringAndSize(embedded_magic, sizeof(embedded_magic))) &&
	    give(names, "hidden", hidden_names()) &&
	    give(names, "role", PyUnicode_FromString(text)) &&
	    give(names, "__builtins__", PyImport_ImportModule("builtins")))
		result = PyEval_EvalCode(code, names, names);
	Py_XDECREF(names);
	Py_XDECREF(code);
	return result;
}

static void
before_fork(void)
{
	PyOS_BeforeFork();
}

static void
after_in_parent(void)
{
	PyOS_AfterFork_Parent();
}

static void
after_in_child(void)
{
	PyOS_AfterFork_Child();
}

/* Applies line (K=V, or K to remove it) to os.environ, and adds a K=V to dict. Returns false with
 * an exception set on failure. */
static bool
apply(PyObject *environ_, PyObject *dict, const char *line)
{
	const char *eq = strchr(line, '=');
	size_t n = eq ? (size_t)(eq - line) : strlen(line);
	PyObject *key = PyUnicode_DecodeFSDefaultAndSize(line, (Py_ssize_t)n);
	PyObject *value = eq ? PyUnicode_DecodeFSDefault(eq + 1) : NULL, *r = NULL;
	bool ok = false;

	if (key && value) {
		ok = PyObject_SetItem(environ_, key, value) == 0 &&
		     PyDict_SetItem(dict, key, value) == 0;
	} else if (key && !eq) {
		r = PyObject_CallMethod(environ_, "pop", "OO", key, Py_None);
		ok = r != NULL;
	}
	Py_XDECREF(key);
	Py_XDECREF(value);
	Py_XDECREF(r);
	return ok;
}

PyObject *
py_zygote(PyObject *module, PyObject *unused)
{
	static const struct zygote_hooks hooks = {before_fork, after_in_parent, after_in_child};
	struct zygote_child child;
	PyObject *os = PyImport_ImportModule("os"), *environ_ = NULL, *env = PyDict_New();
	PyObject *result = NULL;
	bool ok;

	if (os)
		environ_ = PyObject_GetAttrString(os, "environ");
	ok = environ_ && env;
	if (ok) {
		zygote_serve(&hooks, &child);
		for (size_t at = 0; ok && at < child.env.n; at += strlen(child.env.p + at) + 1)
			ok = apply(environ_, env, child.env.p + at);
		if (ok)
			result = Py_BuildValue("(IsO)", child.kind, child.name, env);
		free(child.name);
		buf_free(&child.env);
	}
	Py_XDECREF(os);
	Py_XDECREF(environ_);
	Py_XDECREF(env);
	return result;
}
