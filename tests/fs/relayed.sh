#!/usr/bin/env bash
# With its agent behind relays, as on another host, the daemon passes other tests of variables, output, input and
# objects on GPUs, too.
. "$(dirname "$0")/../lib.sh"

there=$T/build
mkdir "$there"
for file in "$BUILD"/*; do
	ln -s "$file" "$there/"
done
rm "$there/ddipfs" "$there/ddip-engine"
cp "$BUILD/ddipfs" "$there/ddipfs" # it looks for the engine beside itself
cat >"$there/ddip-engine" <<END
#!/bin/sh
if [ "\$1" = --agent ]; then
	exec '$BUILD/ddip-engine' relay --host there --linger 5 --engine '$BUILD/ddip-engine' -- sh -c
fi
exec '$BUILD/ddip-engine' "\$@"
END
chmod +x "$there/ddip-engine"

export BUILD=$there
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
like 'a relay that is killed is told of' "$(tail -n 1 "$G/error")" 'the agent of host .* is gone'
ok cp /dev/stdin "$G/ctl" <<<start
cell 'print("after")'
is 'a start brings another one' "$(tail -n 1 "$G/rank0/stdout")" after
