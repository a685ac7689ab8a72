"""A model's desired state, concrete, and the room it needs beside what others hold.

Pure. `desired` makes it of a document and the facts; the way from one target to another is the plan's
business.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import dataclass, replace

import msgspec

from halogend.config.changes import model_changes
from halogend.config.fields import Apply
from halogend.config.placement import is_on_host, share_memory
from halogend.config.schema import ModelConfig
from halogend.control.facts import Inputs
from halogend.control.ledger import Holding, host_side, together
from halogend.control.load_plan import LoadPlan
from halogend.control.replica_spec import ReplicaSpec
from halogend.control.route import RouteSettings
from halogend.wire.specs import EngineLimits


class Way(enum.StrEnum):
    """How a new generation takes an old one's place. overlap: it is loaded beside it. shrink: the same, after
    the old one's pool gave memory back. replace: the old one ends first. rolling: replica by replica, each old one
    ends before the new one is loaded in its place."""

    OVERLAP = "overlap"
    SHRINK = "shrink"
    REPLACE = "replace"
    ROLLING = "rolling"


class Landing(enum.StrEnum):
    """What a device is to a model. home: its own. spare: kept for those that do not fit at home. idle: another
    one that no model is wanted on, where any will do."""

    HOME = "home"
    SPARE = "spare"
    IDLE = "idle"


@dataclass(frozen=True, slots=True)
class Target:
    """A model's desired state, concrete. `floor_bytes` is the least KV pool that can serve one full
    request; `holding.kv_bytes` is what the pool may grow to. `budget_bytes` is what generations may take of its
    device, `shared_bytes` of the memory that its device is part of: more, where a document divides the host.
    `elsewhere` is the same state on other devices, in order of choice. All this is of one replica, the first;
    `others` are the same for the further ones. `host_budget_bytes` is what generations may take of the host."""

    config: ModelConfig
    inputs: Inputs
    spec: ReplicaSpec
    settings: RouteSettings
    holding: Holding
    floor_bytes: int
    budget_bytes: int
    shared_bytes: int
    load: LoadPlan
    way: Way = Way.OVERLAP
    landing: Landing = Landing.HOME
    elsewhere: tuple[Target, ...] = ()
    others: tuple[Target, ...] = ()
    host_budget_bytes: int = 0

    @property
    def name(self) -> str:
        return self.config.name

    @property
    def parts(self) -> tuple[Target, ...]:
        """One for each replica."""
        return (self, *self.others)

    @property
    def sides(self) -> tuple[Target, ...]:
        """Itself, and what its processes take of the host besides as if that were all: each has to fit."""
        if not self.holding.host_bytes:
            return (self,)
        there = Holding(self.holding.host, 0, self.holding.host_bytes, 0)
        budget = self.host_budget_bytes
        host = replace(self, holding=there, floor_bytes=0, budget_bytes=budget, shared_bytes=budget, others=())
        return (self, host)

    def misfit(self, held: Iterable[Holding]) -> tuple[Target, int] | None:
        """The side of it that has no room beside what is held, and the bytes that are taken there."""
        held = list(held)
        taken = [(side, side.taken_of(held)) for side in self.sides]
        return next(((side, bytes_) for side, bytes_ in taken if not side.fits_beside(bytes_)), None)

    def over(self, surplus_bytes: int) -> Target:
        """With so much more working memory than was estimated: as measured of a replica that runs."""
        holding = self.holding
        return replace(self, holding=replace(holding, working_bytes=max(0, holding.working_bytes + surplus_bytes)))

    def of_running(self, held: Holding) -> Target:
        """As what runs and holds this comes to it live: its weights lie as they were loaded, and nobody confirms that
        working memory came back before its processes have ended, for what steps once took may be kept."""
        there = self.lying_as(held)
        holding = replace(
            there.holding,
            working_bytes=max(self.holding.working_bytes, held.working_bytes),
            host_bytes=max(self.holding.host_bytes, held.host_bytes),
        )
        return replace(there, holding=holding)

    def lying_as(self, held: Holding) -> Target:
        """With its weights as they lie, or lay, in what holds this: mapped as one document said, whatever the next load
        will do."""
        return replace(self, holding=replace(self.holding, weights_bytes=held.weights_bytes, mapped=held.mapped))

    def part_on(self, device: str) -> Target | None:
        return next((part for part in self.parts if part.holding.device == device), None)

    def seen_from(self, device: str) -> Target:
        """The same state with the replica on `device` as the first; as it is where it has none there."""
        first = self.part_on(device)
        if first is None:
            return self
        return replace(first, others=tuple(replace(each, others=()) for each in self.parts if each is not first))

    @property
    def alone(self) -> Target:
        """Its first replica without the others."""
        return replace(self, others=())

    @property
    def replaces(self) -> bool:
        return self.way is Way.REPLACE

    @property
    def ends_old_first(self) -> bool:
        """Each replica that is there already ends before this one is loaded."""
        return self.way in (Way.REPLACE, Way.ROLLING)

    @property
    def device(self) -> str:
        return self.holding.device

    @property
    def needs_bytes(self) -> int:
        """Weights, mapped or not, working memory and the least pool."""
        return self.least.total_bytes

    def by(self, way: Way) -> Target:
        """The same, come to in this way, with all its replicas."""
        return replace(self, way=way, others=tuple(replace(each, way=way) for each in self.others))

    def at(self, device: str) -> Target:
        """The same state on `device`, where it may be there; else at home."""
        return next((each for each in self.elsewhere if each.device == device), self)

    def taken_of(self, held: Iterable[Holding]) -> int:
        """Bytes of its device's budget that others take, but for files that it maps too: what they hold there, and so
        much of what they hold of the memory around it as leaves less. Where the devices stay as they are those are
        the same."""
        held, device = list(held), self.holding.device
        around = [each for each in held if share_memory(each.device, device)]
        there = together((each for each in around if each.device == device), self.holding.mapped)
        processes = sum(each.host_bytes for each in held) if is_on_host(device) else 0
        whole = together(around, self.holding.mapped) + processes
        return max(there + host_side(held, device), whole - (self.shared_bytes - self.budget_bytes))

    def fits_beside(self, taken_bytes: int) -> bool:
        """Is there room for its weights, working memory and the least pool where `taken_bytes` are held?"""
        return taken_bytes + self.needs_bytes <= self.budget_bytes

    def left_to(self, old: Holding, taken_bytes: int) -> int:
        """What the pool of `old` may keep so that this one fits: `old` is part of the `taken_bytes`."""
        return old.kv_bytes - max(0, taken_bytes + self.needs_bytes - self.budget_bytes)

    @property
    def least(self) -> Holding:
        """What it holds with the least pool."""
        return replace(self.holding, kv_bytes=self.floor_bytes)

    def granted_beside(self, taken_bytes: int) -> int:
        """KV bytes its pool may have beside `taken_bytes` of others: what they leave, up to the target
        and never under the floor."""
        holding = self.holding
        left = self.budget_bytes - taken_bytes - replace(holding, kv_bytes=0).total_bytes
        return max(self.floor_bytes, min(holding.kv_bytes, left))

    def grown_beside(self, own: Holding, held: Iterable[Holding], awaited: Iterable[Holding]) -> int:
        """KV bytes that the pool of a generation which holds `own` may have beside what others hold: it keeps
        what it has, and grows into what no load waits for."""
        held = list(held)
        most = self.granted_beside(self.taken_of(held))
        return max(min(own.kv_bytes, most), self.granted_beside(self.taken_of([*held, *awaited])))

    def same_generation(self, other: Target) -> bool:
        """Would the same loaded generation serve both? Then the way between them is live."""
        fields = model_changes(self.config, other.config)
        return (
            self.inputs.checkpoint == other.inputs.checkpoint
            and self.spec.engine.stretched == other.spec.engine.stretched
            and self._shares_a_place(other)
            and all(field.apply is not Apply.GENERATION for field in fields)
        )

    def _shares_a_place(self, other: Target) -> bool:
        """At least one replica can stay where it is, and none would have to move to other cores."""
        there = {part.device: part.spec.cores for part in self.parts}
        common = [part for part in other.parts if part.device in there]
        return bool(common) and all(part.spec.cores == there[part.device] for part in common)


def with_pool(target: Target, kv_bytes: int) -> EngineLimits:
    """The engine's limits with another pool size."""
    return msgspec.structs.replace(target.spec.engine.limits, pool_bytes=kv_bytes)
