"""Comms of a rank, by which widgets talk to their front end: through the notebook that shows it.

What a rank sends is in the stream of its cell, as messages of the Jupyter protocol; what the front
end sends comes in a cell that calls receive_all().
"""

import base64
import sys
import traceback

from ddip_engine import streams


def change(module):
    """Has the package comm, just imported, make comms that end in the stream."""

    class Comm(module.base_comm.BaseComm):
        """One whose other end is in the notebook."""

        def publish_msg(self, msg_type, data=None, metadata=None, buffers=None, **keys):
            """Sends comm_open, comm_msg or comm_close."""
            streams.display(
                msg_type,
                comm_id=self.comm_id,
                data=data or {},
                metadata=metadata or {},
                buffers=[base64.b64encode(buffer).decode("ascii") for buffer in buffers or ()],
                **keys,
            )

    module.create_comm = Comm


def receive_all(messages):
    """Gives messages of the front end to the comms that they are for, each whatever the others do.

    Raises what the first that failed has raised, and prints what the others have.
    """
    failed = []
    for message in messages:
        try:
            _receive(*message)
        except Exception as e:
            failed.append(e)
    for error in failed[1:]:
        traceback.print_exception(error)
    if failed:
        raise failed[0]


def _receive(kind, content, metadata, buffers):
    """Of a comm that is gone nothing is done."""
    comm = sys.modules.get("comm")
    if comm is None:
        return
    buffers = [memoryview(base64.b64decode(buffer)) for buffer in buffers]
    message = {"content": content, "metadata": metadata, "buffers": buffers}
    found = comm.get_comm_manager().comms.get(content["comm_id"])
    if found is not None:
        (found.handle_msg if kind == "comm_msg" else found.handle_close)(message)
