"""Where a listener listens, and getting hold of the socket.

Never shares a busy port (SO_REUSEPORT would hide it), never takes a unix path from a daemon that
answers, and says in the error what to do.
"""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import stat
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from halogend.api.beside import covered, is_one_of, together
from halogend.config.codes import Code
from halogend.config.values import host_and_port

BACKLOG = 2048
_UNIX_PATH_BYTES = 107
_UNIX_MODE = 0o660
_PROC = Path("/proc")


class ListenError(Exception):
    """An address that cannot be had. `code` is what `halogend explain` knows more about."""

    def __init__(self, code: Code, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


@dataclass(frozen=True, slots=True)
class TcpAddress:
    """`host`: a name, an IPv4 or IPv6 address; `port` 0 takes a free one."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class UnixAddress:
    path: Path

    def __str__(self) -> str:
        return f"unix:{self.path}"


Address = TcpAddress | UnixAddress
Found = tuple[tuple[int, tuple[Any, ...]], ...]
"""Family and socket address of each of the IP addresses that a name stands for."""


def admin_address(text: str) -> Address:
    """`unix:/absolute/path` or `host:port`, as the document has it."""
    found = host_and_port(text)
    return UnixAddress(Path(text.removeprefix("unix:"))) if found is None else TcpAddress(*found)


def find(address: Address) -> Found:
    """What the address stands for; nothing for a path, where a socket must be possible. Blocking, for as long as
    a name server or a mount takes, and changes nothing. Raises ListenError."""
    if isinstance(address, UnixAddress):
        _check_unix(address.path)
        return ()
    try:
        found = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError) as error:
        message = f"{address}: the host name `{address.host}` does not resolve; take an address such as 127.0.0.1"
        raise ListenError(Code.LISTENER_ADDRESS, message) from error
    return tuple((family, where) for family, _, _, _, where in dict.fromkeys(found))


def bind(address: Address, found: Found, ours: Sequence[socket.socket] = ()) -> list[socket.socket]:
    """Sockets for all that was found: duplicates of those of `ours` that it covers, which listen; bound ones for
    the rest, which do not listen yet. None for a path: whoever sees a socket there takes it for a daemon. `ours`
    are those that listen now and shall give way. Raises ListenError."""
    return [] if isinstance(address, UnixAddress) else _bind_tcp(address, _stacks(found), ours)


def listen(sockets: list[socket.socket], address: Address, ours: Sequence[socket.socket] = ()) -> list[socket.socket]:
    """The sockets that listen now: those of `bind`, or the one of a path. Raises ListenError, also when another
    program began to listen since `bind`."""
    if isinstance(address, UnixAddress):
        return [_listen_unix(address.path)]
    try:
        for sock in sockets:
            if not sock.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
                together(partial(sock.listen, BACKLOG), sock, _on_port(sock.getsockname()[1], ours), _PROC)
    except OSError as error:
        raise _tcp_error(address, error) from error
    return sockets


# --- TCP ----------------------------------------------------------------------------------------


def _stacks(found: Found) -> Found:
    """`::` is both stacks: a socket for each, so that one of the two can change hands."""
    both: list[tuple[int, tuple[Any, ...]]] = []
    for family, where in found:
        if family == socket.AF_INET6 and where[0] == "::":
            both.append((socket.AF_INET, ("0.0.0.0", where[1])))  # noqa: S104  that is what was asked for
        both.append((family, where))
    return tuple(both)


def _bind_tcp(address: TcpAddress, wanted: Found, ours: Sequence[socket.socket]) -> list[socket.socket]:
    sockets: list[socket.socket] = []
    try:
        sockets += [sock.dup() for sock in covered(ours, wanted)]
        for family, where in wanted:
            if is_one_of((family, where), sockets):
                continue
            sock = socket.socket(family, socket.SOCK_STREAM)
            sockets.append(sock)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # past connections in TIME_WAIT do not matter
            if family == socket.AF_INET6:
                sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            host, port, *more = where
            port = port or sockets[0].getsockname()[1]  # one port for all
            together(partial(sock.bind, (host, port, *more)), sock, _on_port(port, ours), _PROC)
    except OSError as error:
        for sock in sockets:
            sock.close()
        raise _tcp_error(address, error) from error
    return sockets


def _on_port(port: int, sockets: Sequence[socket.socket]) -> list[socket.socket]:
    return [sock for sock in sockets if sock.getsockname()[1] == port]


def _tcp_error(address: Address, error: OSError) -> ListenError:
    if error.errno == errno.EADDRINUSE:
        text = "another program listens there; find it with `ss -ltnp`, end it, or choose another `port`"
        return ListenError(Code.PORT_BUSY, f"{address}: {text}")
    if error.errno == errno.EADDRNOTAVAIL:
        text = "no interface of this machine has this address; take one `ip addr` shows, 127.0.0.1 or 0.0.0.0"
    elif error.errno in {errno.EACCES, errno.EPERM}:
        text = "this user may not listen there; take a port of 1024 or above, or give the daemon CAP_NET_BIND_SERVICE"
    else:
        text = error.strerror or str(error)
    return ListenError(Code.LISTENER_ADDRESS, f"{address}: {text}")


# --- unix sockets ---------------------------------------------------------------------------------


def _check_unix(path: Path) -> None:
    """Raises ListenError unless a socket could be made there now."""
    if len(os.fsencode(_beside(path))) > _UNIX_PATH_BYTES:
        raise _unix_error(path, f"the path is too long for a unix socket (at most {_UNIX_PATH_BYTES} bytes)")
    try:
        _refuse_occupied(path)
        folder = next(each for each in path.parents if each.exists())
    except OSError as error:
        raise _unix_error(path, error.strerror or str(error)) from error
    if not os.access(folder, os.W_OK | os.X_OK, effective_ids=True):
        raise _unix_error(path, f"this user may make no file in {folder}")


def _beside(path: Path) -> Path:
    return path.with_name(f".{path.name}.{os.getpid()}")


def _listen_unix(path: Path) -> socket.socket:
    """Bound under another name and renamed into place: the path is never without its rights, never
    half made, and a stale socket is replaced in one step."""
    beside = _beside(path)
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        _refuse_occupied(path)
        beside.unlink(missing_ok=True)
        sock.bind(os.fspath(beside))
        beside.chmod(_UNIX_MODE)
        sock.listen(BACKLOG)
        beside.rename(path)
    except OSError as error:
        sock.close()
        with contextlib.suppress(OSError):
            beside.unlink(missing_ok=True)
        raise _unix_error(path, error.strerror or str(error)) from error
    except ListenError:
        sock.close()
        raise
    return sock


def _refuse_occupied(path: Path) -> None:
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(mode):
        raise _unix_error(path, "there is a file that is no socket; move it away")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)  # a unix socket answers at once, or its queue is full
        try:
            probe.connect(os.fspath(path))
        except ConnectionRefusedError:
            return  # stale: its daemon is gone
        except BlockingIOError as error:
            raise _unix_error(path, "another daemon holds it and does not accept; end it first") from error
    raise _unix_error(path, "another daemon answers there; end it first")


def _unix_error(path: Path, text: str) -> ListenError:
    return ListenError(Code.ADMIN_SOCKET, f"unix:{path}: {text}, or name another path in `server.admin`")
