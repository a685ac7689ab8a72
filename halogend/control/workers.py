"""The two processes of a replica: started together, told what to do, and ended together.

Owns the processes and the sockets between them. What they say, and what an end means, is the replica's business.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from dataclasses import dataclass

from halogend.control.health import Pulse
from halogend.control.process import Host, Surroundings, ending, reap
from halogend.control.worker import OnMessage, Worker
from halogend.wire.control import StartEngine, StartText, Stop
from halogend.wire.messages import AnyMessage
from halogend.wire.process import EXIT_PEER_LOST
from halogend.wire.specs import EngineSpec, TextSpec

TEXT, ENGINE = "text", "engine"
_FOLLOWS = (0, EXIT_PEER_LOST)  # how a process ends because the other one did
_PEER_GRACE_S = 0.5


@dataclass(frozen=True, slots=True)
class Ahead:
    """An engine that was started and not told what to load. `peer` is the other end of its data socket, for a text
    process."""

    worker: Worker
    peer: socket.socket

    def end(self) -> None:
        self.worker.child.kill()
        self.worker.close()
        self.peer.close()


class Workers:
    """`by_role` has each from its start on. `on_exit` hears how one ended, and of both when both have; the one that
    is the reason comes first. Single writer: the replica."""

    def __init__(
        self, host: Host, cores: Collection[int], on_message: OnMessage, on_exit: Callable[[str], None]
    ) -> None:
        self.by_role: dict[str, Worker] = {}
        self._host = host
        self._cores = cores
        self._on_message = on_message
        self._on_exit = on_exit
        self._exits: list[asyncio.Task[None]] = []
        self._ahead: Ahead | None = None

    @property
    def pids(self) -> dict[str, int]:
        return {role: worker.child.pid for role, worker in self.by_role.items()}

    @property
    def exited(self) -> dict[str, asyncio.Event]:
        """By role: set when the process has ended."""
        return {role: worker.child.exited for role, worker in self.by_role.items()}

    @property
    def stderr_tail(self) -> str:
        return "\n".join(worker.child.stderr_tail for worker in self.by_role.values() if worker.child.stderr_tail)

    def pulses(self) -> dict[str, Pulse]:
        return {role: worker.pulse for role, worker in self.by_role.items()}

    def adopt(self, ahead: Ahead) -> None:
        """The engine is there already: `launch` starts a text process alone."""
        self._ahead = ahead
        ahead.worker.belongs_to(self._on_message)
        self._look_after(ENGINE, ahead.worker)

    async def launch(
        self,
        text: TextSpec,
        engine: EngineSpec,
        connect: Callable[[socket.socket], Awaitable[None]],
        engine_environ: Mapping[str, str],
    ) -> None:
        """Starts both, or the text process alone where an engine was adopted; `connect` takes the daemon's end of what
        carries requests. Raises OSError."""
        with contextlib.ExitStack() as ours:  # the children's; our copies are closed in any case
            text_data, daemon_data = socket.socketpair()
            ours.enter_context(text_data)
            engine_data = None
            if self._ahead is None:
                text_engine, engine_data = socket.socketpair()
                ours.enter_context(engine_data)
            else:
                text_engine = self._ahead.peer
            ours.enter_context(text_engine)
            await connect(daemon_data)
            around = Surroundings(self._host.child_environ(1), self._cores, text.loader_niceness)
            first = await self._spawn(TEXT, {"data": text_data, "engine": text_engine}, around)
            first.tell(StartText(spec=text))
            if engine_data is None:
                self.by_role[ENGINE] = self.by_role.pop(ENGINE)  # behind the other one, as ever
            else:
                around = Surroundings(engine_environ, self._cores, engine.loader_niceness)
                await self._spawn(ENGINE, {"data": engine_data}, around)
            self.tell(ENGINE, StartEngine(spec=engine))

    def tell(self, role: str, message: AnyMessage | None) -> None:
        """Sends, unless there is nothing to send or nobody to hear it."""
        worker = self.by_role.get(role)
        if worker is not None:
            worker.tell(message)

    async def end(self, grace_s: float, killed_s: float) -> dict[str, int]:
        """Asks both to stop and kills what is left of them after `grace_s`. Returns the exit statuses of those that
        have ended by `killed_s` after that."""
        for role in self.by_role:
            self.tell(role, Stop())
        children = {role: worker.child for role, worker in self.by_role.items()}
        ended = await asyncio.gather(*(reap(each, grace_s, killed_s) for each in children.values()))
        return {role: status for role, status in zip(children, ended, strict=True) if status is not None}

    def kill_children(self) -> None:
        for worker in self.by_role.values():
            worker.child.kill()

    def kill(self) -> None:
        """Nothing that they have said and that was not heard yet is heard any more."""
        if self._ahead is not None:
            self._ahead.peer.close()
        for worker in self.by_role.values():
            worker.child.kill()
            worker.close()

    async def _spawn(self, role: str, sockets: dict[str, socket.socket], around: Surroundings) -> Worker:
        worker = await Worker.start(self._host, role, sockets, around, self._on_message)
        self._look_after(role, worker)
        return worker

    def _look_after(self, role: str, worker: Worker) -> None:
        self.by_role[role] = worker
        self._exits.append(asyncio.create_task(self._await_exit(worker)))

    async def _await_exit(self, worker: Worker) -> None:
        await worker.child.exited.wait()
        if worker.child.status in _FOLLOWS:
            await self._until_peer_exited(worker)
        reason = culprit(worker, self.by_role.values())
        self._on_exit(f"the {reason.role} process {ending(reason.child.status)}")

    async def _until_peer_exited(self, worker: Worker) -> None:
        """Both exits may be seen in any order."""
        peers = [each for each in self.by_role.values() if each is not worker]
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_PEER_GRACE_S):
                for peer in peers:
                    await peer.child.exited.wait()


def culprit(ended: Worker, all_of_them: Iterable[Worker]) -> Worker:
    """Whose end is the reason that `ended` has ended: another's, where it only followed."""
    if ended.child.status not in _FOLLOWS:
        return ended
    statuses = ((each, each.child.status) for each in all_of_them if each is not ended)
    return next((each for each, status in statuses if status is not None and status not in _FOLLOWS), ended)
