#!/usr/bin/env bash
# There is a zygote for each environment that a group wants; it ends when none wants it. Ranks have the user's own
# umask and limit of open files, not the daemon's.
. "$(dirname "$0")/../lib.sh"

umask 027
ulimit -Sn 777
mount_plain -o size=1
umask 022
daemon=$(daemon_pid) || give_up 'no daemon'

is 'a rank has the umask and the limit of who mounted' \
	"$(value '__import__("os").umask(0o27), __import__("resource").getrlimit(7)[0]')" '(23, 777)'
is 'a file of a rank has the mode that its user wants' \
	"$(cell "open('$T/made', 'w').close()" && stat -c %a "$T/made")" 640
is 'files of the mount are private all the same' \
	"$(find "$(key "$G/status" spool)" -type f -perm /077)" ''
is 'the environment of ranks has nothing of it' \
	"$(value '[k for k in __import__("os").environ if k in ("DDIP_UMASK", "DDIP_OPEN_FILES")]')" '[]'
is 'nor what keeps the zygote from starting CUDA' \
	"$(value '"PYTORCH_NVML_BASED_CUDA_CHECK" in __import__("os").environ')" False

agent=$(pgrep -P "$daemon" -x ddip-agent) || give_up 'no agent'
# zygotes: prints the pids of this agent's zygotes, and of their spares
zygotes() {
	pgrep -P "$agent" -x ddip-zygote | sort
}

no_more_than() {
	[ "$(zygotes | wc -l)" -le "$1" ]
}

for i in {1..10}; do
	printf 'stop\nenv TRY=%s\nstart\n' "$i" >"$G/ctl"
	is "start $i has the environment that was set" "$(value '__import__("os").environ["TRY"]')" "'$i'"
done
# the current one, possibly its successor, and one in case the settings are changed back
until_true no_more_than 3 || bad "after ten changes of env $(zygotes | wc -l) zygotes are left"
# by their environment: a zygote is replaced by its successor, which it forks, also between two looks
has_kept() {
	zygotes | sed 's|.*|/proc/&/environ|' | xargs grep -qsz "^TRY=$1\$"
}
until_true has_kept 9 || bad 'the zygote before the last one was not kept'
printf 'stop\nenv TRY=9\nstart\n' >"$G/ctl"
value 1 >/dev/null

# a directory that was made again, with the same name, is another one
mkdir "$T/wd"
printf '%s\n' stop "cwd $T/wd" start >"$G/ctl"
is 'an empty directory' "$(value '__import__("os").listdir()')" '[]'
echo stop >"$G/ctl"
mv "$T/wd" "$T/old" && mkdir "$T/wd" && touch "$T/wd/data"
echo start >"$G/ctl"
is 'the new directory' "$(value '__import__("os").listdir()')" "['data']"
printf '%s\n' stop 'cwd /' start >"$G/ctl"

# a removed group's zygote ends; that of another group with the same settings stays
mkdir "$M/other"
printf 'env TRY=other\nsize 1\nstart\n' >"$M/other/ctl"
echo 'x = 1' >"$M/other/cell"
printf 'stop\n' >"$M/other/ctl"
rmdir "$M/other" || bad 'rmdir of a stopped group'
is 'the first group goes on' "$(value '__import__("os").environ["TRY"]')" "'9'"
until_true no_more_than 3 || bad "$(zygotes | wc -l) zygotes are left after the other group is gone"
printf 'restart\n' >"$G/ctl"
is 'and it starts again' "$(value '__import__("os").environ["TRY"]')" "'9'"

# modules that cannot be imported ahead: error and events name them, and the start goes on
mkdir "$T/modules"
echo 'import sys; sys.exit("no module but a program")' >"$T/modules/ends.py"
echo 'import threading; threading.Thread(target=threading.Event().wait, daemon=True).start()' >"$T/modules/threads.py"
exec 5<"$G/events"
is 'a start with such modules' \
	"$(errno write "$G/ctl" "stop
env PYTHONPATH=$T/modules
preload nosuch json ends
start
")" 0
like 'an event has the name and the exception' "$(await 5 ' preload-failed ')" \
	"preload-failed nosuch: ModuleNotFoundError: No module named 'nosuch'\$"
like 'for each of them' "$(await 5 ' preload-failed ')" 'preload-failed ends: SystemExit: no module but a program$'
like 'and error' "$(grep -o 'EREMOTEIO preload: .*' "$G/error")" \
	"^EREMOTEIO preload: nosuch: ModuleNotFoundError: [^ ]* module named 'nosuch'
EREMOTEIO preload: ends: SystemExit: no module but a program\$"
is 'the next start tells it again' "$(errno write "$G/ctl" $'restart\n'; grep -c 'preload: .* (2 times)' "$G/error")" $'0\n2'
is 'the others are there' "$(value '"json" in __import__("sys").modules')" True
printf '%s\n' stop 'preload threads' start >"$G/ctl"
like 'a module that starts threads is told as well' "$(await 5 'preload-failed threads')" 'ranks will start cold$'
is 'its ranks start' "$(errno write "$G/ctl" $'restart\n'; value 1)" $'0\n1'
printf '%s\n' stop preload start >"$G/ctl"
exec 5<&-
