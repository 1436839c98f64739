#!/usr/bin/env python3
"""The programs run here, with this Python: cells, objects, and, with torch, the
self-test of two ranks over gloo. It needs no GPU.
"""

import sys

import group

check = group.Checks()
with group.Group(size=2, backend="none", gpus="none") as g:
    print(f"{sys.executable}, at {g.place}")
    g.cell("x = [rank, 'of', world_size]; print('hello from', rank)")
    check.equal("an object", g.read("rank1/vars/x.json").strip(), '[1, "of", 2]')
    check.equal("what a cell prints", g.read("rank1/stdout"), "hello from 1\n")
    g.write("vars/config.json", '{"lr": 0.5}')
    check.equal("a push reaches all ranks", g.value("config['lr']", 1), "0.5")
    g.fails(g.cell, "1 / 0")
    check.equal("a cell that raises", g.state(), "error")
    if g.value("__import__('importlib.util').util.find_spec('torch') is None") == "True":
        print(f"the self-test over gloo: no torch in {sys.executable}")
        check.done()
    g.ctl("stop", "backend gloo", "start")
    g.ctl("selftest 4K 1M")
    check.true("the self-test", "\nerrors 0\n" in g.read("selftest"), g.read("selftest"))
check.done()
