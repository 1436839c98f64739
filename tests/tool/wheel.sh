#!/usr/bin/env bash
# The wheel works when an ordinary user installs it with pip in a bare Debian: the required packages and python3, no
# compiler, no libfuse, no sources. A cell runs with fusermount3 and without, so do `ddip demo` and the magics.
. "$(dirname "$0")/../lib.sh"

sanitized && skip 'a wheel of a sanitized build runs nowhere else'
if [ "$(id -u)" != 0 ] || ! unshare -m true 2>/dev/null; then
	skip 'only root can change to another root'
fi
mknod "$T/fuse" c 10 229 2>/dev/null || skip 'no device can be made'
for need in dpkg-query apt-cache strip; do
	command -v $need >/dev/null || skip "there is no $need"
done
[ -e "$(pkg-config --variable=libdir fuse3)/libfuse3.a" ] || skip 'there is no libfuse3.a'
# shellcheck disable=SC2016 # Python
about='import sys, sysconfig; print("%d.%d" % sys.version_info[:2], sysconfig.get_path("purelib"))'
has_module torch IPython matplotlib pip || skip "no torch, IPython, matplotlib or pip in $TORCH_PYTHON"
read -r version deps < <("$TORCH_PYTHON" -c "$about")
[ "$("$PLAIN_PYTHON" -c "$about" | cut -d ' ' -f 1)" = "$version" ] ||
	skip "the packages of $TORCH_PYTHON are not for $PLAIN_PYTHON"

# ---- the wheel

mkdir "$T/wheel"
cd "$ROOT" || exit
BUILD=$(realpath --relative-to=. "$BUILD") OUT=$T/wheel \
	scripts/make-wheel >"$T/out" 2>&1 || give_up "make-wheel: $(tail -n 5 "$T/out")"
tail -n 1 "$T/out"
wheel=$(echo "$T"/wheel/ddipfs-*.whl)
[ "$(stat -c %s "$wheel")" -lt 3000000 ] || bad "the wheel has $(stat -c %s "$wheel") bytes"
like 'its tag tells which glibc it needs' "${wheel##*/}" '^ddipfs-[0-9.]+-py3-none-manylinux_2_[0-9]+_[a-z0-9_]+\.whl$'

# ---- a bare Debian

# Prints the files of these packages and of their dependencies.
files_of() {
	apt-cache depends --recurse --installed --no-recommends --no-suggests --no-conflicts --no-breaks \
		--no-replaces --no-enhances "$@" | sed -n 's/^\([a-z][^ :]*\).*/\1/p' | sort -u |
		xargs dpkg-query -L 2>/dev/null | grep -vE '^/usr/share/(doc|man|locale|info|i18n)/'
}

# populate PACKAGE…: copies their files into the root
populate() {
	files_of "$@" | sed -E 's,^/(bin|sbin|lib|lib64)/,/usr/\1/,' | sort -u |
		tar -C / --no-recursion --ignore-failed-read -cf - -T - 2>/dev/null | tar -C "$T/root" -xpf -
}

mkdir "$T/root"
mapfile -t required < <(dpkg-query -W -f '${Package} ${Priority}\n' | sed -n 's/ required$//p')
populate "${required[@]}" python3
cd "$T/root" || exit
for name in bin sbin lib lib64; do
	[ -L "/$name" ] && ln -s "usr/$name" $name
done
ln -s mawk usr/bin/awk
ln -s ../proc/self/mounts etc/mtab
mkdir -p dev proc deps tmp home/user
chmod 1777 tmp
chmod 755 .
chown 1000:1000 home/user
printf '%s\n' root:x:0:0::/root:/bin/bash user:x:1000:1000::/home/user:/bin/bash >etc/passwd
printf '%s\n' root:x:0: user:x:1000: >etc/group
cp "$wheel" home/user
chmod 755 "$T" home/user

