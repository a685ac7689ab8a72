"""One loaded instance of a model's spec: one replica or several, which serve side by side.

A generation is started once and stopped once; what happens between is told by `died`. Whoever routes,
drains or changes it need not know how many replicas there are.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import TypeVar

from halogend.control.health import Pulse
from halogend.control.process import Host
from halogend.control.replica import Company, Lease, Replica, ReplicaSpec, UpdateError
from halogend.control.startup import Ready
from halogend.wire.messages import EngineLimits, EngineStats, PrepareEngine, PrepareText

OthersSpeak = Callable[["Generation"], bool]
OnStats = Callable[["Generation", EngineStats], None]
T = TypeVar("T")


class Generation:
    """`died` is set when the last replica of a started generation ends without `stop`; `reason` then
    says how."""

    def __init__(
        self,
        spec: ReplicaSpec,
        number: int,
        host: Host,
        on_stats: OnStats,
        others_speak: OthersSpeak = lambda generation: False,
    ) -> None:
        self.spec = spec
        self.number = number
        self.died = asyncio.Event()
        self.reason = ""
        self._on_stats = on_stats
        self._others_speak = others_speak
        company = Company(self._take_stats, self._bury, self._speak_beside)
        self.replicas = [Replica(spec, number, 0, host, company)]
        self._next_update = 1

    @property
    def model(self) -> str:
        return self.spec.model

    @property
    def ready(self) -> Ready:
        return self.replicas[0].ready

    @property
    def is_alive(self) -> bool:
        """Can any replica take a request?"""
        return any(replica.is_alive for replica in self.replicas)

    @property
    def has_chat_template(self) -> bool:
        return self.replicas[0].has_chat_template

    @property
    def engine_limits(self) -> EngineLimits:
        return self.replicas[0].engine_limits

    @property
    def stats(self) -> EngineStats | None:
        return self.replicas[0].stats

    @property
    def measured_bytes(self) -> int:
        """What all processes took, when `measure` was last called."""
        return sum(replica.measured_bytes for replica in self.replicas)

    @property
    def kernels(self) -> dict[str, str]:
        """Operator to implementation; empty until it is loaded."""
        return self.replicas[0].kernels

    @property
    def pids(self) -> dict[str, int]:
        """By role; `engine/1` is the engine of the second replica."""
        return self._by_role(lambda replica: replica.pids)

    @property
    def stderr_tail(self) -> str:
        return "\n".join(tail for replica in self.replicas if (tail := replica.stderr_tail))

    def pulses(self) -> dict[str, Pulse]:
        """By role, as `pids`."""
        return self._by_role(lambda replica: replica.pulses())

    async def measure(self) -> None:
        """Takes what the processes hold into `measured_bytes`."""
        await asyncio.gather(*(replica.measure() for replica in self.replicas))

    # --- start ------------------------------------------------------------------------------

    async def start(self) -> Ready:
        """Until every replica could serve. Raises StartError; the processes are gone by then. Cancelling
        undoes it as well."""
        return await self.replicas[0].start()

    def check_alive(self) -> None:
        """Raises StartError when a process has gone since it was ready."""
        for replica in self.replicas:
            replica.check_alive()

    # --- live changes -------------------------------------------------------------------------

    async def prepare(self, text: PrepareText | None, engine: PrepareEngine | None) -> None:
        """All workers check and hold the change. Raises UpdateError; then nothing is held."""
        prepared = (replica.prepare(text, engine) for replica in self.replicas)
        failures = [each for each in await asyncio.gather(*prepared, return_exceptions=True) if each is not None]
        if failures:
            self.discard(text, engine)
            raise next((each for each in failures if not isinstance(each, UpdateError)), failures[0])

    def commit(self, text: PrepareText | None, engine: PrepareEngine | None) -> None:
        """Takes effect between two steps. A worker that died meanwhile is the supervisor's case."""
        for replica in self.replicas:
            replica.commit(text, engine)

    def discard(self, text: PrepareText | None, engine: PrepareEngine | None) -> None:
        for replica in self.replicas:
            replica.discard(text, engine)

    def next_update(self) -> int:
        self._next_update += 1
        return self._next_update

    def set_threads(self, threads: int) -> None:
        for replica in self.replicas:
            replica.set_threads(threads)

    # --- leases -------------------------------------------------------------------------------

    def roomiest(self, besides: Replica | None = None) -> Replica | None:
        """The replica that a request goes to: alive, with the fewest leases."""
        alive = [replica for replica in self.replicas if replica.is_alive and replica is not besides]
        return min(alive, key=lambda replica: len(replica.leases), default=None)

    @property
    def leases(self) -> frozenset[Lease]:
        """Of every replica."""
        return frozenset(lease for replica in self.replicas for lease in replica.leases)

    async def drained(self) -> None:
        """Returns when no request holds this generation any more."""
        while busy := [replica for replica in self.replicas if replica.leases]:
            await busy[0].drained()

    # --- stop ---------------------------------------------------------------------------------

    async def stop(self) -> dict[str, int]:
        """Ends all processes and returns their exit statuses by role. Idempotent; cancelled, it kills them."""
        statuses = await asyncio.gather(*(replica.stop() for replica in self.replicas))
        return _numbered(statuses)

    # --- what the replicas say ------------------------------------------------------------------

    def _take_stats(self, replica: Replica, stats: EngineStats) -> None:
        self._on_stats(self, stats)

    def _speak_beside(self, replica: Replica) -> bool:
        return self._others_speak(self)

    def _bury(self, replica: Replica) -> None:
        if not self.is_alive:
            self.reason = self.reason or replica.reason
            self.died.set()

    def _by_role(self, of: Callable[[Replica], dict[str, T]]) -> dict[str, T]:
        return _numbered(of(replica) for replica in self.replicas)


def _numbered(parts: Iterable[dict[str, T]]) -> dict[str, T]:
    return {
        f"{role}/{index}" if index else role: value for index, part in enumerate(parts) for role, value in part.items()
    }
