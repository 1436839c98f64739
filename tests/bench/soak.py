"""What is left behind by 10,000 cells and 200 restarts."""

import os

from lib import Mount


def facts(pid, m):
    status = {}
    with open(f"/proc/{pid}/status", encoding="utf-8") as f:
        for line in f:
            key, _, value = line.partition(":")
            status[key] = value.split()[0] if value.split() else ""
    return {
        "RssAnon": int(status["RssAnon"]),
        "fds": len(os.listdir(f"/proc/{pid}/fd")),
        "threads": int(status["Threads"]),
        "files": sum(len(files) for _, _, files in os.walk(os.path.join(m.dir, "ddipfs-0"))),
    }


def main(report):
    with Mount(size=2) as m:
        m.write("cell", "pass")
        pid = m.daemon()
        with m.cells() as run:
            for i in range(10000):
                run(f"x = {i}; print(x)")
                if i == 1000:
                    before = facts(pid, m)
        cells = facts(pid, m)
        for _ in range(200):
            m.write("ctl", "restart\n")
        restarts = facts(pid, m)
    grown = cells["RssAnon"] - before["RssAnon"], restarts["RssAnon"] - before["RssAnon"]
    report.add(
        "daemon after 10,000 cells, then 200 restarts",
        f"RssAnon {restarts['RssAnon']} KiB",
        "",
        f"{grown[0]:+d}, {grown[1]:+d} KiB",
        "at most +1 MB",
    )
    report.add(
        "… its descriptors, threads, files",
        f"{restarts['fds']}, {restarts['threads']}, {restarts['files']}",
        "",
        f"from {before['fds']}, {before['threads']}, {before['files']}",
        "no growth",
    )
