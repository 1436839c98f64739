#!/usr/bin/env bash
# pip installs from the source, with build isolation and without, editable, and from the source archive. Nothing is
# downloaded, and nothing of it is left after pip uninstall.
. "$(dirname "$0")/../lib.sh"
needs_mount

sanitized && skip 'the plain build is enough'
make_venv "$T/v" || skip 'no Python here has venv and pip'
unset VIRTUAL_ENV DDIP_MOUNT "${!PIP_@}"
export PIP_NO_INDEX=1 PIP_CONFIG_FILE=/dev/null PIP_DISABLE_PIP_VERSION_CHECK=1 PYTHONDONTWRITEBYTECODE=1
mkdir "$M"
cd "$ROOT" || exit
version=$(make -s version)

# install WORD…: with what is built already
install() {
	"$T/v/bin/pip" install --quiet --no-deps --config-settings build="$BUILD" "$@" >"$T/out" 2>&1 ||
		bad "pip install $*: $(tail -n 5 "$T/out")"
}

# works WHAT FOLDER: the package is there, and a group runs the Python of the environment
works() {
	local path=$PATH
	is "$1: the package and its other names" "$(cd / && "$T/v/bin/python" -c '
import Ddip, ddip, ddipp, os
from importlib.metadata import version
assert Ddip.load_ipython_extension is ddipp.load_ipython_extension is ddip.load_ipython_extension
print(os.path.realpath(os.path.dirname(os.path.dirname(ddip.__file__))), ddip.__version__, version("ddipfs"))')" \
		"$(realpath "$2") $version $version"
	is "$1: the program" "$("$T/v/bin/ddipfs" --version)" "$("$BUILD/ddipfs" --version)"
	PATH=/usr/bin:/bin
	ok "$T/v/bin/ddip" mount -o size=1,backend=none "$M"
	is "$1: the ranks' Python" "$("$T/v/bin/ddip" -m "$M" exec 'import sys; sys.prefix')" "'$T/v'"
	ok "$T/v/bin/ddip" umount "$M"
	PATH=$path
}

# removed WHAT: no file is left, and no directory. share and share/man are there: IPython, which is required, has them.
mkdir -p "$T/v/share/man/man1"
: >"$T/v/share/man/man1/ipython.1"
tree() {
	find "$T/v" -printf '%y %p\n' | sort
}
tree >"$T/before"
removed() {
	ok "$T/v/bin/pip" uninstall --quiet --yes ddipfs
	is "$1: nothing is left" "$(tree | diff "$T/before" -)" ''
}

# ---- a wheel, and what it says of itself

ok "$T/v/bin/pip" wheel --quiet --no-deps --config-settings build="$BUILD" -w "$T" .
wheel=$(echo "$T"/ddipfs-*.whl)
like 'its tag' "${wheel##*/}" "^ddipfs-$version-py3-none-linux_[a-z0-9_]*\.whl\$"
[ "$(stat -c %s "$wheel")" -lt 3000000 ] || bad "the wheel has $(stat -c %s "$wheel") bytes"
cat >"$T/look.py" <<'END'
"""What an archive has in it, and says of itself. usage: look.py WHEEL | SDIST"""

import email
import sys
import tarfile
import zipfile

if sys.argv[1].endswith(".whl"):
    archive = zipfile.ZipFile(sys.argv[1])
    names, read = archive.namelist(), archive.read
    assert "ddip/py.typed" in names, "type checkers would not read its annotations"
else:
    archive = tarfile.open(sys.argv[1])
    names, read = archive.getnames(), lambda name: archive.extractfile(name).read()
lower = [name.lower() for name in names]
same = [name for name in names if lower.count(name.lower()) > 1]
folders = {name.rpartition("/")[0] for name in names}
same += [name for name in folders if sum(name.lower() == each.lower() for each in folders) > 1]
assert not same, f"one file where the case of names is ignored: {same}"
about = next(name for name in names if name.endswith(("dist-info/METADATA", "/PKG-INFO")))
about = email.message_from_bytes(read(about))
try:
    import tomllib
except ImportError:
    sys.exit()
with open("pyproject.toml", "rb") as file:
    project = tomllib.load(file)["project"]
extras = project["optional-dependencies"]
needs = [f'{name}; extra == "{extra}"' for extra in extras for name in extras[extra]]
assert about.get_all("Requires-Dist") == project["dependencies"] + needs, about.items()
for field, key in ("Name", "name"), ("Summary", "description"), ("Requires-Python", "requires-python"):
    assert about[field] == project[key], (field, about[field])
assert about.get_all("Provides-Extra") == list(extras) and about["License-Expression"] == "MIT"
assert len(about.get_payload()) > 1000
END
ok "$T/v/bin/python" "$T/look.py" "$wheel"

# ---- installed

install --no-build-isolation .
works 'pip install .' "$T"/v/lib/python3*/site-packages
like 'the manual names the version' "$(cat "$T/v/share/man/man1/ddip.1")" $'\n\.Os ddipfs '"$version"$'\n'
removed 'pip install .'
install --target "$T/site" "$wheel"
ok env PATH=/usr/bin:/bin "$T/site/bin/ddip" mount -o size=1,backend=none "$M"
is '--target' "$("$T/site/bin/ddip" -m "$M" exec '6 * 7')" 42
ok "$T/site/bin/ddip" umount "$M"
is '--target: notebooks find the program' "$(PATH=/nowhere PYTHONPATH=$T/site "$T/v/bin/python" -c '
from ddip.mounts import mount
print(mount.program())')" "$T/site/bin/ddipfs"

# ---- editable: a tree in a folder with a blank

