#!/usr/bin/env bash
# A source tree that was copied or moved to a folder with a space builds there, and runs what is there.
. "$(dirname "$0")/../lib.sh"

sanitized && skip 'the plain build is enough'
new="$T/a tree"
mkdir -p "$new/build"
cp -a "$ROOT"/{Makefile,fs,engine,include,magics,scripts} "$new"
cp -a "$BUILD"/{obj,so,engine_py.*,version,ddip*,examples} "$new/build"

# build WHAT: make has nothing to compile, but must see what is wrong with the links
build() {
	make --no-print-directory -C "$T"/*tree all >"$T/out" 2>&1 || bad "$1: make: $(tail -n 3 "$T/out")"
	is "$1: examples" "$(realpath "$T"/*tree/build/examples)" "$(realpath "$T"/*tree)/scripts/examples"
	is "$1: ddip_tool" "$(realpath "$T"/*tree/build/ddip_tool)" "$(realpath "$T"/*tree)/magics"
}

ln -sfn "$ROOT/scripts/examples" "$new/build/examples"
rm "$new/build/ddip_tool"
build 'a copy of a tree whose links are absolute'
like 'it runs' "$("$new/build/ddip" -m "$T" status 2>&1)" '^ddip: '
mv "$new" "$T/moved tree"
new="$T/moved tree"
is 'moved, its links are right at once' "$(realpath "$new/build/examples")" "$(realpath "$new/scripts/examples")"
ln -sfn /nonexistent/examples "$new/build/examples"
build 'a link to nowhere'

# two at once
for _ in {1..5}; do
	rm "$new/build/examples"
	for _ in 1 2 3; do
		make --no-print-directory -C "$new" all >"$T/out" 2>&1 &
	done
	wait
done
build 'several at once'
is 'no link is in the sources' "$(find "$new/scripts" -type l)" ''
