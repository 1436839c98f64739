"""Runs many cells that fail, each in its own way, and checks the report of each: its size, that
text and JSON say the same, and that it names the cause and the line that a person would name.

Usage: report.py GROUP_DIRECTORY COUNT
"""

import itertools
import json
import os
import re
import sys

GROUP, COUNT = sys.argv[1], int(sys.argv[2])
TEXT_MAX, JSON_MAX = 2048, 4096
SEVERAL = "ValueError('inner I')"
if sys.version_info >= (3, 11):
    SEVERAL = f"ExceptionGroup('several', [{SEVERAL}, TypeError()])"
SEVERAL = f"raise {SEVERAL}"
# each rank cuts its own text: with many ranks, shorter ones show as much
LONG = "(3_000_000 if world_size < 9 else 300_000)"
# what notes say of an exception, and of what it came from; many, and some that are no texts
NOTES = [
    (
        "def load(shard):\n    e = ValueError('bad magic')\n"
        "    e.add_note(f'while loading shard {shard}\\nof the train split')\n    raise e\n"
        "try: load(I)\nexcept ValueError as e:\n    outer = RuntimeError('no data')\n"
        "    for i in range(5): outer.add_note(f'try {i}')\n    raise outer from e",
        "EREMOTEIO",
        r"RuntimeError: no data\ntry 0\ntry 1\n\(and 3 more\)\n"
        r"ValueError: bad magic \(<cell \d+>:4\); while loading shard I of the train split$",
        ":9",
    ),
    (
        "e = ValueError('bad I')\nfor i in range(900):\n"
        "    e.add_note(f'note {i}\\n' + '\\\\\\x1b\"' * (" + LONG + " // 1500))\nraise e",
        "EREMOTEIO",
        r"ValueError: bad I\nnote 0 .*\nnote 1 .*\n\(and 898 more\)",
        ":4",
    ),
    (
        "e, f = ValueError('strange'), OSError('odd')\n"
        "e.__notes__, f.__notes__ = [3, 'a text', None], 7\n"
        "raise ExceptionGroup('I tries', [e, f])",
        "EREMOTEIO",
        r"ExceptionGroup: I tries \(2 sub-exceptions\)\n"
        r"ValueError: strange; 3; a text; \(and 1 more\)\nOSError: odd; 7$",
        ":3",
    ),
]

# (source, errno, what `error` or `from` must name, the end of a line `at`); I: the case's number
CASES = [
    ("x = I\nraise ValueError('bad I')", "EREMOTEIO", "ValueError: bad I", ":2"),
    ("if rank == 1: raise KeyError('key I')", "EREMOTEIO", "KeyError: 'key I'", ":1"),
    (
        "def f(x):\n    return 1 / x\nf(0)",
        "EREMOTEIO",
        "ZeroDivisionError: division by zero",
        ":2 f: return 1 / x",
    ),
    (
        "def main():\n    x = I\n    assert x < 0, 'x is I'\nmain()",
        "EREMOTEIO",
        "AssertionError: x is I",
        ":3 main",
    ),
    (
        "try:\n    {}['lr']\nexcept KeyError as e:\n    raise RuntimeError('train') from e",
        "EREMOTEIO",
        "RuntimeError: train",
        ":4",
    ),
    (
        "try:\n    open('/nonexistent/I')\nfinally:\n    undefined_I",
        "EREMOTEIO",
        "NameError: name 'undefined_I'",
        ":4",
    ),
    ("import os\nos.listdir('/nonexistent/I')", "EREMOTEIO", "FileNotFoundError", ":2"),
    ("import json\njson.loads('{I')", "EREMOTEIO", "JSONDecodeError", ":2"),
    ("def f(n):\n    return f(n + 1)\nf(0)", "EREMOTEIO", "RecursionError", ":3 <module>: f(0)"),
    (SEVERAL, "EREMOTEIO", "ValueError: inner I", ":1"),
    ("def f(:\n    pass # I", "ENOEXEC", "SyntaxError", ":1"),
    ("if True:\nx = I", "ENOEXEC", "IndentationError", ":2"),
    ("x = 'I", "ENOEXEC", "SyntaxError", ":1"),
    ("\xff\xfe I".encode("latin-1"), "ENOEXEC", "SyntaxError", ""),
    ("import sys\nsys.exit(I + 1)", "EREMOTEIO", "SystemExit: ", ":2"),
    ("import sys\nsys.exit('no data in I')", "EREMOTEIO", "no data in I", ":2"),
    ("raise KeyboardInterrupt", "EINTR", "KeyboardInterrupt", ":1"),
    (
        "class Odd(Exception):\n    def __str__(self): raise TypeError('no')\nraise Odd",
        "EREMOTEIO",
        "Odd",
        ":3",
    ),
    ("raise ValueError('first\\nsecond I')", "EREMOTEIO", "ValueError: first", ":1"),
    (f"raise ValueError('x' * {LONG})", "EREMOTEIO", "ValueError: xxx", ":1"),
    (
        "raise ValueError('\\x1b[31mred\\x00\\udc80 \\u6f22' * 300)",
        "EREMOTEIO",
        "ValueError: red",
        ":1",
    ),
    (
        "print('y' * 3_000_000); print('last line')\nraise ValueError('after much')",
        "EREMOTEIO",
        "ValueError: after much",
        ":2",
    ),
    (
        "import os\nos.write(1, bytes(range(256)) * 40)\nraise ValueError('bytes I')",
        "EREMOTEIO",
        "ValueError: bytes I",
        ":3",
    ),
    (
        "for i in range(300): print('loss', i, rank)\nraise FloatingPointError('loss is nan at I')",
        "EREMOTEIO",
        "FloatingPointError: loss is nan at I",
        ":2",
    ),
    (
        "source = 'def g():\\n    raise LookupError(\"I\")\\ng()'\n"
        "exec(compile(source, '/home/u/' + 'long/' * 60 + 'model.py', 'exec'))",
        "EREMOTEIO",
        "LookupError: I",
        "model.py:2 g",
    ),
    ("raise ValueError(rank)", "EREMOTEIO", "ValueError: ", ":1"),
    (
        "".join(f"n{i} = {i}\n" for i in range(200)) + "raise ValueError('names I')",
        "EREMOTEIO",
        "ValueError: names I",
        ":201",
    ),
    (
        "def " + "f" * 500 + "(): raise ValueError('" + "é" * 500 + "')\n" + "f" * 500 + "()",
        "EREMOTEIO",
        "ValueError: é",
        ":1",
    ),
    *(NOTES if sys.version_info >= (3, 11) else []),
]
# these take longer, so there are few of them
RARE = [
    (
        "import multiprocessing\ndef work(i): return 1 // i\n"
        "with multiprocessing.get_context('fork').Pool(1) as pool: pool.map(work, [1, 0])",
        "EREMOTEIO",
        r"ZeroDivisionError: [a-z ]+ \(<cell \d+>:2\)",
        ":3",
    ),
    ("import os\nif rank == world_size - 1: os._exit(7)", "EHOSTDOWN", "died: exit status 7", ""),
    (
        "import os, sys\nif rank == 0:\n    print('out of luck I', file=sys.stderr, flush=True)\n"
        "    os.kill(os.getpid(), 9)",
        "EHOSTDOWN",
        r"died: signal 9 \(Killed\).*out of luck I",
        "",
    ),
    (
        "import ctypes, threading\ndef crash(): ctypes.string_at(8)\n"
        "threading.Thread(target=threading.Event().wait, daemon=True).start()\n"
        "if rank == 1: crash()",
        "EHOSTDOWN",
        r"died: signal 11 \(Segmentation fault\); its last words: Fatal Python error: Segmentation"
        r' fault \(most recent call first\):   File "<cell \d+>", line 2 in crash   File "<cell'
        r' \d+>", line 4 in <module> $',
        "",
    ),
    (
        "import time\ndef wait(): time.sleep(60)\nif rank == 1: wait()",
        "ETIMEDOUT",
        "longer than timeout 2",
        ":2 wait",
    ),
    ("while True: pass", "ETIMEDOUT", "longer than timeout 2", ":1 <module>"),
]


