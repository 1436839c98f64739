# Reads the stream of a cell (JSON lines: see ddipfs(4)) and prints what the chosen ranks say, stdout and
# stderr where they belong. Variables: ranks ("0", or "all"), label (lines begin with their rank),
# results (values of last expressions too), colour (stderr in red). Run with LC_ALL=C: bytes.
function hex(s,   i, n) {
	for (i = 1; i <= length(s); i++)
		n = n * 16 + index("0123456789abcdef", tolower(substr(s, i, 1))) - 1
	return n
}
function utf8(n) {
	if (n < 128)
		return sprintf("%c", n)
	if (n < 2048)
		return sprintf("%c%c", 192 + int(n / 64), 128 + n % 64)
	if (n < 65536)
		return sprintf("%c%c%c", 224 + int(n / 4096), 128 + int(n / 64) % 64, 128 + n % 64)
	return sprintf("%c%c%c%c", 240 + int(n / 262144), 128 + int(n / 4096) % 64,
		128 + int(n / 64) % 64, 128 + n % 64)
}
function unescape(s,   out, i, c, n, low) {
	while ((i = index(s, "\\"))) {
		out = out substr(s, 1, i - 1)
		c = substr(s, i + 1, 1)
		if (c == "u") {
			n = hex(substr(s, i + 2, 4))
			s = substr(s, i + 6)
			if (n >= 55296 && n < 56320 && substr(s, 1, 2) == "\\u") {
				low = hex(substr(s, 3, 4))
				n = 65536 + (n - 55296) * 1024 + low - 56320
				s = substr(s, 7)
			}
			out = out utf8(n)
			continue
		}
		out = out (c in escape ? escape[c] : c)
		s = substr(s, i + 2)
	}
	return out s
}
function text(key,   rest, end, i) { # the string behind this key
	if (!match($0, "\"" key "\": *\""))
		return ""
	rest = substr($0, RSTART + RLENGTH)
	for (end = 1; (i = index(substr(rest, end), "\"")); end += i) {
		match(substr(rest, 1, end + i - 2), /\\*$/)
		if (RLENGTH % 2 == 0)
			return unescape(substr(rest, 1, end + i - 2))
	}
	return ""
}
function number(key) {
	return match($0, "\"" key "\": *[0-9]+") ? substr($0, RSTART + length(key) + 3, RLENGTH - length(key) - 3) + 0 : -1
}
function put(s, to, rank,   lines, n, i) {
	if (s == "")
		return
	if (label) { # each line begins with its rank; a piece of a line goes on where it was
		n = split(s, lines, "\n")
		s = ""
		for (i = 1; i <= n; i++) {
			if (i == n && lines[i] == "")
				break
			s = s ((i == 1 && open[to, rank]) ? "" : rank ": ") lines[i] (i < n ? "\n" : "")
		}
		open[to, rank] = lines[n] != ""
	}
	if (to == "stderr") {
		printf "%s%s%s", red, s, plain > "/dev/stderr"
		fflush("/dev/stderr")
	} else {
		printf "%s", s
		fflush()
	}
}
BEGIN {
	escape["n"] = "\n"; escape["t"] = "\t"; escape["r"] = "\r"; escape["b"] = "\b"; escape["f"] = "\f"
	if (colour) {
		red = "\033[31m"
		plain = "\033[0m"
	}
}
{
	type = text("type")
	rank = number("rank")
	if (type != "input_request" && ranks != "all" && index("," ranks ",", "," rank ",") == 0)
		next
	if (type == "stream")
		put(text("text"), text("name"), rank)
	else if (type == "display_data" || (results && type == "execute_result"))
		put(text("text/plain") "\n", "stdout", rank)
	else if (type == "input_request")
		printf "ddip: rank %d waits for input: ddip attach %d\n", rank, rank > "/dev/stderr"
}
