"""The same work with ipyparallel, for its own environment. Prints seconds as JSON.

usage: peer.py cell TIMES | objects BYTES TIMES
"""

import json
import sys
import time

import ipyparallel
import numpy as np


def timed(fn, times):
    for _ in range(3):
        fn()
    taken = []
    for _ in range(times):
        begin = time.perf_counter()
        fn()
        taken.append(time.perf_counter() - begin)
    return taken


def cell(view, times):
    return timed(lambda: view.execute("pass", block=True), int(times))


def objects(view, size, times):
    data = np.arange(int(size) // 8, dtype="f8")
    one = view.client[0]
    return {
        "push": timed(lambda: view.push({"x": data}, block=True), int(times)),
        "pull": timed(lambda: one.pull("x", block=True), int(times)),
    }


def main():
    with ipyparallel.Cluster(n=2, log_level=40) as client:
        view = client[:]
        result = {"cell": cell, "objects": objects}[sys.argv[1]](view, *sys.argv[2:])
    print(json.dumps(result))


main()
