#!/usr/bin/env python3
"""Failing cells, interrupts, and kernels that come and go are handled and reported."""

import os
import re
import signal
import subprocess
import sys
import tempfile
import threading

import notebook

notebook.need("torch", "IPython", "ipykernel", "nbclient")


def test_errors():
    with notebook.notebook("%load_ext ddip", "%makedip -n 3") as nb:
        failed = nb.run("%%dip\na = 1\ndef f():\n    return 1 / 0\nf()")
        name, value, text = failed.error
        for red in ("\x1b[31mZeroDivisionError\x1b[39m", "\x1b[31mZeroDivisionError\x1b[39m: "):
            assert red in failed.coloured, failed.coloured
        assert "\x1b[36mCell\x1b[39m \x1b[32mIn[" in failed.coloured, failed.coloured
        assert "\x1b[32m----> 5\x1b[39m " in failed.coloured, failed.coloured
        assert (name, value) == ("RemoteError", "ZeroDivisionError(division by zero)")
        assert text.startswith("ranks 0-2:\n") and text.count("ZeroDivisionError: ") == 1, text
        assert "\n\nCell In[3], line 4, in f()\n" in text, text  # the notebook's third cell
        assert text.rstrip().endswith("\n\nZeroDivisionError: division by zero"), text
        assert "----> 5 f()" in text and "----> 4     return 1 / 0" in text, text
        assert "ddip" not in text.replace("#%%dip", ""), text
        name, value, _ = nb.run("%%dip\nimport ddip\nraise ddip.Preempted('soon')").error
        assert (name, value) == ("RemoteError", "Preempted(soon)"), (name, value)
        nb.ok("import ddip\nassert issubclass(ddip.Preempted, KeyboardInterrupt)")
        text = nb.run("%%dip\nif rank:\n    raise ValueError(rank)").error[2]
        assert text.index("rank 1:") < len(text) and text.count("ValueError: ") == 2, text
        name, value, _ = nb.run("%%dip -q\n1 / 0").error
        assert (name, value) == ("RemoteError", "ZeroDivisionError(division by zero)"), (
            name,
            value,
        )
        nb.ok('%autodip -a "--see 1" on')
        assert "----> 1 1 / 0" in nb.run("1 / 0").error[2]
        nb.ok("%autodip off")
        text = nb.run("%%dip\nx = = 1").error[2]
        assert "line 2" in text and "SyntaxError" in text, text
        name, _, text = nb.run("%%dip local\n1\nnix").error
        assert name == "NameError" and "----> 3 nix" in text and "run_cell" not in text, text
        frozen = "@__import__('dataclasses').dataclass(frozen=True)\nclass Frozen(Exception): pass"
        name, _, text = nb.run(f"%%dip local\n{frozen}\nraise Frozen").error
        assert name == "Frozen" and "----> 4 raise Frozen" in text, text
        assert nb.run("%%dip everywhere\nnix").error[0] == "NameError"
        name, value, _ = nb.run("%%dip\nimport os\nif rank == 1: os._exit(3)").error
        assert "rank 1" in value and "status 3" in value, value
        shown = nb.ok("%%dip -S all\nrank")
        assert len(shown.data()) == 3, "a new rank took its place"
        told = shown.text("stderr")
        assert "ddip: rank 1 is new since cell" in told and "has none of its" in told, told
        nb.ok(
            "import ddip\nfrom ddip.mounts import files\n"
            "files.write(f'{ddip.group().path}/ctl', b'stop\\n')"
        )
        value = nb.run("%%dip\nrank").error[1]
        assert value.endswith("the group is stopped (%makedip starts it)"), value
        nb.ok("%makedip")
        assert len(nb.ok("%%dip -S all\nrank").data()) == 3, "it does"