# inside COMMAND…: runs it there, as an ordinary user, or as $uid; its mounts vanish with the namespace
inside() {
	# shellcheck disable=SC2016
	unshare -m "$BASH" -c '
		root=$0
		mount --rbind /proc "$root/proc"
		mount --bind "$1" "$root/deps"
		mount -t tmpfs none "$root/dev"
		while read -r name minor; do mknod -m 666 "$root/dev/$name" c ${minor/:/ }; done <<-END
			null 1:3
			zero 1:5
			random 1:8
			urandom 1:9
			fuse 10:229
		END
		mkdir -m 1777 "$root/dev/shm"
		exec chroot "$root" setpriv --reuid "$2" --regid "$2" --clear-groups env -i DDIP_TEST="$DDIP_TEST" \
			HOME=/home/user PATH=/home/user/v/bin:/usr/bin:/bin "${@:3}"' "$T/root" "$deps" "${uid:-1000}" "$@"
}

fails inside sh -c 'ls /usr/lib/*/libfuse* /usr/bin/*gcc* /usr/bin/cc /usr/bin/fusermount*' >"$T/out"
is 'there is no compiler, and nothing of FUSE' "$(cat "$T/out")" ''
said=$(inside sh -ec 'cd ~
	python3 -m venv --without-pip v
	echo /deps >$(echo v/lib/python3*/site-packages)/deps.pth
	v/bin/python -m pip install --quiet --disable-pip-version-check --no-index ddipfs-*.whl' 2>&1) ||
	give_up "pip install: $said"
[ -s home/user/v/share/man/man4/ddipfs.4 ] || bad 'no manual'
info=$(echo home/user/v/lib/python3*/site-packages/ddipfs-*.dist-info)
like 'its licence is said' "$(cat "$info/METADATA")" 'License-Expression: MIT AND LGPL-2\.1'
like "libfuse's is there" "$(cat "$info"/licenses/libfuse3/*)" 'GNU LESSER GENERAL PUBLIC LICENSE'

# ---- without fusermount3: a socket

# it finds the Python of its environment by itself
inside env PATH=/usr/bin:/bin /home/user/v/bin/ddip demo /tmp/loss.png >"$T/out" 2>&1 || bad "ddip demo: $(tail -n 20 "$T/out")"
like 'without fusermount3 a socket is served' "$(cat "$T/out")" 'the same files are served at'
like 'the demo draws its images where there is no data set' "$(cat "$T/out")" 'train_mnist.py --epochs 3 --data'
like 'how to draw them is shown, too' "$(cat "$T/out")" 'ddip run -f -r 0 .*/draw_digits.py ~/digits; '
like 'what it reaches' "$(cat "$T/out")" 'same on all ranks: (8[5-9]|9[0-9]|100)\.'
is 'its picture' "$(head -c 4 tmp/loss.png | tail -c 3)" PNG

said=$(uid=0 inside sh -c 'mkdir /tmp/m && ddip mount -o size=1,backend=none,python=/usr/bin/python3 /tmp/m &&
	ddip exec "6 * 7" && ddip umount' 2>&1)
is 'root mounts and unmounts without it' "$said" 42

# ---- with fusermount3: a mount

populate fuse3
rm -f usr/lib/*/libfuse3* # it is for sshfs and the like
cat >home/user/notebook.py <<'END'
import os
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell.instance()
for line in "%load_ext ddip", "%makedip -n 2", "%dip mine = rank", "%dipull -r 1 mine":
    shell.run_cell(line).raise_error()
assert shell.user_ns["mine"] == 1, shell.user_ns["mine"]
from ddip.mounts import where
place = where.find()
assert os.path.ismount(place), place
os.system(f"ddip -m {place} exec -a 'import sys; sys.prefix'")
shell.run_cell("%makedip -k").raise_error()
assert not os.path.ismount(place)
END
said=$(inside python /home/user/notebook.py 2>&1) || bad "the magics: $said"
like "the ranks have the environment's Python" "$said" "0: '/home/user/v'"
