"""Ports for servers that are told theirs before they bind: none that the kernel would give to somebody else meanwhile.

Whoever asks for any port, or only connects, gets one of the range `ip_local_port_range`; a port of that range that was
taken and let go is anybody's. These lie below it, and each test process has its own.
"""

from __future__ import annotations

import itertools
import os
import socket
from collections.abc import Iterator
from functools import cache
from pathlib import Path

_FIRST, _EACH = 10_000, 100
_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")


def free_port() -> int:
    """Free on every address, of both families."""
    return next(port for port in _ports(os.getpid()) if _is_free(port))


@cache
def _ports(pid: int) -> Iterator[int]:
    """For ever: one that was given long ago comes again."""
    processes = (int(_RANGE.read_text().split()[0]) - _FIRST) // _EACH
    first = _FIRST + pid % processes * _EACH
    return itertools.cycle(range(first, first + _EACH))


def _is_free(port: int) -> bool:
    with socket.socket(socket.AF_INET6) as sock:
        sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        try:
            sock.bind(("::", port))
        except OSError:
            return False
    return True