def test_told():
    """A shell in the notebook is told once what failed; magics say it themselves."""
    with notebook.notebook("%load_ext ddip", "%makedip") as nb:
        write = f"echo '1 / 0' > {nb.group}/cell"
        name = f"ddipfs: (?:{os.path.basename(nb.group)}: )?"  # of one group, or of several
        line = name + "cell {} failed on rank [01]: ZeroDivisionError: division by zero "
        for source in (f"!{write}", f"%%bash\n{write}", f"%%sh\n{write}; echo done"):
            shown = nb.ok(source)
            text = shown.text("stdout") + shown.text("stderr")
            number = os.readlink(f"{nb.group}/cells/last")
            found = re.findall(line.format(number), text)
            assert len(found) == 1 and text.count("ddipfs: ") == 1, text
        assert "ddipfs: " not in nb.ok(f"!echo 1 > {nb.group}/cell").text()
        failed = nb.run("%%dip\n1 / 0")
        assert failed.error and "ddipfs: " not in failed.text("stderr"), failed.text("stderr")
        failed = nb.run("import ddip\nddip.group().ctl('size 7')")
        assert failed.error and "ddipfs: " not in failed.text("stderr"), failed.text("stderr")


def test_chained():
    """A traceback shows only the user's and the libraries' frames, for all its exceptions."""
    collective = "dist.all_reduce(torch.ones(1), op='no such operation')"
    ways = {
        "During handling of": f"try:\n    {collective}\nexcept Exception:\n    {{}}['gone']",
        "the direct cause of": f"try:\n    {collective}\nexcept Exception as e:\n"
        "    raise ValueError('mine') from e",
    }
    if sys.version_info >= (3, 11):
        ways["ExceptionGroup"] = (
            f"try:\n    {collective}\nexcept Exception as e:\n"
            "    raise ExceptionGroup('both', [e, KeyError(1)])"
        )
    first = "%%dip\nimport torch, torch.distributed as dist"
    with notebook.notebook("%load_ext ddip", "%makedip", first) as nb:
        for words, code in ways.items():
            shown = nb.run(f"%%dip\n{code}").error[2]
            with open(f"{nb.group}/traceback", encoding="utf-8") as file:
                plain = file.read()
            for text in (shown, plain):
                assert words in text and "distributed_c10d.py" in text, text
                assert "ddip_engine" not in text and "counted" not in text, text


def test_a_rank_dies():
    """The rank that died comes first. What the collective of another raised for that is a line, and
    so is how the new rank gets its variables."""
    first = "%%dip\nimport os, torch, torch.distributed as dist"
    code = "%%dip\nif rank == 1:\n    os._exit(3)\ndist.all_reduce(torch.ones(1))"
    with notebook.notebook("%load_ext ddip", "%makedip -n 2", first) as nb:
        name, value, shown = nb.run(code).error
        assert (name, value) == ("RemoteError", "RankError(rank 1 died: exit status 3)"), value
        lines = [line for line in shown.splitlines() if line]
        assert lines[0] == "rank 1 died: exit status 3", shown
        assert re.fullmatch(r"rank 0 was in all_reduce\(\), line 4, which raised .+", lines[1]), (
            shown
        )
        assert "--catch-up 1" in lines[2] and len(lines) == 3, shown


def test_script():
    """A program that does not catch a RemoteError shows the ranks' traceback."""
    with notebook.notebook("%load_ext ddip", "%makedip") as nb:
        code = (
            "import ddip\ng = ddip.Group(%r)\ng.run_cell('print(5)')\n"
            "g.run_cell('def f(y): return 1 / y\\nf(0)')" % nb.group
        )
        environment = {**os.environ, **notebook.environment_of(nb.mount)}
        done = subprocess.run(
            [sys.executable, "-c", code], env=environment, capture_output=True, text=True
        )
        assert done.returncode == 1 and done.stdout == "5\n", done
        remote, _, own = done.stderr.partition("direct cause")
        assert "ranks 0-1:" in remote and "----> 1 def f(y): return 1 / y" in remote, done.stderr
        assert own.rstrip().endswith("RemoteError: ZeroDivisionError(division by zero)"), own


