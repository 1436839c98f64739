#!/usr/bin/env python3
"""The session of the original user guide works, cell by cell, on CPU ranks."""

import notebook

notebook.need("torch", "IPython", "ipykernel", "nbclient")


def test_dip_and_autodip():
    with notebook.notebook("%load_ext Ddip") as nb:
        made = nb.ok("%makedip -g all --verbose False").text()
        assert "no GPU" in made and "2 CPU ranks" in made, made
        seen = nb.ok(
            "%%dip --see all\nimport time, random, os\nfor i in range(3):\n"
            "    print(f'{i} ', end='')\n    time.sleep(0.05)\nprint()\n"
            "x = random.uniform(1, 10)\nprint(f'Process [{os.getpid()}]: {x}')"
        ).text()
        for rank in range(2):
            assert f"[{rank}] 0 1 2 \n" in seen and f"[{rank}] Process [" in seen, seen
        name, value, text = nb.run("import os\nprint('back')\nx").error
        assert (name, value) == ("NameError", "name 'x' is not defined"), text
        nb.ok("%%dip everywhere\nimport os, random, time\n\n# everywhere")
        both = nb.ok("%%dip everywhere --see all\nprint(os.getpid())\ny = 5\ny")
        kinds = [o.output_type for o in both.outputs]
        assert kinds.index("execute_result") < kinds.index("display_data"), "local first"
        assert both.text().split()[0] == str(nb.pid), both.text()
        assert len([d for d in both.data() if d.startswith("Out[")]) == 2, both.data()
        nb.ok("%%dip everywhere\n%%time\nz = 6")
        nb.ok("%%dip local\n\n%%time\nassert z == 6\nz = 7")
        assert nb.ok("%%dip\nz").data()[0].endswith("6") and nb.ok("z").data() == ["7"]
        _autodip(nb)


def _autodip(nb):
    say = "Auto Execution on DDP group: "
    assert nb.ok("%autodip on").text() == say + "on, will run cell as %%dip\n"
    first = nb.ok("print(f'I am [{os.getpid()}]')").text()
    assert first.startswith("I am [") and str(nb.pid) not in first, first
    assert nb.ok("%%dip --see all\nprint('I am')").text().count("I am") == 2
    assert nb.ok("print('I am')").text() == "I am\n"
    line = say + "on, will run cell as %%dip --see all\n"
    assert nb.ok('%autodip -a "--see all" on').text() == line
    assert nb.ok("print('both')").text().count("both") == 2
    nb.ok("%%dip local\n\ns = f'local process [{os.getpid()}]'\n\n%dipush s")
    pushed = nb.ok("print(s)").text()
    assert pushed.count(f"local process [{nb.pid}]") == 2, pushed
    assert nb.ok("#dip_locally\nprint(os.getpid())").text() == f"{nb.pid}\n"
    assert nb.ok("%autodip").text() == line
    typed = "[get_ipython().check_complete(s)[0] for s in ('1', 'if 1:')]"
    assert nb.ok(f"#dip_locally\n{typed}").data() == ["['complete', 'incomplete']"], "at a prompt"
    assert nb.ok('%autodip on -a "-q"').text() == say + "on, will run cell as %%dip -q\n"
    assert nb.ok("%autodip off").text() == say + "Off\n"
    assert "UsageError" in nb.run('%autodip on -a "--nosuch"').text("stderr")
    assert nb.ok("%autodip").text() == say + "Off\n"
    assert nb.ok("print(os.getpid())").text() == f"{nb.pid}\n"


def test_push_and_pull():
    with notebook.notebook("%load_ext ddipp", "%makedip -r -g all --verbose False") as nb:
        nb.ok("%%dip everywhere\nimport os # For convenience")
        nb.ok(
            "foobar = { 1 : 'foo', 2 : 'bar' }\n"
            "def var_printer(f): print(f'Process [{os.getpid()}] variable is :{f}')"
        )
        name, value, _ = nb.run("%%dip\nfoobar, var_printer").error
        assert (name, value) == ("RemoteError", "NameError(name 'foobar' is not defined)")
        nb.ok("%dipush foobar var_printer")
        seen = nb.ok("%%dip --see all\n# all\nvar_printer(foobar)").text()
        assert seen.count("variable is :{1: 'foo', 2: 'bar'}") == 2, seen
        nb.ok("%%dip --see all\nremote_pid = os.getpid()")
        assert nb.run("remote_pid").error[0] == "NameError"
        zero = nb.ok("%dipull remote_pid\nprint(remote_pid)").text()
        one = nb.ok("%dipull -r 1 remote_pid\nprint(remote_pid)").text()
        assert zero != one and nb.ok("%dipull -r all remote_pid\nprint(remote_pid)").text() == (
            f"[{zero.strip()}, {one.strip()}]\n"
        )


