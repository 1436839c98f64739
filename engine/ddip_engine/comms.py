"""Comms of a rank, by which widgets talk to their front end: through the notebook that shows it.

What a rank sends is in the stream of its cell, as messages of the Jupyter protocol; what the front
end sends comes as a cell that calls receive().
"""

import base64
import sys

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


def receive(kind, content, metadata, buffers):
    """Gives a message of the front end to the comm that it is for; of one that is gone nothing."""
    comm = sys.modules.get("comm")
    if comm is None:
        return
    buffers = [memoryview(base64.b64decode(buffer)) for buffer in buffers]
    message = {"content": content, "metadata": metadata, "buffers": buffers}
    found = comm.get_comm_manager().comms.get(content["comm_id"])
    if found is not None:
        (found.handle_msg if kind == "comm_msg" else found.handle_close)(message)
