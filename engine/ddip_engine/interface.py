"""The network interface that leads to other hosts. By itself gloo takes the one that the host's own
name has, which is often a loopback address.
"""

import contextlib
import fcntl
import socket
import struct

_SIOCGIFADDR = 0x8915  # linux/sockios.h
_REQUEST = struct.Struct("256s")  # a struct ifreq, and more
_ADDRESS = slice(20, 24)  # of IPv4, in it
_DISCARD = 9  # a port: nothing is sent there
_ANYWHERE = "192.0.2.1"  # an address for documentation: the default route leads to it


def towards(peers):
    """The name of the interface by which the first of these hosts is reached; None: by none, or by
    the loopback.

    peers: names or addresses; those that are not known here are passed by.
    """
    for peer in (*peers, _ANYWHERE):
        address = _own_address(peer)
        if address and not address.startswith("127."):
            return _named(address)
    return None


def _own_address(peer):
    """The address that packets to this host would come from; None: nothing leads there."""
    wrong = (OSError, UnicodeError)  # UnicodeError: no name that a resolver can be asked for
    with contextlib.suppress(*wrong), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        s.connect((peer, _DISCARD))
        return s.getsockname()[0]
    return None


def _named(address):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        for _, name in socket.if_nameindex():
            with contextlib.suppress(OSError):
                request = _REQUEST.pack(name.encode())
                answer = fcntl.ioctl(s, _SIOCGIFADDR, request)
                if socket.inet_ntoa(answer[_ADDRESS]) == address:
                    return name
    return None
