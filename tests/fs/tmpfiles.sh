#!/usr/bin/env bash
# systemd-tmpfiles(8), which removes from /tmp and /var/tmp what is old, leaves a mount's directory while the daemon
# lives, here and on other hosts: ranks start again after weeks.
. "$(dirname "$0")/../lib.sh"

command -v systemd-tmpfiles >/dev/null || skip 'there is no systemd-tmpfiles'
export DDIP_STATE=$T/state
mkdir "$DDIP_STATE"
printf 'd %s - - - 0\n' "$DDIP_STATE" >"$T/clean.conf" # 0: whatever its age

refused=''
for where in '' 'a:1'; do
	if [ "$where" ]; then
		mount_plain -o size=1 -o "hosts=$where" -o 'launcher=sh -c'
	else
		mount_plain -o size=1
	fi
	ok cell 'print(1)'
	touch "$DDIP_STATE/old"
	mkdir "$DDIP_STATE/locked"
	touch "$DDIP_STATE/locked/old"
	flock -s "$DDIP_STATE/locked" systemd-tmpfiles --clean "$T/clean.conf" || refused='it does not run here'
	[ ! -e "$DDIP_STATE/old" ] || refused='it removes nothing here'
	[ -e "$DDIP_STATE/locked/old" ] || refused='it does not know locks'
	[ -z "$refused" ] || {
		unmount
		skip "systemd-tmpfiles: $refused"
	}
	rm -r "$DDIP_STATE/locked"
	ok echo restart >"$G/ctl"
	ok cell 'print(2)'
	is "output, ${where:-here}" "$(xargs <"$G/rank0/stdout")" '1 2'
	unmount
done
systemd-tmpfiles --clean "$T/clean.conf"
is 'afterwards nothing is left' "$(ls "$DDIP_STATE")" ''
