#!/usr/bin/env bash
# Editors: everything written in one session arrives, write by write, and no editor warns that a file has changed.
. "$(dirname "$0")/../lib.sh"

mount_plain
V=$G/vars
cell 'words, number, table = "some words", 1, {"lr": 0.1}'

# edits EDITOR FILE COMMAND…: runs ex commands, one by one; fails if the editor prompts or warns
edits() {
	local commands=()
	for command in "${@:3}"; do
		commands+=(-c "$command")
	done
	guarded "$1" -Nes -u NONE -i NONE -V1 "${commands[@]}" -c 'q!' "$2" </dev/null >"$T/said" 2>&1 ||
		bad "$1 $2 failed: $(cat "$T/said")"
	! grep -iE 'warning|changed since|error|E[0-9]+:' "$T/said" >&2 || bad "$1 $2 has something to say"
}

found=
for editor in vim vim.tiny vim.basic; do
	command -v $editor >/dev/null || continue
	found=$editor
	first=$(($(readlink "$G/cells/last") + 1))
	edits $editor "$G/cell" '%s/.*/made = 41 + 1/' w '%s/.*/made += 1/' w
	is "$editor: each :w of a cell runs it" "$(cat "$V/made") $(readlink "$G/cells/last")" "43 $((first + 1))"
	is "$editor: as it was written" "$(cat "$G/cells/$first/source")" 'made = 41 + 1'
	edits $editor "$G/rank1/cell" '%s/.*/made = "there"/' w
	is "$editor: :w of a rank's cell runs it there" "$(cat "$G"/rank?/vars/made | xargs)" '43 there'
	edits $editor "$V/words" '%s/.*/a line/' w '%s/.*/another/' w
	is "$editor: each :w of a string sets it" "$(value words 1)" "'another'"
	edits $editor "$V/number" '%s/.*/7/' w '%s/.*/8/' w
	is "$editor: each :w of a number sets it" "$(value number 1)" 8
	edits $editor "$V/table.json" '%s/[0-9.]\+/0.5/' w '%s/0.5/0.25/' w
	is "$editor: each :w of a view sets it" "$(value table 1)" "{'lr': 0.25}"
	edits $editor "$V/new.json" 'set noro' 's/^/[3]/' w
	is "$editor: :w of a new name makes it" "$(value new 1)" '[3]'
	edits $editor "$G/ctl" '2,$d' 's/.*/grace 7/' w
	is "$editor: :w of ctl gives its verbs" "$(key "$G/ctl" grace)" 7
	is "$editor leaves nothing beside" "$(ls -A "$V" | xargs)" 'made new number table words'
	rm "$V/new"
done
[ -n "$found" ] || skip 'there is no vim'
is 'error tells of nothing' "$(cat "$G/error")" ''
