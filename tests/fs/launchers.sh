#!/usr/bin/env bash
# The commands for containers and pods have the form that docker, podman and kubectl accept: stand-ins of these names
# refuse any other form and run the command here.
. "$(dirname "$0")/../lib.sh"

export XDG_CACHE_HOME=$T/cache PATH=$T/bin:$PATH
mkdir "$T/bin"
stand_in() { # NAME OPTIONS DASHES
	cat >"$T/bin/$1" <<-END
		#!/bin/bash
		for want in $2 exec -i; do
			[ "\$1" = "\$want" ] || { echo "$1: want \$want, not '\$1'" >&2; exit 1; }
			shift
		done
		echo "\$1" >>"$T/$1.hosts"
		shift
		for want in $3 sh -c; do
			[ "\$1" = "\$want" ] || { echo "$1: want \$want, not '\$1'" >&2; exit 1; }
			shift
		done
		[ \$# = 1 ] || { echo "$1: \$# words behind sh -c" >&2; exit 1; }
		exec env -u PATH PATH=/usr/bin:/bin sh -c "\$1"
	END
	chmod +x "$T/bin/$1"
}
stand_in docker '--context there' ''
stand_in podman '--remote' ''
stand_in kubectl '-n team' --

for launcher in 'docker --context there' 'podman --remote' 'kubectl -n team'; do
	mount_plain -o 'hosts=one-0:1 one-1:2' -o "launcher=$launcher" -o linger=2
	ok cell 'rank * 2'
	is "$launcher: ranks of both" "$(cat "$G"/cells/last/rank?/result | xargs)" '0 2 4'
	is "$launcher: where they are" "$(grep -o ' host=[^ ]*' "$G/ranks" | xargs)" 'host=one-0 host=one-1 host=one-1'
	is "$launcher: the names are those of hosts" "$(sort -u "$T/${launcher%% *}.hosts" | xargs)" 'one-0 one-1'
	unmount
done

# the command's own message is reported
mount_plain -o 'hosts=one:1' -o 'launcher=kubectl -n other'
is 'a refusal' "$(errno write "$G/ctl" $'start\n')" EHOSTDOWN
like 'is told in its words' "$(cat "$G/error")" "host one: kubectl ended with exit status 1: kubectl: want team, not 'other'"