def test_output_fails():
    """A cell whose output cannot be written here is interrupted, and that is told. Without standard
    output it runs to its end; what the encoding of it lacks is escaped."""
    with notebook.notebook("%load_ext ddip", "%makedip -n 2", "%%dip\nimport time") as nb:
        where = {**os.environ, **notebook.environment_of(nb.mount)}

        def run(source, redirection, **environment):
            code = f"import ddip\nddip.Group({nb.group!r}).run({source!r})\nprint('done')"
            words = ["bash", "-c", f'"$@" {redirection}', "bash", notebook.PYTHON, "-c", code]
            return subprocess.run(words, env=where | environment, capture_output=True, check=False)

        for redirection, error in (
            (">/dev/full", "[Errno 28] No space left on device"),
            ("| head -1 >/dev/null", "[Errno 32] Broken pipe"),
        ):
            said = run("for i in range(10_000): print(i); time.sleep(0.01)", redirection).stderr
            number = nb.status()["cell"]
            told = f"DipError: cell {number} was interrupted, as it cannot be shown here: "
            assert told.encode() in said and error.encode() in said, said.decode()
            with open(f"{nb.group}/cells/{number}/wait", encoding="utf-8") as wait:
                assert wait.read(), "it ends"
        done = run("print('seen'); kept = 1", ">&-")
        assert done.returncode == 0 and not done.stderr, done
        done = run("print('é', kept)", "", PYTHONIOENCODING="ascii")
        assert done.stdout == b"\\xe9 1\ndone\n" and not done.stderr, done


def test_input_fails():
    """What asking for input raises is told, not taken for a failure of the cell."""
    with notebook.notebook("%load_ext ddip", "%makedip -n 1") as nb:
        nb.ok("def fails(prompt): raise OSError('no terminal')")
        nb.ok("from ddip.cells import prompts\nprompts.input = fails")
        error = nb.run("%%dip\ninput()").error
        told = "cell 1 was interrupted, as it cannot be shown here: OSError: no terminal"
        assert error[:2] == ("DipError", told), error
        with open(f"{nb.group}/cells/1/wait", encoding="utf-8") as wait:
            assert wait.read(), "it ends"


def test_first_failure_is_last():
    with notebook.notebook("%load_ext ddip", "%makedip") as nb:
        code = (
            "%%dip\nimport torch.distributed as d\nif rank == 1: raise ValueError('the cause')\n"
            "d.barrier()"
        )
        name, value, text = nb.run(code).error
        assert (name, value) == ("RemoteError", "ValueError(the cause)"), value
        cause, _, rest = text.rstrip().rpartition("ValueError: the cause\n")
        assert cause.startswith("rank 1:\n") and "PeerFailed" not in text, text
        assert rest == "rank 0 was in barrier(), line 4, and was freed", text
        sums = "%%dip\nimport torch\nt = torch.ones(1)\nd.all_reduce(t)\nt"
        assert nb.ok(sums).data()[0].endswith("tensor([2.])")


def test_failure_is_shown_at_once():
    """The traceback is there while the other ranks are still given time, and so is how long."""
    with notebook.notebook("%load_ext ddip", "%makedip -n 3") as nb:
        with open(f"{nb.group}/ctl", "w") as ctl:
            ctl.write("grace 600\n")
        code = (
            "%%dip\nimport os, time\nif rank == 1: raise ValueError('the cause')\n"
            f"while not os.path.exists({nb.gate!r}): time.sleep(0.01)"
        )
        begun = nb.begin(code)
        shown = nb.until(begun, "rank 1 failed: ValueError: the cause; ranks 0,2 are given ")
        assert "the cause" in shown.partition("rank 1 failed")[0], shown
        assert re.search(r"are given (600|5\d\d) s more", shown), shown
        nb.open_gate()
        name, value, text = nb.finish(begun).error
        assert (name, value) == ("RemoteError", "ValueError(the cause)"), value
        assert text.count("the cause") == 2, "in the source and at the end"


def test_a_hang_explains_itself():
    """The line below a silent cell is the verdict of `stall`."""
    with notebook.notebook("%load_ext ddip", "%makedip -n 2") as nb:
        code = (
            "%%dip\nimport os, time, torch.distributed as d\nif rank == 1:\n"
            f"    while not os.path.exists({nb.gate!r}): time.sleep(0.01)\nd.barrier()"
        )
        begun = nb.begin(code)
        shown = nb.until(begun, "rank 0 waits for it in barrier 1 (line 5)")
        assert "rank 1 is in no collective (line 4)" in shown, shown
        assert "(running for " in shown, shown
        nb.open_gate()
        assert nb.finish(begun).error is None