def write(name, text):
    """Returns when it has ended, however."""
    fd = os.open(os.path.join(GROUP, name), os.O_RDWR)
    data = text if isinstance(text, bytes) else text.encode()
    try:
        while data:
            data = data[os.write(fd, data) :]
        os.fsync(fd)
    except OSError:
        pass  # Python tries again after EINTR, and succeeds: the report has the outcome
    finally:
        os.close(fd)


def read(name):
    with open(os.path.join(GROUP, name), "rb") as file:
        return file.read()


def check(number, case):
    source, errno, cause, where = case
    text, data = read(f"cells/{number}/report"), read(f"cells/{number}/report.json")
    assert len(text) <= TEXT_MAX and len(data) <= JSON_MAX, (len(text), len(data))
    said, text = json.loads(data), text.decode()
    told = f"cell {number}: {source[:80]!r}\n{text}\n{data.decode()}"
    assert said["errno"] == errno, told
    causes = [said["error"], *said.get("notes", []), *said.get("from", [])]
    assert re.search(cause, "\n".join(causes), re.S), told
    at = [f"{each['at']} {each['function']}: {each['source']}" for each in said.get("frames", [])]
    assert not where or any(where in line.replace(" : ", ": ") for line in at), told
    assert said["program"] and said["pid"] == os.getpid(), told
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f]", text), told
    assert not re.search(r"<ddip_engine|Extension modules", text), told
    # a worker of the user's that was interrupted as it printed a traceback shows Python's own code
    assert "<string>" not in re.sub(r"^output .*\n(?:\t.*\n)*", "", text, flags=re.M), told
    assert "signal 11" not in text or re.search(
        r"^see cells/\d+/rank1/stderr$.*^output 1 stderr: .* in string_at\n.* in crash\n",
        text,
        re.M | re.S,
    ), told
    # the text has all that the JSON has, and nothing else
    values = []
    for key, value in said.items():
        for each in value if isinstance(value, list) else [value]:
            values += each.values() if isinstance(each, dict) else [each]
            assert re.search(rf"^{'at' if key == 'frames' else key.rstrip('s')}", text, re.M), (
                key,
                told,
            )
    for value in values:
        assert str(value).replace("\n", "\n\t") in text or isinstance(value, float), (value, told)
    lines = [line for line in text.splitlines() if not line.startswith("\t")]
    assert len(lines) == sum(
        len(value) if isinstance(value, list) else 1 for value in said.values()
    ), told
    return len(text)


def main():
    cases = itertools.islice(itertools.cycle(CASES), COUNT - len(RARE))
    longest = 0
    last = int(read("cell"))
    for i, (source, errno, cause, where) in enumerate(cases):
        if isinstance(source, str):
            source = re.sub(r"\bI\b|(?<=_)I\b", str(i), source)
        case = source, errno, re.sub(r"\bI\b|(?<=_)I\b", str(i), cause), where
        write("cell", source)
        last += 1
        longest = max(longest, check(last, case))
    for source, errno, cause, where in RARE:
        write("ctl", "timeout 2\n" if errno == "ETIMEDOUT" else "timeout off\n")
        write("cell", source)
        last += 1
        longest = max(longest, check(last, (source, errno, cause, where)))
    print(f"{COUNT} reports, the longest of {longest} bytes")


main()
