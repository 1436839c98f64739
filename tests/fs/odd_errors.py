"""Runs cells that end with an exception which misbehaves when it is looked at. Each must end as any
cell that raises: EREMOTEIO, an error of its class, a traceback that names the line, a report; and
the rank stays.

Usage: odd_errors.py GROUP_DIRECTORY
"""

import errno
import os
import sys

GROUP = sys.argv[1]
RAISES = "property(lambda self: 1 / 0)"
EXITS = "property(lambda self: __import__('sys').exit(7))"
NAMES = (
    "__notes__ __cause__ __context__ __suppress_context__ __traceback__ __class__ __module__"
    " __dict__ exceptions args code"
).split()
# what stands in the body of a class Odd
BODIES = [f"{name} = {what}" for name in NAMES for what in (RAISES, EXITS)]
BODIES += [f"{name} = property(lambda self: {value})" for name in NAMES for value in ("7", "[7]")]
BODIES += [f"{name} = property(lambda self: self)" for name in NAMES]
BODIES += [
    "__notes__ = 7",
    "__notes__ = 'text'",
    "__notes__ = [7, None, object()]",
    "__notes__ = ['x' * 1000] * 5000",
    "__module__ = 7",
    "__module__ = None",
    "__class__ = SystemExit",
    "__class__ = KeyboardInterrupt",
    "__class__ = SyntaxError",
    "def __str__(self): return 7",
    "def __str__(self): 1 / 0",
    "def __str__(self): raise SystemExit(3)",
    "def __str__(self): raise KeyboardInterrupt",
    "def __str__(self): raise self",
    "def __str__(self): return str(self)",
    "def __repr__(self): 1 / 0",
    "__str__ = None",
    "def __getattribute__(self, name): 1 / 0",
    "def __getattribute__(self, name): raise SystemExit(3)",
    "def __setattr__(self, name, value): 1 / 0",
    "def __delattr__(self, name): 1 / 0",
    "def __eq__(self, other): 1 / 0",
    "def __hash__(self): 1 / 0",
    "def __bool__(self): 1 / 0",
    "_render_traceback_ = property(lambda self: 1 / 0)",
    "def _render_traceback_(self): 1 / 0",
    "def _render_traceback_(self): return 7",
    "def with_traceback(self, tb): 1 / 0",
    "def __len__(self): return 0",
    "def __dir__(self): 1 / 0",
    "def __getattr__(self, name): raise SystemExit(3)",
]
NOTES = """class Note:
    def __str__(self): 1 / 0
    __repr__ = __str__
class Notes(list):
    def __iter__(self): 1 / 0
class Text(str):
    def __str__(self): 1 / 0
    split = splitlines = __getitem__ = __str__
"""
BODIES = [("", body) for body in BODIES]
BODIES += [(NOTES, f"__notes__ = {notes}") for notes in ("[Note()]", "Notes(['a'])", "[Text('a')]")]
META = """class Meta(type):
    %s = property(lambda kind: %s)
"""
# a class whose own names misbehave
BODIES += [
    (META % (name, value), "metaclass")
    for name in ("__name__", "__module__", "__class__", "__mro__", "__bases__")
    for value in ("1 / 0", "7")
]


def source(head, body, way):
    kind = "class Odd(Exception, metaclass=Meta):\n    pass"
    if body != "metaclass":
        kind = f"class Odd(Exception):\n    {body}"
    return f"{head}{kind}\n{way}\n"


WAYS = {
    "alone": "raise Odd('bad')",
    "a context": "try:\n    raise Odd('bad')\nexcept BaseException:\n    raise ValueError('outer')",
    "a cause": "try:\n    raise Odd('bad')\nexcept BaseException as e:\n"
    "    raise ValueError('outer') from e",
}
if sys.version_info >= (3, 11):
    WAYS["a member"] = "raise ExceptionGroup('outer', [Odd('bad'), ValueError('inner')])"


def read(path):
    with open(os.path.join(GROUP, path), encoding="utf-8", errors="replace") as file:
        return file.read()


def run(text):
    """The name of the errno with which writing the cell ends."""
    fd = os.open(os.path.join(GROUP, "cell"), os.O_RDWR)
    try:
        os.write(fd, text.encode())
        os.fsync(fd)
        return "ok"
    except OSError as e:
        return errno.errorcode[e.errno]
    finally:
        os.close(fd)


# (source, what the error and the traceback say): of classes of Python's own
OTHERS = [
    (
        f"e = SyntaxError('bad')\ne.{field} = {value}\nraise e",
        "SyntaxError",
    )
    for field in ("filename", "lineno", "offset", "text", "end_lineno", "end_offset", "msg")
    for value in ("7", "-1", "'x'", "None", "[]", "2**70", "'\\udc80'", "object()")
]
OTHERS += [
    (
        "e = ValueError('0')\nfor i in range(2_000):\n    try: raise ValueError(str(i)) from e\n"
        "    except ValueError as f: e = f\nraise e",
        "ValueError: 1999",
    ),
    ("class Text(str):\n    def __str__(self): 1 / 0\nraise ValueError(Text('a'))", "ValueError"),
    ("class Key:\n    def __repr__(self): 1 / 0\nraise KeyError(Key())", "KeyError"),
    (
        "class Code:\n    def __eq__(self, other): 1 / 0\n"
        "    def __str__(self): return 'odd code'\n"
        "raise SystemExit(Code())",
        "SystemExit: odd code",
    ),
    (
        "class Odd(SystemExit):\n    code = property(lambda self: 1 / 0)\nraise Odd(3)",
        ": 3",
    ),
    (
        "class Shy:\n    def __dir__(self): raise SystemExit(3)\nShy().name",
        "AttributeError: 'Shy' object has no",
    ),
    ("number = 1\nnumbr", "NameError: name 'numbr' is not defined"),
]
if sys.version_info >= (3, 11):
    OTHERS.append(
        (
            "e = ValueError('0')\nfor i in range(5_000): e = ExceptionGroup(str(i), [e])\nraise e",
            "ExceptionGroup: 4999",
        )
    )


def problems(end, want):
    """What is wrong with the last cell, which should say `want`."""
    error, trace = read("cells/last/error"), read("cells/last/traceback")
    report = read("cells/last/report")
    if end != "EREMOTEIO":
        yield f"ended with {end}"
    if want not in error or "Trun" in error:
        yield f"error {error!r}"
    if want not in trace or "ddip_engine" in trace or ('File "<cell' not in trace):
        yield f"traceback {trace[-2000:]!r}"
    if want not in report or "at <cell" not in report or "ddip_engine" in report:
        yield f"report {report!r}"


def check(text, want):
    found = [*problems(run(text), want)]
    if found:
        print(f"--- {text}\n    " + "\n    ".join(found), flush=True)
    return bool(found)


def main():
    failed = run("kept = 41") != "ok"
    for head, body in BODIES:
        for way, raising in WAYS.items():
            failed |= check(source(head, body, raising), "Odd" if way == "alone" else "outer")
    for text, want in OTHERS:
        failed |= check(text, want)
    if run("assert kept == 41") != "ok":
        print("the rank has lost its names")
        failed = True
    return failed


sys.exit(main())
