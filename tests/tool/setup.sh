#!/usr/bin/env bash
# scripts/setup says what is missing if it cannot install it; if nothing is missing it does nothing.
. "$(dirname "$0")/../lib.sh"

cd "$ROOT" || exit
setup=scripts/setup
is 'a wrong word is answered by the usage' "$($setup --nonsense 2>&1 | grep -c usage)" 1
like 'a Python that is not there is named' "$(PYTHON=/nonexistent $setup 2>&1)" 'PYTHON=/nonexistent'
ok "$PLAIN_PYTHON" -m venv --without-pip "$T/empty"
like 'what a Python lacks is named' "$(PYTHON=$T/empty/bin/python $setup 2>&1)" 'missing there: .*torch'

# if nothing is missing, it installs and prints nothing; missing packages are requested from apt-get by name
mkdir "$T/bin" "$T/stubs"
for program in apt-get sudo; do
	printf '#!/bin/sh\necho "$*" >>"%s"\nexit 1\n' "$T/called" >"$T/stubs/$program"
	chmod +x "$T/stubs/$program"
done
has_module torch numpy || skip "no torch in $TORCH_PYTHON"
said=$(PATH=$T/stubs:$PATH PYTHON=$TORCH_PYTHON $setup 2>&1)
is 'it succeeds where all is there' $? 0
is 'then it says nothing' "$said" ''
[ ! -e "$T/called" ] || bad "it installed: $(cat "$T/called")"
for program in sh dirname mktemp mkdir flock cat sed grep env id rm tail gcc pkg-config inotifywait; do
	ln -s "$(command -v $program)" "$T/bin/$program"
done
said=$(PATH=$T/stubs:$T/bin PYTHON=$TORCH_PYTHON $setup 2>&1) && bad 'it succeeds where fuse3 cannot be installed'
like 'it names what it could not install' "$said" 'apt-get install .*fuse3'
like 'it asked apt-get for it' "$(cat "$T/called")" 'install .*fuse3'

unset http_proxy HTTP_PROXY https_proxy HTTPS_PROXY no_proxy NO_PROXY
# sudo, which an ordinary user needs, drops the environment: what it says of proxies is passed on
printf '#!/bin/sh\necho 1000\n' >"$T/stubs/id"
chmod +x "$T/stubs/id"
rm "$T/called"
http_proxy=a HTTPS_PROXY='b c' PATH=$T/stubs:$T/bin PYTHON=$TORCH_PYTHON $setup >/dev/null 2>&1
like 'proxies' "$(cat "$T/called")" 'http_proxy=a HTTPS_PROXY=b c apt-get update.*http_proxy=a HTTPS_PROXY=b c apt-get install'
rm "$T/stubs/id"

# where apt-get has no newer libfuse
mkdir "$T/old"
printf '%s\n' 'Name: fuse3' 'Description: old' 'Version: 3.10.5' >"$T/old/fuse3.pc"
ln -sf "$(type -P true)" "$T/stubs/apt-get"
ln -sf "$(command -v env)" "$T/stubs/sudo"
said=$(PKG_CONFIG_PATH=$T/old PATH=$T/stubs:$PATH PYTHON=$TORCH_PYTHON $setup 2>&1) && bad 'libfuse 3.10 is enough'
like 'which libfuse there is, and which is needed' "$said" 'libfuse 3\.10\.5 .*3\.13 or newer'