def test_interrupt():
    loops = {
        "sleep": "import time\nprint('sleep', flush=True)\ntime.sleep(10_000)",
        "loop": "print('loop', flush=True)\nwhile True: pass",
        "collective": "import torch.distributed as d\nprint('collective', flush=True)\n"
        "if rank == 0: d.barrier()",
    }
    with notebook.notebook("%load_ext ddip", "%makedip") as nb:
        for word, code in loops.items():
            thread = nb.when(lambda word=word: nb.is_printed(word), nb.interrupt)
            outcome = nb.run(f"%%dip\n{code}")
            thread.join()
            assert outcome.error[0] == "KeyboardInterrupt", outcome.outputs
            assert nb.ok("%%dip\nrank").data()[0].endswith("0")
        _while_it_is_submitted(nb)
        _stubborn(nb)


def _while_it_is_submitted(nb):
    """An interrupt before the cell has a number still reaches the cell."""
    nb.ok(
        "import os, signal\nfrom ddip.cells import cell\nplain = cell.submitted\n"
        "def submitted(*args):\n    os.kill(os.getpid(), signal.SIGINT)\n    return plain(*args)\n"
        "cell.submitted = submitted"
    )
    assert nb.run("%%dip\nimport time\ntime.sleep(100)").error[0] == "KeyboardInterrupt"
    nb.ok("cell.submitted = plain")
    assert nb.ok("%%dip\nrank").data()[0].endswith("0")


def _stubborn(nb):
    """A cell that catches every KeyboardInterrupt: the third releases the notebook from it."""
    code = (
        "%%dip\nimport time\ntaken = 0\nwhile True:\n    try:\n"
        "        print('taken', taken, flush=True)\n        time.sleep(10_000)\n"
        "    except KeyboardInterrupt:\n        taken += 1"
    )

    def stop():
        for taken in range(3):  # pending signals of one number merge while the kernel is busy
            for rank in range(2):
                notebook.until(lambda says=f"taken {taken}\n", rank=rank: nb.is_printed(says, rank))
            nb.interrupt()

    thread = threading.Thread(target=stop)
    thread.start()
    outcome = nb.run(code)
    thread.join()
    assert outcome.error[0] == "KeyboardInterrupt", outcome.outputs
    nb.ok("%makedip -r")
    assert nb.ok("%%dip\nrank").data()[0].endswith("0")


def test_a_handler_of_c():
    """In a process in which SIGINT has a handler that is not Python's, it stays as it is."""
    code = (
        "import sys\nfor name in '_signal', 'signal': sys.modules.pop(name, None)\n"
        "import _signal, signal\n"  # finds that the handler is not what Python's beginning leaves
        "assert signal.getsignal(signal.SIGINT) is None\nfrom ddip.cells import cell\n"
        "with cell.Interrupts(), cell.default_interrupts(): pass\n"
        "assert signal.getsignal(signal.SIGINT) is None\n"
    )
    where = {**os.environ, "PYTHONPATH": notebook.MAGICS}
    subprocess.run([notebook.PYTHON, "-c", code], env=where, check=True)


def test_input_fields():
    """A rank's prompt is an input field of the notebook: input(), pdb, post-mortem."""
    with notebook.notebook("%load_ext ddip", "%makedip -n 2") as nb:
        ask = "%%dip -S all\nif rank == 1:\n    name = input('your name: ')\n    print('hi', name)"
        outcome, prompts = nb.talk(ask, "Ada")
        assert outcome.error is None and prompts == ["[rank 1] your name: "], prompts
        assert "hi Ada" in outcome.text(), outcome.text()
        stop = "%%dip\nx = 41 + rank\nif rank == 1:\n    breakpoint()\nimport torch\n" + (
            "t = torch.ones(1); torch.distributed.all_reduce(t); t.item()"
        )
        outcome, prompts = nb.talk(stop, "p x", "c")
        assert outcome.error is None and "[1] -> import torch\n" in outcome.text(), outcome.outputs
        assert outcome.data() == ["Out[0:2]: 2.0", "Out[1:2]: 2.0"], (
            "who asks is shown from then on"
        )
        assert all("rank 1" in prompt for prompt in prompts), prompts
        assert nb.run("%%dip\ndef f(y): return 1 / y\nif rank: f(0)").error[1].endswith("zero)")
        for source in ("%%dip --ranks 1\n%debug", "%debug"):
            outcome, prompts = nb.talk(source, "p y", "q")
            assert outcome.error is None and "0\n" in outcome.text(), outcome.outputs
            assert prompts == ["[rank 1] ipdb> "] * 2, prompts
        assert nb.run("1 / 0").error is not None
        _, prompts = nb.talk("%debug", "q")
        assert prompts == ["ipdb> "], "the notebook's own"
        assert len(nb.ok("%%dip -S all\nrank").data()) == 2


