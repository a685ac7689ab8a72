"""Which devices a document makes of a machine, which one a model runs on, and its share of the KV budget."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from halogend.config.facts import DeviceFacts
from halogend.config.schema import DeviceConfig, Document, ModelConfig
from halogend.config.values import UNIFIED, cores_of

SHARED_KV_RATIO = 0.75
FIRST_DEVICE = "cpu:0"
_PROCESSOR = "cpu:"


def is_processor(device: str) -> bool:
    """Is it the host, or a part of it?"""
    return device.startswith(_PROCESSOR)


def is_on_host(device: str) -> bool:
    """Is its memory that of the host? An accelerator with memory of its own is called by what drives it,
    `cuda:0`; one that has none by its product, `ai_max_395:0`."""
    return is_processor(device) or device.partition(":")[0] in UNIFIED


def host_of(devices: Iterable[DeviceFacts] | None) -> str:
    """The device of the host on which is counted what all of the host is asked for: its first, where it is divided."""
    return next((each.id for each in devices or () if is_processor(each.id)), FIRST_DEVICE)


def share_memory(one: str, other: str) -> bool:
    """Are both the same device, or parts of the same memory?"""
    return one == other or (is_on_host(one) and is_on_host(other))


def host_entries(document: Document) -> tuple[DeviceConfig, ...]:
    """Its `cpu:N` entries by number, each id once; several divide the host."""
    listed = {each.id: each for each in reversed(document.devices) if is_processor(each.id)}
    return tuple(sorted(listed.values(), key=lambda each: int(each.id.removeprefix(_PROCESSOR))))


def divided(document: Document, devices: tuple[DeviceFacts, ...]) -> tuple[DeviceFacts, ...]:
    """The devices of a machine as a document has them: where it lists several `cpu:N`, the host becomes those,
    each with its cores and its part of the memory, of the reserve and of what others use. One that is listed
    alone may state its cores. What a document asks for and the machine has not is no matter here."""
    host = next((each for each in devices if is_processor(each.id)), None)
    entries = host_entries(document)
    if host is None or not entries:
        return devices
    if len(entries) > 1:
        parts = _parts(host, entries)
    else:
        stated = entries[0].cores if entries[0].id == host.id else None
        parts = (host if stated is None else replace(host, cores=cores_of(stated)),)
    where = devices.index(host)
    return (*devices[:where], *parts, *devices[where + 1 :])


def _parts(host: DeviceFacts, entries: Sequence[DeviceConfig]) -> tuple[DeviceFacts, ...]:
    named = {core for each in entries if each.cores for core in cores_of(each.cores)}
    others = tuple(core for core in host.cores if core not in named)
    cores = [cores_of(each.cores) if each.cores else others for each in entries]
    left = max(0, host.memory_bytes - sum(each.memory or 0 for each in entries))
    weights = [0 if each.memory else max(1, len(own)) for each, own in zip(entries, cores, strict=True)]
    shares = _shares(left, weights)
    sizes = [each.memory or share for each, share in zip(entries, shares, strict=True)]
    reserves, foreign = (_shares(whole, sizes) for whole in (host.reserve_bytes, host.foreign_bytes))
    return tuple(
        DeviceFacts(
            id=each.id,
            memory_bytes=sizes[index],
            reserve_bytes=reserves[index],
            foreign_bytes=foreign[index],
            cores=cores[index],
        )
        for index, each in enumerate(entries)
    )


def _shares(whole: int, weights: Sequence[int]) -> list[int]:
    """`whole` by weight; the parts sum to it, but for a whole that nobody has a weight for."""
    total, given, seen = sum(weights), 0, 0
    shares = []
    for weight in weights:
        seen += weight
        upto = whole * seen // total if total else 0
        shares.append(upto - given)
        given = upto
    return shares


def named(devices: Iterable[DeviceFacts] | None) -> dict[str, str]:
    """By every name that a device has, its id."""
    return {name: each.id for each in devices or () for name in (each.id, *each.aliases)}


def spares(document: Document, devices: tuple[DeviceFacts, ...] | None = None) -> frozenset[str]:
    """Devices that no model is placed on."""
    ids = named(devices)
    return frozenset(ids.get(each.id, each.id) for each in document.devices if each.spare)


def devices_of(
    model: ModelConfig, document: Document, devices: tuple[DeviceFacts, ...] | None = None
) -> tuple[str, ...]:
    """The ids of the model's devices, one for each replica. `auto` is the first of `devices`, which are in order
    of choice, that an engine can run on and that is not spare."""
    if model.device[0].id == "auto":
        kept = spares(document, devices)
        known = [FIRST_DEVICE, *(each.id for each in host_entries(document))] if not devices else []
        known += [each.id for each in devices or () if not each.unusable]
        return (next((each for each in known if each not in kept), known[0] if known else FIRST_DEVICE),)
    ids = named(devices)
    return tuple(dict.fromkeys(ids.get(ref.id, ref.id) for ref in model.device))


def by_device(
    document: Document, devices: tuple[DeviceFacts, ...] | None = None
) -> Mapping[str, tuple[tuple[int, ModelConfig], ...]]:
    """Device id -> the models on it with their index in the document."""
    placed: dict[str, tuple[tuple[int, ModelConfig], ...]] = {}
    for index, model in enumerate(document.models):
        for device in devices_of(model, document, devices):
            placed[device] = (*placed.get(device, ()), (index, model))
    return placed


def same_budget(device: str, devices: tuple[DeviceFacts, ...] | None) -> tuple[str, ...]:
    """The devices whose models draw on one budget with those of `device`, itself first: an accelerator without
    memory of its own and a host that is not divided."""
    hosts = [each.id for each in devices or () if is_processor(each.id)]
    within = [each.id for each in devices or () if each.in_host_memory]
    shared = [*hosts, *within] if len(hosts) == 1 else []
    return (device, *(each for each in shared if each != device)) if device in shared else (device,)


def kv_ratios(document: Document, devices: tuple[DeviceFacts, ...] | None = None) -> dict[tuple[str, str], float]:
    """(model's name, device) -> share of the device's KV budget, for every model without kv_cache_bytes.

    Models that set no ratio share 0.75, or what the others leave if that is less.
    """
    shares: dict[tuple[str, str], float] = {}
    placed = by_device(document, devices)
    for device in placed:
        together = [model for each in same_budget(device, devices) for _, model in placed.get(each, ())]
        by_ratio = [model for model in together if model.kv_cache_bytes is None]
        taken = sum(model.kv_cache_ratio or 0.0 for model in by_ratio)
        unset = sum(model.kv_cache_ratio is None for model in by_ratio)
        rest = max(0.0, min(SHARED_KV_RATIO, 1.0 - taken))
        for model in [each for _, each in placed[device] if each.kv_cache_bytes is None]:
            shares[model.name, device] = rest / unset if model.kv_cache_ratio is None else model.kv_cache_ratio
    return shares
