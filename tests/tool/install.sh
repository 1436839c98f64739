#!/usr/bin/env bash
# make install into a directory and make deb install everything, and both run in place.
. "$(dirname "$0")/../lib.sh"
needs_mount

cd "$ROOT" || exit
version=$(make -s version)
mkdir "$M"
build=$(realpath --relative-to=. "$BUILD") # make cannot do with spaces in it
quietly() {
	"$@" >"$T/out" 2>&1 || bad "$*: $(tail -n 5 "$T/out")"
}

# try BIN: mounts, runs and unmounts with the programs there
try() {
	ok env PATH="$1:$PATH" ddip mount -o "python=$PLAIN_PYTHON,size=2,backend=none" "$M"
	is "$1: a cell" "$("$1/ddip" -m "$M" exec -a rank | sort | xargs)" '0: 0 1: 1'
	ok "$1/ddip" umount "$M"
	ok "$1/ddip" help shell >/dev/null
}

quietly make BUILD="$build" DESTDIR="$T/root" PREFIX=/opt/ddipfs install
try "$T/root/opt/ddipfs/bin"
for page in man1/ddipfs.1 man1/ddip.1 man4/ddipfs.4 man7/ddipfs.7 man7/ddip-hosts.7 man7/ddip-coming-from.7; do
	[ -s "$T/root/opt/ddipfs/share/man/$page" ] || bad "no page $page"
done
[ -x "$T/root/opt/ddipfs/share/ddipfs/examples/watch.sh" ] || bad 'no examples'
like 'the manual names the version' "$(cat "$T/root/opt/ddipfs/share/man/man4/ddipfs.4")" \
	$'\n\.Os ddipfs '"$version"$'\n'
quietly make BUILD="$build" DESTDIR="$T/root" PREFIX=/opt/ddipfs uninstall
is 'nothing is left' "$(find "$T/root" -type f -o -type l)" ''

# with PYTHON= also into that environment
if make_venv "$T/v"; then
	export PIP_NO_INDEX=1 PIP_NO_DEPS=1 # what it needs is not under test
	quietly make BUILD="$build" PREFIX="$T/prefix" PYTHON="$T/v/bin/python" install
	try "$T/prefix/bin"
	try "$T/v/bin"
	is 'its package' "$("$T/v/bin/python" -I -c 'import ddip; print(ddip.__version__)')" "$version"
fi

if command -v dpkg-deb >/dev/null; then
	DPKG_DEB_COMPRESSOR_LEVEL=1 quietly make BUILD="$build" deb
	package=$(echo "$BUILD"/ddipfs_*.deb)
	like 'what it needs' "$(dpkg-deb -f "$package" Depends)" 'fuse3.*libfuse3'
	ok dpkg-deb -x "$package" "$T/deb"
	try "$T/deb/usr/bin"
	is 'all belong to root' "$(dpkg-deb -c "$package" | awk '{ print $2 }' | sort -u)" root/root
fi

# mount(8) by means of fuse3's helper
if [ "$(id -u)" = 0 ] && command -v mount.fuse >/dev/null; then
	ok mount -t fuse -o "noatime,python=$PLAIN_PYTHON,size=1,backend=none" "$BUILD/ddipfs#" "$M"
	like 'mount -t' "$(cat "$M/version")" '^ddipfs '
	is 'its type' "$(findmnt -n -o FSTYPE "$M")" fuse.ddipfs
	pids=$(others)
	until_true umount -q "$M" # not while the watchdog is inside for a moment
	# shellcheck disable=SC2086
	gone $pids
fi
