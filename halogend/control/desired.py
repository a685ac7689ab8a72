"""What a document means for each model: the desired state of every model as values.

Pure: the document and the facts go in, targets come out. Owns how the devices' budgets are divided among
the models of a document.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from halogend.config.facts import ModelFacts, mapped_bytes
from halogend.config.fit import pool_most_bytes, usable_bytes
from halogend.config.placement import host_of, is_processor, kv_ratios, same_budget, share_memory, spares
from halogend.config.schema import Document
from halogend.control.facts import Gathered, Resolved
from halogend.control.ledger import Holding
from halogend.control.machine import Machine
from halogend.control.model_spec import Pool, replica_spec, route_settings, token_limits
from halogend.control.target import Landing, Target


def make_targets(document: Document, gathered: Gathered) -> dict[str, Target]:
    """The desired state of every model. Every model's files must have been usable."""
    ratios = kv_ratios(document, gathered.machine.devices)
    budgets = {each.id: usable_bytes(document, each) for each in gathered.machine.devices}
    host = sum(size for device, size in budgets.items() if is_processor(device))
    found = {}
    for name, resolved in gathered.models.items():
        own = _fixed_bytes([gathered.facts.models[name]])

        def room(device: str, fixed: int, name: str = name, own: int = own) -> Room:
            budget, ratio = budgets[device], ratios.get((name, device), 0.0)
            around = _around(gathered.machine, budgets, device)
            return Room(budget, around, max(0, budget - fixed), max(0, budget - own), ratio, host)

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
    kept = spares(document, gathered.machine.devices)
    wanted = {device for each in gathered.models.values() for device in each.devices}
    kind = resolved.devices[0].partition(":")[0]
    there = [each.id for each in gathered.machine.devices if not each.unusable]
    others = [each for each in there if each.partition(":")[0] == kind]
    is_free = resolved.config.device[0].id == "auto"
    return [(each, Landing.SPARE) for each in others if each in kept] + [
        (each, Landing.IDLE) for each in others if is_free and each not in kept | wanted
    ]


@dataclass(frozen=True, slots=True)
class Room:
    """Bytes generations may take on a device and of the memory it is part of, the part that is for KV, the
    most one model's pool could ever have (address space: it costs nothing), this model's share, and what generations
    may take of the host."""

    budget_bytes: int
    shared_bytes: int
    kv_budget_bytes: int
    reserve_bytes: int
    kv_ratio: float
    host_bytes: int


def _around(machine: Machine, budgets: Mapping[str, int], device: str) -> int:
    """What generations may take of the memory that the device is part of. What is within the host's is counted
    there already."""
    within = {each.id for each in machine.devices if each.in_host_memory}
    parts = [size for other, size in budgets.items() if share_memory(other, device) and other not in within]
    return sum(parts) if parts else budgets[device]


def _taken_by_peers(gathered: Gathered, device: str) -> int:
    """Weights and working memory of every model that draws on the budget there, a file that several map once, and
    what processes of models elsewhere take of it."""
    there = set(same_budget(device, gathered.machine.devices))
    facts, models = gathered.facts.models, gathered.models
    fixed = _fixed_bytes([facts[name] for name, each in models.items() if there & set(each.devices)])
    host = host_of(gathered.machine.devices)
    return fixed + sum(each.host_bytes * len(each.devices) for each in models.values() if host in there)


def _fixed_bytes(models: Sequence[ModelFacts]) -> int:
    mapped = mapped_bytes(file for each in models for file in each.mapped)
    return mapped + sum((each.weight_bytes or 0) + each.working_bytes for each in models)


def _target(resolved: Resolved, index: int, room: Room, machine: Machine) -> Target:
    device, config = resolved.devices[index], resolved.config
    limits = token_limits(resolved)
    kv, bounds = resolved.kv, config.kv_block_pool
    floor = max(kv.pool_bytes(limits.max_model_len), kv.pool_bytes(bounds.min_tokens or 0))
    most = kv.pool_bytes(limits.max_model_len, requests=config.max_batch)
    share = config.kv_cache_bytes or int(room.kv_budget_bytes * room.kv_ratio)
    wanted = pool_most_bytes(config, kv, share)
    kv_bytes = max(floor, min(most, wanted))
    pool = Pool(floor, kv_bytes, max(kv_bytes, room.reserve_bytes))
    return Target(
        config=config,
        inputs=resolved.inputs,
        spec=replica_spec(resolved, index, limits, pool, machine),
        settings=route_settings(resolved, limits),
        holding=Holding(
            device,
            resolved.load.own_bytes,
            resolved.working_bytes,
            kv_bytes,
            mapped=resolved.load.mapped,
            host_bytes=resolved.host_bytes,
            host=host_of(machine.devices),
        ),
        floor_bytes=floor,
        budget_bytes=room.budget_bytes,
        shared_bytes=room.shared_bytes,
        host_budget_bytes=room.host_bytes,
        load=resolved.load,
    )
