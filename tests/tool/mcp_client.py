"""Calls each tool of `ddip mcp` over its standard streams, by the protocol's own package."""

import asyncio
import base64
import os
from importlib.metadata import version
from importlib.util import find_spec

from mcp import ClientSession, StdioServerParameters, stdio_client

TOOLS = {"run", "wait", "read", "interrupt", "recover", "variables"}
BOUND = 4096


async def call(session, tool, **arguments):
    """The text that a tool returns, and whether it failed."""
    result = await session.call_tool(tool, arguments)
    text = "".join(part.text for part in result.content if part.type == "text")
    assert len(text.encode()) < 2 * BOUND, (tool, len(text))
    # version 1 of the package spells it isError
    return text, getattr(result, "is_error", getattr(result, "isError", None))


def has(text, *words):
    """Checks that a text has these words."""
    for word in words:
        assert word in text, (word, text)


async def check(session):
    """Each tool does what it says."""
    assert {tool.name for tool in (await session.list_tools()).tools} == TOOLS
    text, failed = await call(session, "run", code="x = rank\nprint('hi')\nx + 5")
    assert not failed
    has(text, "cell 1\nstate ok", "output 0,1 stdout: hi", "result 0: 5", "result 1: 6")
    has(text, "set 0,1: x")
    text, failed = await call(session, "run", code="def f():\n    return 1 / rank\nf()", ranks="0")
    assert not failed  # the tool did its work
    has(text, "state error", "error ZeroDivisionError", ":2 f: return 1 / rank")
    text, _ = await call(session, "run", code="print('y' * 10_000_000)")
    has(text, "state ok")

    # what takes long goes on, and can be looked into, waited for and interrupted meanwhile
    code = "import time\ndef main():\n    step = 7\n    time.sleep(1000)\nmain()"
    text, _ = await call(session, "run", code=code, timeout_s=0.1)
    has(text, "cell 4\nstate running", "see stall")
    waiting = asyncio.ensure_future(call(session, "wait", cell=4, timeout_s=100))
    for words, text in ({}, "step"), ({"name": "step", "rank": 1}, "7"):
        while text not in (await call(session, "variables", running=True, **words))[0]:
            pass  # it has not come there yet
    assert not waiting.done()
    has((await call(session, "interrupt", cell=4))[0], "cell 4\nstate interrupted")
    has((await waiting)[0], "state interrupted", "KeyboardInterrupt", ":4 main: time.sleep(1000)")

    has((await call(session, "variables"))[0], "x type=int")
    assert await call(session, "variables", name="x.json", rank=1) == ("1\n", False)
    has((await call(session, "recover"))[0], "state idle")
    has((await call(session, "variables"))[0], "x type=int")
    has((await call(session, "recover", restart=True))[0], "state idle")
    assert "x type=int" not in (await call(session, "variables"))[0]

    has((await call(session, "read", path="README"))[0], "Run code on all ranks")
    has((await call(session, "read", path="cells/last/"))[0], "report")
    has((await call(session, "read", path="cells/3/rank0/stdout", max_bytes=10))[0], "y" * 9)
    for wrong in ({"path": "nothing"}, {"path": "../version"}, {"path": "log"}):
        text, failed = await call(session, "read", **wrong)
        assert failed and text, (wrong, text)
    for tool in ("wait", "interrupt"):
        text, failed = await call(session, tool, cell=1000)
        assert failed and "no cell 1000" in text, (tool, text)
    has((await call(session, "interrupt"))[0], "state idle")  # nothing runs

    if all(map(find_spec, ("matplotlib", "matplotlib_inline", "IPython"))):
        code = "import matplotlib.pyplot as plt\nplt.plot([1, 2])\nplt.show()"
        parts = (await session.call_tool("run", {"code": code})).content
        has(parts[0].text, "figure cells/")
        assert [part.type for part in parts] == ["text", "image"], parts
        assert base64.b64decode(parts[1].data).startswith(b"\x89PNG")

    # a client that cancels what it runs interrupts it; that of version 1 tells the server nothing
    code = "import time\nwhile True: time.sleep(0.1)"
    running = asyncio.ensure_future(call(session, "run", code=code, timeout_s=100))
    while "state busy" not in (await call(session, "read", path="status"))[0]:
        pass
    running.cancel()
    if version("mcp").startswith("1."):
        await call(session, "interrupt")
    cell = (await call(session, "read", path="cell"))[0].strip()
    has((await call(session, "wait", cell=int(cell)))[0], "state interrupted")


async def check_refusals(session):
    """What a client gets wrong is told, what is large is cut, and the server goes on."""
    for tool, arguments, words in (
        ("run", {}, "code"),
        ("run", {"code": ["x"]}, "code"),
        ("run", {"code": "x", "timeout_s": "soon"}, "timeout_s"),
        ("run", {"code": "x", "ranks": "7"}, "out of 0..1"),
        ("run", {"code": "x", "ranks": "../ctl"}, ""),
        ("wait", {"cell": "last"}, "cell"),
        ("wait", {"cell": -1}, "no cell -1"),
        ("read", {"path": "/etc/passwd"}, "relative"),
        ("read", {"path": "ctl/x"}, ""),
        ("read", {"path": "rank0/ctl"}, "rank0/ctl"),
        ("variables", {"name": "absent"}, "absent"),
        ("variables", {"name": "x", "rank": 99}, ""),
        ("variables", {"name": "../../ctl"}, "relative"),
        ("variables", {"name": "x", "running": True}, ""),
        ("restart", {}, "restart"),
    ):
        text, failed = await call(session, tool, **arguments)
        assert failed and words in text, (tool, arguments, text)
    has((await call(session, "run", code="def f(:"))[0], "state error", "SyntaxError")
    has((await call(session, "run", code=""))[0], "state ok")
    has((await call(session, "run", code="7", timeout_s=-1))[0], "state ")
    text, _ = await call(session, "interrupt", cell=3)  # it has ended
    has(text, "cell 3\nstate ok")
    await call(session, "run", code="much = ['z'] * 10_000_000; text = 'y' * 10_000_000")
    for name in ("much", "text", "text.dir"):
        text, failed = await call(session, "variables", name=name)
        assert len(text.encode()) <= BOUND + 20, (name, len(text))
    result = await session.call_tool("read", {"path": "cells/3/stream", "max_bytes": 1 << 40})
    assert len(result.content[0].text) <= (64 << 10) + 20
    text, failed = await call(session, "read", path="README", max_bytes=-5)
    assert not failed and len(text) < 20, text


async def main():
    """Starts the server, as an editor does."""
    server = StdioServerParameters(command="ddip", args=["mcp"], env=dict(os.environ))
    async with stdio_client(server) as streams, ClientSession(*streams) as session:
        await session.initialize()
        await check(session)
        await check_refusals(session)


asyncio.run(main())
