#!/usr/bin/env bash
# The documentation of files, views, OPs and verbs is complete, compared with the programs' own tables.
# shellcheck disable=SC2013 # words, not lines
. "$(dirname "$0")/../lib.sh"

cd "$ROOT" || exit
readme=$("$BUILD/ddipfs" --readme) || give_up 'ddipfs --readme'
# prints what is explained: the items and titles of a page; of the README it is the quoted words
explained() {
	sed 's/\\&//g' "$1" | grep -E '^\.(It|Ss|Sh|Cm|Pa) '
}
page4=$(explained fs/ddipfs.4)
quoted=$(grep -o '`[^`]*`' README.md)

# has WHAT WORD TEXT: TEXT must contain the word
has() {
	grep -qwF -- "$2" <<<"$3" || bad "$1 does not tell of $2"
}

while read -r path _; do
	[ "$path" != Files. ] || continue
	name=${path##*/}
	case $name in
	'' | . | G | N | K | rankK | NAME | LIST | STAGED) ;;
	*)
		name=${name%.LIST} name=${name%.REASONS}
		has 'ddipfs(4)' "$name" "$page4" && has README.md "$name" "$quoted"
		;;
	esac
done < <(sed -n '/^Files/,/^$/p' <<<"$readme")
words=$(sed -n '/^NAME is/,/^The life/s/^[ *] \([a-z][a-z0-9]*\) .*/\1/p' <<<"$readme")
[ "$(wc -w <<<"$words")" -gt 30 ] || bad "too few words: $words"
for word in $words; do
	has 'ddipfs(4)' "$word" "$page4"
done
for word in $(sed -n '/^NAME is/,/^Verbs/s/^  \([a-z][a-z0-9]*\) .*/\1/p' <<<"$readme"); do
	has README.md "$word" "$quoted"
done

life=$(sed -n '/^The life of a group/,$p' <<<"$readme" | grep -vE '^The (life|process group) of')
[ "$(wc -l <<<"$life")" -gt 30 ] || bad "the table of states is not told: $life"
while read -r from event to help; do
	grep -qF -- ".It $from Ta $event Ta $to Ta $help" fs/ddipfs.4 ||
		bad "ddipfs(4) lacks the transition $from, $event, $to: $help"
done <<<"$life"

page=$(explained scripts/ddip.1)
completed=$(bash -c '. scripts/ddip.bash-completion; COMP_WORDS=(ddip --) COMP_CWORD=1; _ddip; echo "${COMPREPLY[*]}"')
is 'options are completed' "$completed" '--help --version'
completed=$(bash -c '. scripts/ddip.bash-completion; COMP_WORDS=(ddip "") COMP_CWORD=1; _ddip; echo "${COMPREPLY[*]}"')
for verb in $(sed -n 's/^\([a-z][a-z]*\).*/\1/p' scripts/ddip-verbs); do
	has 'ddip(1)' "$verb" "$page"
	has completion "$verb" "$completed"
	ok "$BUILD/ddip" help "$verb" >/dev/null
done
for topic in files views ops ctl exit; do
	[ "$("$BUILD/ddip" help "$topic" | wc -l)" -gt 3 ] || bad "ddip help $topic tells nothing"
done
fails "$BUILD/ddip" help nonsense

# ARCHITECTURE.md names every module, and every folder of sources; README and it name what is there
modules=$(sed -n '/^## All modules/,$p' ARCHITECTURE.md)
for file in include/*.c fs/*.c fs/*/*.[ch] engine/*.c engine/agent/*.c {engine/ddip_engine,magics/ddip}/{,*/}[a-z]*.py; do
	name=$(basename "${file%.*}")
	has "ARCHITECTURE.md" "$name" "$modules"
done
rooms=$(sed -n '/^## Rooms/,/^## Five/p' ARCHITECTURE.md)
for folder in include/ fs/*/ engine/*/ engine/ddip_engine/{data,groups,cells}/ \
	magics/ddip/{,apps/,cells/,jobs/,mounts/,notebook/,shown/,tool/}; do
	has 'ARCHITECTURE.md' "$folder" "$rooms"
