#!/usr/bin/env python3
"""In the place of ssh: runs a command by sh and carries its streams. usage: carrier.py DIR COMMAND

Killed, it breaks them; stopped, it is a connection that is half open. In DIR it leaves its pid, and
the bytes that it carried there (`to`) and back (`from`) since the beginning. With DIR/down it fails
as ssh does; with DIR/delay it waits so many seconds before each piece.
"""

import os
import subprocess
import sys
import threading
import time

PIECE = 64 << 10


def carry(directory, name, source, target):
    """Copies until the end, counting."""
    path = os.path.join(directory, name)
    count = 0
    if os.path.exists(path):
        with open(path, encoding="utf-8") as f:
            count = int(f.read() or 0)
    with open(path, "w", encoding="utf-8") as f:
        while data := os.read(source, PIECE):
            delay = os.path.join(directory, "delay")
            if os.path.exists(delay):
                with open(delay, encoding="utf-8") as d:
                    time.sleep(float(d.read()))
            count += len(data)
            os.pwrite(f.fileno(), b"%d" % count, 0)
            while data:
                data = data[os.write(target, data) :]
    os.close(target)


def main(directory, command):
    if os.path.exists(os.path.join(directory, "down")):
        sys.exit("ssh: connect to host there port 22: No route to host")
    with open(os.path.join(directory, "pid.new"), "w", encoding="utf-8") as f:
        f.write(str(os.getpid()))
    os.rename(f.name, os.path.join(directory, "pid"))
    child = subprocess.Popen(["sh", "-c", command], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    there, back = os.dup(child.stdin.fileno()), child.stdout.fileno()
    child.stdin.close()
    threading.Thread(target=carry, args=(directory, "to", 0, there), daemon=True).start()
    carry(directory, "from", back, 1)
    sys.exit(child.wait())


main(*sys.argv[1:])
