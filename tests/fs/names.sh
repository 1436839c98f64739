#!/usr/bin/env bash
# The name space lists the right entries, with the right modes and types, and refuses to create others.
. "$(dirname "$0")/../lib.sh"

mount_plain
cell 'x = 1'

is 'the root' "$(ls "$M" | xargs)" 'README SKILL.md group trace version wait'
for name in cell cells ctl error events log names rank0 rank1 ranks status steer vars watch; do
	ls "$G" | grep -qx "$name" || bad "$name is not listed in the group"
done
ls "$G" | grep -q '^cell\.' && bad 'cell.LIST is listed'
for name in cell ctl env follow frames locals stack status stderr stdin stdout vars; do
	ls "$G/rank1" | grep -qx "$name" || bad "$name is not listed in rank1"
done
for name in ctl error result source status stream traceback wait rank0 rank1; do
	ls "$G/cells/1" | grep -qx "$name" || bad "$name is not listed in cells/1"
done
is 'cells/1/rank0' "$(ls "$G/cells/1/rank0" | xargs)" 'locals result status stderr stdout traceback'

like version "$(cat "$M/version")" '^ddipfs [0-9]+\.[0-9]+\.[0-9]+ wire [0-9]+$'
for row in 'G/cell ' 'G/rankK/stdout ' 'G/vars/NAME' ' restart '; do
	grep -qF "$row" "$M/README" || bad "README has no '$row'"
done

while read -r mode path; do
	is "mode of $path" "$(stat -L -c %a "$M/$path")" "$mode"
done <<'END'
400 README
400 SKILL.md
400 version
400 trace
600 group/ctl
600 group/cell
600 group/cell.0
600 group/steer
600 group/watch
600 group/cell.0-1
400 group/status
400 group/ranks
400 group/events
600 group/error
400 group/log
400 group/names
400 group/cells/1/source
400 group/cells/1/status
400 group/cells/1/wait
400 group/cells/1/stream
200 group/cells/1/ctl
400 group/cells/last/rank1/stdout
600 group/vars/x
600 group/vars/x.json
600 group/rank0/vars/x
400 group/rank0/status
200 group/rank0/ctl
600 group/rank0/cell
600 group/rank0/stdout
600 group/rank0/stderr
400 group/rank0/follow
200 group/rank0/stdin
400 group/rank0/frames
500 group/rank0/locals
500 group/rank0/locals.0
500 group/locals
400 group/rank0/stack
400 group/rank0/stack.all
400 group/rank0/env
END
is 'cells/last' "$(readlink "$G/cells/last")" 1
is 'result' "$(readlink "$G/result")" cells/last/result
is 'traceback' "$(readlink "$G/traceback")" cells/last/traceback
is 'owner' "$(stat -c %u "$G/cell")" "$(id -u)"
inode=$(stat -c %i "$G/status")
like 'a file has an inode number' "$inode" '^[1-9][0-9]*$'
is 'a file keeps its inode number' "$(stat -c %i "$G/status")" "$inode"

while read -r what path error; do
	is "$what $path" "$(errno "$what" "$M/$path")" "$error"
done <<'END'
read nothing ENOENT
read group/nothing ENOENT
read group/rank2/status ENOENT
read group/rank01/status ENOENT
read group/cells/2/status ENOENT
read group/cells/0/status ENOENT
read group/cells/last2 ENOENT
read group/cell.7 EINVAL
read group/cell.x EINVAL
read group/vars/nothing ENOENT
read group/rank0/vars/nothing.json ENOENT
create group/new EACCES
create nothing EACCES
create group/cells/1/new EACCES
unlink group/status EACCES
rmdir group/cells EACCES
mkdir group/new EACCES
write group/stack ENOENT
END
like 'which ranks there are' "$(cat "$G/error")" "group/cell.x: .*out of 0[.][.]1, not 'x'"
is 'rename' "$(errno rename "$G/status" "$G/status2")" EACCES
is 'a file as a folder' "$(errno read "$G/status/x")" ENOTDIR
find "$M" -name trace -prune -o -name events -prune -o -name follow -prune -o -name log -prune -o \
	-name stream -prune -o -print >"$T/all" || bad 'find failed'
[ "$(wc -l <"$T/all")" -gt 50 ] || bad 'find found too little'
