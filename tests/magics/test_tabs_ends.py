#!/usr/bin/env python3
"""`-S tabs` of cells that hang, are stopped, fail or lose a rank or their kernel."""

import re

import notebook
import test_tabs as tabs

notebook.need("torch", "IPython", "ipykernel", "nbclient", "ipywidgets")

THREE = ("%load_ext ddip", "%makedip -n 3", "%%dip\nimport os, time, torch.distributed as dist")
# rank 1 has ended its part; it and rank 2 are awaited
HANG = "%%dip -S tabs\nif rank == 2:\n    time.sleep(100)\nif rank == 0:\n    dist.barrier()"
AMBER, RED = "--jp-warn-color0", "--jp-error-color1"


def tab(nb, expression):
    """See tabs."""
    return tabs.tab(nb, expression)


def coloured(style, colour):
    """The indices of the tabs whose titles a style draws so."""
    found = re.findall(r"lm-TabBar-tab:nth-child\((\d+)\) { ([^}]*)}", style)
    return [int(number) - 1 for number, css in found if colour in css]


def test_hang():
    """A rank that others wait for is marked, one that has ended its part has a ✓; what is saved
    after a stop tells the verdict, and opens that rank. Nobody has failed."""
    with notebook.notebook(*THREE) as nb:
        begun = nb.begin(HANG)
        nb.until(begun, "'1 ✓'")
        nb.until(begun, "['0 in barrier', '1 ✓', '2 ⚠ line 3']")
        assert AMBER in nb.until(begun, AMBER)
        nb.until(begun, "rank 2 is in no collective")
        nb.interrupt()
        last, saved = nb.until(begun, "ran for"), nb.until(begun, "<input type=")
        nb.finish(begun)
        titles, chosen, style = tab(nb, "list(tab.titles), tab.selected_index, style.value")
        assert titles == ["0 ■ interrupted", "1 ✓", "2 ■ interrupted"], titles
        assert chosen == 2, chosen
        assert not coloured(style, RED) and not coloured(style, AMBER), style
        said = r"ran for [\d.]+ s; seen after \d+ s: rank 1 has ended its .*, rank 2 is in no coll"
        assert re.search(said, last), last
        assert "■ interrupted" in saved and "color:var(--jp-error" not in saved, saved


def test_stop_where_the_user_was():
    """A stop leaves a tab open that the user has chosen meanwhile."""
    with notebook.notebook(*THREE) as nb:
        begun = nb.begin(HANG)
        chosen = choose(nb.until(begun, "'1 ✓'"), begun[0], 1)
        nb.until(begun, "'2 ⚠ line 3'")
        nb.interrupt()
        nb.finish(begun)
        assert not chosen or tab(nb, "tab.selected_index") == 1


def choose(content, client, index):
    """Chooses a tab as the front end does, by a subshell. content: of a message about the tabs.
    False: the kernel has no subshells."""
    comm = re.search(r"'comm_id': '(\w+)'", content)[1]
    state = {"selected_index": index}
    data = {"method": "update", "state": state, "buffer_paths": []}
    message = client.session.msg("comm_msg", {"comm_id": comm, "data": data})
    client.control_channel.send(client.session.msg("create_subshell_request", {}))
    answer = client.get_control_msg(timeout=notebook.HANG_LIMIT_S)["content"]
    if "subshell_id" not in answer:
        return False
    message["header"]["subshell_id"] = answer["subshell_id"]
    client.shell_channel.send(message)
    return True


def test_failure_beside_a_stop():
    """After a stop, red is only what had failed before; it is open."""
    with notebook.notebook(*THREE) as nb:
        nb.ok("import os")
        begun = nb.begin("%%dip -S tabs\nif rank == 2: raise ValueError('boom')\ntime.sleep(100)")
        nb.until(begun, "2 ✗ ValueError")
        nb.interrupt()
        nb.finish(begun)
        titles, chosen, style = tab(nb, "list(tab.titles), tab.selected_index, style.value")
        assert chosen == 2 and coloured(style, RED) == [2], (titles, chosen, style)


