"""What steering, and reading a variable of main(), costs a DDP loop of 5 ms steps on 2 ranks: the
steps of a second in which it is done, beside those of the seconds around it. And how long a steer
takes, from its write to its end, beside a step."""

import bisect
import itertools
import json
import os
import threading
import time

from lib import Mount, median, ms, percentile

SECONDS = int(os.environ.get("WINDOWS", "60"))
READS = 10  # a second
STEERS = 200

LOOP = """
import time, torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
torch.set_num_threads(1)
loss, ends, go = torch.zeros(()), [], True
def main():
    model = DistributedDataParallel(torch.nn.Linear(64, 64))
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    while go:
        time.sleep(0.004)
        loss = model(torch.ones(8, 64)).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        ends.append(time.perf_counter())
main()
"""


def steer(m, source="pass"):
    begin = time.perf_counter()
    m.write("steer", source)
    return time.perf_counter() - begin


def read(m, name):
    begin = time.perf_counter()
    m.read(f"rank1/{name}")
    return time.perf_counter() - begin


def windows(kinds):
    """Does each of these in turn for a second; returns [(name, begin, end)]."""
    done = []
    for _, (name, act, times) in zip(range(SECONDS), itertools.cycle(kinds), strict=False):
        begin = time.perf_counter()
        for i in range(times):
            act()
            time.sleep(max(0.0, begin + (i + 1) / times - time.perf_counter()))
        done.append((name, begin, time.perf_counter()))
    return done


def step(ends, begin, end):
    """The mean time of the steps between these moments."""
    first, last = bisect.bisect(ends, begin), bisect.bisect(ends, end) - 1
    return (ends[last] - ends[first]) / (last - first)


def beyond(ends, done, name):
    """The median of how much longer a step is in such a second than in its neighbours without."""
    taken = [(kind, step(ends, begin, end)) for kind, begin, end in done]
    found = []
    for before, its, after in zip(taken, taken[1:], taken[2:], strict=False):
        if its[0] == name:
            found.append(2 * its[1] / (before[1] + after[1]) - 1)
    return f"{median(found) * 100:+.2f}%"


def main(report):
    with Mount(size=2) as m:
        loop = threading.Thread(target=m.write, args=("cell", LOOP))
        loop.start()
        while b" clock=optimizer" not in m.read("status"):
            time.sleep(0.1)
        nothing = ("", lambda: None, 1)
        act = {
            "steered": (lambda: steer(m), 1),
            "read": (lambda: read(m, "locals/loss"), READS),
        }
        kinds = [each for name in act for each in (nothing, (name, *act[name]))]
        done = windows(kinds)
        steers = [steer(m, str(i)) for i in range(STEERS)]
        reads = {name: [read(m, name) for _ in range(300)] for name in ("locals/loss", "vars/go")}
        m.write("steer", "globals()['go'] = False")
        loop.join()
        ends = json.loads(m.read("vars/ends.json"))
    usual = median([step(ends, begin, end) for name, begin, end in done if not name])
    taken = f"{median(steers) / usual:.1f}×, 90 %: {percentile(steers, 90) / usual:.1f}×"
    report.add("a steer, from its write to its end", ms(median(steers)), ms(usual), taken, "2×")
    report.add("a step, steered once a second", "", "", beyond(ends, done, "steered"), "1%")
    what = f"a step, `locals/loss` read {READS} times a second"
    report.add(what, "", "", beyond(ends, done, "read"), "0.5%")
    ours, peer = median(reads["locals/loss"]), median(reads["vars/go"])
    report.add("a local read, a global", ms(ours), ms(peer), ms(ours - peer), "1 ms more")