def test_debuggers():
    """A rank that is not shown shows what led to its prompt; the stack has only user frames."""
    define = "%%dip\nx = 41\ndef f(y):\n    if y == 1:\n        breakpoint()\n    return 1 / y"
    with notebook.notebook("%load_ext ddip", "%makedip -n 2", define) as nb:
        outcome, prompts = nb.talk("%%dip\nif rank:\n    f(1)\nx = 5", "w", "up", "down", "q")
        assert outcome.error[1].startswith("BdbQuit"), outcome.error
        text = outcome.text()
        assert prompts == ["[rank 1] (Pdb) "] * 4 and "(Pdb)" not in text, (prompts, text)
        assert text.count("[1] -> f(1)\n") == 2 and "ddip_engine" not in text, text
        assert "interactiveshell" not in text and "[1]   <cell 2>(3)<module>()" in text, text
        outcome, _ = nb.talk("%%dip\nif rank: f(1)\nx = 6", *["n"] * 4)
        assert outcome.error is None and "traitlets" not in outcome.text(), outcome.text()
        assert nb.run("%%dip\nif rank: f(0)").error[0] == "RemoteError"
        outcome, prompts = nb.talk("%%dip\n%debug", "p y", "up", "q")
        text = outcome.text()
        assert prompts == ["[rank 1] ipdb> "] * 3 and "[1] 0\n" in text, (prompts, text)
        assert "----> 6     return 1 / y" in text and "if rank: f(0)" in text, text
        nb.ok("%%dip\n%pdb on")
        outcome, prompts = nb.talk("%%dip\nif rank: f(0)", "p y", "q")
        assert outcome.error[1] == "ZeroDivisionError(division by zero)", outcome.error
        text = outcome.text()
        assert prompts == ["[rank 1] ipdb> "] * 2 and "[1] 0\n" in text, (prompts, text)
        assert "[1] ZeroDivisionError: division by zero\n" in text, text
        begun = nb.begin("%%dip\nf(0)")  # on all ranks
        begun[0].get_stdin_msg(timeout=notebook.HANG_LIMIT_S)
        nb.interrupt()
        outcome = nb.finish(begun)
        assert "ZeroDivisionError" in str(outcome.error), outcome.error
        nb.ok("%%dip\n%pdb off")
        outcome, prompts = nb.talk(
            "%%dip --ranks 0\nprint('before')\nname = input('name: ')", "Ada"
        )
        assert (prompts, outcome.text()) == (["[rank 0] name: "], "before\n"), "the prompt is once"


# Ranks that ask at about the same time do so at other times on a busy machine.
PATIENT = "from ddip.cells import prompts\nprompts._FIRST_S = prompts._TURN_S = 2"


def test_one_dialog_at_a_time():
    """Ranks that ask have their turns: rank 0 first, each debugger to its end."""
    with notebook.notebook("%load_ext ddip", "%makedip -n 3", PATIENT) as nb:
        late = "import time\nif not rank: time.sleep(0.03)\n"
        outcome, prompts = nb.talk(f"%%dip -S all\n{late}int(input('n: ')) + rank", *"579")
        all_ask = ["[rank 0; *TEXT answers ranks 0-2] n: ", "[rank 1; *TEXT answers ranks 1-2] n: "]
        assert prompts == [*all_ask, "[rank 2] n: "], prompts
        assert outcome.data() == ["Out[0:1]: 5", "Out[1:1]: 8", "Out[2:1]: 11"], outcome.data()
        lines = ["p rank", "n", "p rank", "c"]
        outcome, prompts = nb.talk("%%dip -S all\nbreakpoint()\nx = 1\ny = 2\nz = 3", *lines * 3)
        assert outcome.error is None, outcome.error
        dialogs = (
            "[rank 0; *TEXT answers ranks 0-2]",
            "[rank 1; *TEXT answers ranks 1-2]",
            "[rank 2]",
        )
        assert prompts == [f"{each} (Pdb) " for each in dialogs for _ in lines], prompts