def test_help():
    with notebook.notebook("%load_ext ddip") as nb:
        for name, words in {
            "makedip": "--gpus --app --restart --kill --info --verbose --timeout --mount",
            "dip": "--see --quiet --appcmd --ranks --to --push remote local everywhere",
            "autodip": "--args on off",
            "dipush": "NAME",
            "dipull": "--rank NAME",
            "dipper": "handle",
        }.items():
            text = nb.ok(f"print(get_ipython().find_line_magic('{name}').__doc__)").text()
            missing = [word for word in words.split() if word not in text]
            assert not missing, (name, missing, text)
            assert "DDP" in text or "rank" in text or "group" in text, text


def test_makedip():
    with notebook.notebook("%load_ext Ddip", own=True) as nb:
        said = nb.ok("%makedip -g all -a fastai_v1 --verbose True")
        assert "fastai" in said.text("stderr"), "what is missing is told"
        info = nb.ok("%makedip -i").text()
        for words in ("Cluster processes", "engine pids: [", "Rank 0: CPU", "execution: Off"):
            assert words in info, info
        nb.ok("%makedip -k")
        assert nb.ok("%makedip -i").text() == "There is no DDP group\n"
        notebook.until(lambda: not notebook.os.path.ismount(nb.mount))
        assert not notebook.os.path.exists(nb.mount), "what was made for it goes with it"
        assert nb.ok("%makedip -k").text() == "There is no DDP group\n"
        for line in ("-g 0-1", "-g 0,x", "-a unknown", "-g all -a unknown"):
            assert nb.run(f"%makedip {line}").error[0] == "DipError", line
            assert nb.ok("%makedip -i").text() == "There is no DDP group\n", line
        notebook.os.mkdir(nb.mount)
        assert nb.run("%%dip\n1").error[0] == "DipError"
        nb.ok("%makedip -g 0,1")
        nb.ok("%%dip\nkept = 1")
        assert "unchanged" in nb.ok("%makedip -g 1 0").text()
        for line in ("-g al", "-g 0,x", "-n 0", "-n 100000"):
            assert nb.run(f"%makedip {line}").error[0] == "DipError", line
        nb.ok("%%dip\nkept")
        for line in ("-r -g all", "-g all -r", "-i -r", "-r -i -g 1,0"):
            said = nb.ok(f"%makedip {line}").text()
            assert "DDP group: idle, 2 CPU ranks" in said, said
            assert ("engine pids" in said) == ("-i" in line), said
        assert nb.run("%%dip\nkept").error[1] == "NameError(name 'kept' is not defined)"
        for line in ("-k -r", "-k -n 2", "-k -i", "-k --with-kernel"):
            error = nb.run(f"%makedip {line}").error
            assert error and error[1].startswith("-k ends the group, and"), (line, error)
        assert "(idle)" in nb.ok("%makedip -i").text(), "nothing was ended"
        assert "3 CPU ranks" in nb.ok("%makedip -n 3 -t 600").text()
        assert nb.ok("%%dip -S 0,2\nrank").data() == ["Out[0:4]: 0", "Out[2:4]: 2"]
        assert nb.ok("%%dip --ranks 1 2 --see 2\nrank").data() == ["Out[2:5]: 2"]
        told = nb.ok("%%dip --ranks 1 2 --see 0\nrank")
        assert told.text("stderr") == "This runs on ranks 1-2, and -S shows rank 0\n"
        assert not told.data()
        assert nb.ok("%%dip --to both\nz = 1").error is None
        assert nb.ok("z\n").data() == ["1"]
        nb.ok("%dipper d\nassert d.pull(['z'])['z'] == 1\nd.push({'w': 7})")
        assert nb.ok("%%dip --push z\nw, z").data() == ["Out[0:8]: (7, 1)"]
        assert "unrecognized" in nb.run("%%dip --bogus\n1").text("stderr")
        nb.ok("%makedip -k")
        notebook.until(lambda: not notebook.os.path.ismount(nb.mount))
        assert notebook.os.listdir(nb.mount) == [], "what was there stays"


def test_named_group():
    """The group that $DDIP_GROUP names is created if it does not exist."""
    with notebook.tempfile.TemporaryDirectory() as folder, notebook.place(folder) as mount:
        with notebook.Notebook(mount, {}, "named", folder) as nb:
            nb.ok("%load_ext ddip")
            assert nb.ok("%makedip -i").text() == "There is no DDP group\n"
            nb.ok("%makedip -n 3")
            assert "/named, " in nb.ok("%makedip -i").text()
            assert len(nb.ok("%%dip -S all\nrank").data()) == 3
            nb.ok("%makedip -k")
        with notebook.Notebook(mount, {}, "a/b", folder) as nb:
            error = nb.run("%load_ext ddip\n%makedip").error
            assert error[0] == "DipError" and "cannot be made: " in error[1], error
            nb.ok("%makedip -k")


if __name__ == "__main__":
    notebook.run(globals())
