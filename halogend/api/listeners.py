"""The listeners of a document: what a change binds, serves, secures and leaves, in one transaction.

New addresses are bound before anything is touched and served when the change is accepted; the old
listener stops accepting then, and what runs on it goes on. A socket that the new address covers changes
hands with whatever waits in its queue. Keys and certificates change under open connections: requests that
run are not asked again.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import time
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import structlog

from halogend.api.activation import NONE, Activation
from halogend.api.addresses import Address, ListenError, TcpAddress, admin_address, find
from halogend.api.applications import Applications, Ring
from halogend.api.beside import inode, inodes
from halogend.api.listener import Doors, Listener
from halogend.config.codes import Code
from halogend.config.problems import Problem
from halogend.config.schema import ServerConfig
from halogend.control.access import Access
from halogend.control.aside import aside
from halogend.control.certificates import Certificate
from halogend.control.keys import Keyring
from halogend.obs.metrics import Metrics

_log = structlog.get_logger()
_OLD_LISTENER_S = 900.0
_LOOK_EVERY_S = 5.0
_FIND_S = 5.0  # for a name server to say where a host is
_FIELDS = {"inference": "server.port", "admin": "server.admin"}


@dataclass(frozen=True, slots=True)
class _Wish:
    """What a prepared change wants; `bound` holds the listeners that are new, `rings` theirs."""

    addresses: dict[str, Address]
    access: Access
    bound: dict[str, Listener] = field(default_factory=dict)
    rings: dict[str, Ring] = field(default_factory=dict)

    def certificate(self, name: str) -> Certificate | None:
        return self.access.tls if name == "inference" else self.access.admin_tls

    def context(self, name: str) -> ssl.SSLContext | None:
        found = self.certificate(name)
        return None if found is None else found.context


@dataclass(frozen=True, slots=True)
class _Serving:
    """What serves now, by name."""

    listeners: dict[str, Listener] = field(default_factory=dict)
    addresses: dict[str, Address] = field(default_factory=dict)
    certificates: dict[str, Certificate | None] = field(default_factory=dict)
    rings: dict[str, Ring] = field(default_factory=dict)


class Listeners:
    """Single writer: the reconciler, through `prepare`, `commit` and `discard`. Where a service manager
    holds the inference listener's sockets, those are used, and no address but theirs can be had."""

    def __init__(self, make: Applications, metrics: Metrics, default_admin: str, activation: Activation = NONE) -> None:
        self._make = make
        self._metrics = metrics
        self._default_admin = default_admin
        self._activation = activation
        self._serving = _Serving()
        self._wish: _Wish | None = None
        self._keyring = Keyring()
        self._closing: set[asyncio.Task[None]] = set()

    # --- a change -------------------------------------------------------------------------------

    async def prepare(self, server: ServerConfig, access: Access) -> Problem | None:
        """Binds every address that is new. The problem says which cannot be had. What was prepared before and
        not committed is let go."""
        await self.discard()
        addresses: dict[str, Address] = {
            "inference": TcpAddress(server.host, server.port),
            "admin": admin_address(server.admin or self._default_admin),
        }
        wish = self._wish = _Wish(addresses, access)
        moving = [name for name, address in addresses.items() if address != self._serving.addresses.get(name)]
        ours = self._sockets(moving)
        for name in moving:
            address, ring = addresses[name], Ring()
            listener = Listener(self._make.guarded(name, address, ring, self._metrics), address)
            wish.bound[name], wish.rings[name] = listener, ring
            try:
                await self._take(name, listener, ours)
            except ListenError as error:
                hint = self._own_port_hint(error, address, moving)
                return Problem(error.code, error.message, hint, path=_FIELDS[name])
            taken = inodes(listener.sockets)
            ours = [sock for sock in ours if inode(sock) not in taken]
        return None

    async def commit(self) -> Problem | None:
        """Keys first, so that no new listener is open for a moment; a wish for open access last, and for those
        alone that stay: what still comes through an old one is never let in more freely than before."""
        wish, before = self._wish, self._keyring
        if wish is None:
            return None
        access, now = wish.access, time.monotonic()
        after = before.followed_by(
            access.keys,
            access.overlap_s,
            now,
            lets_all_infer=access.lets_all_infer,
            is_unstated=access.is_unstated,
        )
        opens = after.is_open and not before.is_open
        self._give(before if opens else after, self._serving.rings, wish.rings)
        problem = await self._serve(wish)
        if problem is not None:
            self._give(before, self._serving.rings)
            await self.discard()
            return problem
        old = self._serving
        self._serving = _Serving(
            {**old.listeners, **wish.bound},
            wish.addresses,
            {name: wish.certificate(name) for name in wish.addresses},
            {**old.rings, **wish.rings},
        )
        heirs = frozenset().union(*(inodes(each.sockets) for each in wish.bound.values()))
        for name in wish.bound:
            if name in old.listeners:
                self._leave(old.listeners[name], heirs)
        self._give(after, self._serving.rings)
        self._wish = None
        self._tell()
        return None

    async def discard(self) -> None:
        """What came through a socket that was to change hands, and was served for a moment, goes on."""
        wish, self._wish = self._wish, None
        heirs = inodes(self._sockets(self._serving.listeners))
        for listener in [] if wish is None else wish.bound.values():
            if listener.is_accepting:
                self._leave(listener, heirs)
            else:
                await listener.close(0)

    async def _serve(self, wish: _Wish) -> Problem | None:
        """The new ones, and the certificates of those that stay; all of it or nothing. Another program may
        have begun to listen since they were bound."""
        secured: list[tuple[Listener, Doors]] = []
        name = ""
        try:
            for name, listener in self._serving.listeners.items():
                if name not in wish.bound and wish.certificate(name) != self._serving.certificates.get(name):
                    secured.append((listener, await listener.open(wish.context(name))))
            for name, listener in sorted(wish.bound.items(), key=lambda each: self._is_shared(each[1])):
                await listener.serve(wish.context(name))
        except ListenError as error:
            for _, doors in secured:
                doors.close()
            return Problem(error.code, error.message, path=_FIELDS[name])
        for listener, doors in secured:
            listener.take(doors)
        return None

    def _leave(self, old: Listener, heirs: frozenset[int] = frozenset()) -> None:
        """What runs on it goes on."""
        old.stop_accepting(heirs)
        task = asyncio.create_task(old.close(_OLD_LISTENER_S))
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    def _give(self, keyring: Keyring, *rings: dict[str, Ring]) -> None:
        self._keyring = keyring
        for ring in (ring for each in rings for ring in each.values()):
            ring.keyring = keyring

    async def _take(self, name: str, listener: Listener, ours: list[socket.socket]) -> None:
        """Gets hold of its sockets; `ours` give way to them. Raises ListenError."""
        address = listener.address
        try:
            found = await aside(partial(find, address), _FIND_S)
        except TimeoutError as error:
            text = f"no name server told within {_FIND_S:g} s where that is; take an address such as 127.0.0.1"
            raise ListenError(Code.LISTENER_ADDRESS, f"{address}: {text}") from error
        if name == "inference" and self._activation and isinstance(address, TcpAddress):
            listener.adopt(self._activation.at(address, found))
        else:
            listener.bind(found, ours)

    def _sockets(self, names: Iterable[str]) -> list[socket.socket]:
        """Of the TCP listeners of these names that serve now."""
        listeners = [self._serving.listeners[name] for name in names if name in self._serving.listeners]
        return [sock for each in listeners if isinstance(each.address, TcpAddress) for sock in each.sockets]

    def _is_shared(self, new: Listener) -> bool:
        """Does it take a socket that serves now? Those come last: what can fail without a trace goes first."""
        return bool(inodes(new.sockets) & inodes(self._sockets(self._serving.listeners)))

    def _own_port_hint(self, error: ListenError, new: Address, moving: list[str]) -> str:
        """Who is on the port may be another listener of ours, which stays where it is."""
        for name, old in self._serving.addresses.items():
            on_both = isinstance(old, TcpAddress) and isinstance(new, TcpAddress) and old.port == new.port
            if error.code is Code.PORT_BUSY and on_both and name not in moving:
                return f"halogend's own {name} listener is at {old}: take another port for one of them"
        return ""

    # --- for people -----------------------------------------------------------------------------

    def view(self) -> dict[str, Any]:
        """JSON-ready: where it listens, which keys count, until when certificates are valid."""
        wall, now = time.time(), time.monotonic()
        return {
            "listeners": {
                name: {"address": str(address), "tls": None if found is None else found.view(wall)}
                for name, address in self._serving.addresses.items()
                for found in (self._serving.certificates.get(name),)
            },
            "auth": "open" if self._keyring.is_open else "keys",
            "keys": self._keyring.view(now),
        }

    def _tell(self) -> None:
        found = {name: each.not_after for name, each in self._serving.certificates.items() if each is not None}
        self._metrics.certificates(found)

    # --- while it runs, and at the end ----------------------------------------------------------

    async def keep(self) -> None:
        """Puts the admin socket back where it was when somebody removed its file."""
        while True:
            await asyncio.sleep(_LOOK_EVERY_S)
            old = self._serving.listeners.get("admin")
            if old is not None and not old.is_in_place:
                await self._put_back(old, self._serving.addresses["admin"])

    async def _put_back(self, old: Listener, address: Address) -> None:
        guarded = self._make.guarded("admin", address, self._serving.rings["admin"], self._metrics)
        listener = Listener(guarded, address)
        try:
            await self._take("admin", listener, [])
            await listener.serve()
        except ListenError as error:
            _log.error("admin_socket_lost", address=str(address), error=error.message)
            return
        if self._serving.listeners["admin"] is not old:  # a change came meanwhile, to another address
            await listener.close(0)
            return
        _log.warning("admin_socket_put_back", address=str(address))
        self._serving = replace(self._serving, listeners={**self._serving.listeners, "admin": listener})
        self._leave(old)

    def stop_accepting(self) -> None:
        """The admin listener goes on: whoever waits for an answer about the end gets it."""
        if "inference" in self._serving.listeners:
            self._serving.listeners["inference"].stop_accepting()

    async def until_asked(self) -> None:
        """After `stop_accepting`: whoever was let in before has asked for what it wants."""
        if "inference" in self._serving.listeners:
            await self._serving.listeners["inference"].until_asked()

    async def close(self, deadline_s: float) -> None:
        await self.discard()
        for task in self._closing:
            task.cancel()
        await asyncio.gather(*(listener.close(deadline_s) for listener in self._serving.listeners.values()))
        await asyncio.gather(*self._closing, return_exceptions=True)
