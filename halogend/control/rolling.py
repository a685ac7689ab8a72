"""A data-parallel model's new generation, replica by replica, where there is no room for it beside the old one.

    forward, device by device                          back, the other way round
    ------------------------------------------------   -----------------------------------------------
    the old replica takes no further request, drains   the old one is started again, and takes requests;
      and ends; its bytes are back                       one that still drains takes them without a load
    the new one is loaded in its place                 its processes end; its bytes are back
    it takes requests beside the old ones that stay    it takes no further request and drains

Both generations serve meanwhile. The switch that follows takes the old one out of the route.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace

import msgspec
import structlog

from halogend.config.codes import Code
from halogend.control.admission import Wanted, unless_superseded
from halogend.control.generation import Generation
from halogend.control.house import House
from halogend.control.ledger import Holding
from halogend.control.load import check_unchanged, load_replicas
from halogend.control.mend import beside_others
from halogend.control.receipts import ModelRecord
from halogend.control.reclaim import begin_leave, dismiss
from halogend.control.replica import Replica
from halogend.control.replica_spec import ReplicaSpec
from halogend.control.retired import Leaver
from halogend.control.startup import StartError
from halogend.control.target import Target
from halogend.control.unit import Unit

_log = structlog.get_logger()


async def roll(unit: Unit, old: Generation, target: Target, house: House, record: ModelRecord | None) -> Generation:
    """The new generation, with every replica ready and taking requests. Raises StartError, UpdateError and
    Superseded; the old one is whole again then, as far as it could be started."""
    spec = replace(target.spec, fingerprint=target.inputs.checkpoint[1])
    new = unit.loading = house.make([], unit.next_number(), spec)
    house.state(new, "loading")
    course = _Course(unit, old, new, house, record)
    try:
        for part in target.parts:
            await course.forward(target, part)
        new.check_alive()
    except Exception as error:  # whatever it was, a fault of ours too: the old one is made whole
        _log.error("rolling_back", model=unit.name, generation=new.number, error=str(error) or "superseded")
        try:
            await course.back()
        except Exception as fault:  # a fault of ours on the way back
            await course.give_up(f"{Code.INTERNAL}: {fault!r}")
            raise
        finally:
            house.router.serve_alone(unit.name)
            await house.end_all(new)
        raise
    except BaseException:
        await house.end_all(new)
        raise
    finally:
        unit.loading = None
    return new


@dataclass
class _Course:
    """How far it has come: `ended` are the old replicas that gave way, in order, and `held` what they did. Single
    writer: `roll`."""

    unit: Unit
    old: Generation
    new: Generation
    house: House
    record: ModelRecord | None
    ended: list[Replica] = field(default_factory=list)
    held: dict[Replica, Holding] = field(default_factory=dict)
    leaver: Leaver | None = None
    ending: asyncio.Task[None] | None = None

    async def forward(self, target: Target, part: Target) -> None:
        was = next((each for each in self.old.replicas if each.spec.device == part.device), None)
        if was is not None:
            self.ended.append(was)
            if (held := self.house.ledger.holding(was.name)) is not None:
                self.held[was] = held
            self.old.drop(was)
            self.house.router.go_over(self.unit.name, was)
            self.leaver = begin_leave(self.unit, self.old, was, self._part_of(was), self.house)
            self.ending = self.unit.reclaim(dismiss(self.unit, self.leaver, self.house, self.record))
            await unless_superseded(self.unit, target, self.ending)
        (replica,) = await load_replicas(self.unit, self.new, Wanted(target, [part]), self.house, self.record)
        self.new.join(replica)
        self.house.cores.join(replica)
        self.house.router.serve_beside(self.unit.name, self.new)

    async def back(self) -> None:
        """The inverse, from wherever it stopped. The replica that still drains stays; each that has ended is loaded
        again."""
        if self.leaver is not None and self._is_needed and self.leaver.may_return:
            self.leaver.serve_again()
            self.ended.remove(self.leaver.replica)
        await self._all_gone()
        async with self.house.step(self.record, "roll_back"):
            for was in list(reversed(self.ended)):
                await self._take_off(was.spec.device)
                if self._is_needed:
                    await self._start_again(was)
                self.ended.remove(was)
            for each in list(self.new.replicas):
                await self._take_off(each.spec.device)

    async def give_up(self, reason: str) -> None:
        """What was not brought back is as dead as if it had died in its place, and is started again as such: when its
        processes are gone, for it has its bytes under the same name."""
        await self._all_gone()
        for was in self.ended if self._is_needed else ():
            self._lose(self._again(was)[0], reason)

    async def _all_gone(self) -> None:
        """The old replica that drains, if one does."""
        if self.ending is not None:
            await asyncio.wait([self.ending])

    @property
    def _is_needed(self) -> bool:
        """Does the old generation serve on? One that died is started again as a whole."""
        newer = self.unit.newer
        is_removed = newer is not None and newer.target is None
        return not (is_removed or self.old.died.is_set())

    def _fitting(self, was: Replica, part: Target) -> ReplicaSpec:
        """With so much of its pool as nobody took meanwhile; it grows again."""
        spec, (kv_bytes,) = was.present_spec, self.house.grants([part])
        limits = msgspec.structs.replace(was.engine_limits, pool_bytes=min(kv_bytes, was.engine_limits.pool_bytes))
        return replace(spec, engine=msgspec.structs.replace(spec.engine, limits=limits))

    async def _take_off(self, device: str) -> None:
        """The new replica there, if it came so far."""
        for replica in [each for each in self.new.replicas if each.spec.device == device]:
            self.new.drop(replica)
            self.house.router.go_over(self.unit.name, replica)
            leaver = begin_leave(self.unit, self.new, replica, None, self.house)
            await dismiss(self.unit, leaver, self.house, self.record)

    def _part_of(self, was: Replica) -> Target | None:
        """What it is a part of."""
        active = self.unit.active
        return None if active is None else active.part_on(was.spec.device) or active

    def _again(self, was: Replica) -> tuple[Replica, Target | None]:
        """What is to come in its place, not started, its bytes in the ledger; and what it is a part of."""
        part = self._part_of(was)
        known = None if part is None else self._known(was, part)
        spec = was.present_spec if known is None else self._fitting(was, known)
        again = self.old.make(beside_others(spec, self.house.cores.share(spec.cores)), instead_of=was)
        if known is not None:
            self.house.enter(again, replace(known.holding, kv_bytes=again.engine_limits.pool_bytes))
        return again, part

    def _known(self, was: Replica, part: Target) -> Target:
        """With what it was measured to take before, and its weights as they lay: it is loaded as it was."""
        held, known = self.held.get(was), part.over(was.memory.surplus_bytes)
        return known if held is None else known.lying_as(held)

    def _lose(self, again: Replica, reason: str) -> None:
        _log.error("replica_not_started", model=self.unit.name, replica=again.name, error=reason)
        self.old.join(again)
        again.lose(reason)

    async def _start_again(self, was: Replica) -> None:
        """In its place. One that does not come is as dead as if it had died there: it is tried again, or the
        generation is dead with it."""
        again, part = self._again(was)
        try:
            await check_unchanged(again.spec)
            await again.start()
            await again.measure()
        except StartError as error:
            self._lose(again, str(error))
            return
        except BaseException:
            await self.house.end([again])
            raise
        if part is not None:
            self.house.learn([again], [part])
        self.old.join(again)
        self.house.cores.join(again)
