#!/usr/bin/env bash
# Every CPython from 3.10 on that is installed here runs cells; older ones are refused by name.
. "$(dirname "$0")/../lib.sh"

# One of each version: python3.N in PATH, and what pyenv has.
declare -A found=()
for python in $(compgen -c python3. | grep -x 'python3\.[0-9]*') "${PYENV_ROOT:-$HOME/.pyenv}"/versions/*/bin/python; do
	version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null) || continue
	: "${found[$version]:=$(command -v "$python")}"
done
[ ${#found[@]} -gt 1 ] || skip 'there is one Python here'
asan_options=${ASAN_OPTIONS:-}
for version in "${!found[@]}"; do
	minor=${version#*.}
	# when a refused Python exits it leaves objects that a sanitizer would report as leaks
	ASAN_OPTIONS=$asan_options$([ "$minor" -ge 10 ] || echo :detect_leaks=0)
	export ASAN_OPTIONS
	mount_with "${found[$version]}" -o backend=none
	started=$(errno write "$G/ctl" start)
	if [ "${version%%.*}" = 3 ] && [ "$minor" -ge 10 ]; then
		is "$version starts" "$started" 0
		is "$version runs a cell" \
			"$(errno write "$G/cell" 'import sys; print("on", sys.version_info[1]); x = [rank, "é"]; x[1]')" 0
		is "$version prints" "$(cat "$G/rank1/stdout")" "on $minor"
		like "$version has results" "$(cat "$G/result")" "'é'"
		is "$version has variables" "$(cat "$G/rank1/vars/x")" "[1, 'é']"
		printf 'a text' >"$G/vars/y"
		is "$version tells failures" "$(errno write "$G/cell" $'assert y == "a text"\n1 / 0')" EREMOTEIO
		like "$version has tracebacks" "$(cat "$G/traceback")" 'File "<cell 2>", line 2.*ZeroDivisionError'
	else
		is "$version is refused" "$started" EHOSTDOWN
		like "$version is told why" "$(cat "$G/error")" "want CPython 3.10 or newer .*this is $version"
	fi
	unmount
done
