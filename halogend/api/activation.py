"""Sockets that a service manager opened and holds: sd_listen_fds(3).

It keeps them through a restart, so that connections wait in the kernel instead of being refused.
They are handed on as duplicates: what a listener closes, the next one still gets.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass

from halogend.api.addresses import Found, ListenError, TcpAddress, find
from halogend.config.codes import Code

INFERENCE = "inference"
_FIRST = 3
_UNNAMED = "unknown"
_UNIT_NAME = "halogend.socket"  # what systemd calls a socket without FileDescriptorName=


@dataclass(frozen=True, slots=True)
class Activation:
    """The inference listener's sockets, or what is wrong with them; neither without socket activation.
    Belongs to the daemon."""

    sockets: tuple[socket.socket, ...] = ()
    error: ListenError | None = None

    @classmethod
    def from_environ(cls, environ: Mapping[str, str], pid: int, first: int = _FIRST) -> Activation:
        """Takes the descriptors of LISTEN_FDS from `first` on, if LISTEN_PID says that they are ours."""
        count = environ.get("LISTEN_FDS", "")
        if environ.get("LISTEN_PID") != str(pid) or not count.isdigit():
            return cls()
        names = environ.get("LISTEN_FDNAMES", "").split(":")
        names += [_UNNAMED] * (int(count) - len(names))
        try:
            return cls(tuple(_take(first + offset, names[offset]) for offset in range(int(count))))
        except ListenError as error:
            return cls(error=error)

    def __bool__(self) -> bool:
        return bool(self.sockets) or self.error is not None

    def at(self, wanted: TcpAddress, found: Found | None = None) -> list[socket.socket]:
        """Duplicates that listen at `wanted`, which stands for `found`. Raises ListenError where they are of
        another kind or elsewhere."""
        if self.error is not None:
            raise self.error
        if {_place(sock.getsockname()) for sock in self.sockets} != _places(find(wanted) if found is None else found):
            have = ", ".join(str(TcpAddress(*sock.getsockname()[:2])) for sock in self.sockets)
            message = f"{wanted}: the service manager listens at {have} for this daemon"
            raise ListenError(Code.ACTIVATED_SOCKET, message)
        return [sock.dup() for sock in self.sockets]

    def close(self) -> None:
        """Ours only: the service manager goes on to listen."""
        for sock in self.sockets:
            sock.close()


NONE = Activation()


def _take(descriptor: int, name: str) -> socket.socket:
    if name not in {INFERENCE, _UNNAMED, _UNIT_NAME, ""}:
        message = f"the service manager hands over a socket named `{name}`; only `{INFERENCE}` can be taken"
        raise ListenError(Code.ACTIVATED_SOCKET, message)
    try:
        sock = socket.socket(fileno=descriptor)
    except OSError as error:
        message = f"descriptor {descriptor}, named `{name}`, is no socket: {error.strerror}"
        raise ListenError(Code.ACTIVATED_SOCKET, message) from error
    os.set_inheritable(descriptor, False)
    is_tcp = sock.family in {socket.AF_INET, socket.AF_INET6} and sock.type == socket.SOCK_STREAM
    if not is_tcp or not sock.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
        sock.close()
        message = f"descriptor {descriptor}, named `{name}`, is no TCP socket that listens (Accept=no, ListenStream=)"
        raise ListenError(Code.ACTIVATED_SOCKET, message)
    sock.setblocking(False)
    return sock


def _places(found: Found) -> set[tuple[str, int]]:
    return {_place(where) for _, where in found}


def _place(where: tuple[object, ...]) -> tuple[str, int]:
    """Host and port, without the scope of an IPv6 address."""
    host, port = where[:2]
    return str(host), int(str(port))
