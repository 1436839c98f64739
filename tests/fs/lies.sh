#!/usr/bin/env bash
# An engine that sends what its program never sends is lost, alone: the daemon and the other ranks go on, and the group
# is whole again.
. "$(dirname "$0")/../lib.sh"

mount_plain -o size=2
cell 'kept = 100 + rank'
daemon=$(daemon_pid)

# replaced PID: are there two ranks again, and is none of them this process?
replaced() {
	[ "$(rank_pids | wc -l)" = 2 ] && ! rank_pids | grep -qx "$1"
}

# lies WHAT CODE ERROR: rank 1 runs CODE, which lies, and is lost; its cell fails with ERROR
lies() {
	local before after
	mapfile -t before < <(rank_pids)
	fails cell "import _ddip, sys, time
def tag():
    frame = sys._getframe()
    while not isinstance(frame.f_locals.get('tag'), int):
        frame = frame.f_back
    return frame.f_locals['tag']
$2
time.sleep(100)" "$G/rank1/cell"
	like "$1: the error" "$(cat "$G/error")" "$3"
	until_true replaced "${before[1]}" || return
	until_true grep -q '^state idle' "$G/status"
	mapfile -t after < <(rank_pids)
	is "$1: rank 0" "${after[0]}" "${before[0]}"
	is "$1: the daemon" "$(daemon_pid)" "$daemon"
	is "$1: what rank 0 had" "$(value kept)" 100
}

lies 'the reply to another request' '_ddip.reply("Rget", tag(), 1, 2, 2**63, 2**63, b"head")' \
	'Rget in reply to Trun'
lies 'a request' '_ddip.reply("Tspawn", tag(), 0, 1, "/", "rank0", b"", 0)' 'Tspawn in reply to Trun|rank 1 died'
lies 'a notice of the agent' '_ddip.notify("Nexit", 1, 9, "", "", 0, 0, 0, 0)' 'rank 1 died'
lies 'one message for many' '_ddip.notify("Nmany", 0, b"\0\0\0\0\0\0", b"")' 'rank 1 died'
unmount