def test_death():
    """The tab of a rank that has died opens, not that of one whose collective failed by it."""
    with notebook.notebook(*THREE) as nb:
        ran = nb.run("%%dip -S tabs\nif rank == 1:\n    os._exit(3)\ndist.barrier()")
        titles, chosen = tab(nb, tabs.TITLES)
        assert titles[1] == "1 ✗ died" and chosen == 1, (titles, chosen)
        assert "rank 1 died: exit status 3" in tab(
            nb, "[o['traceback'] for part in tab.children[1].children for o in part.outputs][-1][0]"
        )
        saved = ran.data("text/html")[-1]
        assert re.search('-1" checked><label [^>]*><span>rank </span>1 ✗ died<', saved), saved


def test_markdown():
    """What HTML does not show as it is meant is shown as it is written, and no widget stays;
    stderr keeps its colour."""
    with notebook.notebook(*THREE) as nb:
        ran = nb.ok(
            "%%dip -S tabs\nimport sys\nfrom IPython.display import Latex, Markdown\n"
            "display(Markdown(f'**of {rank}** & more'), Latex('$x^2$'))\n"
            "print('warned', file=sys.stderr)"
        )
        (shown,) = [each for each in ran.outputs if "data" in each]
        assert tabs.VIEW not in shown.data, "a widget stays"
        plain, saved = shown.data["text/plain"], shown.data["text/html"]
        assert "[1] **of 1** & more\n[1] $x^2$" in plain and "IPython" not in plain, plain
        assert "**of 2** &amp; more</pre>" in saved and "$x^2$" in saved, saved
        red = "<pre [^>]*background:var\\(--jp-rendermime-error-background,[^>]*>warned"
        assert len(re.findall(red, saved)) == 3, saved


def test_restart():
    """What a kernel that is restarted while a cell runs can still send is what is saved; and a page
    that takes nothing more tells from the style how to go on."""
    with notebook.notebook(*THREE) as nb:
        begun = nb.begin("%%dip -S tabs\nprint('before', rank, flush=True)\ntime.sleep(100)")
        nb.until(begun, tabs.VIEW)
        notebook.until(lambda: nb.is_printed("before 2", 2))
        style = tab_style(nb, begun)
        told = "Its kernel is gone; in the next one %dip --replay 2 -S tabs shows the output"
        assert f'content: "{told}"; display: block' in style, style
        nb.manage("restart_kernel")
        saved = nb.until(begun, "<input type=")
        assert "before 2" in saved and tabs.VIEW not in saved, saved
        begun[0].stop_channels()


def tab_style(nb, begun):
    """The style of tabs that are shown, of a message about their titles."""
    client = nb.open()
    header = tabs.subshell(client)
    found = tabs.states(client, header)
    client.stop_channels()
    return next(state["value"] for state in found.values() if "<style>" in state.get("value", ""))


MANY = """
import time
from ddip.shown.elapsed import Elapsed
from ddip.shown.sink import Sink
from ddip.shown.tabs import Tabs
class Doing:
    def now(self, asks):
        return {}, []
    def ended(self):
        return "ok", {}, None
since = time.process_time()
elapsed = Elapsed(lambda: "", lambda: "")
tabs = Tabs(Sink(), 1, range(64), lambda rank, name: "", elapsed, Doing())
for line in range(0, 1000, 10):
    text = "".join(f"line {n} <of a rank>\\n" for n in range(line, line + 10))
    tabs.take([dict(type="stream", rank=rank, name="stdout", text=text) for rank in range(64)])
tabs.end()
print("took", time.process_time() - since)
"""


def test_many():
    """64 ranks that print 1000 lines each take less than a second."""
    with notebook.notebook("%load_ext ddip") as nb:
        took = min(float(nb.ok(MANY).text().split()[-1]) for _ in range(3))
        print(f"64 ranks x 1000 lines took {took:.2f} s")
        assert took < 1, took


if __name__ == "__main__":
    notebook.run(globals())
