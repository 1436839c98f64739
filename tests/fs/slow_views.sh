#!/usr/bin/env bash
# Views that take long or never end delay nobody else, and end together with those that wait for them.
. "$(dirname "$0")/../lib.sh"

mount_plain -o size=2
V=$G/rank0/vars
cell 'import os, sys, time
quick, text, begun = 5, "words", 0
class Slow:
    """Its text is never ready; it catches what is raised in it so often."""
    def __init__(self, work, catches=0):
        self.work, self.catches = work, catches
    def __repr__(self):
        global begun
        begun += 1
        for _ in range(self.catches):
            try:
                while True: self.work()
            except BaseException: pass
        while True: self.work()
    __reduce__ = __repr__
def nothing(): pass
busy, stubborn, sleeper = Slow(nothing), Slow(nothing, 3), Slow(lambda: time.sleep(0.01))
stuck = Slow(lambda: time.sleep(1e6))
class Inside:
    """How many threads make a text of something slow."""
    def __repr__(self):
        slow = 0
        for frame in sys._current_frames().values():
            while frame and frame.f_code is not Slow.__repr__.__code__: frame = frame.f_back
            slow += frame is not None
        return str(slow)
inside = Inside()
def memfds():
    links = [f"/proc/self/fd/{fd}" for fd in os.listdir("/proc/self/fd")]
    return sum("ddip-view" in os.readlink(link) for link in links if os.path.islink(link))
class Ready:
    """Made by code of its own, like a slow one."""
    def __repr__(self): return "ready"
ready = Ready()'

# until_is NAME VALUE: waits until a variable of rank 0 has this value
until_is() {
	until [ "$(cat "$V/$1")" = "$2" ]; do sleep "$POLL_S"; done
}

# reads_on WHAT: others are still served
reads_on() {
	is "$1: a number" "$(cat "$V/quick")" 5
	is "$1: a text" "$(cat "$V/text.json")" '"words"'
	is "$1: an object with code of its own" "$(cat "$V/ready")" ready
	is "$1: a pickle" "$("$PLAIN_PYTHON" -c "import pickle; print(pickle.load(open('$V/text.pkl', 'rb')))")" words
	is "$1: a cell" "$(value 1+1)" 2
}

# a killed reader's work ends with it, though the object's code catches what is raised
n=0
for view in busy stubborn sleeper busy.pkl stubborn.p5; do
	cat "$V/$view" &
	n=$((n + 1))
	until_is begun $n
	reads_on "while $view is made"
	kill -KILL $!
	wait $! 2>/dev/null
	until_is inside 0
done
closed() {
	[ "$(value 'memfds()')" = 0 ]
}
until_true closed || bad "of cancelled views $(value 'memfds()') memfds stay open"

# the system has no thread to insist on such an end: the one that should start it serves on; on the rank where none
# insists yet
W=$G/rank1/vars
cell 'service = sys.modules["ddip_engine.service"]
more = service.start_new_thread
def no_more(*args):
    raise RuntimeError("no more threads")'
is 'a view, beside which another thread starts' "$(cat "$W/ready")" ready
cell 'service.start_new_thread = no_more' "$G/rank1/cell"
cat "$W/sleeper" &
until [ "$(cat "$W/begun")" = 1 ]; do sleep "$POLL_S"; done
kill -KILL $!
wait $! 2>/dev/null
is 'what comes after that view' "$(guarded cat "$W/ready")" ready
cell 'service.start_new_thread = more' "$G/rank1/cell"
cat "$W/stubborn" &
until [ "$(guarded cat "$W/begun")" != 1 ]; do sleep "$POLL_S"; done
is 'a number beside a view, with threads again' "$(guarded cat "$W/quick")" 5
kill -KILL $!
wait $! 2>/dev/null
until [ "$(guarded cat "$W/inside")" = 0 ]; do sleep "$POLL_S"; done
cell 'begun = 0' "$G/rank1/cell"

# an interrupt ends the view and gives its reader an error; a thread stuck in C is left behind
for view in busy stubborn stuck; do
	for ctl in "$G/ctl" "$G/rank0/ctl"; do
		errno read "$V/$view" >"$T/errno" &
		n=$((n + 1))
		until_is begun $n
		echo interrupt >"$ctl" || bad "interrupt of $view"
		wait $!
		is "interrupt of $view by ${ctl#"$G/"}" "$(cat "$T/errno")" ECANCELED
		like 'error says so' "$(tail -n 1 "$G/error")" "ECANCELED.*$view"
	done
done
reads_on 'beside what is stuck'
errno read "$V/busy" >"$T/errno" &
n=$((n + 1))
until_is begun $n
echo 'interrupt 1' >"$G/ctl"
reads_on 'another rank was interrupted'
kill -0 $! || bad 'the reader of rank 0 is still there'
echo 'interrupt 0' >"$G/ctl"
wait $!

# a view over all ranks ends on all of them
cat "$G/vars/busy.gather" &
n=$((n + 1))
until_is begun $n
until [ "$(cat "$G/rank1/vars/begun")" = 1 ]; do sleep "$POLL_S"; done
kill -KILL $!
wait $! 2>/dev/null
until [ "$(cat "$G/rank1/vars/inside")" = 0 ]; do sleep "$POLL_S"; done

# the same while a cell runs
errno nonblock "$G/rank0/cell" "while not os.path.exists('$T/end'): time.sleep(0.01)" >/dev/null
cat "$V/busy" &
n=$((n + 1))
until_is begun $n
is 'a number beside a cell and a slow view' "$(cat "$V/quick")" 5
kill -KILL $!
wait $! 2>/dev/null
touch "$T/end"
wait_cell "$(readlink "$G/cells/last")" >/dev/null

# more views than threads: quick ones are served, the others get their turn when threads are free
until_is inside 2 # those that are stuck
cell 'begun = 0' "$G/rank0/cell"
readers=()
for _ in {1..80}; do
	cat "$V/sleeper" &
	readers+=($!)
done
until [ "$(cat "$V/begun")" -ge 50 ]; do sleep "$POLL_S"; done
for _ in {1..20}; do
	is 'a number beside 80 slow views' "$(cat "$V/quick")" 5
done
cat "$V/ready" >"$T/ready" &
turn=$!
kill -KILL "${readers[@]}"
wait "${readers[@]}" 2>/dev/null
wait $turn
is 'what waited has its turn' "$(cat "$T/ready")" ready
until_is inside 2
reads_on 'after 80 slow views'

# the system has no more threads: the existing one does all the work
cell 'text = "k" * 200000
service.start_new_thread = no_more' "$G/rank0/cell"
for _ in 1 2 3; do
	is 'a long text by the last thread' "$(guarded cat "$V/text" | wc -c)" 200001
done
cell 'service.start_new_thread = more' "$G/rank0/cell"

# a program that replaces the thread primitives, as gevent does, still has its views
cell 'import _thread, threading, time
def no_more(*args):
    raise TypeError("not here")
for name in "start_new_thread", "allocate_lock", "get_ident": setattr(_thread, name, no_more)
threading.get_ident = time.sleep = no_more' "$G/rank0/cell"
for _ in 1 2 3; do
	is 'a long text' "$(guarded cat "$V/text" | wc -c)" 200001
done
is 'as JSON' "$(guarded cat "$V/text.json" | wc -c)" 200003
