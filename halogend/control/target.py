"""What a document means for each model, concrete: the desired state of every model as values.

Pure: the document and the facts go in, targets come out; the way from one target to another is the
plan's business.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import dataclass, replace

import msgspec

from halogend.config.changes import model_changes
from halogend.config.fields import Apply
from halogend.config.fit import usable_bytes
from halogend.config.placement import kv_ratios, share_memory, spares
from halogend.config.schema import Document, ModelConfig
from halogend.control.facts import Gathered, Inputs, Resolved
from halogend.control.ledger import Holding, together
from halogend.control.load_plan import LoadPlan
from halogend.control.machine import Machine
from halogend.control.replica import ReplicaSpec
from halogend.control.router import RouteSettings
from halogend.wire.messages import EngineLimits, EngineSpec, Limits, Sampling, TextSpec

_DEFAULT_TEMPERATURE, _DEFAULT_TOP_P = 0.6, 0.85


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
    `others` are the same for the further ones."""

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

    @property
    def name(self) -> str:
        return self.config.name

    @property
    def parts(self) -> tuple[Target, ...]:
        """One for each replica."""
        return (self, *self.others)

    def over(self, surplus_bytes: int) -> Target:
        """With so much more working memory than was estimated: as measured of a replica that runs."""
        holding = self.holding
        return replace(self, holding=replace(holding, working_bytes=max(0, holding.working_bytes + surplus_bytes)))

    def part_on(self, device: str) -> Target | None:
        return next((part for part in self.parts if part.holding.device == device), None)

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
        """Weights, working memory and the least pool."""
        return self.holding.weights_bytes + self.holding.working_bytes + self.floor_bytes

    def by(self, way: Way) -> Target:
        """The same, come to in this way, with all its replicas."""
        return replace(self, way=way, others=tuple(replace(each, way=way) for each in self.others))

    def at(self, device: str) -> Target:
        """The same state on `device`, where it may be there; else at home."""
        return next((each for each in self.elsewhere if each.device == device), self)

    def taken_of(self, held: Iterable[Holding]) -> int:
        """Bytes of its device's budget that others take: what they hold there, and so much of what they hold of
        the memory around it as leaves less. Where the devices stay as they are those are the same."""
        around = [each for each in held if share_memory(each.device, self.holding.device)]
        there = together(each for each in around if each.device == self.holding.device)
        return max(there, together(around) - (self.shared_bytes - self.budget_bytes))

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
        left = self.budget_bytes - taken_bytes - holding.weights_bytes - holding.working_bytes
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


def make_targets(document: Document, gathered: Gathered) -> dict[str, Target]:
    """The desired state of every model. Every model's files must have been usable."""
    ratios = kv_ratios(document, gathered.machine.devices)
    budgets = {each.id: usable_bytes(document, each) for each in gathered.machine.devices}
    found = {}
    for name, resolved in gathered.models.items():
        own = _fixed_bytes(gathered, name)

        def room(device: str, fixed: int, name: str = name, own: int = own) -> Room:
            budget = budgets[device]
            shared = sum(size for other, size in budgets.items() if share_memory(other, device))
            ratio = ratios.get((name, device), 0.0)
            return Room(budget, shared, max(0, budget - fixed), max(0, budget - own), ratio)

        elsewhere = tuple(
            replace(_target(replace(resolved, devices=(device,)), 0, room(device, own), gathered.machine), landing=way)
            for device, way in _other_devices(document, gathered, resolved)
        )
        home, *others = (
            _target(resolved, index, room(device, _taken_by_peers(gathered, device)), gathered.machine)
            for index, device in enumerate(resolved.devices)
        )
        found[name] = replace(home, elsewhere=elsewhere, others=tuple(others))
    return found


def _other_devices(document: Document, gathered: Gathered, resolved: Resolved) -> list[tuple[str, Landing]]:
    """Where it may be beside its own, of the same kind: what is kept spare, and where any device will do those
    that nobody wants."""
    if resolved.config.exec_mode != "single":
        return []
    kept, wanted = spares(document), {device for each in gathered.models.values() for device in each.devices}
    kind = resolved.devices[0].partition(":")[0]
    others = [each.id for each in gathered.machine.devices if each.id.partition(":")[0] == kind]
    is_free = resolved.config.device[0].id == "auto"
    return [(each, Landing.SPARE) for each in others if each in kept] + [
        (each, Landing.IDLE) for each in others if is_free and each not in kept | wanted
    ]


@dataclass(frozen=True, slots=True)
class Room:
    """Bytes generations may take on a device and of the memory it is part of, the part that is for KV, the
    most one model's pool could ever have (address space: it costs nothing), and this model's share."""

    budget_bytes: int
    shared_bytes: int
    kv_budget_bytes: int
    reserve_bytes: int
    kv_ratio: float


@dataclass(frozen=True, slots=True)
class Pool:
    """A KV pool's bytes: touched at the start, granted, and reserved as address space."""

    floor_bytes: int
    kv_bytes: int
    reserve_bytes: int


