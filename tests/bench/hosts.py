"""Many hosts: a cell, and the files that name all ranks, with agents that answer at once.

The agents are tests/fake's, all on this machine: the time of a cell includes their work on the same
cores, so the daemon's own CPU time is reported, too.
"""

import os
import re

import lib

HOSTS, SLOTS = 256, 16
KIB = 1024


def cpu_s(pid):
    with open(f"/proc/{pid}/stat", encoding="utf-8") as f:
        fields = f.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def memory(pid):
    with open(f"/proc/{pid}/status", encoding="utf-8") as f:
        return int(re.search(r"RssAnon:\s+(\d+)", f.read())[1]) * KIB


def main(report):
    engine = os.path.join(lib.BUILD, "fake", "engine")
    if not os.path.exists(engine):
        report.add(f"{HOSTS} hosts: not built: make {engine}", "-")
        return
    mount = lib.Mount(backend="none")
    mount.env["DDIP_ENGINE"] = engine
    with mount as m:
        daemon = m.daemon()
        before = memory(daemon)
        names = os.path.join(m.dir, "hosts")
        with open(names, "w", encoding="utf-8") as f:
            f.writelines(f"h{i} slots={SLOTS}\n" for i in range(HOSTS))
        m.write("ctl", f"hosts {names}\nlauncher here\nstart\n")
        with m.cells() as run:
            used, count = cpu_s(daemon), 200
            taken = lib.timed(lambda: run("ok"), count, warm=0)
            own = (cpu_s(daemon) - used) / count
        work = f"{HOSTS} hosts × {SLOTS} ranks that do nothing"
        report.add(f"{work}: a cell", lib.ms(lib.median(taken)), goal="5 ms")
        report.add("the daemon's share of it, a host", f"{own / HOSTS * 1e6:.0f} µs", goal="20 µs")
        for name in ("ranks", "status"):
            taken = lib.timed(lambda n=name: m.read(n), 50)
            report.add(f"`{name}` of them", lib.ms(lib.median(taken)), goal="10 ms")
        taken = lib.timed(lambda: os.listdir(m.group), 50)
        report.add("`ls` of the group", lib.ms(lib.median(taken)), goal="10 ms")
        kib = (memory(daemon) - before) / HOSTS / SLOTS / KIB
        report.add(
            "memory of a rank in the daemon, with 200 cells", f"{kib:.0f} KiB", goal="64 KiB"
        )
