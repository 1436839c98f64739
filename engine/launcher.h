/* Loads the user's Python in zygotes and ranks. */
#ifndef LAUNCH_H
#define LAUNCH_H

/* Becomes `python` with our shared object loaded, in this role ("zygote", "rank"). If the
 * interpreter is built on a shared libpython, that library is loaded into this process; otherwise
 * the interpreter is executed. Returns only the interpreter's own exit status, or 127 with a line
 * on stderr if there is no such Python. */
int launch_python(const char *python, const char *role);

#endif