def test_debugger_that_computes():
    """What a debugger executes may take longer than a rank usually has to ask again."""
    with notebook.notebook("%load_ext ddip", "%makedip -n 2") as nb:
        lines = ["p __import__('time').sleep(1)", "p rank", "c", "c"]
        outcome, prompts = nb.talk("%%dip -S all\nbreakpoint()\nx = 1", *lines)
        assert outcome.error is None, outcome.error
        dialog = ["[rank 0; *TEXT answers ranks 0-1] (Pdb) "] * 3
        assert prompts == [*dialog, "[rank 1] (Pdb) "], prompts


def test_answers_that_nobody_takes():
    """The end of the rank that asks is no error of the answer; any text is an answer."""
    with notebook.notebook("%load_ext ddip", "%makedip -n 2") as nb:
        patch = (
            "from ddip.cells import prompts\nfrom ddip.mounts import files\n"
            "def write(path, data, kept=files.write):\n"
            "    files.write = kept\n"
            "    with open(group + '/rank1/ctl', 'w') as ctl: ctl.write('kill\\n')\n"
            "    raise ProcessLookupError(3, 'No such process', path)\n"
            f"group, files.write = {nb.group!r}, write"
        )
        nb.ok(patch)
        outcome, _ = nb.talk("%%dip -S all\nif rank: input('name: ')", "Ada")
        assert outcome.error[0] == "RemoteError", outcome.error
        nb.ok("%makedip -r")
        nb.ok("from ddip.cells import prompts; prompts.input = lambda prompt: '\\ud800'")
        assert nb.ok("%%dip\nlen(input('name: ')) > 0").data()[0].endswith("True")


def test_prompts_end():
    """An interrupt ends all prompts of a cell, and so does the end of the cell."""
    with notebook.notebook("%load_ext ddip", "%makedip -n 2") as nb:
        ask = "%%dip -S all\nname = input('your name: ')"
        begun = nb.begin(ask)
        begun[0].get_stdin_msg(timeout=notebook.HANG_LIMIT_S)
        nb.interrupt()
        outcome = nb.finish(begun)  # a second prompt would block the kernel
        assert outcome.error[0] == "KeyboardInterrupt", outcome.outputs
        begun = nb.begin(ask)
        begun[0].get_stdin_msg(timeout=notebook.HANG_LIMIT_S)
        with open(f"{nb.group}/cells/2/ctl", "w") as ctl:
            ctl.write("interrupt\n")
        outcome = nb.finish(begun)
        assert outcome.error[0] == "KeyboardInterrupt", outcome.outputs
        assert nb.ok("%%dip\nrank").data() == ["Out[0:3]: 0"]


def test_within_a_rank():
    """A rank that would wait for its own cell gets an error, and what it queued is dropped."""
    with notebook.notebook("%load_ext ddip", "%makedip -n 2") as nb:
        code = (
            f"%%dip -S all\nimport sys\nsys.path.insert(0, {notebook.MAGICS!r})\n"
            "from ddip import errors\nfrom ddip.cells import run\nfrom ddip.groups import Group\n"
            f"try:\n    run.run(get_ipython(), Group({nb.group!r}), 'left = 1')\n"
            "except errors.DipError as e:\n    print(e)"
        )
        assert nb.ok(code).text().count("deadlock: the rank that runs this") == 2
        assert nb.run("%%dip\nleft").error[1] == "NameError(name 'left' is not defined)"


def test_two_notebooks():
    with notebook.notebook("%load_ext ddip", "%makedip", "%%dip\nimport time") as one:
        with one.other() as two:
            two.ok("%load_ext ddip")
            two.ok("%makedip")
            # two's cell is queued behind this one: interrupting it leaves this one alone
            gate = one.gate
            mine = one.begin(
                f"%%dip\nimport os\nprint('begun', flush=True)\n"
                f"while not os.path.exists({gate!r}):\n    time.sleep(0.01)\n4"
            )
            notebook.until(lambda: one.is_printed("begun"))
            theirs = two.begin("%%dip\nprint('theirs')")
            notebook.until(lambda: one.status()["queued"] == "1")
            two.interrupt()
            theirs = two.finish(theirs)
            assert theirs.error is not None, theirs.outputs
            assert one.status()["state"] == "busy"
            one.open_gate()
            mine = one.finish(mine)
            assert mine.error is None and mine.data()[-1].endswith("4"), mine.outputs
            assert "theirs" not in mine.text(), mine.outputs
            assert not one.is_printed("theirs"), "it was dropped from the queue"


