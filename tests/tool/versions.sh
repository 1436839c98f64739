#!/usr/bin/env bash
# What the README, the manual and the package declare of torch, Python and IPython is what tests/matrix/rows tries.
. "$(dirname "$0")/../lib.sh"

cd "$ROOT" || exit
declare -A oldest newest
while read -r _ python torch _ ipython numpy; do
	for pair in "python $python" "torch $torch" "ipython $ipython" "numpy $numpy"; do
		read -r name version <<<"$pair"
		[[ $version =~ ^[0-9.]+$ ]] || continue
		newest[$name]=$(printf '%s\n' "${newest[$name]:-$version}" "$version" | sort -V | tail -n 1)
		[[ $version == *.* ]] || continue # the newest of this series
		oldest[$name]=$(printf '%s\n' "${oldest[$name]:-$version}" "$version" | sort -V | head -n 1)
	done
done < <(grep -v '^#' tests/matrix/rows)

readme=$(tr -s '\n' ' ' <README.md) manual=$(tr -s '\n' ' ' <fs/ddipfs.1)
end='(\.?[^0-9.])' # of a number
for range in "torch ${oldest[torch]} to ${newest[torch]}" "Python ${oldest[python]} to ${newest[python]}" \
	"IPython ${oldest[ipython]} to ${newest[ipython]}"; do
	like 'README' "$readme" "${range//./\\.}$end"
	like 'ddipfs(1)' "$manual" "${range//./\\.}$end"
done
like 'ddipfs(1)' "$manual" "NumPy ${oldest[numpy]} and ${newest[numpy]}$end"
package=$(cat pyproject.toml)
like 'the package' "$package" "requires-python = \">=${oldest[python]}\""
like 'the package' "$package" "\"ipython>=${oldest[ipython]}\""
like 'the package' "$package" "\"torch>=${oldest[torch]}\""
is 'what a start refuses' "$("$PLAIN_PYTHON" - <<-'END'
	import runpy
	print(*runpy.run_path("magics/ddip/known_bad.py")["OLDEST_TORCH"], sep=".")
END
)" "${oldest[torch]}"
