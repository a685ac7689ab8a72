"""What of the machine the daemon and its load get."""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Cores:
    """With four and more the load has one of its own; on fewer it shares them with the daemon."""

    daemon: frozenset[int]
    load: frozenset[int]

    @classmethod
    def present(cls) -> Cores:
        cores = sorted(os.sched_getaffinity(0))
        if len(cores) < 4:
            return cls(frozenset(cores), frozenset(cores))
        return cls(frozenset(cores[:-1]), frozenset(cores[-1:]))


def free_ports(count: int) -> tuple[int, ...]:
    """Below those that the kernel gives to connections: one that is left must not be taken by a client."""
    found: list[int] = []
    for port in range(20_000 + os.getpid() % 8_000, 32_000):
        with socket.socket() as sock:
            try:
                sock.bind(("127.0.0.1", port))
            except OSError:
                continue
        found.append(port)
        if len(found) == count:
            return tuple(found)
    raise OSError("no port is free")