done
for place in $(grep -oh '`\(fs\|engine\|include\|magics\|scripts\|tests\)/[a-zA-Z0-9_/.:-]*`' ./*.md | tr -d '`'); do
	file=${place%%:*} name=${place#"$file"} name=${name#:}
	[ -e "$file" ] || bad "there is no $file, of which a document tells"
	[ -z "$name" ] || grep -qE "^ *((def|class) )?$name\b" "$file" || bad "there is no $name in $file"
done

if command -v mandoc >/dev/null; then
	is 'mandoc' "$(mandoc -Tlint -Wwarning fs/*.[1-8] scripts/*.[1-8] 2>&1 | grep -v mandoc.db)" ''
fi
if command -v groff >/dev/null; then # words that fit into no column are one below the other
	is 'tables at 80 columns' "$(for page in fs/*.[1-8] scripts/*.[1-8]; do groff -k -mdoc -Tutf8 -rLL=78n "$page" 2>&1 >/dev/null; done |
		grep "can't break line")" ''
fi

# completion: of what exists in a mount
mount_plain -o size=2
ok "$BUILD/ddip" -m "$M" start
echo 5 | "$BUILD/ddip" -m "$M" push xyz -
echo '{"lr": 1, "sizes": [2]}' | "$BUILD/ddip" -m "$M" push inner.json -
export DDIP_MOUNT=$M PATH=$BUILD:$PATH
complete_ddip() {
	bash -c '. scripts/ddip.bash-completion
		COMP_WORDS=("$@") COMP_CWORD=$(($# - 1)) COMPREPLY=()
		_ddip
		echo "${COMPREPLY[*]}"' - ddip "$@"
}
is 'verbs' "$(complete_ddip st)" 'start stop status steer stack'
is 'ranks' "$(complete_ddip tail '')" '0 1'
is 'what ends a mount' "$(complete_ddip unm) $(complete_ddip unmount READ)" 'unmount README.md'
is 'groups' "$(complete_ddip -g '')" group
is 'variables' "$(complete_ddip pull x)" xyz
is 'views and OPs' "$(complete_ddip pull xyz.s)" 'xyz.safetensors xyz.sum xyz.same'
is 'what is in an object' "$(complete_ddip pull inner.d/)" 'inner.d/lr inner.d/sizes inner.d/sizes.d'
is 'files' "$(complete_ddip push xyz READ)" README.md

# names are another user's choice: they are told as they are, and not expanded
evil='$(echo expanded) a'
mkdir -p "$T/e/$evil" "$T/e/x|e/$evil"
is 'a name is not expanded' "$(complete_ddip -m "$T/e" -g '$')" "$evil"
is 'nor one in a directory' "$(complete_ddip ls ../e/)" "../e/$evil ../e/x|e"
is 'nor is the directory' "$(complete_ddip ls '../e/x\|e/')" "../e/x|e/$evil"
is 'nor an object' "$(complete_ddip pull 'x/e.cs')" x/e.csv

# zsh and fish complete what bash completes
if command -v fish >/dev/null; then
	found=$(fish -N -c 'source scripts/ddip.fish-completion; complete -C "ddip pull xyz.s"')
	is 'fish' "$(sort <<<"$found" | xargs)" 'xyz.safetensors xyz.same xyz.sum'
	found=$(fish -N -c "source scripts/ddip.fish-completion; complete -C 'ddip -m $T/e -g '" | grep expanded)
	is 'fish: a name is not expanded' "$found" "$evil"
	is 'fish completes groups' "$(fish -N -c 'source scripts/ddip.fish-completion; complete -C "ddip -g "')" group
fi
cat >"$T/types.py" <<'END'
"""A shell at a terminal completes words, and quotes them. Arguments: its preparation, the shell."""

import os, pty, sys

pid, fd = pty.fork()
if pid == 0:
    os.environ.update(TERM="dumb", PS1="ready> ")
    os.execvp(sys.argv[2], sys.argv[2:])
seen = b""


def expect(text):
    global seen
    while text not in seen:
        seen += os.read(fd, 65536)
    seen = seen.partition(text)[2]


expect(b"ready> ")
os.write(fd, f"{sys.argv[1]}; echo do''ne\n".encode())
expect(b"done")
expect(b"ready> ")
os.write(fd, b"ddip pull xyz.safe\t")
expect(b"xyz.safetensors")
os.write(fd, b"\x15ddip -m e -g \\$\t")
expect(rb"$\(echo\ expanded\)\ a")
os.write(fd, b"\x15exit\n")
while True:
    try:
        if not os.read(fd, 65536):
            break
    except OSError:
        break
os.waitpid(pid, 0)
END
# types PREPARATION SHELL…
types() {
	guarded python3 "$T/types.py" "cd $T; $1" "${@:2}"
}
ok types ". $ROOT/scripts/ddip.bash-completion" bash --norc --noprofile -i
if command -v zsh >/dev/null; then
	mkdir "$T/functions"
	ln -s "$ROOT/scripts/ddip.zsh-completion" "$T/functions/_ddip"
	ok types "fpath=($T/functions \$fpath); autoload -U compinit; compinit -u -D" zsh -f -i
fi
