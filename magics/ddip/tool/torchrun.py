"""The flags of torchrun (torch 2.15) in ddip run: which have a meaning here, and for the others
what to write instead. ddip(1) has the same table.

G in a text stands for the directory of the group.
"""

from __future__ import annotations

import os
import re

from ddip.tool.call import REFUSED, Failure, say

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ddip.tool.call import Options, Tool

_STREAMS = re.compile(r"[0-3]|[0-9]+:[0-3](,[0-9]+:[0-3])*")  # --tee, --redirects
HOSTS = (
    "--hosts a:2,b:2, or echo 'hosts a:2 b:2' > G/ctl while the group is stopped: it is typed on"
    " one host only"
)

# What changes nothing here, as the ranks of a group know each other, and nothing is polled.
_NEEDLESS = (
    "rdzv-backend", "rdzv-endpoint", "rdzv-id", "rdzv-conf", "master-addr", "master-port",
    "local-addr", "monitor-interval", "start-method",
)  # fmt: skip
# What is taken with a value, and without.
VALUED = (
    "nproc-per-node", "nnodes", "max-restarts", "role", "log-dir", "tee", "redirects",
    "local-ranks-filter", *_NEEDLESS,
)  # fmt: skip
PLAIN = ("standalone", "module", "no-python", "run-path", "use-env")
# What to write instead of the others.
INSTEAD = {
    "node-rank": HOSTS,
    "log-line-prefix-template": "-a labels each line with its rank",
    "duplicate-stdout-filters": "grep WORD G/log, or G/rankK/stdout",
    "duplicate-stderr-filters": "grep WORD G/log, or G/rankK/stderr",
    "event-log-handler": "cat G/events",
    "logs-specs": "G/cells/N/rankK/stdout and stderr are the logs; --log-dir copies them",
    "numa-binding": "os.sched_setaffinity() in the program",
    "signals-to-handle": "echo 'signal USR1' > G/rankK/ctl sends one; Ctrl-C interrupts",
    "shutdown-timeout": "echo 'killafter SECONDS' > G/ctl",
    "virtual-local-rank": "cuda:LOCAL_RANK is the GPU of a rank",
    "print-completion": "ddip's own completion comes with its installation",
}
_ALL = (*VALUED, *PLAIN, *INSTEAD)


def spell(name: str) -> str:
    """The flag that is meant by a long option without its dashes, as argparse reads it: with `_`
    for `-`, or the beginning of one name only. Others are returned as they are."""
    plain = name.replace("_", "-")
    if plain in _ALL:
        return plain
    found = [each for each in _ALL if each.startswith(plain)]
    return found[0] if len(found) == 1 else name


def refuse(word: str) -> str | None:
    """What to use instead of a flag of torchrun; None if it is not one of these."""
    name = spell(word.lstrip("-"))
    if name not in INSTEAD:
        return None
    return f"{word} is a flag of torchrun: {INSTEAD[name]}"


def tell_needless(options: Options) -> None:
    """Says which of the flags that were given change nothing."""
    given = [f"--{name}" for name in _NEEDLESS if options.has(name)]
    if given:
        say(f"not needed, as the ranks of a group know each other: {', '.join(given)}")


def size_of(tool: Tool, text: str) -> int:
    """The number of ranks for a value of --nproc-per-node. Raises Failure."""
    if text.isdecimal() and int(text):
        return int(text)
    gpus = [line for line in tool.group.read("gpus").splitlines() if not line.startswith("#")]
    cpus = len(os.sched_getaffinity(0))
    if text == "cpu" or (text == "auto" and not gpus):
        return cpus
    if text == "gpu" and not gpus:
        raise Failure(REFUSED, f"--nproc-per-node gpu: {tool.path('gpus')} has no GPU")
    if text in ("gpu", "auto"):
        return len(gpus)
    raise tool.misuse(f"--nproc-per-node: want a number, auto, gpu or cpu, not '{text}'")


def check_nodes(tool: Tool, flag: str, text: str) -> None:
    """Raises Failure if the group is not on as many hosts as MIN[:MAX], which this flag says."""
    least, _, most = text.partition(":")
    most = most or least
    if not (least.isdecimal() and most.isdecimal()):
        raise tool.misuse(f"{flag}: want a number, or MIN:MAX, not '{text}'")
    hosts = len(tool.group.read("hosts").splitlines())
    if not int(least) <= hosts <= int(most):
        count = "1 host" if hosts == 1 else f"{hosts} hosts"
        said = flag if flag == "--standalone" else f"{flag} {text}"
        raise tool.misuse(f"{said}: the group is on {count}; {HOSTS}")


def number(tool: Tool, options: Options, name: str) -> int:
    """The value of an option as a number; 0 if it was not given."""
    text = options.last(name) or "0"
    if not text.isdecimal():
        raise tool.misuse(f"--{name}: want a number, not '{text}'")
    return int(text)


def streams(tool: Tool, options: Options, name: str) -> bool:
    """True if --tee or --redirects names streams: 3, or 0:1,1:2 by rank. Only all of them can be
    redirected. Raises Failure."""
    text = options.last(name) or "0"
    if not _STREAMS.fullmatch(text):
        raise tool.misuse(f"--{name}: want 0, 1, 2 or 3, or RANK:NUMBER,…, not '{text}'")
    if name == "redirects" and text not in ("0", "3"):
        raise tool.misuse(
            f"--redirects {text}: 3 shows nothing; G/rankK/stdout and stderr are apart"
        )
    return bool(re.search("[1-3](,|$)", text))


def filtered(tool: Tool, options: Options) -> set[int] | None:
    """The ranks that --local-ranks-filter shows; None if it was not given. Raises Failure."""
    text = options.last("local-ranks-filter")
    if not text:
        return None
    if not re.fullmatch("[0-9]+(,[0-9]+)*", text):
        raise tool.misuse(f"--local-ranks-filter: want ranks as in 0,1, not '{text}'")
    if len(tool.group.read("hosts").splitlines()) > 1:
        raise tool.misuse(
            "--local-ranks-filter: this group is on several hosts: -a shows all ranks"
        )
    return {int(rank) for rank in text.split(",")}


def variables(options: Options, attempt: int, restarts: int) -> dict[str, str]:
    """The variables that torchrun sets by its flags, in place of the engine's."""
    found = {}
    role = options.last("role")
    if role is not None:
        found["ROLE_NAME"] = role
    if restarts:
        found["TORCHELASTIC_RESTART_COUNT"] = str(attempt)
        found["TORCHELASTIC_MAX_RESTARTS"] = str(restarts)
    return found
