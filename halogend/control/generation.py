"""One loaded instance of a model's spec: one replica or several, which serve side by side.

A generation is started once and stopped once; what happens between is told by `died`. Whoever routes,
drains or changes it need not know how many replicas there are.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from halogend.control.attended import Attended
from halogend.control.health import SPEAKING_S, Pulse
from halogend.control.leases import Lease
from halogend.control.live_changes import LiveChanges
from halogend.control.process import Host
from halogend.control.replica import Company, Replica
from halogend.control.replica_spec import ReplicaSpec
from halogend.control.startup import Ready
from halogend.control.tally import Tally
from halogend.control.waits import all_of
from halogend.wire.specs import EngineLimits
from halogend.wire.stats import EngineStats

OthersSpeak = Callable[["Generation"], bool]
OnStats = Callable[["Generation", EngineStats], None]
T = TypeVar("T")


class Generation:
    """`died` is set when the last replica of a started generation ends without `stop`; `reason` then
    says how. `replicas` are its places, a dead one until another stands there; `leaving` are those that
    were dropped and still answer requests, `coming` those that are loaded to join it. `live` are the
    changes of what runs, `attended` the work for those that died. `on_loss` hears of a replica that died
    while others serve on. Single writer: convergence."""

    def __init__(  # whom it tells, and what it is
        self,
        specs: Sequence[ReplicaSpec],
        number: int,
        host: Host,
        on_stats: OnStats = lambda generation, stats: None,
        others_speak: OthersSpeak = lambda generation: False,
        spec: ReplicaSpec | None = None,
    ) -> None:
        self.number = number
        self.on_loss: Callable[[Replica], None] = lambda replica: None
        self.died = asyncio.Event()
        self.reason = ""
        self.leaving: list[Replica] = []
        self.coming: tuple[Replica, ...] = ()
        self._host = host
        self._on_stats = on_stats
        self._others_speak = others_speak
        self._made = itertools.count()
        self._tally = Tally()
        self.attended = Attended()
        self._spec = specs[0] if spec is None else spec
        self.replicas = [self.make(each) for each in specs]
        self.live = LiveChanges(self._spec.model, self.replicas)

    @property
    def everybody(self) -> list[Replica]:
        """Whoever may hold requests."""
        return [*self.replicas, *self.leaving]

    def state_of(self, replica: Replica) -> str:
        """For people: one that leaves drains, whatever else it is."""
        return "draining" if replica in self.leaving else str(replica.state)

    @property
    def parts(self) -> list[Replica]:
        """Its places, also those that are loaded to be."""
        return [*self.replicas, *self.coming]

    @property
    def spec(self) -> ReplicaSpec:
        """Of the first replica; the others differ in where they are and in their room. What it was made for
        where it has none (yet)."""
        return self.replicas[0].spec if self.replicas else self._spec

    @property
    def _first(self) -> Replica | None:
        """That is alive, or else there."""
        return next((each for each in self.replicas if each.is_alive), self.replicas[0] if self.replicas else None)

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
        first = self._first
        return first is not None and first.has_chat_template

    @property
    def engine_limits(self) -> EngineLimits:
        return self.replicas[0].engine_limits if self.replicas else self._spec.engine.limits

    @property
    def stats(self) -> EngineStats | None:
        """Of all replicas together; None before the first has spoken."""
        return self._tally.total(self._said())

    @property
    def measured_bytes(self) -> int:
        """What all processes took, when `measure` was last called."""
        return sum(replica.memory.measured_bytes for replica in self.replicas)

    @property
    def expected_bytes(self) -> int:
        """What all processes should hold now, at rest; 0 before it was ready."""
        return sum(replica.memory.expected_bytes for replica in self.everybody)

    @property
    def surplus_bytes(self) -> int:
        """How much more working memory it took than was estimated."""
        return sum(replica.memory.surplus_bytes for replica in self.replicas)

    @property
    def returned_bytes(self) -> int:
        """What came back as it was stopped."""
        return sum(replica.memory.returned_bytes for replica in self.everybody)

    @property
    def kernels(self) -> dict[str, str]:
        """Operator to implementation; empty until it is loaded."""
        first = self._first
        return {} if first is None else first.kernels

    @property
    def pids(self) -> dict[str, int]:
        """By role; `engine/1` is the engine of the replica with index 1."""
        return self._by_role(lambda replica: replica.pids)

    @property
    def lingering(self) -> dict[str, int]:
        """By role, as `pids`: those that were ended and are not gone."""
        return self._by_role(lambda replica: replica.lingering)

    @property
    def stderr_tail(self) -> str:
        return "\n".join(tail for replica in self.replicas if (tail := replica.stderr_tail))

    def pulses(self) -> dict[str, Pulse]:
        """By role, as `pids`."""
        return self._by_role(lambda replica: replica.pulses())

    def wounds(self) -> list[str]:
        """What is wrong with replicas that died while others serve."""
        dead = [replica for replica in self.replicas if replica.died.is_set()] if self.is_alive else []
        return [f"the replica on {each.spec.device}: {each.trouble or each.reason}" for each in dead]

    async def measure(self) -> None:
        """Takes what the processes hold into `measured_bytes`."""
        await asyncio.gather(*(replica.measure() for replica in self.replicas))

    # --- start ------------------------------------------------------------------------------

    async def start(self) -> Ready:
        """Until every replica could serve. Raises StartError; the processes are gone by then. Cancelling
        undoes it as well."""
        try:
            return (await all_of(replica.start() for replica in self.replicas))[0]
        except BaseException:
            await self.stop()
            raise

    def check_alive(self) -> None:
        """Raises StartError when a process has gone since it was ready."""
        for replica in self.replicas:
            replica.check_alive()

    # --- replicas -----------------------------------------------------------------------------

    def make(self, spec: ReplicaSpec, instead_of: Replica | None = None) -> Replica:
        """Another replica, not started, that belongs to this generation and takes no requests yet."""
        company = Company(self._take_stats, self._bury, self._speak_beside)
        index = next(self._made) if instead_of is None else instead_of.index
        return Replica(spec, self.number, index, self._host, company)

    def join(self, newcomer: Replica, instead_of: Replica | None = None) -> None:
        """It takes requests from now on, in the place of one that died or in one of its own. Where it has died
        since it was ready, that is heard of now."""
        if instead_of is None:
            self.replicas.append(newcomer)
        else:
            self.replicas[self.replicas.index(instead_of)] = newcomer
            self._tally.outlive(instead_of.stats)
        if newcomer.died.is_set():
            self._bury(newcomer)

    def drop(self, replica: Replica) -> None:
        """It takes no further request, and nobody starts a dead one again; `let_go` when it was stopped."""
        self.replicas.remove(replica)
        self.leaving.append(replica)
        self.attended.cancel(replica)

    def keep(self, replica: Replica) -> None:
        """The inverse of `drop`."""
        self.leaving.remove(replica)
        self.join(replica)

    def let_go(self, replica: Replica) -> None:
        """It is stopped."""
        if replica in self.leaving:
            self.leaving.remove(replica)
            self._tally.outlive(replica.stats)

    # --- leases -------------------------------------------------------------------------------

    def roomiest(self, besides: Replica | None = None) -> Replica | None:
        """The replica that a request goes to: alive, with the fewest leases for its weight."""
        alive = [replica for replica in self.replicas if replica.is_alive and replica is not besides]
        return min(alive, key=lambda replica: replica.crowding, default=None)

    @property
    def leases(self) -> frozenset[Lease]:
        """Of every replica."""
        return frozenset(lease for replica in self.everybody for lease in replica.leases)

    async def drained(self) -> None:
        """Returns when no request holds this generation any more."""
        while busy := [replica for replica in self.everybody if replica.leases]:
            await busy[0].drained()

    # --- stop ---------------------------------------------------------------------------------

    async def stop(self) -> dict[str, int]:
        """Ends all processes and returns their exit statuses by role. Idempotent; cancelled, it kills them."""
        everybody = self.everybody
        for replica in everybody:
            replica.leave()
        try:
            await self.attended.end()
            ended = await asyncio.gather(*(replica.stop() for replica in everybody))
            return _numbered(zip(everybody, ended, strict=True))
        finally:
            for replica in everybody:  # also where a stop never began
                replica.kill()

    # --- what the replicas say ------------------------------------------------------------------

    def _said(self) -> list[EngineStats]:
        return [each.stats for each in self.everybody if each.stats is not None]

    def _take_stats(self, replica: Replica, stats: EngineStats) -> None:
        self._on_stats(self, self._tally.told(self._said(), stats))

    def _speak_beside(self, replica: Replica) -> bool:
        now = time.monotonic()
        siblings = [pulse for each in self.replicas if each is not replica for pulse in each.pulses().values()]
        return any(pulse.silent_s(now) < SPEAKING_S for pulse in siblings) or self._others_speak(self)

    def miss_all(self) -> None:
        """Where it has no replica left, it is dead."""
        if not self.replicas and not self.died.is_set():
            self.reason = "all of its replicas have gone"
            self.died.set()

    def _bury(self, replica: Replica) -> None:
        if replica not in self.replicas:
            return
        if any(each.is_alive for each in self.replicas):
            self.on_loss(replica)
        elif not self.died.is_set():
            self.reason = replica.reason
            self.died.set()

    def _by_role(self, of: Callable[[Replica], dict[str, T]]) -> dict[str, T]:
        return _numbered((replica, of(replica)) for replica in self.replicas)


def _numbered(parts: Iterable[tuple[Replica, dict[str, T]]]) -> dict[str, T]:
    return {
        f"{role}/{replica.index}" if replica.index else role: value
        for replica, part in parts
        for role, value in part.items()
    }