def test_restarted_elsewhere():
    """%makedip ends no cell that runs, unless -r says so. When another notebook has restarted the
    ranks, a cell that misses its variables says why, once."""
    with notebook.notebook("%load_ext ddip", "%makedip -n 2", "%dip x = 5") as nb:
        with nb.other() as other:
            other.ok("%load_ext ddip")
            other.ok("%makedip")
            begun = nb.begin(
                "%%dip\nimport os, time\nprint('begun', flush=True)\n"
                f"while not os.path.exists({nb.gate!r}): time.sleep(0.01)"
            )
            nb.until(begun, "begun")
            said = other.run("%makedip -n 3").error[1]
            assert said == "size 3: cell 2 runs; -r ends it", said
            nb.open_gate()
            assert nb.finish(begun).error is None
            assert nb.run("%dip y").text("stderr") == "", "it is the cell's own mistake"
            other.ok("%makedip -r")
            told = "All ranks are new: they have none of this notebook's variables"
            shown = nb.run("%dip x")
            assert "NameError" in shown.error[1] and told in shown.text("stderr"), shown.outputs
            assert nb.run("%dip x").text("stderr") == "", "said once"
            assert other.run("%dip x").text("stderr") == "", "it knows"


def test_of_others():
    """What another client has created or waits for is reported, and is not lost on the way."""
    first = ("%load_ext ddip", "%makedip -n 2", "%%dip\na = b = 1")
    with notebook.notebook(*first, own=True) as one:
        folder = tempfile.mkdtemp(dir=os.path.dirname(one.mount))
        with one.other() as two:
            two.ok(f"import os\nos.chdir({folder!r})\n%load_ext ddip")
            said = two.ok("%makedip").text()
            assert f"in {os.path.dirname(one.mount)}, this kernel " in said, said
            name, value, _ = two.run("%makedip -n 3").error
            assert name == "DipError" and "lose a, b. They were not" in value, value
            assert one.ok("%%dip\na").data() == ["Out[0:2]: 1"]
            gate = one.gate
            one.submit(f"import os, time\nwhile not os.path.exists({gate!r}): time.sleep(0.01)")
            mine = two.begin("%%dip\n5")
            two.until(mine, "waits for cell 3 of ")
            one.open_gate()
            assert two.finish(mine).data()[-1] == "Out[0:4]: 5"
            os.remove(gate)
            _dropped_and_stopped(one, two, gate)
            assert "3 CPU ranks" in two.ok("%makedip -n 3 -r").text()
            two.ok("%%dip\nown = 1")
            assert "2 CPU ranks" in two.ok("%makedip -n 2").text(), "its own it may lose"


def _dropped_and_stopped(one, two, gate):
    one.submit(f"import os, time\nwhile not os.path.exists({gate!r}): time.sleep(0.01)")
    mine = two.begin("%%dip\n5")
    notebook.until(lambda: one.status()["queued"] == "1")
    with open(f"{one.group}/ctl", "w") as ctl:
        ctl.write("cancel\n")
    name, value, _ = two.finish(mine).error
    assert (name, value) == ("DipError", "cell 6 did not run: dropped from the queue by cancel")
    with open(f"{one.group}/cells/5/ctl", "w") as ctl:
        ctl.write("interrupt\n")
    name, value, _ = two.run("%dip --replay 5").error
    assert name == "KeyboardInterrupt" and "goes on" not in value, value


