"""The rules of devices that need facts: which are there and can be used, and how the host is divided.

What fits on a device is another matter. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from halogend.config.codes import Code
from halogend.config.facts import DeviceFacts, Facts
from halogend.config.placement import host_entries, spares
from halogend.config.places import Places
from halogend.config.problems import Problem
from halogend.config.schema import Document
from halogend.config.values import PRODUCTS, cores_of, cores_text, mib_text


def check_presence(document: Document, facts: Facts, places: Places) -> Iterator[Problem]:
    """What the document wants of devices and the machine has not."""
    if facts.devices is not None:
        yield from _presence(document, facts.devices, places)
        yield from _division(document, facts, places)


def _presence(document: Document, devices: tuple[DeviceFacts, ...], places: Places) -> Iterator[Problem]:
    """Devices that are named: are they there, can an engine run on them, and is each named once?"""
    by_name = {name: device for device in devices for name in (device.id, *device.aliases)}
    shown = ", ".join(" = ".join((device.id, *device.aliases)) for device in devices) or "none"
    wanted = [
        (f"models[{index}].device", ref.id) for index, model in enumerate(document.models) for ref in model.device
    ] + [(f"devices[{index}].id", device.id) for index, device in enumerate(document.devices)]
    if not {device.id for device in devices if not device.unusable} - spares(document, devices):
        for index, model in enumerate(document.models):
            if model.device[0].id == "auto":
                message, hint = "`device` is auto, and every device is kept spare", "remove spare from one of them"
                yield places.problem(Code.DEVICE_SPARE, f"models[{index}].device", message, hint)
    for path, device_id in wanted:
        if device_id == "auto":
            continue
        device = by_name.get(device_id)
        if device is None:
            message = f"the device {device_id} is not there; this machine has {shown}"
            kind = device_id.partition(":")[0]
            hint = f"take one of them, or check with --target {device_id}" if kind in PRODUCTS else "take one of them"
            yield places.problem(Code.DEVICE_NOT_THERE, path, message, hint)
        elif device.unusable and path.startswith("models"):
            message = f"no engine can run on {device_id} ({device.name}): {device.unusable}"
            yield places.problem(Code.DEVICE_UNUSABLE, path, message, Code.DEVICE_UNUSABLE.remedy)
    yield from _named_twice(document, devices, by_name, places)


def _named_twice(
    document: Document, devices: tuple[DeviceFacts, ...], by_name: Mapping[str, DeviceFacts], places: Places
) -> Iterator[Problem]:
    """By two of its names: by one and the same is a contradiction that needs no facts."""
    lists = [(f"models[{index}].device", [ref.id for ref in each.device]) for index, each in enumerate(document.models)]
    kept, stated = spares(document, devices), spares(document)
    for path, names in [*lists, ("devices", [each.id for each in document.devices])]:
        first: dict[str, str] = {}
        for name in dict.fromkeys(names):
            device_id = by_name[name].id if name in by_name else name
            if device_id in first:
                message = f"{name} and {first[device_id]} are the same device"
                yield places.problem(Code.DEVICE_LIST, path, message, "name each device once")
            elif device_id in kept and name not in stated and path != "devices":
                message = f"`device` names {name}, which is kept spare as {device_id}"
                yield places.problem(Code.DEVICE_SPARE, path, message, "name another device, or remove its spare")
            first.setdefault(device_id, name)


def _division(document: Document, facts: Facts, places: Places) -> Iterator[Problem]:
    """Of the host into devices: cores that are there, and memory for each."""
    host = facts.host
    if host is None:
        return
    entries = host_entries(document)
    places_of = {device.id: f"devices[{index}]" for index, device in enumerate(document.devices)}
    for device in entries:
        missing = set(cores_of(device.cores)) - set(host.cores) if device.cores and host.cores else set()
        if missing:
            message = f"`cores` {cores_text(missing)} of {device.id} are not there; halogend may use {_cores(host)}"
            yield places.problem(Code.DEVICE_CORES, f"{places_of[device.id]}.cores", message, "take some of those")
    named = {core for device in entries if device.cores for core in cores_of(device.cores)}
    for device in entries:
        if len(entries) > 1 and device.cores is None and host.cores and named >= set(host.cores):
            message = f"the other devices name all cores there are ({_cores(host)}), none is left for {device.id}"
            yield places.problem(Code.DEVICE_CORES, f"{places_of[device.id]}.id", message, "give it some of them")
    asked = sum(device.memory or 0 for device in entries)
    without = [device.id for device in entries if device.memory is None]
    if len(entries) > 1 and (asked > host.memory_bytes or (without and asked == host.memory_bytes)):
        names = ", ".join(device.id for device in entries if device.memory is not None)
        last = max(index for index, device in enumerate(document.devices) if device in entries and device.memory)
        rest = f", and nothing is left for {', '.join(without)}" if without else ""
        message = f"the `memory` of {names} sums to {mib_text(asked)}, the host has {mib_text(host.memory_bytes)}{rest}"
        yield places.problem(Code.DEVICES_OVER_HOST, f"devices[{last}].memory", message, "lower them")


def _cores(host: DeviceFacts) -> str:
    return cores_text(host.cores)
