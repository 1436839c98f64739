#!/usr/bin/env bash
# A rank that does not rejoin in time after a host was lost is killed, and `error` tells what it waited for. That time
# is half a minute, in which this test does nothing.
. "$(dirname "$0")/../lib.sh"

mount_plain -o 'hosts=a:1 b:1 c:1' -o size=2 -o launcher=here -o backend=auto -o master_addr=127.0.0.1 -o grace=0
ok cell 'x = rank + 100'
exec 5<"$G/events"
kill -STOP "$(key "$G/rank1/status" pid)"
kill -KILL "$(awk '/^PPid:/ { print $2 }' "/proc/$(key "$G/rank0/status" pid)/status")"
why='ranks that did not rejoin the process group in 30 s are killed: 1; they look for the store, which is on c, at'
why+=' 127[.]0[.]0[.]1 port [0-9]+ \(master_addr\), but it has moved there from a lost host: stop, and set master_addr'
why+=' to an address of c, or to auto$'
like 'an event tells why' "$(await 5 ' recover-late ')" "$why"
await 5 ' recovered ' >/dev/null
exec 5<&-
like 'so does error' "$(grep ' recover: ' "$G/error" | head -n 1)" "ETIMEDOUT recover: $why"
is 'once' "$(grep -c 'did not rejoin' "$G/error")" 1
is 'the group works' "$(errno write "$G/cell" 'y = rank')" 0
is 'master_addr may not fit' "$(errno write "$G/ctl" $'stop\nmaster_addr auto\nstart\n')" 0
