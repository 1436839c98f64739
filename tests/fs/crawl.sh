#!/usr/bin/env bash
# Programs that walk over the whole mount do not hang, meet no error of ours, and start no engine.
. "$(dirname "$0")/../lib.sh"

mount_plain
has() {
	command -v "$1" >/dev/null
}

# Runs a program that must end; it may complain only about modes and about files that cannot be followed.
crawl() {
	local what=$1 pattern=$2 status
	shift 2
	guarded "$@" >"$T/out" 2>"$T/err" </dev/null
	status=$?
	[ $status -ne 124 ] || bad "$what hangs"
	grep -vE "$pattern" "$T/err" >"$T/complaints" && bad "$what: $(head -n 3 "$T/complaints")"
	return 0
}

# Files that wait for data are listed as pipes, which these programs skip; a program that copies them as files
# gets what is there.
# write-only files, and files without an engine behind them, may be refused
refused='Permission denied|No such process|Operation not supported|Is a directory|Input/output error: never'

cat >"$T/index.py" <<'END'
import os, sys

def index(folder):
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                index(entry.path)
            elif entry.is_file(follow_symlinks=False) and os.access(entry.path, os.R_OK):
                try:
                    with open(entry.path, "rb") as f:
                        f.read(1 << 20)
                except OSError as e:
                    print(e.strerror, entry.path, file=sys.stderr)

index(sys.argv[1])
END

everything() { # WHEN
	crawl "find $1" '^$' find "$M" -ls
	crawl "find -newer $1" '^$' find "$M" -newer / -size +0 -perm /u+r
	crawl "ls -laR $1" '^$' ls -laR "$M"
	crawl "du $1" '^$' du -a "$M"
	crawl "grep -r $1" "$refused" grep -r nowhere_to_be_found "$M"
	! has rg || crawl "rg $1" "$refused|^rg: " rg nowhere_to_be_found "$M"
	rm -rf "$T/cp"
	crawl "cp -r $1" "$refused" cp -r "$M" "$T/cp"
	crawl "tar $1" "$refused|file changed as we read|Exiting with failure|shrank by|Removing leading" \
		tar -cf "$T/all.tar" -C "$M" .
	crawl "cat $1" "$refused" find "$M" -type f -exec cat '{}' +
	! has rsync || crawl "rsync $1" "$refused|rsync error: some files|some files vanished|failed verification" \
		rsync -a "$M/" "$T/copy"
	if has git; then
		crawl "git status $1" 'not a git repository|Stopping at filesystem|GIT_DISCOVERY' \
			git -C "$M" status
		git init -q "$T/repo" 2>/dev/null
		crawl "git add $1" "$refused|unable to index|adding files failed|Adding embedded|^hint|could not open|open\(" \
			git --git-dir="$T/repo/.git" --work-tree="$M" status --short -uall
	fi
	# what an indexer does: the type of each file, and its text
	! has file || crawl "file $1" "$refused" find "$M" -exec file -- '{}' +
	crawl "an indexer $1" "$refused" "$PLAIN_PYTHON" "$T/index.py" "$M"
	crawl "md5sum $1" "$refused" find "$M" -type f -perm -u+r -exec md5sum '{}' +
	crawl "file system check $1" '^$' stat -f "$M" "$G"
	crawl "sync $1" '^$' sync -f "$M/README"
}

everything 'when new'
is 'no engine was started' "$(key "$G/status" state)" new
is 'no rank' "$(rank_pids)" ''

cell 'text, numbers = "words", [1, 2, 3]
print("printed")'
everything 'when idle'
ok grep -q words "$T/cp/group/vars/text"
is 'what tar got' "$(tar -xOf "$T/all.tar" ./group/vars/numbers 2>/dev/null)" '[1, 2, 3]'
is 'copied' "$(cat "$T/cp/group/rank0/stdout")" printed
is 'the link' "$(readlink "$T/cp/group/cells/last")" 1

# a program, as they are: its names are locals; and what waits behind it
submit 'import os, time
def main(held):
    open("'"$T"'/begun" + str(rank), "w").close()
    while not os.path.exists("'"$T"'/end"): time.sleep(0.001)
main([1, 2])'
running=$n
until_true [ -e "$T/begun0" ]
until_true [ -e "$T/begun1" ]
submit 'behind = 1'
queue=$(sed 's/ seconds=[0-9.]*//' "$G/queue")
events=$(tail -n 1 "$G/events.last")
everything 'when busy'
is 'the locals were read' "$(tar -xOf "$T/all.tar" ./group/rank1/locals/held ./group/locals/held 2>/dev/null | xargs)" '[1, 2] [1, 2]'
like 'the frames' "$(tar -xOf "$T/all.tar" ./group/rank0/frames 2>/dev/null)" 'main'
is 'still running, and nothing has happened' "$(state "$running") $(sed 's/ seconds=[0-9.]*//' "$G/queue")" "running $queue"
is 'no event' "$(tail -n 1 "$G/events.last")" "$events"
touch "$T/end"
wait_cell "$n" >/dev/null
is 'no crawler made a cell' "$(readlink "$G/cells/last")" "$n"
echo stop >"$G/ctl"
is 'no variables without an engine' "$(ls "$G/vars")" ''
everything 'when stopped'
is 'nor then' "$(rank_pids)" ''
is 'live files are listed as pipes' "$(find "$G" -maxdepth 1 -type p | sort | xargs -n 1 basename | xargs)" 'events log stream wait watch'
is 'and are files' "$(stat -c %F "$G/events")" 'regular empty file'
is 'no bug of ours' "$(grep -c EIO "$G/error")" 0
echo start >"$G/ctl"
cell 'x = 1' && is 'it works' "$(cat "$G/vars/x")" 1

# heavy programs, if installed: stdout as a file that is read in every way
cell 'import sys
for i in range(200000): sys.stdout.write(f"{i:09}\n")' "$G/rank0/cell"
if has fio; then
	for engine in psync mmap; do
		crawl "fio $engine" '^$' fio --name=read --filename="$G/rank0/stdout" --readonly --thread \
			--rw=randread --bs=4k --size=1M --numjobs=2 --ioengine=$engine \
			--output="$T/fio"
		like "fio $engine" "$(cat "$T/fio")" 'read: IOPS'
		like "fio $engine: no error" "$(cat "$T/fio")" 'err= 0'
		# a staged file is written, mapped and read in any order
		crawl "fio $engine, writing" '^$' fio --name=write --filename="$G/vars/.fio" --rw=randwrite \
			--verify=crc32c --verify_state_save=0 --bs=4k --size=2M --thread --ioengine=$engine --output="$T/fio"
		like "fio $engine: verified" "$(cat "$T/fio")" 'err= 0'
		rm "$G/vars/.fio" || bad 'rm .fio'
	done
fi
if has stress-ng; then
	# where files can be created: staged names below vars
	crawl 'stress-ng' '.' stress-ng --temp-path "$M" --timeout 1 --dir 1 --access 1 --chdir 1 --dentry 1 \
		--fstat 1 --getdent 1 --quiet
	is 'the mount lives' "$(cat "$G/vars/x")" 1
	is 'it made no engine' "$(rank_pids | wc -l)" 2
	guarded find "$M" >/dev/null || bad 'find after stress-ng'
fi
