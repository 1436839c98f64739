"""Compares the flags of ddip run with those of the torchrun that is installed, in each spelling: a
flag is taken, with as many values, or refused in one line; ddip(1) names it. Prints what is not so.

usage: torchrun_flags.py ROOT
"""

import os
import sys

ROOT = sys.argv[1]
sys.path[:0] = [os.path.join(ROOT, "magics")]

from ddip.tool import program  # noqa: E402
from ddip.tool.call import USAGE, Failure, Tool  # noqa: E402
from torch.distributed import run  # noqa: E402

_WORDS = ["x.py", "--nproc-per-node", "9"]  # the program has flags of its own


def spellings(action):
    """The words for a flag, in all ways that argparse takes."""
    for name in action.option_strings:
        if action.nargs == 0:
            yield [name]
            continue
        value = str(action.choices[0] if action.choices else 1)
        yield [name, value]
        yield [f"{name}={value}"]
        if not name.startswith("--"):
            yield [name + value]


def wrong(words):
    """What ddip run makes of these words that it should not; "" if it is right."""
    name = words[0].partition("=")[0]
    call = Tool("", "group", "", "run")
    try:
        options = program._options(call, [*words, *_WORDS])
    except Failure as e:
        told = e.status == USAGE and str(e).startswith(f"{name} is a flag of torchrun: ")
        return "" if told and "\n" not in str(e) else f"{e}"
    taken = [name[2:].replace("_", "-")] if name.startswith("--") else [*options.given][:1]
    if [*options.given] != taken or options.rest != _WORDS:
        return f"taken as {options.given}, and {options.rest}"
    return ""


with open(os.path.join(ROOT, "scripts/ddip.1")) as file:
    page = file.read().split()
for each in run.get_args_parser()._actions:
    if not each.option_strings or each.dest == "help":
        continue
    for words in spellings(each):
        if text := wrong(words):
            print(f"ddip run {' '.join(words)}: {text}")
    for name in each.option_strings:
        if "_" not in name and name[1:] not in page:
            print(f"ddip(1) does not name {name}")
