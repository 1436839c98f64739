"""Finds the network interface that leads to other hosts. On its own, gloo uses the one that the
host's own name resolves to, which is often the loopback.
"""

from __future__ import annotations

import contextlib
import fcntl
import ipaddress
import socket
import struct

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable


_SIOCGIFADDR = 0x8915  # linux/sockios.h
_REQUEST = struct.Struct("256s")  # at least a struct ifreq
_ADDRESS = slice(20, 24)  # of the IPv4 address in it
_DISCARD = 9  # a port; nothing is sent to it
_ANYWHERE = "192.0.2.1"  # a documentation address, reached by the default route


def towards(peers: Iterable[str]) -> str | None:
    """The name of the interface that leads to the first reachable one of these hosts; None if there
    is none but the loopback.

    peers: names or addresses; those that are not known here are skipped.
    """
    for peer in (*peers, _ANYWHERE):
        address = _own_address(peer)
        if address and not address.is_loopback:
            return _named(address)
    return None


def _own_address(peer):
    """The source address of packets to this host; None if there is no route to it."""
    with contextlib.suppress(OSError, UnicodeError):  # UnicodeError: no name can be like that
        for family, *_, address in socket.getaddrinfo(peer, _DISCARD, type=socket.SOCK_DGRAM):
            with contextlib.suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as s:
                s.connect(address)
                return ipaddress.ip_address(s.getsockname()[0].partition("%")[0])
    return None


def _named(address):
    return _named4(str(address)) if address.version == 4 else _named6(address.packed.hex())


def _named6(address):
    with contextlib.suppress(OSError), open("/proc/net/if_inet6", encoding="ascii") as f:
        for own, *_, name in map(str.split, f):
            if own == address:
                return name
    return None


def _named4(address):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        for _, name in socket.if_nameindex():
            with contextlib.suppress(OSError):
                request = _REQUEST.pack(name.encode())
                answer = fcntl.ioctl(s, _SIOCGIFADDR, request)
                if socket.inet_ntoa(answer[_ADDRESS]) == address:
                    return name
    return None
