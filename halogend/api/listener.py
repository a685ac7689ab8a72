"""A socket that serves an ASGI application: bound, serving, draining, closed, each when told.

uvicorn's protocol and configuration carry HTTP; its server is not used, because that one captures
signals, waits for open streams by itself and takes the application down with the socket.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

import structlog
from starlette.types import ASGIApp
from uvicorn.config import Config

from halogend.api.addresses import BACKLOG, Address, Found, ListenError, TcpAddress, UnixAddress, bind, find, listen
from halogend.api.beside import deafen, inode
from halogend.api.connection import Connection, ConnectionLimits, Connections
from halogend.config.codes import Code

log = structlog.get_logger(__name__)

_ABORT_GRACE_S = 1.0
_SUBMIT_S = 0.1  # from the head of a request to its lease or its place in a queue
_ACCEPT_TURNS = 5  # of the event loop, from accept(2) until asyncio tells of the connection
_HANDSHAKE_S = 20.0
_GOODBYE_S = 5.0  # for a peer's last word of TLS


@dataclass(frozen=True, slots=True)
class Doors:
    """What accepts connections: one server for each socket. Closing them closes no connection."""

    servers: tuple[asyncio.Server, ...]
    context: ssl.SSLContext | None

    @property
    def is_tls(self) -> bool:
        return self.context is not None

    def pause(self) -> None:
        """Accepts nothing more; what waits stays in the kernel's queue, for whoever else accepts there."""
        loop = asyncio.get_running_loop()
        for server in self.servers:
            for sock in server.sockets:
                loop.remove_reader(sock.fileno())

    def close(self) -> None:
        """A turn of the loop later: until then asyncio may still make connections of what it accepted, and a
        closed server would lose them."""
        self.pause()
        for server in self.servers:
            asyncio.get_running_loop().call_soon(server.close)


