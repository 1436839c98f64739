#!/usr/bin/env bash
# Saves the weights of a model that is being trained, and keeps the last five; for a crontab:
#
#   */10 * * * * DDIP_MOUNT=$HOME/ddip /usr/share/ddipfs/examples/checkpoint.sh $HOME/weights
#
#   checkpoint.sh DIR [NAME]        NAME: model; KEEP=5 in the environment
#
# The training does not wait. What is saved is what was in memory while it was read: weights of two
# neighbouring steps can meet in it. A checkpoint to resume from exactly is the program's own matter,
# as in ddp_checkpoint.py.
set -u -o pipefail
G=${DDIP_MOUNT:-$HOME/ddip}/${DDIP_GROUP:-group}

if [ $# -lt 1 ] || [ $# -gt 2 ]; then
	echo 'usage: checkpoint.sh DIR [NAME]' >&2
	exit 2
fi
dir=$1 name=${2:-model}
mkdir -p "$dir" || exit
part=$(mktemp "$dir/.$name.XXXXXX") || exit
trap 'rm -f "$part"' EXIT
cp "$G/vars/$name.safetensors" "$part" || exit

# By name, which is by time: that of UTC, which nobody puts back.
saved=("$dir/$name"-*.safetensors)
last=${saved[-1]}
if [ -e "$last" ] && cmp -s "$part" "$last"; then
	echo "nothing new since $last"
	exit
fi
file=$dir/$name-$(date -u +%Y%m%d-%H%M%S.%N).safetensors
mv "$part" "$file" || exit
echo "$file"
saved=("$dir/$name"-*.safetensors)
rm -f -- "${saved[@]:0:$((${#saved[@]} > ${KEEP:-5} ? ${#saved[@]} - ${KEEP:-5} : 0))}"
