#!/usr/bin/env bash
# Large numbers of groups, of readers at once, and a reader far behind are served; the daemon's memory stays bounded.
. "$(dirname "$0")/../lib.sh"

mount_plain -o size=1
daemon=$(daemon_pid)
groups=200 readers=25 megabytes=300
export G M T

# prints the daemon's RssAnon in KiB
memory() {
	awk '/^RssAnon/ { print $2 }' "/proc/$daemon/status"
}

small() {
	sanitized || [ "$(memory)" -lt 20000 ] || bad "$1: RssAnon is $(memory) KiB"
}

# groups: new ones cost nothing but their names
before=$(memory)
for round in 1 2; do
	for ((i = 0; i < groups; i++)); do mkdir "$M/g$i" || bad "mkdir g$i"; done
	is 'all are listed' "$(ls -d "$M"/g[0-9]* | wc -l)" $groups
	cat "$M"/g*/status "$M"/g*/ctl >/dev/null
	small "$groups groups"
	for ((i = 0; i < groups; i++)); do rmdir "$M/g$i" || bad "rmdir g$i"; done
	[ $round -eq 2 ] || first=$(memory)
done
is 'all are gone' "$(ls "$M" | xargs)" 'README SKILL.md group trace version wait'
sanitized || [ "$(memory)" -lt $((first + 1000)) ] || bad "groups that are gone keep memory: $before, $first, $(memory) KiB"
is 'nor files' "$(find "$(dirname "$(key "$G/status" spool)")" -maxdepth 1 -name 'g[0-9]*' | wc -l)" 0
for i in 1 2 3; do # with engines
	mkdir "$M/x" && echo 'x = 1' >"$M/x/cell" && is 'a group' "$(cat "$M/x/vars/x")" 1
	echo stop >"$M/x/ctl" && rmdir "$M/x" || bad 'rmdir x'
done

# readers of log and events each get everything; one that has not begun to read is far behind
cell 'import sys, time'
exec 5<"$G/rank0/follow"
"$PLAIN_PYTHON" - "$readers" "$megabytes" <<'END' || bad 'readers'
import hashlib, os, select, subprocess, sys
G = os.environ["G"]
readers, megabytes = int(sys.argv[1]), int(sys.argv[2])
fds = {os.open(f"{G}/{name}", os.O_RDONLY | os.O_NONBLOCK): name for name in ("log", "events") for _ in range(readers)}
got = {fd: b"" for fd in fds}

def submit(text):
    fd = os.open(G + "/cell", os.O_WRONLY | os.O_NONBLOCK)
    os.write(fd, text.encode())
    os.close(fd)
    return os.readlink(G + "/cells/last")

def until(end):
    left, poll = set(fds), select.poll()
    for fd in fds:
        poll.register(fd, select.POLLIN)
    while left:
        ready = poll.poll(int(os.environ["HANG_LIMIT_S"]) * 1000)
        assert ready, f"nothing comes any more; {len(left)} readers have not seen the end"
        for fd, _ in ready:
            try:
                got[fd] += os.read(fd, 1 << 16)
            except BlockingIOError:
                continue
            if end[fds[fd]] in got[fd]:
                left.discard(fd)
                poll.unregister(fd)

n = submit("for i in range(1000): print('line', i)\nprint('the end')")
until({"log": b"0: the end\n", "events": b"cell %s ok" % n.encode()})
want = b"".join(b"0: line %d\n" % i for i in range(1000)) + b"0: the end\n"
for fd, name in fds.items():
    assert name == "events" or got[fd] == want, got[fd][:200]
assert len({data[data.index(b"cell " + n.encode()):] for fd, data in got.items() if fds[fd] == "events"}) == 1
for fd in fds:
    os.close(fd)
END
small 'readers'
cell "piece = ('x' * 99 + '\n') * 10000
for _ in range($megabytes): sys.stdout.write(piece)" || bad 'a lot'
small 'what was printed'
head -c $((megabytes * 1000000)) <&5 | tail -c 100000000 | tr -d 'x' | wc -c >"$T/lines"
exec 5<&-
is 'nothing is lost for who lags' "$(cat "$T/lines")" 1000000
small 'who lags'
: >"$G/rank0/stdout"
