#!/usr/bin/env bash
# The documents as HTML: every link leads to a place that is there, and nothing comes from elsewhere.
. "$(dirname "$0")/../lib.sh"

sanitized && skip 'nothing of C runs'
command -v mandoc >/dev/null || skip 'no mandoc'
"$TORCH_PYTHON" -c 'import markdown_it' 2>/dev/null || skip 'no markdown-it-py'
cd "$ROOT" || exit
ok "$TORCH_PYTHON" scripts/make-docs "$T/docs"
cat >"$T/look.py" <<'END'
import html.parser, json, os, sys
from urllib.parse import unquote

class Page(html.parser.HTMLParser):
    def __init__(self, path):
        super().__init__()
        self.ids, self.links, self.text = [], [], ""
        with open(path, encoding="utf-8") as file:
            self.feed(file.read())

    def handle_starttag(self, tag, attrs):
        attrs = dict(attrs)
        if "id" in attrs:
            self.ids.append(attrs["id"])
        self.links += [(tag, attrs[key]) for key in ("href", "src") if key in attrs]

    def handle_data(self, data):
        self.text += data

folder, *documents = sys.argv[1:]
pages = {name: Page(f"{folder}/{name}") for name in os.listdir(folder) if name.endswith(".html")}
assert len(pages) == len(documents), (sorted(pages), documents)
for name, page in pages.items():
    twice = {each for each in page.ids if page.ids.count(each) > 1}
    assert not twice, (name, twice)
    for tag, link in page.links:
        target, _, anchor = unquote(link).partition("#")
        assert tag == "a" or "//" not in link, (name, link)
        if "//" in link:
            continue
        assert os.path.exists(os.path.join(folder, target or name)), (name, link)
        assert not anchor or anchor in pages[target or name].ids, (name, link)
with open(f"{folder}/search.js", encoding="utf-8") as file:
    headings, _ = json.JSONDecoder().raw_decode(file.read().partition("HEADINGS = ")[2])
for name, anchor, text in headings:
    assert anchor in pages[f"{name}.html"].ids and text in pages[f"{name}.html"].text, (name, anchor)
assert {"ddipfs.4", "ddip.1", "index"} < {name for name, *_ in headings}
# a document that another one names is linked from there
links = {link for _, link in pages["index.html"].links}
assert {"ddipfs.7.html", "HACKING.html", "ddip-hosts.7.html"} <= links, links
END
ok "$PLAIN_PYTHON" "$T/look.py" "$T/docs" ./*.md fs/*.[1-8] scripts/*.[1-8]
is 'what it wants' "$("$TORCH_PYTHON" scripts/make-docs 2>&1 | tail -n 2 | xargs)" 'usage: make-docs FOLDER'
