"""The service manager's side of the daemon's life: sd_notify(3) over a datagram socket.

Owns what is said in which datagram; must never know why. Without a service manager every method
does nothing. Protocol: sd_notify(3), systemd.service(5).
"""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Callable, Mapping

import structlog

_log = structlog.get_logger()
_STATUS_CHARACTERS = 400  # `systemctl status` shows one line


class Notifier:
    """`address` is NOTIFY_SOCKET: a path, or `@` and an abstract name; None says nothing to nobody.

    `watchdog_s` is the time after which the manager takes a silent daemon for stuck, None without one.
    """

    def __init__(
        self,
        address: str | None,
        watchdog_s: float | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.watchdog_s = watchdog_s
        self._clock = clock
        self._sock: socket.socket | None = None
        self._address = ""
        if address:
            self._open(address)

    @classmethod
    def from_environ(cls, environ: Mapping[str, str], pid: int) -> Notifier:
        """Reads NOTIFY_SOCKET, WATCHDOG_USEC and WATCHDOG_PID. A watchdog that is meant for another
        process is none of ours."""
        address = environ.get("NOTIFY_SOCKET")
        usec, meant = environ.get("WATCHDOG_USEC", ""), environ.get("WATCHDOG_PID", str(pid))
        is_ours = usec.isdigit() and int(usec) > 0 and meant == str(pid)
        return cls(address, int(usec) / 1e6 if address and is_ours else None)

    @property
    def is_heard(self) -> bool:
        """Is there a service manager at the other end?"""
        return self._sock is not None

    def ready(self, status: str) -> None:
        """The start, or the reload that `reloading` told of, is over."""
        self._send("READY=1", _status(status))

    def reloading(self, status: str) -> None:
        """Both in one datagram: the manager compares the time with that of its own request."""
        self._send("RELOADING=1", f"MONOTONIC_USEC={int(self._clock() * 1e6)}", _status(status))

    def stopping(self, status: str, within_s: float) -> None:
        """`within_s` is how long the end may take."""
        self._send("STOPPING=1", _extension(within_s), _status(status))

    def status(self, status: str) -> None:
        """One line for people."""
        self._send(_status(status))

    def extend(self, seconds: float) -> None:
        """What goes on now, a start or a reload, may take so much longer from now on."""
        self._send(_extension(seconds))

    def watchdog(self) -> None:
        self._send("WATCHDOG=1")

    def close(self) -> None:
        if self._sock is not None:
            self._sock.close()
            self._sock = None

    def _open(self, address: str) -> None:
        if address[0] not in "@/":
            _log.warning("notify_socket_unknown", address=address)
            return
        self._address = "\0" + address[1:] if address[0] == "@" else address
        self._sock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)

    def _send(self, *assignments: str) -> None:
        if self._sock is None:
            return
        # A manager that is away or behind hears the next one; serving never waits for it.
        with contextlib.suppress(OSError):
            self._sock.sendto("\n".join(assignments).encode(errors="replace"), self._address)


def _extension(seconds: float) -> str:
    return f"EXTEND_TIMEOUT_USEC={int(seconds * 1e6)}"


def _status(text: str) -> str:
    line = " ".join(text.split())
    return "STATUS=" + (line if len(line) <= _STATUS_CHARACTERS else line[: _STATUS_CHARACTERS - 1] + "…")
