"""The comms of a rank: widgets talk to their front end through the notebook that shows them.

A rank sends Jupyter protocol messages in the stream of its cell; messages from the front end arrive
in a cell that calls receive_all().
"""

from __future__ import annotations

import base64
import sys

from ddip_engine import raised
from ddip_engine.cells import streams

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import Any

    Message = Sequence[Any]  # from JSON: its type, its content, its metadata, its buffers in base64

CAPTURED = "ddip"  # the msg_id of an Output widget that captures; the notebook sets the real one


class _Kernel:
    """What an Output widget asks its comm's kernel for."""

    def get_parent(self) -> dict[str, dict[str, str]]:
        """The request whose output is to be captured. The notebook knows which one that is."""
        return {"header": {"msg_id": CAPTURED}}


def change(real: object) -> type:
    """Makes the package comm, which has just been imported, create comms that use the stream."""

    base: Any = sys.modules["comm"].base_comm.BaseComm

    class Comm(base):
        """A comm whose other end is in the notebook."""

        kernel = _Kernel()

        def publish_msg(
            self,
            msg_type: str,
            data: dict[str, Any] | None = None,
            metadata: dict[str, Any] | None = None,
            buffers: Iterable[bytes | bytearray | memoryview] | None = None,
            **keys: object,
        ) -> None:
            """Sends comm_open, comm_msg or comm_close."""
            streams.display(
                msg_type,
                comm_id=self.comm_id,
                data=data or {},
                metadata=metadata or {},
                buffers=[base64.b64encode(buffer).decode("ascii") for buffer in buffers or ()],
                **keys,
            )

    return Comm


def receive_all(messages: Iterable[Message]) -> None:
    """Delivers messages from the front end to their comms; a failure does not stop the others.

    Raises the first exception and prints the others.
    """
    failed = []
    for message in messages:
        try:
            _receive(*message)
        except Exception as e:
            failed.append(e)
    for error in failed[1:]:
        print(*raised.lines(error), sep="", end="", file=sys.stderr or sys.__stderr__)
    if failed:
        raise failed[0]


def _receive(
    kind: str, content: dict[str, Any], metadata: dict[str, Any], buffers: Iterable[str]
) -> None:
    """Ignores a message for a comm that no longer exists."""
    comm = sys.modules.get("comm")
    if comm is None:
        return
    views = [memoryview(base64.b64decode(buffer)) for buffer in buffers]
    message = {"content": content, "metadata": metadata, "buffers": views}
    found = comm.get_comm_manager().comms.get(content["comm_id"])
    if found is not None:
        (found.handle_msg if kind == "comm_msg" else found.handle_close)(message)