class Listener:
    """`bind`, then `serve`, then `stop_accepting`, then `close`; any later call may come early.

    `open` and `take` change between plain and TLS, or to another certificate, on the same sockets: the
    kernel's queue stays, so no connection is refused. Single writer: the daemon. Belongs to the event
    loop in which `serve` is called.
    """

    def __init__(self, app: ASGIApp, address: Address, limits: ConnectionLimits | None = None) -> None:
        limits = limits or ConnectionLimits()
        self._address = address
        self._config = _config(app, limits)
        self._sockets: list[socket.socket] = []
        self._giving_way: Sequence[socket.socket] = ()
        self._is_lent = False
        self._late: set[asyncio.Task[object]] = set()
        self._doors = Doors((), None)
        self._file: tuple[int, int] | None = None  # device and inode of our unix socket
        self._quiet = asyncio.Event()
        self._connections = Connections(limits, self._note_lost)

    @property
    def address(self) -> Address:
        """Where it listens; the real port once bound."""
        if isinstance(self._address, TcpAddress) and self._sockets:
            return TcpAddress(self._address.host, self._sockets[0].getsockname()[1])
        return self._address

    @property
    def is_accepting(self) -> bool:
        """From `serve` to `stop_accepting`."""
        return bool(self._sockets and self._doors.servers)

    @property
    def open_connections(self) -> int:
        return len(self._connections.connections)

    @property
    def is_in_place(self) -> bool:
        """Whether clients can still find it: a unix socket's file may have been removed."""
        if not isinstance(self._address, UnixAddress) or self._file is None:
            return True
        try:
            return _identity(self._address.path) == self._file
        except OSError:
            return False

    @property
    def sockets(self) -> tuple[socket.socket, ...]:
        """Its own; none before `bind`, nor after `stop_accepting`."""
        return tuple(self._sockets)

    def bind(self, found: Found | None = None, ours: Sequence[socket.socket] = ()) -> None:
        """Takes the address, which stands for `found`; None looks first, and blocks for that. `ours` are sockets of
        listeners that shall give way to this one, and may be in its way until then. Raises ListenError, which names
        the address and a remedy. A path is only looked at: the socket there is made by `serve`."""
        self._sockets = bind(self._address, find(self._address) if found is None else found, ours)
        self._giving_way = ours

    def adopt(self, sockets: list[socket.socket]) -> None:
        """Instead of `bind`: takes duplicates of sockets that listen at its address already and go on to do so."""
        self._sockets, self._is_lent = sockets, True

    async def serve(self, context: ssl.SSLContext | None = None) -> None:
        """Accepts connections from now on; returns at once. Raises ListenError."""
        self._sockets = listen(self._sockets, self._address, self._giving_way)
        self._giving_way = ()
        if isinstance(self._address, UnixAddress):
            self._file = _identity(self._address.path)
        self._doors = await self.open(context)
        log.info("listening", address=str(self.address), tls=context is not None)

    async def open(self, context: ssl.SSLContext | None) -> Doors:
        """Accepts with this context too, beside what is there. Raises ListenError."""
        if not self._config.loaded:
            self._config.load()
        servers: list[asyncio.Server] = []
        try:
            for sock in self._sockets:
                sock.setblocking(False)  # duplicates share the flag, and a duplicate takes it from here
                servers.append(await self._accept(sock, context))
        except OSError as error:
            Doors(tuple(servers), None).close()
            reason = error.strerror or str(error)
            raise ListenError(Code.LISTENER_ADDRESS, f"{self._address}: cannot accept: {reason}") from error
        return Doors(tuple(servers), context)

    def take(self, doors: Doors) -> None:
        """New connections come through these doors only. Open ones go on; but when TLS came or went, no idle
        one stays."""
        old, self._doors = self._doors, doors
        old.close()
        if old.is_tls != doors.is_tls:
            for connection in self._all():
                connection.shutdown()

    async def _accept(self, sock: socket.socket, context: ssl.SSLContext | None) -> asyncio.Server:
        door = sock.dup()
        try:
            return await asyncio.get_running_loop().create_server(
                lambda: Connection(self._config, self._connections),
                sock=door,
                backlog=BACKLOG,
                ssl=context,
                ssl_handshake_timeout=None if context is None else _HANDSHAKE_S,
                ssl_shutdown_timeout=None if context is None else _GOODBYE_S,
            )
        except OSError:
            door.close()
            raise

    def stop_accepting(self, heirs: Collection[int] = ()) -> None:
        """No new connection; idle ones close, responses that run go on and close theirs, and what has just
        come may still ask, also what waits in the kernel's queue: but the queue of a socket that somebody else has
        too stays, for him. `heirs` are the inodes of such sockets. Idempotent."""
        self._doors.pause()
        leaving, self._sockets = self._sockets, []
        if self._doors.servers:
            asyncio.get_running_loop().call_soon(self._let_go, self._doors, leaving, frozenset(heirs))
        else:
            self._let_go(self._doors, leaving, frozenset())
        self._connections.is_ending = True
        self._remove_file()
        for connection in self._all():
            connection.shutdown()

    def _let_go(self, doors: Doors, leaving: list[socket.socket], heirs: frozenset[int]) -> None:
        """A turn after the doors were paused."""
        for sock in leaving:
            if doors.servers and not self._is_lent and inode(sock) not in heirs:
                self._let_in_rest(sock, doors.context)
        for server in doors.servers:
            server.close()
        for sock in leaving:
            sock.close()

    def _let_in_rest(self, sock: socket.socket, context: ssl.SSLContext | None) -> None:
        loop = asyncio.get_running_loop()
        deafen(sock)
        with contextlib.suppress(OSError):  # the queue is empty, or descriptors are out
            while True:
                connection, _ = sock.accept()
                connection.setblocking(False)
                making = loop.connect_accepted_socket(
                    lambda: Connection(self._config, self._connections),
                    connection,
                    ssl=context,
                    ssl_handshake_timeout=None if context is None else _HANDSHAKE_S,
                    ssl_shutdown_timeout=None if context is None else _GOODBYE_S,
                )
                task: asyncio.Task[object] = loop.create_task(making)
                self._late.add(task)
                task.add_done_callback(self._let_in)

    def _let_in(self, task: asyncio.Task[object]) -> None:
        self._late.discard(task)
        if not task.cancelled() and task.exception() is not None:
            log.info("connection_not_made", address=str(self._address), error=repr(task.exception()))

    async def until_asked(self) -> None:
        """After `stop_accepting`: returns when every connection that came before has asked, and its request
        is where it belongs, or when its time to do so is over."""
        await self._until_let_in()
        if not self._all():
            return
        asking = [each.first_request for each in self._all() if each.first_request is not None]
        if asking:
            await asyncio.wait(asking)
        await asyncio.sleep(_SUBMIT_S)

    async def close(self, deadline_s: float) -> None:
        """Waits up to `deadline_s` for what runs, then cuts it. Idempotent."""
        self.stop_accepting()
        await self._until_let_in()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(deadline_s):
                await self._until_quiet()
        left = self._all()
        if left:
            log.warning("connections_cut", address=str(self._address), count=len(left))
        for connection in left:
            connection.abort()
        tasks = set(self._connections.tasks)
        if tasks:
            await asyncio.wait(tasks, timeout=_ABORT_GRACE_S)
        for task in self._connections.tasks:
            task.cancel()

    async def _until_let_in(self) -> None:
        for _ in range(_ACCEPT_TURNS):
            await asyncio.sleep(0)

    async def _until_quiet(self) -> None:
        while self._connections.connections:
            self._quiet.clear()
            await self._quiet.wait()

    def _note_lost(self) -> None:
        if not self._connections.connections:
            self._quiet.set()

    def _all(self) -> list[Connection]:
        return [each for each in self._connections.connections if isinstance(each, Connection)]

    def _remove_file(self) -> None:
        """Only if the file is still ours: a newer daemon may have replaced it."""
        if isinstance(self._address, UnixAddress) and self._file is not None:
            with contextlib.suppress(OSError):
                if _identity(self._address.path) == self._file:
                    self._address.path.unlink()
            self._file = None


def _identity(path: Path) -> tuple[int, int]:
    found = path.lstat()
    return found.st_dev, found.st_ino


def _config(app: ASGIApp, limits: ConnectionLimits) -> Config:
    """uvicorn's settings, all stated: nothing is taken from the environment or from extras."""
    return Config(
        app,
        http=Connection,
        ws="none",
        lifespan="off",
        interface="asgi3",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        workers=1,
        forwarded_allow_ips="",
        timeout_keep_alive=limits.idle_s,
        h11_max_incomplete_event_size=limits.head_bytes,
    )