def _taken_by_peers(gathered: Gathered, device: str) -> int:
    """Weights and working memory of every model there."""
    return sum(_fixed_bytes(gathered, name) for name, each in gathered.models.items() if device in each.devices)


def _fixed_bytes(gathered: Gathered, name: str) -> int:
    facts = gathered.facts.models[name]
    return (facts.weight_bytes or 0) + facts.working_bytes


def _target(resolved: Resolved, index: int, room: Room, machine: Machine) -> Target:
    device, ref = resolved.devices[index], resolved.config.device[index]
    config = resolved.config
    limits = _limits(resolved)
    floor = resolved.kv.pool_bytes(limits.max_model_len)
    most = resolved.kv.pool_bytes(limits.max_model_len, requests=config.max_batch)
    wanted = config.kv_cache_bytes or int(room.kv_budget_bytes * room.kv_ratio)
    kv_bytes = max(floor, min(most, wanted))
    pool = Pool(floor, kv_bytes, max(kv_bytes, room.reserve_bytes))
    engine = _engine_spec(resolved, limits, pool, machine.cores_of(device))
    text = TextSpec(path=config.model, load_format=config.load_format, chat_template=resolved.template, limits=limits)
    spec = ReplicaSpec(
        model=config.name,
        text=text,
        engine=engine,
        progress_timeout_s=config.load.progress_timeout_s,
        warmup_prompt=config.warmup.prompt,
        cores=machine.pins(device),
        device=device,
        weight=ref.weight,
    )
    return Target(
        config=config,
        inputs=resolved.inputs,
        spec=spec,
        settings=_settings(resolved, limits),
        holding=Holding(device, resolved.load.held_bytes, resolved.working_bytes, kv_bytes),
        floor_bytes=floor,
        budget_bytes=room.budget_bytes,
        shared_bytes=room.shared_bytes,
        load=resolved.load,
    )


def _limits(resolved: Resolved) -> Limits:
    config = resolved.config
    longest = config.request_tokens(resolved.geometry.context_length)
    return Limits(
        max_prompt_len=min(config.max_prompt_len or longest, longest),
        max_decode_len=min(config.max_decode_len or longest, longest),
        max_model_len=longest,
    )


def _engine_spec(resolved: Resolved, limits: Limits, pool: Pool, cores: int) -> EngineSpec:
    config = resolved.config
    return EngineSpec(
        path=config.model,
        load_format=config.load_format,
        precision=resolved.load.precision,
        compute_dtype=resolved.compute_dtype,
        stretched=resolved.geometry.is_stretched(limits.max_model_len),
        kv_cache_dtype=resolved.kv_dtype,
        flash_attention=config.kernels.flash_attention,
        backend="cpu" if config.kernels.backend == "auto" else config.kernels.backend,
        max_model_len=resolved.geometry.context_length,
        pool_reserve_bytes=pool.reserve_bytes,
        pool_floor_bytes=pool.floor_bytes,
        threads=cores,
        load_threads=0 if config.load_thread_num == "auto" else config.load_thread_num,
        limits=EngineLimits(
            max_model_len=limits.max_model_len,
            max_batch=config.max_batch,
            max_queue=config.max_queue,
            queue_timeout_s=config.queue_timeout_ms / 1000,
            request_timeout_s=config.request_timeout_ms / 1000,
            prefill_chunk_tokens=0 if config.prefill_chunk == "auto" else config.prefill_chunk,
            pool_bytes=pool.kv_bytes,
        ),
    )


def _settings(resolved: Resolved, limits: Limits) -> RouteSettings:
    config = resolved.config
    return RouteSettings(
        aliases=config.names[1:],
        weight=config.weight,
        sampling=_sampling(resolved),
        limits=limits,
        max_queue=config.max_queue,
        queue_timeout_s=config.queue_timeout_ms / 1000,
    )


def _sampling(resolved: Resolved) -> Sampling:
    """The document's value, else the checkpoint's own, else ours."""
    asked, own = resolved.config.sampling, resolved.sampling

    def pick(name: str, neutral: float) -> float:
        stated = getattr(asked, name)
        return float(own.get(name, neutral) if stated is None else stated)

    return Sampling(
        temperature=pick("temperature", _DEFAULT_TEMPERATURE),
        top_p=pick("top_p", _DEFAULT_TOP_P),
        top_k=int(pick("top_k", 0)),
        min_p=pick("min_p", 0.0),
        repetition_penalty=pick("repetition_penalty", 1.0),
        presence_penalty=pick("presence_penalty", 0.0),
        frequency_penalty=pick("frequency_penalty", 0.0),
        seed=0,
    )


def with_pool(target: Target, kv_bytes: int) -> EngineLimits:
    """The engine's limits with another pool size."""
    return msgspec.structs.replace(target.spec.engine.limits, pool_bytes=kv_bytes)
