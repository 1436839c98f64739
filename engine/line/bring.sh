#!/bin/sh
# Runs the far relay on a host. Brings the programs there first if they are not there.
# usage: bring.sh PATH OPTION VALUE
#        bring.sh auto|DIR/ OPTION VALUE KEY SIZE SUM SIZE SUM   (of ddip-engine, and of ddip_engine.so)
#
# The relay sends it as one line, without the comments, which any login shell takes in single quotes: so a command ends
# with ; and there are no single quotes, backslashes, backquotes or exclamation marks. line.h lists what it prints.

DDIP_UMASK=$(umask);
export DDIP_UMASK;
umask 077;
engine=$1 option=$2 value=$3 key=$4 size=$5 sum=$6 size2=$7 sum2=$8;
why=;

# In one line, whatever the text.
# shellcheck disable=SC2048,SC2086 # words
e() { set -f; echo "@ddipfs error" $*; exit 1; };

# Those that fail add the reason to $why.
no() { why="$why$*; "; return 1; };

# own DIR: does nobody else get in?
own() {
	o=$1;
	# shellcheck disable=SC2046 # words
	set -- $(ls -nd "$1" 2>&1);
	case $1 in
	drwx------*) [ "$3" = "$(id -u)" ];;
	*) false;;
	esac || no "$o: want a directory of yours that nobody else may enter, mode 0700";
};

# sums DIR: are the programs there?
sums() {
	{ echo "$sum  $1/ddip-engine"; echo "$sum2  $1/ddip_engine.so"; } | sha256sum -c >/dev/null 2>&1;
};

# holds DIR: can they be written there, and run? For the last, a file without #! will do: where nothing may run the
# kernel refuses it, elsewhere the shell runs it.
holds() {
	m=$(mkdir -p "$1" 2>&1) || { no "$m"; return; };
	own "$1" || return;
	t=$(mktemp -d "$1/new.XXXXXX" 2>&1) || { no "$t"; return; };
	m=$({ echo exit 0; head -c $((size + size2)) /dev/zero; } 2>&1 >"$t/try" && chmod 700 "$t/try" && "$t/try" 2>&1) ||
		no "the programs were not written to $1, or cannot run there: $m";
	set -- $? "$t";
	rm -rf "$2";
	return "$1";
};

# present DIR...: sets $p to the program in the first of them that has it. Returns 1 if none has.
present() {
	for x; do
		c=$x d=$x/$key p=$x/$key/ddip-engine;
		[ -d "$d" ] && own "$c" && own "$d" && sums "$d" && "$p" --version >/dev/null 2>&1 && return;
	done;
	return 1;
};

# choose DIR...: sets $c to the first of them that can hold it, and $d and $p to what will be there.
choose() {
	why=;
	for x; do
		c=$x d=$x/$key p=$x/$key/ddip-engine;
		holds "$c" && return;
	done;
	e "${why}name another directory by the setting engine: engine DIR/";
};

# Receives the programs in $c, writes them elsewhere and then renames them: another relay may be doing the same on a
# file system that several hosts share. Removes what others left unfinished over a day ago; without find(1) it stays.
receive() {
	echo "@ddipfs want $(uname -sm)";
	read -r go && [ "$go" = go ] || e the launcher passes no standard input on;
	find "$c" -maxdepth 1 -name "new.*" -mtime +0 -exec rm -rf {} + >/dev/null 2>&1;
	t=$(mktemp -d "$c/new.XXXXXX" 2>&1) || e "$t";
	clean() { rm -rf "$t"; exit 1; };
	trap clean HUP TERM PIPE;
	m=$(head -c "$size" 2>&1 >"$t/ddip-engine") && m=$(head -c "$size2" 2>&1 >"$t/ddip_engine.so") && sums "$t" || {
		rm -rf "$t";
		e "the programs were not written to $c: ${m:-they came out different}";
	};
	chmod 700 "$t/ddip-engine";
	mkdir -p "$d" && mv "$t/ddip-engine" "$t/ddip_engine.so" "$d";
	rm -rf "$t";
	trap - HUP TERM PIPE;
};

# Sets $p to the program, which is copied there if necessary. Some hosts have no home, or one that is read-only, full, or
# mounted noexec: the places in which it may be kept, the best first.
bring() {
	for x in sha256sum head mktemp mv; do
		command -v $x >/dev/null || e "there is no $x there";
	done;
	u=ddipfs-$(id -u);
	h=${XDG_CACHE_HOME:-${HOME:+$HOME/.cache}};
	case $engine in
	auto) set -- ${h:+"$h/ddipfs"} ${TMPDIR:+"$TMPDIR/$u"} "/var/tmp/$u" "/tmp/$u" "/dev/shm/$u";;
	*) set -- "${engine}ddipfs";;
	esac;
	present "$@" || {
		choose "$@";
		[ -d "$d" ] && { own "$d" || e "$why"; };
		receive;
	};
};

case $engine in
auto | */) bring;;
*) p=$engine;;
esac;
v=$("$p" --version 2>&1) || e "$p does not run there: $v";
exec "$p" far "$option" "$value";
