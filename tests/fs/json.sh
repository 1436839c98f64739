#!/usr/bin/env bash
# What people read as text, programs read as JSON with the same facts; and the last of the live files as regular ones.
. "$(dirname "$0")/../lib.sh"

mount_plain -o size=3 -o history=50
cell 'import os, sys; x = 1; print("out", rank); print("err", rank, file=sys.stderr)
os.write(1, b"\xff\x00\n")' || bad 'a cell'
submit 'if rank: raise ValueError("\x1b[1m\"é\"\n\\ " + str(rank))'
wait_cell "$n" >/dev/null
printf 'nonsense \\ "\n' >"$G/ctl" 2>/dev/null

# same FILE [KEYS]: each word of the text is a value of the JSON, under its key
same() {
	"$PLAIN_PYTHON" - "$G" "$1" <<'EOF' || bad "$1.json"
import json, sys
group, name = sys.argv[1:]
with open(f"{group}/{name}") as text, open(f"{group}/{name}.json") as data:
    text, raw = text.read(), data.read()
data = json.loads(raw)
assert raw.endswith("\n") and raw.count("\n") == 1, raw

def compare(key, word, value):
    if isinstance(value, list):
        value = ",".join(map(str, value))
    if value is None:
        value = "-"
    if isinstance(value, float):
        word = float(word)
    else:
        value = str(value)
    assert word == value or key in ("rss_bytes", "round_trip_us", "for", "seconds"), (key, word, value)

if isinstance(data, dict) and "ranks" in data and name == "stall":
    data = data["ranks"]
if isinstance(data, dict):
    lines = [line.partition(" ") for line in text.splitlines()]
    assert [line[0] for line in lines] == list(data), (text, data)
    for key, _, word in lines:
        compare(key, word, data[key])
elif name in ("ranks", "hosts", "stall"):
    lines = text.splitlines()
    assert len(lines) == len(data) > 0, (text, data)
    for line, row in zip(lines, data):
        first, *words = line.split(" ")
        keys = list(row)
        compare(keys[0], first, row[keys[0]])
        assert [word.partition("=")[0] for word in words] == keys[1:], (line, row)
        for word in words:
            key, _, value = word.partition("=")
            compare(key, value, row[key])
else:
    for row in data:
        assert row["errno"] in ("EREMOTEIO", "EINVAL"), row
        assert row["text"].partition("\n")[0].encode("utf-8", "ignore")[:8].decode("ascii", "ignore").strip("\x1b") in text, row
    assert len(data) == sum(not line.startswith("\t") for line in text.splitlines()), (text, data)
EOF
}

for name in status ranks hosts stall "cells/1/status" "cells/$n/status"; do
	same "$name"
done
same error
"$PLAIN_PYTHON" - "$G/cells/$n" <<'EOF' || bad 'error.json of a cell'
import json, sys
rows = json.load(open(sys.argv[1] + "/error.json"))
assert [row["rank"] for row in rows] == [1, 2], rows
assert rows[0]["errno"] == "EREMOTEIO" and rows[0]["text"].startswith("ValueError: "), rows
of_all = json.load(open(sys.argv[1] + "/../../error.json"))
(failed,) = [row for row in of_all if row["errno"] == "EREMOTEIO"]
assert failed["rank"] in (1, 2) and failed["text"].startswith(f"rank {failed['rank']}: "), failed
EOF
is 'a cell that went well has no errors' "$(cat "$G/cells/1/error.json")" '[]'
is 'they are not listed' "$(find "$G" -maxdepth 3 -name '*.json' ! -name report.json -o -maxdepth 3 -name '*.last')" ''

last=$(cat "$G/events.last")
like 'the last events' "$last" 'cell 1 ok seconds='
like 'the last lines' "$(tr -d '\000' <"$G/log.last")" '0: out 0'
is 'each line of each rank is in log.last, with its stream' "$(grep -caE '^([012]: out|[012]! err) [012]$' "$G/log.last")" 6
cell 'print("x" * 100000); print("behind"); print(*range(30000), sep="\n")' || bad 'a cell that prints much'
[ "$(stat -c %s "$G/log.last")" -le 65536 ] || bad 'log.last is long'
like 'it has the last lines' "$(tail -n 1 "$G/log.last")" ': 29999$'
is 'and whole lines only' "$(grep -vcE '^[012][:!] ' "$G/log.last")" 0

# log.last has the order of time, over all ranks, also of lines that come in parts
for i in 1 2 3; do
	for rank in 2 0 1; do
		cell "print('turn $i')" "$G/rank$rank/cell"
		cell "print('error $i', file=sys.stderr)" "$G/rank$rank/cell"
		cell "print('half', end='')" "$G/rank$rank/cell"
		cell "print('beside $i')" "$G/rank$(((rank + 1) % 3))/cell"
		cell "print(' and half')" "$G/rank$rank/cell"
		printf '%s\n' "$rank: turn $i" "$rank! error $i" "$(((rank + 1) % 3)): beside $i" "$rank: half and half"
	done
done >"$T/expected"
tail -n 36 "$G/log.last" | diff - "$T/expected" || bad 'the order of log.last'
cell 'print("\n" * 100000, end=""); print("no end", end="")' || bad 'a cell that prints short lines'
[ "$(stat -c %s "$G/log.last")" -le 65536 ] || bad 'log.last is long with short lines'
like 'and it shows a line that has no end yet' "$(tail -n 1 "$G/log.last")" '^[012]: no end$'
