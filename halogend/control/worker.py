"""One process of a generation, as the daemon holds it: the child, its control socket, its pulse."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Callable, Mapping

from halogend.control.health import Pulse
from halogend.control.process import Child, Host, Surroundings, spawn
from halogend.wire.channel import AsyncChannel
from halogend.wire.control import Prepared, PrepareEngine, PrepareText, Progress
from halogend.wire.messages import AnyMessage

OnMessage = Callable[[str, AnyMessage], None]


class Worker:
    """`on_message` gets (role, message) for everything but progress and answers to `ask`."""

    def __init__(self, role: str, child: Child, on_message: OnMessage) -> None:
        self.role = role
        self.child = child
        self.pulse = Pulse(began=time.monotonic())
        self._on_message = on_message
        self._channel: AsyncChannel | None = None
        self._asked: dict[int, asyncio.Future[Prepared]] = {}

    @classmethod
    async def start(
        cls,
        host: Host,
        role: str,
        sockets: Mapping[str, socket.socket],
        surroundings: Surroundings,
        on_message: OnMessage,
    ) -> Worker:
        """Spawns `python -m PACKAGE.ROLE`; the child owns `sockets` from here on. Raises OSError."""
        ours, theirs = socket.socketpair()
        try:
            child = spawn(host, f"{host.package}.{role}", {"control": theirs, **sockets}, surroundings)
        except OSError:
            ours.close()
            raise
        worker = cls(role, child, on_message)
        try:
            worker._channel = await AsyncChannel.open(ours, worker._receive, worker._lost)
        except BaseException:  # cancelled: nobody else knows of the child yet
            child.kill()
            raise
        return worker

    def belongs_to(self, on_message: OnMessage) -> None:
        """Somebody else's from now on: what it says is heard there, and its pulse is taken anew."""
        self._on_message, self.pulse = on_message, Pulse(began=time.monotonic())

    def tell(self, message: AnyMessage | None) -> None:
        """Sends, unless there is nothing to send or nobody to hear it."""
        if message is not None and self._channel is not None and not self._channel.closed:
            self._channel.send(message)

    async def ask(self, message: PrepareText | PrepareEngine) -> Prepared:
        """Raises ConnectionError when the process is gone or dies before it answers."""
        if self._channel is None or self._channel.closed:
            raise ConnectionError(f"the {self.role} process is gone")
        answer: asyncio.Future[Prepared] = asyncio.get_running_loop().create_future()
        self._asked[message.update] = answer
        try:
            self.tell(message)
            return await answer
        finally:
            del self._asked[message.update]

    def close(self) -> None:
        if self._channel is not None:
            self._channel.close()

    def _receive(self, message: AnyMessage) -> None:
        if isinstance(message, Progress):
            self.pulse.hear(message, time.monotonic())
        elif isinstance(message, Prepared):
            answer = self._asked.get(message.update)
            if answer is not None and not answer.done():
                answer.set_result(message)
        else:
            self._on_message(self.role, message)

    def _lost(self, error: Exception | None) -> None:
        self._channel = None
        for answer in self._asked.values():
            if not answer.done():
                answer.set_exception(ConnectionError(f"the {self.role} process is gone"))