def test_kernel_restart():
    with notebook.notebook("%load_ext ddip", "%makedip", "%%dip\nkept = 5") as nb:
        os.kill(nb.pid, signal.SIGKILL)
        gate = nb.gate
        nb.submit(
            f"import os, time\nprint('begun', flush=True)\n"
            f"while not os.path.exists({gate!r}):\n    time.sleep(0.01)\nprint('done')"
        )
        with nb.other() as again:
            again.ok("%load_ext ddip")
            attached = again.ok("%makedip").text()
            assert "Attached" in attached and "cell 2 runs" in attached, attached
            # it is followed from its beginning; no longer following it leaves it alone
            thread = again.when(lambda: again.is_shown("begun"), again.interrupt)
            name, value, _ = again.run("%dip --replay").error
            thread.join()
            assert name == "DipError" and "cell 2 goes on" in value, (name, value)
            nb.open_gate()
            assert again.ok("%dip --replay").text() == "begun\ndone\n"
            assert again.ok("%%dip\nkept").data() == ["Out[0:3]: 5"]
            again.ok("%makedip -k")


def test_with_kernel():
    first = ("%load_ext ddip", "%makedip --with-kernel", "%%dip\n1")
    with notebook.notebook(*first, own=True) as nb:
        assert os.path.ismount(nb.mount)
        os.kill(nb.pid, signal.SIGKILL)
        notebook.until(lambda: not os.path.ismount(nb.mount))


def test_one_answer_for_all():
    """Where several ranks ask the same, an answer that begins with * goes to all of them."""
    with notebook.notebook("%load_ext ddip", "%makedip -n 3", PATIENT) as nb:
        asks = "%%dip -S all\nimport pdb\nx = input('n: ') + '!'\nif rank: pdb.set_trace()\nx"
        _, prompts = nb.talk(asks, "**2", "*p 'in', rank", "*x += str(rank)", "*c")
        pdb = "[rank 1; *TEXT answers ranks 1-2] (Pdb) "
        assert prompts == ["[rank 0; *TEXT answers ranks 0-2] n: ", pdb, pdb, pdb], prompts
        assert nb.ok("r = %dip --ranks 0-2 x\nr").data()[-1] == "['*2!', '*2!1', '*2!2']"
        # ranks that ask other things are answered one by one
        _, prompts = nb.talk("%%dip\nx = input(f'{rank}? ')", "*a", "b", "c")
        assert prompts == [f"[rank {k}] {k}? " for k in range(3)], prompts
        assert nb.ok("r = %dip --ranks 0-2 x\nr").data()[-1] == "['*a', 'b', 'c']"


def test_frame_of_the_failure():
    """A cell that begins with `# ddip frame: N` runs there, also under %%dip; without a number it
    does not run."""
    failing = "%%dip\ndef f(a):\n    return 1 / a\nf(0)"
    with notebook.notebook("%load_ext ddip", "%makedip -n 2") as nb:
        assert nb.run(failing).error[0] == "RemoteError"
        assert nb.ok("%%dip --ranks 1\n# ddip frame: 0\na + rank").data()[-1].endswith(": 1")
        for line in ("# ddip frame:", "# ddip frame: a"):
            shown = nb.run(f"%%dip\n{line}\nprint('it runs')")
            assert "SyntaxError" in shown.error[1] and not shown.text(), shown.outputs
            assert "want '# ddip frame: N'" in shown.error[2], shown.error
        assert nb.ok("%%dip\n# ddip frame: 1\n'a' in locals()").data()[-1].endswith("False")


def test_stop_behind_others():
    """The stop button leaves alone the cell of another program for which the cell waits, and says
    how to end that."""
    with notebook.notebook("%load_ext ddip", "%makedip -n 2", "%%dip\nimport os, time") as nb:
        nb.submit(f"while not os.path.exists({nb.gate!r}): time.sleep(0.01)")
        begun = nb.begin("%%dip\n5")
        nb.until(begun, "waits for cell 2")
        nb.interrupt()
        name, value, _ = nb.finish(begun).error
        assert name == "KeyboardInterrupt", (name, value)
        assert value.startswith("cell 3: interrupted while it was queued; cell 2 of python"), value
        place, group = os.path.split(nb.group)
        command = f"echo interrupt > {nb.group}/cells/2/ctl"
        if os.environ.get("DDIP_TEST_SOCKET"):
            command = f"ddip -m {place}.sock -g {group} interrupt 2"
        assert value.endswith(f"goes on ({command} ends it)"), value
        nb.open_gate()
        assert nb.ok("%%dip\n6").data()[-1].endswith(": 6")


if __name__ == "__main__":
    notebook.run(globals())
