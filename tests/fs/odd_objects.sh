#!/usr/bin/env bash
# Odd contents of a namespace or a cell's output do no harm: odd keys, objects that refuse to be shown, huge texts.
. "$(dirname "$0")/../lib.sh"

mount_plain -o size=1
V=$G/rank0/vars

# a namespace accepts any key: only identifiers are variables, and the next cell runs
cell 'good = 1
globals().update({1: 2, None: 3, (4,): 5, b"b": 6, "": 7, "a b": 8, "../up": 9, "a\nb": 10, "n" * 256: 11})
class Odd(type):
    __name__ = property(lambda kind: 1 / 0)
class Object(metaclass=Odd):
    __class__ = property(lambda self: 1 / 0)
odd = Object()' || bad 'a cell that makes odd keys'
is 'only names are listed' "$(ls "$V" | xargs)" 'Object Odd good odd'
is 'the next cell runs' "$(value 'good + 1')" 2
is 'what is odd is still there' "$(value '"../up" in globals(), 1 in globals()')" '(True, True)'

# value, error and traceback: a megabyte of each; of the traceback the beginning and the end
mebibyte=$((1 << 20))
bounded() {
	local size
	size=$(wc -c <"$2")
	if [ "$size" -lt $((mebibyte - 100)) ] || [ "$size" -gt $mebibyte ]; then
		bad "$1 has $size bytes, want a mebibyte"
	fi
}
cell '"x" * 20_000_000' || bad 'a value of 20 MB is a success'
bounded 'the result' "$G/cells/last/rank0/result"
like 'the result says what is cut' "$(tail -c 100 "$G/cells/last/rank0/result")" 'x… cut, 18951490 bytes'
is 'and the cell went well' "$(state)" ok
is 'its errno' "$(errno fsync "$G/cell" 'def fails():
    raise ValueError("the beginning" + "y" * 20_000_000 + "the end")
fails()')" EREMOTEIO
bounded 'the traceback' "$G/cells/last/rank0/traceback"
like 'the traceback begins with the frames' "$(head -c 1000 "$G/cells/last/rank0/traceback")" 'in fails.*ValueError: the beginningy'
like 'says what is cut' "$(grep -o '… cut, .* bytes' "$G/cells/last/rank0/traceback")" 'cut, [0-9]+ bytes'
is 'and ends with its end' "$(tail -c 8 "$G/cells/last/rank0/traceback")" 'the end'
like 'the stream has the same bounds' "$(awk 'length > 3000000' "$G/cells/last/stream" | head -c 100)" '^$'
is 'short ones are whole' "$(value '"ä" * 200_000' | wc -c)" 400003

# exceptions and exit codes that refuse to be shown
cell 'class Shy(Exception):
    def __str__(self): raise SystemExit("not me")'
is 'an exception without a text' "$(errno fsync "$G/cell" 'raise Shy()')" EREMOTEIO
like 'is told all the same' "$(cat "$G/traceback")" 'Shy'
is 'an exit code without a text' "$(errno fsync "$G/cell" 'raise SystemExit(Shy())')" EREMOTEIO
