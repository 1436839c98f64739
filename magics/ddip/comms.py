"""Comms of ranks, by which their widgets are seen and used: between the mount and the front end.

What a rank sends is in its cell's stream, and goes on through a comm of the kernel; what the front
end answers is a cell on that rank. Where there is no kernel, or no package comm, nothing is done:
the text of the widgets is shown.
"""

import base64
import json
import queue
import sys
import threading

from ddip import cell as cells
from ddip.errors import DipError

KINDS = ("comm_open", "comm_msg", "comm_close")
_CALL = "__import__('ddip_engine.comms').comms.receive(*__import__('json').loads({0!r}))"

_ends = {}  # comm id -> the comm of this kernel
_answers = queue.Queue()  # cells that carry answers of the front end, whose streams are to be read
_reader = None  # the thread that reads them


def pass_on(shell, group, message):
    """Passes a comm message of a rank on to the front end."""
    if getattr(shell, "kernel", None) is None:
        return
    end = _ends.get(message["comm_id"])
    content = {key: message.get(key) for key in ("data", "metadata")}
    content["buffers"] = [base64.b64decode(buffer) for buffer in message.get("buffers", ())]
    if message["type"] == "comm_open" and end is None:
        _open(group, message, content)
    elif message["type"] == "comm_msg" and end is not None:
        end.send(**content)
    elif message["type"] == "comm_close" and end is not None:
        del _ends[message["comm_id"]]
        end.close(**content)


def _open(group, message, content):
    try:
        import comm
    except ImportError:
        return
    rank, name = message["rank"], message["comm_id"]
    end = comm.create_comm(
        target_name=message.get("target_name"),
        target_module=message.get("target_module"),
        comm_id=name,
        **content,
    )
    end.on_msg(lambda answer: _send(group, rank, "comm_msg", answer))
    end.on_close(lambda answer: _send(group, rank, "comm_close", answer))
    _ends[name] = end


def _send(group, rank, kind, answer):
    """Submits the cell that carries an answer of the front end, and does not wait for it."""
    buffers = [base64.b64encode(buffer).decode("ascii") for buffer in answer.get("buffers") or ()]
    text = json.dumps([kind, answer["content"], answer.get("metadata") or {}, buffers])
    if kind == "comm_close":
        _ends.pop(answer["content"]["comm_id"], None)
    try:
        cell = cells.submit(group, _CALL.format(text), str(rank))
    except DipError as e:
        print(f"rank {rank}: {e}", file=sys.stderr)
        return
    _answers.put((group, cell))
    _start_reader()


def _start_reader():
    global _reader
    if _reader is None or not _reader.is_alive():
        _reader = threading.Thread(target=_read, daemon=True)
        _reader.start()


def _read():
    """Shows what the widgets' functions have printed, passes on what they have sent."""
    from IPython import get_ipython

    while True:
        group, cell = _answers.get()

        def take(messages, group=group):
            for message in messages:
                if message["type"] in KINDS:
                    pass_on(get_ipython(), group, message)
                elif message["type"] == "stream":
                    print(message["text"], end="", file=getattr(sys, message["name"]), flush=True)
                elif message["type"] == "error":
                    print(*message["traceback"], sep="\n", file=sys.stderr)

        try:
            cells.follow(cell, take, attached=True)
        except (DipError, OSError) as e:
            print(e, file=sys.stderr)
