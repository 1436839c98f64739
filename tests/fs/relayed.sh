#!/usr/bin/env bash
# With its agent on another host, which is this machine, the daemon passes other tests of variables, output, input and
# objects on GPUs, too.
export DDIP_TEST_HOSTS='sh -c' DDIP_TEST_HOST_LIST=there
. "$(dirname "$0")/../lib.sh"

export XDG_CACHE_HOME=$T/cache
for name in fs/vars fs/cancel fs/output fs/input cells/gpu_memory; do
	status=0
	"$ROOT/tests/$name.sh" || status=$? # its own commands are guarded
	[ $status -ne 77 ] || echo "$name was skipped"
	[ $status -eq 0 ] || [ $status -eq 77 ] || bad "$name behind relays: status $status"
done

mount_plain -o size=1
pid=$(others | while read -r p; do [ "$(cat "/proc/$p/comm")" != ddip-relay ] || echo "$p"; done | head -n 1)
[ "$pid" ] || bad 'no relay runs: these tests were of a plain agent'
cell 'print("before")'
exec 3<"$G/events"
kill -KILL "$pid"
await 3 'state .*stopped' >/dev/null
like 'a relay that is killed is told of' "$(cat "$G/error")" 'the agent of host .* is gone'
ok cp /dev/stdin "$G/ctl" <<<start
cell 'print("after")'
is 'a start brings another one' "$(tail -n 1 "$G/rank0/stdout")" after
