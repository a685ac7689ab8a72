"""What all models share while they converge: router, ledger, cores, metrics, how to start."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from halogend.control.cores import Cores
from halogend.control.events import Events
from halogend.control.generation import Generation
from halogend.control.health import SPEAKING_S
from halogend.control.ledger import Holding, Ledger
from halogend.control.lingering import Lingering
from halogend.control.pace import Pace
from halogend.control.peaks import touched
from halogend.control.process import Host
from halogend.control.receipts import ModelRecord, StepRecord
from halogend.control.replica import Replica
from halogend.control.replica_spec import ReplicaSpec
from halogend.control.router import Router
from halogend.control.slots import Slots
from halogend.control.spare import Spare
from halogend.control.target import Target, Way
from halogend.control.to_come import about_to_load, awaited, gives_back
from halogend.control.unit import Unit
from halogend.control.waits import all_of
from halogend.obs.metrics import Metrics
from halogend.wire.stats import EngineStats

_MEASURED = "measured"
# Those who serve on these cores come first. A tokenizer at 19 would take minutes beside engines that are
# always busy, for two seconds of work.
ENGINE_NICENESS, TEXT_NICENESS = 19, 10


@dataclass(frozen=True)
class House:
    """`loads` admits as many loads at a time as the document allows. `units` is written by the reconciler only."""

    router: Router
    ledger: Ledger
    cores: Cores
    host: Host
    metrics: Metrics
    events: Events = field(default_factory=Events)
    units: dict[str, Unit] = field(default_factory=dict)
    loads: Slots = field(default_factory=Slots)
    lingering: Lingering = field(default_factory=Lingering)
    pace: Pace = field(default_factory=Pace)
    clock: Callable[[], float] = time.time

    @cached_property
    def spare(self) -> Spare:
        """The engine process that was started ahead, if there is one."""
        return Spare(self.host, self.ledger, self.metrics, lambda: self.niceness(ENGINE_NICENESS))

    def make(self, specs: Sequence[ReplicaSpec], number: int, spec: ReplicaSpec | None = None) -> Generation:
        """With a replica for each of `specs`; where there is none yet, `spec` says what it is made for."""
        return Generation(specs, number, self.host, self._stats, self._others_speak, spec)

    def _others_speak(self, generation: Generation) -> bool:
        """Has a worker of another generation said something lately? Then the host did not stall."""
        now = time.monotonic()
        serving = [unit.serving for unit in self.units.values() if unit.serving not in (None, generation)]
        pulses = [pulse for each in serving if each is not None for pulse in each.pulses().values()]
        return any(pulse.silent_s(now) < SPEAKING_S for pulse in pulses)

    def grants(self, parts: Iterable[Target], besides: Sequence[str] = ()) -> list[int]:
        """KV bytes that the pool of each replica may have now, in the order of `parts`. `besides` are the ledger's
        names of those that ask."""
        held = self._beside(*besides)
        found = []
        for part in parts:
            found.append(part.granted_beside(part.taken_of(held)))
            held.append(replace(part.holding, kv_bytes=found[-1]))
        return found

    def grown(self, model: str, parts: Iterable[Target], names: Sequence[str]) -> list[int]:
        """The same for pools of `model` that serve, by the ledger's names of their replicas: each keeps what it
        has, and grows into what no other model's load waits for."""
        held = self._beside(*names)
        to_come = [part.least for unit in self.units.values() if unit.name != model for part in awaited(unit)]
        found = []
        for part, name in zip(parts, names, strict=True):
            found.append(part.grown_beside(self.ledger.holding(name) or part.holding, held, to_come))
            held.append(replace(part.holding, kv_bytes=found[-1]))
        return found

    def running(self, replica: Replica, part: Target) -> Target:
        """What a live change makes of a replica that is to be `part`, with what it was measured to take."""
        measured, held = part.over(replica.memory.surplus_bytes), self.ledger.holding(replica.name)
        return measured if held is None else measured.of_running(held)

    def fits(self, target: Target, besides: str = "") -> bool:
        """Is there room for weights, working memory and the least pool of each of its replicas?"""
        return self.misfit(target.parts, besides) is None

    def misfit(self, parts: Iterable[Target], besides: str = "") -> tuple[Target, int] | None:
        """The first of these replicas that does not fit, and the bytes that others take of its device."""
        held = self._beside(besides)
        for part in parts:
            if (misfit := part.misfit(held)) is not None:
                return misfit
            held.append(part.least)
        return None

    def taken(self, target: Target, besides: str) -> int:
        """Bytes of its device's budget that others take."""
        return target.taken_of(self._beside(besides))

    def _beside(self, *besides: str) -> list[Holding]:
        return [holding for name, holding in self.ledger.held().items() if name not in besides]

    def tell_of_room(self, besides: Unit | None = None) -> None:
        """Memory came free: every other pool looks whether it may grow."""
        for unit in self.units.values():
            if unit is not besides:
                unit.poke()

    def goes_after_others(self, unit: Unit) -> bool:
        """A new model comes after those that serve and can be loaded anew now: their old generations give
        memory back, and a new model takes it."""
        wanted = self._about_to_load(unit)
        return unit.serving is None and any(each.way is Way.SHRINK or self.fits(each) for each in wanted)

    def others_fit(self, unit: Unit) -> bool:
        """Do other models that serve wait for nothing but their turn to load? Their old ones go then."""
        return any(self.fits(each) for each in self._about_to_load(unit))

    def _about_to_load(self, besides: Unit) -> list[Target]:
        wanted = [about_to_load(each) for each in self.units.values() if each is not besides and not each.reclaims]
        return [each for each in wanted if each is not None]

    def any_serving(self) -> bool:
        """Would a load take time from anybody?"""
        return any(unit.alive() is not None or unit.draining for unit in self.units.values())

    def has_company(self) -> bool:
        """Would a load that is admitted share its cores with anybody?"""
        return self.any_serving() or self.loads.taken > 1

    def niceness(self, beside_others: int) -> int:
        """Of the threads of a process that would be started now, until it serves itself."""
        return beside_others if self.any_serving() else 0

    def is_quiet(self) -> bool:
        """Is no change on its way, nothing loaded, and nobody about to be?"""
        return not any(unit.open_change or unit.filling or unit.reclaims for unit in self.units.values())

    def any_gives_back(self) -> bool:
        """Is memory on its way back?"""
        return any(gives_back(unit) for unit in self.units.values())

    def enter(self, replica: Replica, holding: Holding) -> None:
        self.ledger.enter(replica.name, holding)
        self._show_memory(holding)

    def learn(self, replicas: Iterable[Replica], parts: Iterable[Target]) -> None:
        """They are loaded and measured: the ledger has their working memory as it is from here on, whatever stood in
        their places before."""
        for replica, wanted in zip(replicas, parts, strict=True):
            held = self.ledger.holding(replica.name)
            part = wanted if held is None else wanted.lying_as(held)
            replica.learn(part.holding)
            own = part.over(replica.memory.surplus_bytes).holding
            self.ledger.drop(replica.name, _MEASURED)
            if self.ledger.learn(replica.name, own.working_bytes, own.host_bytes):
                self._show(replica.name)
                self.tell_of_room()

    def _look_at(self, replica: Replica) -> None:
        """What it was measured to take since: the ledger never has less."""
        held = self.ledger.holding(replica.name)
        working = replica.memory.working_bytes
        if held is not None and working > held.working_bytes:
            self.claim(replica, _MEASURED, Holding(held.device, 0, working, 0))

    def claim(self, replica: Replica, key: object, holding: Holding) -> None:
        """A live change is on its way: what it grows by is nobody else's from here on."""
        self.ledger.claim(replica.name, key, holding)
        self._show_memory(holding)

    def settle(self, replica: Replica, key: object) -> None:
        """Its engine has confirmed what was claimed: what it gave back is anybody's."""
        freed = self.ledger.settle(replica.name, key)
        self._show(replica.name)
        if freed > 0:
            self.tell_of_room(besides=self.units.get(replica.spec.model))

    def drop(self, replica: Replica, key: object) -> None:
        """The inverse of `claim`."""
        self.ledger.drop(replica.name, key)
        self._show(replica.name)

    def leave_replica(self, replica: Replica) -> int:
        """It was ended. Its bytes are back, or will be when the last of its processes is gone. Returns how many it
        was to hold."""
        self.cores.leave(replica)
        holding = self.ledger.leave(replica.name)
        if holding is None:
            return 0
        if replica.lingering:
            self.ledger.enter(self.lingering.keep(replica, self._returned), holding)
        self._show_memory(holding)
        return holding.total_bytes

    def _returned(self, name: str) -> None:
        holding = self.ledger.leave(name)
        if holding is not None:
            self._show_memory(holding)
        self.tell_of_room()

    async def end(self, replicas: Iterable[Replica]) -> None:
        """Of no use any more, or never of any: their processes end, and their bytes are back. Cancelled, they are
        killed, and their bytes are back when they are gone."""

        async def ended(replica: Replica) -> None:
            try:
                await replica.stop()
            finally:
                self.leave_replica(replica)

        await all_of(ended(replica) for replica in replicas)

    async def end_all(self, generation: Generation) -> None:
        """The same for all of a generation."""
        try:
            await generation.stop()
        finally:
            self.leave(generation)

    def leave(self, generation: Generation) -> int:
        """As `leave_replica`, for all of a generation."""
        expected = sum([self.leave_replica(replica) for replica in generation.everybody])
        self.metrics.engine_up(generation.model, generation.number, up=False)
        self.metrics.forget_generation(generation.model, generation.number)
        self.events.publish("generation", model=generation.model, generation=generation.number, state="gone")
        return expected

    def show_replicas(self, generation: Generation) -> None:
        """Of one that serves, whenever one came or went."""
        up = sum(replica.is_alive for replica in generation.replicas)
        down = len(generation.replicas) - up
        self.metrics.replicas(generation.model, generation.number, up=up, down=down)

    def state(self, generation: Generation, state: str) -> None:
        self.metrics.generation_state(generation.model, generation.number, state)
        self.events.publish("generation", model=generation.model, generation=generation.number, state=state)

    @asynccontextmanager
    async def step(self, record: ModelRecord | None, name: str) -> AsyncIterator[StepRecord]:
        """Times one step of a change into its record and the metrics."""
        with self.moment(record, name) as step:
            yield step

    @contextmanager
    def moment(self, record: ModelRecord | None, name: str) -> Iterator[StepRecord]:
        """The same for a step that waits for nothing."""
        step = StepRecord(name, self.clock())
        began = time.monotonic()
        if record is not None:
            record.steps.append(step)
            self._publish_step(record, step, "began")
        try:
            yield step
        except BaseException as error:
            step.error = str(error) or type(error).__name__
            raise
        finally:
            step.seconds = round(time.monotonic() - began, 3)
            self.metrics.reload_phase(name, step.seconds)
            if record is not None:
                self._publish_step(record, step, "ended")

    def _publish_step(self, record: ModelRecord, step: StepRecord, phase: str) -> None:
        own: dict[str, Any] = {"receipt": record.receipt, "model": record.model, "name": step.name, "phase": phase}
        if phase == "ended":
            own = {**step.detail, "seconds": step.seconds, "error": step.error, **own}
        self.events.publish("step", **own)

    def _stats(self, generation: Generation, stats: EngineStats) -> None:
        self.metrics.engine_stats(generation.model, generation.number, stats)
        self.metrics.memory_held(generation.model, generation.number, generation.measured_bytes)
        self.metrics.working_surplus(generation.model, generation.number, generation.surplus_bytes)
        for replica in generation.replicas:
            self._look_at(replica)

    def _show(self, name: str) -> None:
        holding = self.ledger.holding(name)
        if holding is not None:
            self._show_memory(holding)

    def _show_memory(self, holding: Holding) -> None:
        for device in touched(holding):
            for use, count in self.ledger.by_use(device).items():
                self.metrics.memory(device, use, count)
