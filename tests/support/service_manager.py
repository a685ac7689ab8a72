"""The service manager's end of NOTIFY_SOCKET: a datagram socket that keeps what it was told."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator
from pathlib import Path


class ServiceManager:
    """`address` is what NOTIFY_SOCKET would say."""

    def __init__(self, address: str) -> None:
        self.address = address
        self._sock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        self._sock.bind("\0" + address[1:] if address[0] == "@" else address)

    def heard(self) -> list[dict[str, str]]:
        """Each datagram since the last call, as a table."""
        found = []
        with contextlib.suppress(BlockingIOError):
            while True:
                text = self._sock.recv(1 << 16).decode()
                found.append(dict(line.split("=", 1) for line in text.split("\n")))
        return found

    def words(self) -> list[str]:
        """The state changes since the last call, in order, such as READY; no status, no extension."""
        return [name for each in self.heard() for name in each if name in {"READY", "RELOADING", "STOPPING"}]

    def close(self) -> None:
        self._sock.close()


@contextlib.contextmanager
def service_manager(folder: Path) -> Iterator[ServiceManager]:
    manager = ServiceManager(str(folder / "notify.sock"))
    try:
        yield manager
    finally:
        manager.close()
