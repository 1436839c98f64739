#!/usr/bin/env python3
"""Whatever number an engine refuses a request with, its client gets an errno of that request alone.

For each kind of request, a fake engine (tests/fake) refuses one after the other with 0, 1, … 4100,
and with negative numbers. A client may get what is an errno in user space. ENOSYS would make the
kernel believe that the mount has no such operation, and a number that only kernels use would leave
the client waiting: it gets EIO instead. After all that, each operation works, and the daemon, which
is never started again, ends well.
"""

import errno
import os
import sys

from common import Hang, Mismatch, Mount, get, missing, put

NO_DELAYS = -1  # of the fake engine's answers
FIRST_OWN = 512  # the first number that only kernels use
MOST = 4101
NEGATIVE = (-4096, 50), (-50, 50), (-(1 << 31), 10), ((1 << 31) - 5, 5)


def write(path, text, **how):
    """put() that raises."""
    result = put(path, text, **how)
    if result:
        raise OSError(result, os.strerror(result), path)


def write_and_close(path, text):
    """It is the close that waits."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT)
    try:
        os.write(fd, text.encode())
    finally:
        os.close(fd)


def truncate(path, text):
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)


# The message to an engine, and what a client does that needs it, in the folder of the group.
ANSWERED = (
    ("Tget", "open", lambda g: os.close(os.open(g + "/vars/kept", os.O_RDONLY))),
    ("Tput", "fsync", lambda g: write(g + "/vars/x", "5", wait=True, make=os.O_CREAT)),
    ("Tput", "close", lambda g: write_and_close(g + "/vars/x", "6")),
    ("Tput", "O_TRUNC", lambda g: truncate(g + "/vars/x", "7")),
    ("Tcommit", "fsync", lambda g: write(g + "/vars/x", "8", wait=True, make=os.O_CREAT)),
    ("Trun", "fsync", lambda g: write(g + "/cell", "ok", wait=True)),
    ("Trun", "close", lambda g: write_and_close(g + "/cell", "ok")),
    ("Tgc", "fsync", lambda g: write(g + "/ctl", "free", wait=True)),
    ("Tselftest", "fsync", lambda g: write(g + "/ctl", "selftest", wait=True)),
    ("Treset", "fsync", lambda g: write(g + "/ctl", "reset", wait=True)),
    ("Tstack", "read", lambda g: get(g + "/rank0/stack")),
)
# Their client does not wait for the engine.
UNANSWERED = (
    ("Tdel", "unlink", lambda g: os.unlink(g + "/vars/kept")),
    ("Tmove", "rename", lambda g: os.rename(g + "/vars/kept", g + "/vars/new")),
)


def refuse(group, message, first, count):
    write(group + "/cell", f"set kept 1\nrefuse {message} {first} {count}", wait=True)


def answered(group, message, request, first, count):
    """Makes the request until it is refused no more. Returns the errnos that its client got."""
    refuse(group, message, first, count)
    seen, done = set(), 0
    for _ in range(2 * count + 10):
        try:
            request(group)
            done += 1
        except OSError as e:
            seen.add(e.errno)
            done = 0
        if done == 2:  # one alone: Python itself makes it again after EINTR
            return seen
    raise Mismatch(f"{message}: it is refused for ever: {sorted(seen)}")


def check_answered(group, message, how, request):
    seen = answered(group, message, request, 0, MOST)
    print(f"{message}, {how}: {len(seen)} errnos")
    for first, count in NEGATIVE:
        seen |= answered(group, message, request, first, count)
    wrong = [no for no in seen if no == errno.ENOSYS or not 0 < no < FIRST_OWN]
    if wrong:
        raise Mismatch(f"{message}, {how}: a client got {wrong}")
    if errno.EIO not in seen or len(seen) < FIRST_OWN - 10:
        raise Mismatch(f"{message}, {how}: a client got only {sorted(seen)}")


def check_unanswered(group, message, how, request):
    """What is refused changes nothing. What is not refused does."""
    refuse(group, message, 0, MOST)
    for i in range(MOST + 1):
        if not os.path.exists(group + "/vars/kept"):
            raise Mismatch(f"{message}, {how}: the refusal with {i} had no effect")
        request(group)
        write(group + "/cell", "ok", wait=True)
    if os.path.exists(group + "/vars/kept"):
        raise Mismatch(f"{message}, {how}: it does not work afterwards")


def main():
    mount = Mount(NO_DELAYS)
    group = mount.path + "/group"
    try:
        write(group + "/ctl", "size 1\nquiet on\nstart", wait=True)
        for row in ANSWERED:
            check_answered(group, *row)
        for row in UNANSWERED:
            check_unanswered(group, *row)
        write(group + "/cell", "set kept 1", wait=True)
        for _, _, request in ANSWERED:
            request(group)
    finally:
        mount.end()


if __name__ == "__main__":
    reason = missing()
    if reason:
        print(reason)
        sys.exit(77)
    try:
        main()
    except (Hang, Mismatch) as e:
        sys.exit(f"FAILED: {e}")