tree="$T/a tree"
mkdir -p "$tree/build"
cp -a "$ROOT"/{pyproject.toml,README.md,LICENSE,CHANGELOG.md,Makefile,fs,engine,include,magics,scripts} "$tree"
cp -a "$BUILD"/{obj,so,engine_py.*,version,ddip*} "$tree/build"
"$T/v/bin/pip" install --quiet --no-deps -e "$tree" >"$T/out" 2>&1 || bad "pip install -e: $(tail -n 5 "$T/out")"
works 'editable' "$tree/magics"
echo 'changed = 1' >>"$tree/magics/ddip/shown/labels.py"
printf '%s\n' 'import sys' 'sys.exit("changed")' >"$tree/magics/__main__.py"
is 'changes of the package are seen at once' "$(cd / && "$T/v/bin/python" -c 'import ddip.shown.labels; print(ddip.shown.labels.changed)')" 1
is 'and those of the tool' "$("$T/v/bin/ddip" status 2>&1)" changed
removed 'editable'

# ---- the source archive, and one that is made from it

sdist() {
	"$PLAIN_PYTHON" -c 'import sys
sys.path.insert(0, "scripts")
import build_backend
print(build_backend.build_sdist(sys.argv[1]))' "$1"
}
mkdir "$T/first" "$T/second"
is 'its name' "$(sdist "$T/first")" "ddipfs-$version.tar.gz"
ok "$T/v/bin/python" "$T/look.py" "$T/first/ddipfs-$version.tar.gz"
tar -xzf "$T/first/ddipfs-$version.tar.gz" -C "$T"
if git rev-parse --verify -q HEAD >"$T/out" 2>&1; then
	git ls-files -c | grep -v '^\.' | while read -r file; do
		[ ! -e "$file" ] || echo "$file"
	done | xargs -d '\n' sha256sum >"$T/sums"
	is 'it has all sources' "$(cd "$T/ddipfs-$version" && sha256sum --check --quiet "$T/sums" 2>&1)" ''
fi
(cd "$T/ddipfs-$version" && sdist "$T/second" >"$T/out")
ok cmp "$T"/{first,second}/ddipfs-"$version".tar.gz
# a compiler that does not optimize: the other builds do
mkdir "$T/quick"
printf '#!/bin/sh\nexec %s "$@" -O0 -g0 -U_FORTIFY_SOURCE\n' "$(command -v gcc)" >"$T/quick/gcc"
chmod +x "$T/quick/gcc"
quick=$T/quick:$PATH
PATH=$quick "$T/v/bin/pip" install --quiet --no-deps "$T/second/ddipfs-$version.tar.gz" >"$T/out" 2>&1 ||
	bad "pip install of the archive: $(tail -n 5 "$T/out")"
works 'from the archive' "$T"/v/lib/python3*/site-packages
removed 'from the archive'

# ---- where something is missing

# lacks WHAT TEXT [COMMAND…]: the installation ends with a sentence that says what to install
lacks() {
	"${@:3}" "$T/v/bin/pip" install --no-deps . >"$T/out" 2>&1 && bad "$1: it went well"
	like "$1" "$(cat "$T/out")" "\[1 lines of output\][[:space:]]*To compile ddipfs, install $2[^\n]*\.[[:space:]]*\[end of"
}
mkdir "$T/bin"
find /usr/bin/ -mindepth 1 -maxdepth 1 ! -name '*gcc*' ! -name make -exec ln -s -t "$T/bin" {} +
lacks 'without gcc and make' "make, gcc and the C library's headers: apt-get install make gcc libc6-dev .*dnf install" env PATH="$T/bin"
lacks 'without libfuse' 'libfuse 3\.13 or newer: apt-get install libfuse3-dev .*fuse3-devel' env PKG_CONFIG_LIBDIR=/nowhere
mkdir "$T/old"
printf '%s\n' 'Name: fuse3' 'Description: old' 'Version: 3.10.5' >"$T/old/fuse3.pc"
lacks 'with an old libfuse' 'libfuse 3\.13 .*; libfuse is 3\.10\.5 here, and a wheel has its own' env PKG_CONFIG_PATH="$T/old"
echo '#error broken' >>"$T/ddipfs-$version/include/util.h" # which the first file includes: nothing else is compiled
PATH=$quick "$T/v/bin/pip" install --no-deps "$T/ddipfs-$version" >"$T/out" 2>&1 && bad 'a source that cannot be compiled was installed'
like 'a failure of the compiler is shown' "$(cat "$T/out")" 'error: #error broken.*ddipfs could not be built: make .* failed, see above'

# ---- where file names ignore case

if [ "$(id -u)" = 0 ] && command -v mount.exfat-fuse >"$T/out" && command -v mkfs.exfat >"$T/out"; then
	truncate -s 64M "$T/image"
	mkfs.exfat "$T/image" >"$T/out"
	mkdir "$T/exfat"
	loop=$(losetup -f --show "$T/image") || give_up 'losetup'
	mount.exfat-fuse "$loop" "$T/exfat" >"$T/out"
	: >"$T/exfat/Name"
	[ -e "$T/exfat/name" ] || bad 'the case of names matters there'
	install --target "$T/exfat/site" "$wheel"
	is 'the package and its other names' "$(PYTHONPATH=$T/exfat/site "$T/v/bin/python" -c '
import Ddip, ddip, ddipp
assert Ddip.load_ipython_extension is ddipp.load_ipython_extension is ddip.load_ipython_extension
print(ddip.__file__)')" "$T/exfat/site/ddip/__init__.py"
	umount "$T/exfat"
	losetup -d "$loop"
else
	echo 'only the names were looked at: no file system here ignores their case (packages exfat-fuse, exfatprogs)'
fi
