#!/usr/bin/env bash
# Every reader gets all bytes, however it reads: by read(2), sendfile(2), splice(2), copy_file_range(2), io_uring or
# mmap(2), from texts, views, sources and results.
. "$(dirname "$0")/../lib.sh"

mount_plain
cell 'x = list(range(5000))
y = 7
print("out")
"r" * 300'
cell 'raise ValueError("one")' 2>/dev/null

# A program must get what plain reads get. Of texts that change with every read the lines are counted.
files="README version group/ctl group/status group/error group/cell group/result group/names group/ranks
	group/rank0/status group/rank1/stack.all group/rank0/stdout group/stall
	group/vars/x group/vars/y group/vars/x.json group/vars/x.pkl group/rank1/vars/x group/vars/x.gather.json
	group/cells/1/source group/cells/1/result group/cells/1/wait group/cells/2/traceback group/cells/2/error"
check() { # WHAT FILE COPY
	case $2 in
	*/stack.all) like "$1: the end of $2" "$(tail -n 1 "$3" | wc -c):$(wc -l <"$3")" '^[1-9][0-9]*:[1-9]' ;;
	*/ranks | */status | */stall | *x.pkl) is "$1: lines of $2" "$(wc -l <"$3")" "$(cat "$M/$2" | wc -l)" ;;
	*) cat "$M/$2" | cmp -s - "$3" || bad "$1: $2: $(wc -c <"$3") bytes, not $(cat "$M/$2" | wc -c)" ;;
	esac
}

through() { # WHAT COMMAND…, which copies "$1" to "$2", "$3" to "$4" …
	local what=$1 file pairs=() i=0
	shift
	rm -rf "$T/copies"
	mkdir "$T/copies"
	for file in $files; do
		pairs+=("$M/$file" "$T/copies/$((i++))")
	done
	"$@" "${pairs[@]}" || bad "$what: status $?"
	i=0
	for file in $files; do
		check "$what" "$file" "$T/copies/$((i++))"
	done
}

cat >"$T/copy.py" <<'END'
import mmap, os, shutil, sys


def copy(how, source, target):
    if how == "copyfile":
        shutil.copyfile(source, target)
        return
    into = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    fd = os.open(source, os.O_RDONLY)
    if how == "sendfile":
        while os.sendfile(into, fd, None, 1 << 20):
            pass
    elif how == "splice":
        r, w = os.pipe()
        while n := os.splice(fd, w, 1 << 16):
            while n:
                n -= os.write(into, os.read(r, n))
    elif how == "mmap":
        if size := os.fstat(fd).st_size:
            os.write(into, mmap.mmap(fd, size, prot=mmap.PROT_READ, flags=mmap.MAP_PRIVATE))
    elif how == "stat":
        # what an open file is said to have is what it has
        os.write(into, os.read(fd, os.fstat(fd).st_size))


how, *files = sys.argv[1:]
while files:
    copy(how, *files[:2])
    del files[:2]
END
for how in copyfile sendfile mmap stat; do
	through "$how" "$PLAIN_PYTHON" "$T/copy.py" $how
done
for python in "$PLAIN_PYTHON" "$TORCH_PYTHON"; do
	if "$python" -c 'import os; os.splice' 2>/dev/null; then
		through splice "$python" "$T/copy.py" splice
		break
	fi
done
each() { # COMMAND…, for one pair, for all of them
	local words=()
	while [ "$1" != -- ]; do
		words+=("$1")
		shift
	done
	shift
	while [ $# -gt 0 ]; do
		"${words[@]}" "$1" "$2" || return
		shift 2
	done
}
if command -v busybox >/dev/null; then
	busy_cat() {
		busybox cat "$1" >"$2"
	}
	through 'busybox cat' each busy_cat --
	through 'busybox cp' each busybox cp --
fi
if command -v node >/dev/null; then
	cat >"$T/copy.js" <<'END'
const fs = require("fs"), [how, ...files] = process.argv.slice(2);
(async () => {
    for (let i = 0; i < files.length; i += 2)
        if (how === "copy") fs.copyFileSync(files[i], files[i + 1]);
        else if (how === "read") fs.writeFileSync(files[i + 1], fs.readFileSync(files[i]));
        else await fs.promises.writeFile(files[i + 1], await fs.promises.readFile(files[i]));
})();
END
	through 'node copyFileSync' node "$T/copy.js" copy
	through 'node readFileSync' node "$T/copy.js" read
	UV_USE_IO_URING=1 through 'node with io_uring' node "$T/copy.js" promises
fi

# also while another process has the text open, which has grown since
exec 5<"$G/error"
cell 'raise ValueError("another one, which makes the text longer")' 2>/dev/null
"$PLAIN_PYTHON" "$T/copy.py" sendfile "$G/error" "$T/copy" || bad 'sendfile of a text that is open'
check 'beside an open one' group/error "$T/copy"
like 'the older one reads what was there' "$(cat <&5 | tail -n 1)" 'ValueError: one$'
exec 5<&-

# and many readers at once, of a text that grows meanwhile: each gets a whole text
for _ in 1 2 3; do
	cell 'raise ValueError("more of it")' 2>/dev/null
	for i in 1 2 3 4 5 6; do
		"$PLAIN_PYTHON" "$T/copy.py" sendfile "$G/status" "$T/copy.$i" &
	done
	wait
	for i in 1 2 3 4 5 6; do
		is 'one of many: the last key' "$(tail -n 1 "$T/copy.$i" | cut -d ' ' -f 1)" "$(tail -n 1 "$G/status" | cut -d ' ' -f 1)"
	done
done

# stat reports sizes that are known in advance
for file in README version group/ctl group/status group/error group/cells/1/source group/cells/2/traceback \
	group/cells/last/status group/rank0/stdout; do
	is "stat of $file" "$(stat -c %s "$M/$file")" "$(cat "$M/$file" | wc -c)"
done
